"""One clone, with real git: the branch it is on, what it says of itself, and its bounds. Fault C4 of the reference has a test here."""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from ambient_runner.errors import CloneTimeout, RepoTooLarge
from ambient_runner.services.workspaces.clone import CloneLimits
from ambient_runner.services.workspaces.repos import AddedRepo
from tests.machine_speed import unless_hung
from tests.services.remotes import ANN, BOB, Steps, asked_for_a_pack, git, git_server
from tests.services.world import EMPTY, world


async def test_every_clone_is_on_the_threads_own_branch_from_the_remotes_default(tmp_path: Path) -> None:
    """C4: the branch was missing in every clone; and the default is not called main."""
    async with world(tmp_path) as it:
        added = await it.add(it.make(branch="trunk", branches=("dev",)))
        assert added == AddedRepo(
            name="app",
            path=tmp_path / "root/default/ann/trip/repos/app",
            newly_cloned=True,
            branch="ambient/trip",
        )
        assert git(added.path, "symbolic-ref", "HEAD") == "refs/heads/ambient/trip"
        assert git(added.path, "rev-parse", "HEAD") == git(tmp_path / "srv/app", "rev-parse", "trunk")
        assert git(added.path, "status", "--porcelain") == ""
        assert (added.path / "a.txt").read_text() == "hello"


