"""The repositories of a workspace, with real git: added, joined, listed, removed. Fault C3 of the reference has a test here."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from ambient_runner.errors import Draining, InvalidInput, RepoConflict, ServiceError, UnknownRepo
from ambient_runner.services.workspaces.repos import AddedRepo, RemovedRepo, RepoStatus
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, BOB, Steps, asked_for_a_pack, git, git_server
from tests.services.world import EMPTY, World, world


async def test_the_next_run_finds_what_was_added(tmp_path: Path) -> None:
    """C3: what was added at run time never reached the agent."""
    async with world(tmp_path) as it:
        assert (await it.prepare(ANN)).cwd_path == tmp_path / "root/default/ann/trip/artifacts"
        first, second = await it.add(it.make("one")), await it.add(it.make("two"))
        workspace = await it.prepare(ANN)
        assert workspace.cwd_path == first.path
        assert workspace.add_dirs == (second.path, workspace.artifacts, workspace.uploads)
        assert [(repo.name, repo.branch) for repo in workspace.repos] == [
            ("one", "ambient/trip"),
            ("two", "ambient/trip"),
        ]


async def test_status_needs_no_network(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.make(branches=("dev",))
        with git_server(tmp_path / "srv") as server:
            url = server.url("app/.git")
            added = await it.add(url, name="app")
            requests = len(server.requests)
        git(added.path, "checkout", "-q", "-b", "mine")
        assert await it.repos.status(ANN) == [
            RepoStatus(
                url=url,
                name="app",
                branches=("ambient/trip", "dev", "mine", "trunk"),
                current_active_branch="mine",
                default_branch="trunk",
            )
        ]
        git(added.path, "checkout", "-q", "--detach")
        assert [repo.current_active_branch for repo in await it.repos.status(ANN)] == [""]
        assert len(server.requests) == requests
        assert await it.repos.status(BOB) == []
        assert not (tmp_path / "root/default/bob").exists()


async def test_adding_it_again_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        first = await it.add(url)
        (first.path / "a.txt").write_text("my work")
        assert await it.add(url + ".git" if url.endswith("/") else url + "/") == AddedRepo(
            name="app", path=first.path, newly_cloned=False, branch="ambient/trip"
        )
        assert (first.path / "a.txt").read_text() == "my work"


async def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        app, other = it.make("app", branches=("dev",)), it.make("other")
        await it.add(app)
        for url, options in ((other, {"name": "app"}), (other, {"name": "APP"}), (app, {"branch": "dev"})):
            with pytest.raises(RepoConflict):
                await it.add(url, **options)
        assert [repo.name for repo in await it.repos.status(ANN)] == ["app"]


async def test_removing_an_unknown_repository_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for thread in (ANN, BOB):
            with pytest.raises(UnknownRepo):
                await it.repos.remove(thread, "app")
        await it.add(it.make())
        with pytest.raises(UnknownRepo):
            await it.repos.remove(BOB, "app")
        assert len(await it.repos.status(ANN)) == 1


async def test_a_failed_clone_leaves_nothing_but_its_status(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv") as server:
            url = server.url("gone")
            with pytest.raises(ServiceError):
                await it.add(url)
            assert it.inside() == EMPTY
            failed = await it.repos.status(ANN)
            assert [(repo.url, repo.name, repo.status) for repo in failed] == [(url, "gone", "failed")]
            assert failed[0].error
            with pytest.raises(InvalidInput):
                await it.add(server.url("app/.git"), name="app", branch="no-such-branch")
            assert it.inside() == EMPTY
        assert await it.repos.remove(ANN, "gone") == RemovedRepo(name="gone")
        assert [repo.name for repo in await it.repos.status(ANN)] == ["app"]


async def test_a_failed_clone_can_be_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = str(tmp_path / "srv/app")
        with pytest.raises(ServiceError):
            await it.add(url)
        it.make()
        assert (await it.add(url)).newly_cloned
        assert [repo.status for repo in await it.repos.status(ANN)] == ["ready"]


async def test_a_removed_repository_stays_under_a_running_agent_and_goes_before_the_next_run(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make())
        running = await it.prepare(ANN)
        assert await it.repos.remove(ANN, "app") == RemovedRepo(name="app")
        assert await it.repos.status(ANN) == []
        assert (running.cwd_path / "a.txt").read_text() == "hello"
        following = await it.prepare(ANN)
        assert following.repos == ()
        assert following.cwd_path == following.artifacts
        assert not added.path.exists()
        assert it.inside() == EMPTY | {".records/default/ann/trip/workspace.json"}


async def test_it_can_be_added_again_while_the_removed_one_is_still_in_use(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        first = await it.add(url)
        (first.path / "a.txt").write_text("in use")
        await it.repos.remove(ANN, "app")
        second = await it.add(url)
        assert second.newly_cloned
        assert (first.path / "a.txt").read_text() == "in use"
        workspace = await it.prepare(ANN)
        assert [(repo.name, repo.path) for repo in workspace.repos] == [("app", second.path)]
        assert (second.path / "a.txt").read_text() == "hello"
        assert not first.path.exists()


async def test_a_second_request_joins_the_clone_and_a_disconnect_does_not_end_it(tmp_path: Path) -> None:
    held = threading.Event()
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            url = server.url("app/.git")
            answers: list[AddedRepo] = []
            first, second = Steps(), Steps()

            async def ask(steps: Steps) -> None:
                answers.append(await it.add(url, name="app", on_progress=steps))

            async with anyio.create_task_group() as leaving:
                leaving.start_soon(ask, first)
                await asked_for_a_pack(server)
                leaving.cancel_scope.cancel()
            assert [repo.status for repo in await it.repos.status(ANN)] == ["cloning"]
            with pytest.raises(RepoConflict):
                await it.add(server.url("other/.git"), name="app")
            async with anyio.create_task_group() as staying:
                staying.start_soon(ask, second)
                await anyio.wait_all_tasks_blocked()
                held.set()
            assert [answer.newly_cloned for answer in answers] == [True]
            assert (
                len([path for path, _, _ in server.requests if "info/refs" in path]) == 2
            )  # ls-remote and clone, once
        assert second.steps == []  # subscribers of the thread get it from the first
        assert (first.steps[-1].phase, first.steps[-1].percent) == ("done", 100)


async def test_removing_a_repository_cancels_its_running_clone(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    with pytest.raises(ServiceError):
                        await it.add(server.url("app/.git"), name="app")

                tasks.start_soon(ask)
                await asked_for_a_pack(server)
                assert await it.repos.remove(ANN, "app") == RemovedRepo(name="app")
            assert it.inside() == EMPTY
            assert await it.repos.status(ANN) == []


async def test_erasing_a_thread_ends_its_clones_and_erases_its_workspace(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        kept = await it.add(it.make(), BOB)
        await it.add(str(tmp_path / "srv/app"), name="there")
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    with pytest.raises(ServiceError):
                        await it.add(server.url("app/.git"), name="app")

                tasks.start_soon(ask)
                await asked_for_a_pack(server)
                with unless_hung():
                    await it.workspaces.erase_thread(ANN)
        assert not (tmp_path / "root/default/ann/trip").exists()
        assert list((tmp_path / "root/.trash").iterdir()) == []
        assert await it.repos.status(ANN) == []
        assert (kept.path / "a.txt").exists()
        await it.workspaces.erase_thread(ANN)


async def test_leaving_the_server_ends_clones_and_leaves_nothing(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.make()
    with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(Draining):
                    await it.add(server.url("app/.git"), name="app")

            with unless_hung():
                async with it.workspaces:
                    tasks.start_soon(ask)
                    await asked_for_a_pack(server)
        assert it.inside() == EMPTY


async def test_one_thread_has_only_so_many_clones_waiting(tmp_path: Path) -> None:
    held = threading.Event()
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            async with anyio.create_task_group() as tasks:
                clones = [Steps() for _ in range(10)]
                for number, steps in enumerate(clones):
                    tasks.start_soon(partial(it.add, server.url("app/.git"), name=f"n{number}", on_progress=steps))
                with unless_hung():
                    for steps in clones:
                        await steps.begun.wait()
                with pytest.raises(RepoConflict):
                    await it.add(server.url("app/.git"), name="one-more")
                held.set()
        assert {repo.status for repo in await it.repos.status(ANN)} == {"ready"}


async def test_a_repository_whose_directory_is_missing_is_failed_and_can_be_added_again(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        added = await it.add(url)
        added.path.rename(tmp_path / "taken-away")
        (found,) = await it.repos.status(ANN)
        assert (found.status, bool(found.error)) == ("failed", True)
        assert (await it.prepare(ANN)).repos == ()
        assert (await it.add(url)).newly_cloned
        assert [repo.name for repo in (await it.prepare(ANN)).repos] == ["app"]
