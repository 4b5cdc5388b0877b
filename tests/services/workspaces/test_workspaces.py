"""Workspaces on disk: made, kept apart, cleaned and erased."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import anyio
import pytest

from ambient_runner.errors import ConfigError, ServiceError
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.services.workspaces import layout as layout_module
from ambient_runner.services.workspaces.clone_sources import SourceRules
from ambient_runner.services.workspaces.layout import CANNOT_WRITE
from ambient_runner.services.workspaces.workspaces import Workspace, Workspaces
from tests.files.test_safe_trees import deep
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, BOB
from tests.services.world import unerasable

RECORD = "root/.records/default/ann/trip"


async def test_a_new_workspace_has_its_directories_and_begins_among_the_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "far/away/default/ann/trip"
    assert await Workspaces(tmp_path / "far/away").prepare(ANN) == Workspace(
        path=path,
        cwd_path=path / "artifacts",
        add_dirs=(path / "file-uploads",),
        artifacts=path / "artifacts",
        uploads=path / "file-uploads",
    )
    assert {entry.name for entry in path.iterdir()} == {"repos", "workflows", "artifacts", "file-uploads"}
    assert {oct(entry.stat().st_mode & 0o777) for entry in [path, *path.iterdir()]} == {"0o700"}


async def test_paths_are_absolute_when_the_root_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = await Workspaces(Path("here")).prepare(ANN)
    assert workspace.path == tmp_path / "here/default/ann/trip"


async def test_the_root_may_be_a_link_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    assert (await Workspaces(tmp_path / "root").prepare(ANN)).path == tmp_path / "disk/default/ann/trip"


async def test_threads_with_similar_ids_have_separate_workspaces(tmp_path: Path) -> None:
    threads = [
        *(
            ThreadKey("default", "ann", name)
            for name in ("trip", "Trip", "tri/p", "../bob/trip", "..", "", "\u00e9", "e\u0301", "x" * 500)
        ),
        *(ThreadKey("default", name, "trip") for name in ("Ann", "", "../default/ann", "ann/")),
        ThreadKey("", "default", "ann"),
        BOB,
    ]
    workspaces = Workspaces(tmp_path / "root")
    paths = [(await workspaces.prepare(thread)).path for thread in threads]
    assert len({str(path).casefold() for path in paths}) == len(threads)
    assert {len(path.relative_to(tmp_path / "root").parts) for path in paths} == {3}


@pytest.mark.parametrize(
    "place",
    [
        ".",
        "repos",
        "workflows",
        "artifacts",
        "file-uploads",
        "../../../.records",
        "../../../.records/default",
        "../../../.records/default/ann",
        "../../../.records/default/ann/trip",
        "../../../.records/default/ann/trip/tmp",
        "../../../.records/default/ann/trip/trash",
        "..",
        "../..",
    ],
)
@pytest.mark.parametrize("kind", ["link", "file"])
async def test_a_workspace_with_something_else_in_place_of_a_directory_is_refused(
    tmp_path: Path, place: str, kind: str
) -> None:
    workspaces = Workspaces(tmp_path / "root")
    path = Path(os.path.normpath((await workspaces.prepare(ANN)).path / place))
    path.rename(tmp_path / "aside")
    (tmp_path / "elsewhere").mkdir()
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("x")
    with pytest.raises(ServiceError) as failed:
        await workspaces.prepare(ANN)
    assert str(tmp_path) not in failed.value.message
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_root_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ServiceError) as failed:
        await Workspaces(tmp_path / "file" / "root").prepare(ANN)
    assert failed.value.message == CANNOT_WRITE


async def test_looking_at_a_workspace_makes_nothing_in_it(tmp_path: Path) -> None:
    """It made what was missing of the layout, while a run might be going on."""
    workspaces = Workspaces(tmp_path / "root")
    assert await workspaces.snapshot(ANN) is None
    assert not (tmp_path / "root").exists()
    made = await workspaces.prepare(ANN)
    made.uploads.rmdir()
    assert await workspaces.snapshot(ANN) == made
    assert not made.uploads.exists()


async def test_a_damaged_record_is_an_error_and_the_files_stay(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root")
    workspace = await workspaces.prepare(ANN)
    (workspace.artifacts / "work.txt").write_text("work")
    (tmp_path / RECORD / "workspace.json").write_text("{")
    with pytest.raises(ServiceError):
        await workspaces.prepare(ANN)
    assert (workspace.artifacts / "work.txt").read_text() == "work"


async def test_leftovers_of_a_dead_process_are_removed_and_work_of_a_live_one_is_not(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root")
    own, path = tmp_path / RECORD, (await workspaces.prepare(ANN)).path
    (own / "tmp/left/tree").mkdir(parents=True)
    (own / "tmp/left/tree/pack").write_text("half")
    (own / "trash/half-removed").mkdir()
    (path / "workflows/never-named").mkdir()
    (tmp_path / "outside").mkdir()
    (own / "tmp/link").symlink_to(tmp_path / "outside")
    directory = await workspaces.open_layout(ANN)
    async with directory.scratch_directory() as held:
        (held / "x").write_text("mine")
        await workspaces.prepare(ANN)
        assert [path.name for path in (own / "tmp").iterdir()] == [held.name]
        assert (held / "x").read_text() == "mine"
        assert list((own / "trash").iterdir()) == []
        assert list((path / "workflows").iterdir()) == []
    assert list((own / "tmp").iterdir()) == []
    assert (tmp_path / "outside").is_dir()


@pytest.mark.parametrize("kind", ["directory", "link"])
async def test_a_lock_that_is_something_else_is_an_error_and_nothing_is_written_through_it(
    tmp_path: Path, kind: str
) -> None:
    workspaces = Workspaces(tmp_path / "root")
    await workspaces.prepare(ANN)
    lock = tmp_path / RECORD / "lock"
    lock.unlink()
    if kind == "directory":
        lock.mkdir()
    else:
        lock.symlink_to(tmp_path / "made")
    with pytest.raises(ServiceError) as failed:
        await workspaces.prepare(ANN)
    assert str(tmp_path) not in failed.value.message
    assert not (tmp_path / "made").exists()


async def test_a_lock_that_stays_taken_is_waited_for_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces = Workspaces(tmp_path / "root")
    await workspaces.prepare(ANN)
    with (tmp_path / RECORD / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(layout_module, "_LOCK_TIMEOUT", 0.1)
        with unless_hung():
            with pytest.raises(ServiceError):
                await workspaces.prepare(ANN)
    await workspaces.prepare(ANN)


async def test_erasing_a_thread_follows_no_link_and_touches_no_other(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root")
    ann, bob = await workspaces.prepare(ANN), await workspaces.prepare(BOB)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/keep").write_text("x")
    (ann.artifacts / "link").symlink_to(tmp_path / "outside")
    (ann.artifacts / "closed").mkdir()
    (ann.artifacts / "closed/file").write_text("x")
    (ann.artifacts / "closed").chmod(0o500)
    await workspaces.erase_thread(ANN)
    assert not ann.path.exists()
    assert bob.path.is_dir()
    assert (tmp_path / "outside/keep").read_text() == "x"
    assert list((tmp_path / "root/.trash").iterdir()) == []
    assert (await workspaces.prepare(ANN)).path == ann.path


async def test_an_erasure_that_a_crash_cut_short_is_finished_by_the_next_process(tmp_path: Path) -> None:
    (tmp_path / "root/.trash/half/artifacts").mkdir(parents=True)
    (tmp_path / "root/.trash/half/artifacts/secret").write_text("x")
    await Workspaces(tmp_path / "root").prepare(ANN)
    assert list((tmp_path / "root/.trash").iterdir()) == []


async def test_many_changes_at_once_lose_none(tmp_path: Path) -> None:
    """Each reads, adds and writes: without the lock they would overwrite each other."""
    workspaces = Workspaces(tmp_path / "root")
    directory = await workspaces.open_layout(ANN)

    def add(number: int) -> None:
        directory.write_manifest(
            layout_module.WorkspaceManifest(stale=(*directory.read_manifest().stale, f"n{number}"))
        )

    async def change(number: int) -> None:
        await directory.run_locked(lambda: add(number))

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(change, number)
    assert sorted((await directory.load_manifest()).stale) == sorted(f"n{number}" for number in range(20))


@pytest.mark.parametrize("place", [".", "..", "artifacts", "../../../.records/default", "repos"])
async def test_a_thread_with_a_link_in_place_of_a_directory_can_be_erased(tmp_path: Path, place: str) -> None:
    """The link stayed where the thread's own directory was, and no run of that thread could begin any more."""
    workspaces = Workspaces(tmp_path / "root")
    path = Path(os.path.normpath((await workspaces.prepare(ANN)).path / place))
    path.rename(tmp_path / "aside")
    (tmp_path / "outside/trip").mkdir(parents=True)
    path.symlink_to(tmp_path / "outside")
    assert await workspaces.has_files(ANN)
    await workspaces.erase_thread(ANN)
    assert not await workspaces.has_files(ANN)
    assert (tmp_path / "outside/trip").is_dir()
    assert list((tmp_path / "root/.trash").iterdir()) == []
    await workspaces.prepare(ANN)