async def test_a_clone_starts_at_the_requested_branch_or_tag(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make(branches=("dev",))
        origin = Path(url)
        git(origin, "checkout", "-q", "dev")
        (origin / "b.txt").write_text("dev")
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", "on dev")
        git(origin, "tag", "v1.0")
        git(origin, "checkout", "-q", "trunk")
        for branch in ("dev", "v1.0"):
            added = await it.add(url, branch=branch, name=f"from-{branch}")
            assert git(added.path, "rev-parse", "HEAD") == git(origin, "rev-parse", "dev")
            assert git(added.path, "symbolic-ref", "HEAD") == "refs/heads/ambient/trip"


async def test_the_requested_branch_may_be_the_threads_own(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make(branches=("ambient/trip",)), branch="ambient/trip")
        assert git(added.path, "symbolic-ref", "HEAD") == "refs/heads/ambient/trip"


async def test_an_empty_repository_is_cloned_too(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        (tmp_path / "empty").mkdir()
        git(tmp_path / "empty", "init", "-q", "--bare")
        added = await it.add(str(tmp_path / "empty"))
        assert git(added.path, "symbolic-ref", "HEAD") == "refs/heads/ambient/trip"
        assert [repo.status for repo in await it.repos.status(ANN)] == ["ready"]


async def test_a_clone_is_shallow(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        git(Path(url), "commit", "-q", "--allow-empty", "-m", "second")
        added = await it.add(url)
        assert git(added.path, "rev-list", "--count", "HEAD") == "1"


async def test_an_agent_can_commit_push_and_fetch_other_branches_in_a_shallow_clone(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make(branches=("dev",)))
        git(added.path, "commit", "-q", "--allow-empty", "-m", "work")
        git(added.path, "push", "-q", "origin", "HEAD")
        git(added.path, "fetch", "-q", "origin")
        assert "ambient/trip" in git(tmp_path / "srv/app", "branch", "--list")
        assert git(added.path, "rev-parse", "origin/dev") == git(tmp_path / "srv/app", "rev-parse", "dev")


async def test_progress_is_published_a_few_times_a_second_and_to_the_end(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={f"{number}.bin": random.randbytes(200_000) for number in range(40)})
        steps, began = Steps(), anyio.current_time()
        await it.add(url, on_progress=steps)
        phases = [step.phase for step in steps.steps]
        assert phases[:2] == ["waiting", "connecting"]
        assert "receiving" in phases
        assert phases[-1] == "done"
        assert {step.name for step in steps.steps} == {"app"}
        assert len(steps.steps) <= 4 + 4 * (anyio.current_time() - began)


async def test_a_listener_that_fails_does_not_harm_the_clone(tmp_path: Path) -> None:
    async def fail(step: object) -> None:
        raise RuntimeError

    async with world(tmp_path) as it:
        assert (await it.add(it.make(), on_progress=fail)).newly_cloned


async def test_two_threads_clone_at_once_and_keep_apart(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        app, other = it.make("app"), it.make("other", files={"b.txt": "other"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(it.add, app, ANN, name="same"))
            tasks.start_soon(partial(it.add, other, BOB, name="same"))
        ann, bob = await it.prepare(ANN), await it.prepare(BOB)
        assert {path.name for path in ann.cwd_path.iterdir()} == {".git", "a.txt"}
        assert {path.name for path in bob.cwd_path.iterdir()} == {".git", "b.txt"}
        assert not ann.path.is_relative_to(bob.path.parent)


async def test_at_most_so_many_clones_run_at_once(tmp_path: Path) -> None:
    held = threading.Event()
    async with world(tmp_path, limits=CloneLimits(max_concurrent=2)) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            waiting = Steps()
            async with anyio.create_task_group() as tasks:
                for name in ("one", "two"):
                    tasks.start_soon(partial(it.add, server.url("app/.git"), name=name))
                await asked_for_a_pack(server)
                await asked_for_a_pack(server)
                requests = len(server.requests)
                tasks.start_soon(partial(it.add, server.url("app/.git"), name="three", on_progress=waiting))
                with unless_hung():
                    await waiting.begun.wait()
                await anyio.wait_all_tasks_blocked()
                assert [step.phase for step in waiting.steps] == ["waiting"]
                assert len(server.requests) == requests
                held.set()
        assert [repo.status for repo in await it.repos.status(ANN)] == ["ready"] * 3


async def test_slow_clones_of_one_owner_do_not_block_another_owner(tmp_path: Path) -> None:
    """Two slow ones took all the places there were."""
    held = threading.Event()
    async with world(tmp_path) as it:
        local = it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            waiting = Steps()
            async with anyio.create_task_group() as tasks:
                for name in ("one", "two"):
                    tasks.start_soon(partial(it.add, server.url("app/.git"), name=name))
                    await asked_for_a_pack(server)
                tasks.start_soon(partial(it.add, local, name="three", on_progress=waiting))
                with unless_hung():
                    await waiting.begun.wait()
                    assert (await it.add(local, BOB)).newly_cloned
                assert [step.phase for step in waiting.steps] == ["waiting"]
                held.set()
        assert [repo.status for repo in await it.repos.status(ANN)] == ["ready"] * 3


async def test_a_clone_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with world(tmp_path, limits=CloneLimits(timeout=1.5)) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            with pytest.raises(CloneTimeout):
                await it.add(server.url("app/.git"), name="app")
        assert it.inside() == EMPTY


@pytest.mark.parametrize("limits", [CloneLimits(max_bytes=300_000), CloneLimits(max_files=50)], ids=["bytes", "files"])
async def test_a_clone_that_grows_too_large_is_ended(tmp_path: Path, limits: CloneLimits) -> None:
    async with world(tmp_path, limits=limits) as it:
        url = it.make(files={f"{number}.bin": random.randbytes(10_000) for number in range(100)})
        with pytest.raises(RepoTooLarge):
            await it.add(url)
        assert it.inside() == EMPTY


async def test_a_clone_is_ended_while_it_grows_and_not_after(tmp_path: Path) -> None:
    """A pack that never ends: only watching the disk stops it."""
    async with world(tmp_path, limits=CloneLimits(max_bytes=1_000_000)) as it:
        it.make(files={"big.bin": random.randbytes(4_000_000)})
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            with pytest.raises(RepoTooLarge):
                await it.add(server.url("app/.git"), name="app")


async def test_a_repository_with_directories_too_deep_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Bug: measuring it failed with an unexpected error, and the clone stayed."""
    async with world(tmp_path) as it:
        url = it.make()
        blob = git(Path(url), "hash-object", "a.txt")
        git(Path(url), "update-index", "--add", "--cacheinfo", f"100644,{blob},{'d/' * 1500}file")
        git(Path(url), "commit", "-q", "-m", "deep")
        with pytest.raises(RepoTooLarge):
            await it.add(url)
        assert it.inside() == EMPTY
