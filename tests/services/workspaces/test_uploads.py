"""Uploads and artifacts. An agent can put anything into its directories, so each way out of them has a test."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from ambient_runner.errors import InvalidInput, PayloadTooLarge, UnknownFile
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.services.workspaces.uploads import FileInfo, WorkspaceFiles
from ambient_runner.services.workspaces.workspaces import Workspaces
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, BOB


async def data(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class World:
    def __init__(self, directory: Path, **options: int) -> None:
        self.workspaces = Workspaces(directory / "root")
        self.files = WorkspaceFiles(self.workspaces, **options)
        self.path = directory / "root/default/ann/trip"
        self.artifacts = self.path / "artifacts"

    async def read(self, path: str, thread: ThreadKey = ANN) -> bytes:
        with unless_hung():
            async with self.files.open_artifact(thread, path) as opened:
                async with aclosing(opened.chunks()) as chunks:
                    return b"".join([chunk async for chunk in chunks])


async def test_an_upload_is_stored_listed_read_and_deleted(tmp_path: Path) -> None:
    it = World(tmp_path)
    saved = await it.files.save_upload(ANN, "My résumé (2).pdf", data(b"one", b"", b"two"))
    assert (saved.path, saved.size) == ("My résumé (2).pdf", 6)
    assert await it.files.list_uploads(ANN) == [saved]
    async with it.files.open_upload(ANN, saved.path) as opened:
        assert opened.info == saved
        async with aclosing(opened.chunks()) as chunks:
            assert [chunk async for chunk in chunks] == [b"onetwo"]
    assert (await it.workspaces.prepare(ANN)).uploads.joinpath(saved.path).read_bytes() == b"onetwo"
    await it.files.delete_upload(ANN, saved.path)
    assert await it.files.list_uploads(ANN) == []
    with pytest.raises(UnknownFile):
        await it.files.delete_upload(ANN, saved.path)


async def test_an_upload_replaces_one_of_the_same_name_in_either_form(tmp_path: Path) -> None:
    it = World(tmp_path)
    await it.files.save_upload(ANN, "caf\u00e9", data(b"old"))
    saved = await it.files.save_upload(ANN, "cafe\u0301", data(b"newer"))
    assert await it.files.list_uploads(ANN) == [saved]
    assert saved.size == 5


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc/x",
        "a/b",
        "a\\b",
        ".hidden",
        "-rf",
        "a\0b",
        "a\nb",
        " a",
        "a ",
        "x" * 201,
        "é" * 101,
        "C:x",
        "a\u202eb",
    ],
    ids=ascii,
)
async def test_an_upload_has_one_plain_name(tmp_path: Path, name: str) -> None:
    it = World(tmp_path)
    with pytest.raises(InvalidInput):
        await it.files.save_upload(ANN, name, data(b"x"))
    with pytest.raises(InvalidInput):
        await it.files.delete_upload(ANN, name)
    with pytest.raises(InvalidInput):
        async with it.files.open_upload(ANN, name):
            raise NotImplementedError
    assert not (tmp_path / "root").exists()


async def test_an_upload_that_is_too_large_or_cut_short_leaves_the_old_one(tmp_path: Path) -> None:
    it = World(tmp_path, max_bytes=10)
    await it.files.save_upload(ANN, "a", data(b"0123456789"))
    with pytest.raises(PayloadTooLarge):
        await it.files.save_upload(ANN, "a", data(b"0123456789", b"x"))

    async def cut() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await it.files.save_upload(ANN, "a", cut())
    assert (it.path / "file-uploads/a").read_bytes() == b"0123456789"
    assert list((tmp_path / "root/.records/default/ann/trip/tmp").iterdir()) == []


async def test_there_is_an_end_to_uploads(tmp_path: Path) -> None:
    it = World(tmp_path, max_files=2)
    for name in ("a", "b", "a"):
        await it.files.save_upload(ANN, name, data(b"x"))
    with pytest.raises(PayloadTooLarge):
        await it.files.save_upload(ANN, "c", data(b"x"))
    assert [info.path for info in await it.files.list_uploads(ANN)] == ["a", "b"]


async def test_an_upload_never_writes_through_a_link(tmp_path: Path) -> None:
    it = World(tmp_path)
    await it.workspaces.prepare(ANN)
    (tmp_path / "outside").write_text("keep")
    (it.path / "file-uploads/a").symlink_to(tmp_path / "outside")
    await it.files.save_upload(ANN, "a", data(b"new"))
    assert (tmp_path / "outside").read_text() == "keep"
    assert (it.path / "file-uploads/a").read_bytes() == b"new"


async def test_artifacts_are_listed_by_path_and_read(tmp_path: Path) -> None:
    it = World(tmp_path)
    await it.workspaces.prepare(ANN)
    (it.artifacts / "b/deep").mkdir(parents=True)
    (it.artifacts / "a.txt").write_text("first")
    (it.artifacts / "b/deep/.c").write_text("second")
    os.utime(it.artifacts / "a.txt", (5, 5))
    os.utime(it.artifacts / "b/deep/.c", (6, 6))
    assert await it.files.list_artifacts(ANN) == [
        FileInfo(path="a.txt", size=5, modified=5.0),
        FileInfo(path="b/deep/.c", size=6, modified=6.0),
    ]
    assert await it.read("b/deep/.c") == b"second"
    assert await it.files.list_artifacts(BOB) == []
    with pytest.raises(UnknownFile):
        await it.read("a.txt", BOB)


@pytest.mark.parametrize(
    "path", ["", "..", "../.ambient/workspace.json", "/etc/passwd", "a/../../x", "a//b", "./a", "a/", "a\0b", "a\\b"]
)
async def test_a_path_that_could_leave_is_refused(tmp_path: Path, path: str) -> None:
    it = World(tmp_path)
    await it.workspaces.prepare(ANN)
    with pytest.raises(InvalidInput):
        await it.read(path)


@pytest.mark.parametrize("path", ["*", "**", "a*", "[a]*", "token", "ambient_token", "tmp", "a", ".txt"])
async def test_a_path_is_never_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """S4: a part of a name was looked for in the whole temporary directory, and found a token there."""
    it = World(tmp_path)
    await it.workspaces.prepare(ANN)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/ambient_token").write_text("secret")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (it.artifacts / "a.txt").write_text("x")
    with pytest.raises(UnknownFile):
        await it.read(path)


async def test_links_pipes_devices_and_directories_are_neither_listed_nor_read(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    it = World(tmp_path)
    await it.workspaces.prepare(ANN)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (it.artifacts / "directory").mkdir()
    (it.artifacts / "plain").write_text("x")
    (it.artifacts / "link").symlink_to(tmp_path / "outside/secret")
    (it.artifacts / "inner-link").symlink_to("plain")
    (it.artifacts / "way").symlink_to(tmp_path / "outside")
    (it.artifacts / "proc").symlink_to("/proc/self")
    (it.artifacts / "loop").symlink_to("loop")
    os.mkfifo(it.artifacts / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path_factory.mktemp("s") / "s"))
        os.link(listening.getsockname(), it.artifacts / "socket")
        for path in (
            "link",
            "inner-link",
            "way/secret",
            "proc/environ",
            "loop",
            "pipe",
            "socket",
            "directory",
            "plain/x",
            "none",
        ):
            with pytest.raises(UnknownFile):
                await it.read(path)
    assert [info.path for info in await it.files.list_artifacts(ANN)] == ["plain"]


async def test_a_directory_replaced_by_a_link_shows_and_loses_nothing_of_where_it_leads(tmp_path: Path) -> None:
    it = World(tmp_path)
    workspace = await it.workspaces.prepare(ANN)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    for directory in (workspace.uploads, workspace.artifacts):
        directory.rmdir()
        directory.symlink_to(tmp_path / "outside")
    assert (await it.files.list_uploads(ANN), await it.files.list_artifacts(ANN)) == ([], [])
    with pytest.raises(UnknownFile):
        await it.read("secret")
    with pytest.raises(UnknownFile):
        await it.files.delete_upload(ANN, "secret")
    assert (tmp_path / "outside/secret").read_text() == "secret"


async def test_a_file_that_grows_while_it_is_read_ends_where_it_ended(tmp_path: Path) -> None:
    it = World(tmp_path)
    await it.workspaces.prepare(ANN)
    (it.artifacts / "log").write_bytes(b"x" * 100_000)
    size = 0
    async with it.files.open_artifact(ANN, "log") as opened:
        async with aclosing(opened.chunks()) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                with (it.artifacts / "log").open("ab") as log:
                    log.write(b"y" * 100_000)
    assert size == opened.info.size == 100_000


async def test_a_file_that_is_too_large_is_not_sent(tmp_path: Path) -> None:
    it = World(tmp_path, max_read_bytes=1000)
    await it.workspaces.prepare(ANN)
    with (it.artifacts / "sparse").open("wb") as file:
        file.truncate(1001)
    with pytest.raises(PayloadTooLarge):
        await it.read("sparse")


async def test_of_very_many_artifacts_the_first_are_listed(tmp_path: Path) -> None:
    it = World(tmp_path, max_files=3)
    await it.workspaces.prepare(ANN)
    for name in "dcba":
        (it.artifacts / name).write_text(name)
    assert [info.path for info in await it.files.list_artifacts(ANN)] == ["a", "b", "c"]


async def test_reading_files_creates_no_workspace(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert await it.files.list_uploads(ANN) == []
    with pytest.raises(UnknownFile):
        await it.read("a")
    with pytest.raises(UnknownFile):
        await it.files.delete_upload(ANN, "a")
    assert not (tmp_path / "root").exists()


async def test_names_that_are_no_text_are_listed_so_that_they_can_be_read(tmp_path: Path) -> None:
    """One such file made every list of them fail."""
    it = World(tmp_path)
    workspace = await it.workspaces.prepare(ANN)
    for directory in (workspace.artifacts, workspace.uploads):
        for name in (b"caf\xe9", b"plain", "größe".encode()):
            Path(os.fsdecode(os.fsencode(directory) + b"/" + name)).write_text("x")
    found = [
        [info.path for info in files]
        for files in (await it.files.list_artifacts(ANN), await it.files.list_uploads(ANN))
    ]
    assert [sorted(names) for names in found] == [["caf\\xe9", "größe", "plain"]] * 2
    with pytest.raises(InvalidInput):
        await it.read("caf\\xe9")
