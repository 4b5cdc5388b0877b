"""Processes that die in the middle of a clone, and two that do the same at once. Real processes, real git."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest
from anyio.abc import Process

from ambient_runner.services.workspaces.clone_sources import SourceRules
from ambient_runner.services.workspaces.repos import Repos
from ambient_runner.services.workspaces.workspaces import Workspaces
from tests.machine_speed import promised_within, unless_hung
from tests.processes.recorder import gone
from tests.services.remotes import ANN, NOTHING, PATH, git, git_server, make_repo

CLONER = Path(__file__).with_name("cloner.py")


async def cloner(root: Path, url: str) -> Process:
    return await anyio.open_process([sys.executable, str(CLONER), str(root), url], stderr=None)


async def said_by(process: Process) -> str:
    assert process.stdout
    output = b"".join([data async for data in process.stdout]).decode()
    assert await process.wait() == 0
    return output.strip()


async def test_what_a_killed_process_left_is_cleaned_up_by_the_next_run_and_the_clone_works(tmp_path: Path) -> None:
    make_repo(tmp_path / "srv/app", {"a.txt": "hello"})
    held = threading.Event()
    with git_server(tmp_path / "srv", stalled=held) as server:
        url = server.url("app/.git")
        with unless_hung():
            async with await cloner(tmp_path / "root", url) as process:
                await anyio.to_thread.run_sync(server.pack_requests.acquire)
                orphans = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                await process.wait()
            workspaces = Workspaces(
                tmp_path / "root", rules=SourceRules(schemes=("http",), allow_private=True), git_environment=PATH
            )
            left = tmp_path / "root/.records/default/ann/trip/tmp"
            assert len(list(left.iterdir())) == 1
            workspace = await workspaces.prepare(ANN)
            assert workspace.repos == ()
            held.set()
            # Git goes on without the process that started it, and may put its directory back while it does.
            await anyio.to_thread.run_sync(psutil.wait_procs, orphans)
            await workspaces.prepare(ANN)
            assert list(left.iterdir()) == []
            async with workspaces:
                repos = Repos(workspaces)
                assert await repos.status(ANN) == []
                added = await (await repos.add(ANN, url, name="app", environment=NOTHING)).wait_for_result()
            assert added.newly_cloned
            assert git(added.path, "status", "--porcelain", "--branch") == "## ambient/trip"


@pytest.mark.skipif(sys.platform != "linux", reason="what a killed process has started is found in /proc")
async def test_a_server_that_is_killed_in_the_middle_of_a_fetch_leaves_no_git(tmp_path: Path) -> None:
    """Git went on to load the repository for nobody, with the login of the user in its environment."""
    make_repo(tmp_path / "srv/app", {"a.txt": "hello"})
    held = threading.Event()
    orphans: list[psutil.Process] = []
    with git_server(tmp_path / "srv", stalled=held) as server:
        try:
            with unless_hung():
                async with await cloner(tmp_path / "root", server.url("app/.git")) as process:
                    await anyio.to_thread.run_sync(server.pack_requests.acquire)
                    orphans = psutil.Process(process.pid).children(recursive=True)
                    assert any(orphan.name().startswith("git") for orphan in orphans)
                    process.kill()
                    await process.wait()
            with promised_within(10):
                await gone(*orphans)
        finally:
            held.set()
            for orphan in orphans:
                with suppress(psutil.NoSuchProcess):
                    orphan.kill()


async def test_two_processes_that_add_the_same_repository_end_with_one(tmp_path: Path) -> None:
    make_repo(tmp_path / "srv/app", {"a.txt": "hello"})
    held = threading.Event()
    with git_server(tmp_path / "srv", stalled=held) as server:
        with unless_hung():
            async with (
                await cloner(tmp_path / "root", server.url("app/.git")) as one,
                await cloner(tmp_path / "root", server.url("app/.git")) as two,
            ):
                for _ in range(2):
                    await anyio.to_thread.run_sync(server.pack_requests.acquire)
                held.set()
                assert sorted([await said_by(one), await said_by(two)]) == ["new", "there"]
        path = tmp_path / "root/default/ann/trip"
        assert [entry.name for entry in (path / "repos").iterdir()] == ["app"]
        assert list((tmp_path / "root/.records/default/ann/trip/tmp").iterdir()) == []


async def test_a_living_process_keeps_its_clone_while_another_begins_a_run(tmp_path: Path) -> None:
    make_repo(tmp_path / "srv/app", {"a.txt": "hello"})
    held = threading.Event()
    with git_server(tmp_path / "srv", stalled=held) as server:
        with unless_hung():
            async with await cloner(tmp_path / "root", server.url("app/.git")) as process:
                await anyio.to_thread.run_sync(server.pack_requests.acquire)
                await Workspaces(tmp_path / "root").prepare(ANN)
                held.set()
                assert await said_by(process) == "new"
        assert [repo.name for repo in (await Workspaces(tmp_path / "root").prepare(ANN)).repos] == ["app"]