async def test_a_trash_that_is_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root")
    made = await workspaces.prepare(ANN)
    (tmp_path / "outside/kept").mkdir(parents=True)
    (tmp_path / "root/.trash").symlink_to(tmp_path / "outside")
    await workspaces.erase_thread(ANN)
    assert not made.path.exists()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]


async def test_a_deeply_nested_workspace_is_erased_without_side_effects(tmp_path: Path) -> None:
    """Its erasing failed, what was left stayed in the trash, and from then on other people's runs failed over it."""
    workspaces = Workspaces(tmp_path / "root")
    made = await workspaces.prepare(ANN)
    deep(made.artifacts, 1500)
    await workspaces.erase_thread(ANN)
    assert list((tmp_path / "root/.trash").iterdir()) == []
    (tmp_path / "root/.trash/left").mkdir()
    deep(tmp_path / "root/.trash/left", 1500)
    await Workspaces(tmp_path / "root").prepare(BOB)
    assert list((tmp_path / "root/.trash").iterdir()) == []


async def test_what_cannot_be_erased_is_reported_and_the_rest_of_the_trash_goes(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "root")
    made = await workspaces.prepare(ANN)
    (made.artifacts / "stuck").write_text("x")
    with unerasable("stuck"):
        with pytest.raises(ServiceError):
            await workspaces.erase_thread(ANN)
        for name in ("0", "other", "zz"):
            (tmp_path / "root/.trash" / name).mkdir()
        assert (await Workspaces(tmp_path / "root").prepare(BOB)).path.is_dir()
        assert len(list((tmp_path / "root/.trash").iterdir())) == 1
    assert not made.path.exists()
    await Workspaces(tmp_path / "root").prepare(ANN)
    assert list((tmp_path / "root/.trash").iterdir()) == []


def test_an_unknown_clone_scheme_is_refused_at_start_up(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Workspaces(tmp_path / "root", rules=SourceRules(schemes=("https", "ftp")))
