"""Repositories, with real git. Faults S1, S2, S3, C3 and C4 of the reference each have a test here that its behaviour fails."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ambient_runner.errors import (
    CloneTimeout,
    Draining,
    Forbidden,
    InvalidInput,
    LoginNeeded,
    Refused,
    RepoConflict,
    RepoTooLarge,
    ServiceError,
    UnknownRepo,
)
from ambient_runner.services.repos import Added, Removed, Repos, RepoStatus
from ambient_runner.services.workspace import Workspaces
from tests.services.remotes import ANN, BOB, NOTHING, PATH, GitServer, Steps, git, git_server, make_repo


def workspaces_at(root: Path, **options: object) -> Workspaces:
    return Workspaces(root, schemes=("http", "file"), private=True, base=PATH, **options)  # type: ignore[arg-type]


class World:
    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.workspaces = workspaces_at(folder / "root", **options)
        self.repos = Repos(self.workspaces)
        self.prepare = self.workspaces.prepare

    def make(self, name: str = "app", **options: object) -> str:
        """A repository to clone, by its path."""
        files = options.pop("files", {"a.txt": "hello"})
        return str(make_repo(self.folder / "srv" / name, files, **options))  # type: ignore[arg-type]

    async def add(self, url: str, thread: object = ANN, **options: object) -> Added:
        with anyio.fail_after(60):
            job = await self.repos.add(thread, url, **{"environment": NOTHING, **options})  # type: ignore[arg-type]
            return await job.outcome()

    def inside(self) -> set[str]:
        """Everything below the workspaces, of git's own only that it is there."""
        found: set[str] = set()
        for at, folders, files in os.walk(self.folder / "root"):
            found |= {str(Path(at, name).relative_to(self.folder / "root")) for name in (*folders, *files)}
            folders[:] = [name for name in folders if name != ".git"]
        return found


@asynccontextmanager
async def world(folder: Path, **options: object) -> AsyncGenerator[World, None]:
    made = World(folder, **options)
    async with made.workspaces:
        yield made


EMPTY = {
    "default",
    "default/ann",
    "default/ann/trip",
    *(f"default/ann/trip/{name}" for name in ("repos", "workflows", "artifacts", "file-uploads", ".ambient")),
    *(f"default/ann/trip/.ambient/{name}" for name in ("tmp", "trash", "lock")),
}


async def asked_for_a_pack(server: GitServer) -> None:
    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(server.packs_asked.acquire)


async def test_every_clone_is_on_the_threads_own_branch_from_the_remotes_default(tmp_path: Path) -> None:
    """C4: the branch was missing in every clone; and the default is not called main."""
    async with world(tmp_path) as it:
        added = await it.add(it.make(branch="trunk", branches=("dev",)))
        assert added == Added(
            name="app",
            path=tmp_path / "root/default/ann/trip/repos/app",
            newly_cloned=True,
            branch="ambient/trip",
        )
        assert git(added.path, "symbolic-ref", "HEAD") == "refs/heads/ambient/trip"
        assert git(added.path, "rev-parse", "HEAD") == git(tmp_path / "srv/app", "rev-parse", "trunk")
        assert git(added.path, "status", "--porcelain") == ""
        assert (added.path / "a.txt").read_text() == "hello"


async def test_the_asked_branch_or_tag_is_where_it_begins(tmp_path: Path) -> None:
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


async def test_a_threads_own_branch_can_be_the_one_that_is_asked_for(tmp_path: Path) -> None:
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


async def test_status_tells_all_without_the_network(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.make(branches=("dev",))
        with git_server(tmp_path / "srv") as server:
            url = server.url("app/.git")
            added = await it.add(url, name="app")
            requests = len(server.asked)
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
        assert len(server.asked) == requests
        assert await it.repos.status(BOB) == []
        assert not (tmp_path / "root/default/bob").exists()


async def test_adding_it_again_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        first = await it.add(url)
        (first.path / "a.txt").write_text("my work")
        assert await it.add(url + ".git" if url.endswith("/") else url + "/") == Added(
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


@pytest.mark.parametrize("name", ["../../x", "..", ".", "/tmp/x", "a/b", "-rf", ".git", "x.git"])
async def test_a_clone_never_leaves_the_workspace(tmp_path: Path, name: str) -> None:
    """S2: the name `../../x` cloned outside."""
    async with world(tmp_path) as it:
        url = it.make()
        with pytest.raises(InvalidInput):
            await it.add(url, name=name)
        assert it.inside() == set()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../artifacts", "/", "*", "../../../bob/trip/repos/app", "-", "app/../app"]
)
async def test_removing_takes_one_name_and_nothing_else(tmp_path: Path, name: str) -> None:
    """S1: the empty name removed every repository, `../x` and absolute paths anything."""
    async with world(tmp_path) as it:
        url = it.make()
        await it.add(url)
        await it.add(url, BOB)
        before = it.inside()
        with pytest.raises(InvalidInput):
            await it.repos.remove(ANN, name)
        await it.prepare(ANN)
        assert it.inside() == before


async def test_removing_what_is_not_there_is_said(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for thread in (ANN, BOB):
            with pytest.raises(UnknownRepo):
                await it.repos.remove(thread, "app")
        await it.add(it.make())
        with pytest.raises(UnknownRepo):
            await it.repos.remove(BOB, "app")
        assert len(await it.repos.status(ANN)) == 1


@pytest.mark.parametrize(
    ("url", "branch"),
    [
        ("--upload-pack=touch made", None),
        ("-u./made", None),
        ("ext::sh -c 'touch made'", None),
        ("ext::touch made", None),
        ("ssh://-oProxyCommand=touch made/x", None),
        (None, "--upload-pack=touch made"),
        (None, "-c"),
        (None, "a..b"),
        (None, ":/x"),
        (None, "@{-1}"),
    ],
)
async def test_nothing_that_is_sent_becomes_an_option_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, branch: str | None
) -> None:
    """S3: a branch `--upload-pack=…` was run as a command."""
    monkeypatch.chdir(tmp_path)
    async with world(tmp_path) as it:
        app = it.make()
        with pytest.raises(Refused):
            await it.add(url or app, branch=branch)
        assert it.inside() <= EMPTY
    assert not list(tmp_path.rglob("made*"))


async def test_only_allowed_sources_are_cloned_from(tmp_path: Path) -> None:
    url = World(tmp_path).make()
    workspaces = Workspaces(tmp_path / "root", base=PATH)
    async with workspaces:
        repos = Repos(workspaces)
        for refused in (url, f"file://{url}", "http://127.0.0.1/x", "https://127.0.0.1/x", "git@localhost:x"):
            with pytest.raises(Forbidden):
                await repos.add(ANN, refused, environment=NOTHING)
    assert not (tmp_path / "root").exists()


async def test_nobody_clones_from_anothers_workspace(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make(), BOB)
        with pytest.raises(Forbidden):
            await it.add(str(added.path))


async def test_a_failed_clone_leaves_nothing_but_what_it_says(tmp_path: Path) -> None:
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
        assert await it.repos.remove(ANN, "gone") == Removed(name="gone")
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
        assert await it.repos.remove(ANN, "app") == Removed(name="app")
        assert await it.repos.status(ANN) == []
        assert (running.cwd_path / "a.txt").read_text() == "hello"
        following = await it.prepare(ANN)
        assert following.repos == ()
        assert following.cwd_path == following.artifacts
        assert not added.path.exists()
        assert it.inside() == EMPTY | {"default/ann/trip/.ambient/workspace.json"}


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


async def test_who_asks_twice_joins_the_clone_and_who_leaves_does_not_end_it(tmp_path: Path) -> None:
    held = threading.Event()
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            url = server.url("app/.git")
            answers: list[Added] = []
            first, second = Steps(), Steps()

            async def ask(steps: Steps) -> None:
                answers.append(await it.add(url, name="app", progress=steps))

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
            assert len([path for path, _, _ in server.asked if "info/refs" in path]) == 2  # ls-remote and clone, once
        assert second.told == []  # whoever follows the thread hears it from the first
        assert (first.told[-1].phase, first.told[-1].percent) == ("done", 100)


async def test_progress_is_told_a_few_times_a_second_and_to_the_end(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make(files={f"{number}.bin": random.randbytes(200_000) for number in range(40)})
        steps, began = Steps(), anyio.current_time()
        await it.add(url, progress=steps)
        phases = [step.phase for step in steps.told]
        assert phases[:2] == ["waiting", "connecting"]
        assert "receiving" in phases
        assert phases[-1] == "done"
        assert {step.name for step in steps.told} == {"app"}
        assert len(steps.told) <= 4 + 4 * (anyio.current_time() - began)


async def test_a_listener_that_fails_does_not_harm_the_clone(tmp_path: Path) -> None:
    async def fail(step: object) -> None:
        raise RuntimeError

    async with world(tmp_path) as it:
        assert (await it.add(it.make(), progress=fail)).newly_cloned


async def test_removing_calls_off_a_clone_that_is_under_way(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    with pytest.raises(ServiceError):
                        await it.add(server.url("app/.git"), name="app")

                tasks.start_soon(ask)
                await asked_for_a_pack(server)
                assert await it.repos.remove(ANN, "app") == Removed(name="app")
            assert it.inside() == EMPTY
            assert await it.repos.status(ANN) == []


async def test_forgetting_a_thread_ends_its_clones_and_erases_everything_of_it(tmp_path: Path) -> None:
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
                with anyio.fail_after(20):
                    await it.workspaces.forget(ANN)
        assert not (tmp_path / "root/default/ann/trip").exists()
        assert list((tmp_path / "root/.trash").iterdir()) == []
        assert await it.repos.status(ANN) == []
        assert (kept.path / "a.txt").exists()
        await it.workspaces.forget(ANN)


async def test_leaving_the_server_ends_clones_and_leaves_nothing(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.make()
    with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(Draining):
                    await it.add(server.url("app/.git"), name="app")

            with anyio.fail_after(20):
                async with it.workspaces:
                    tasks.start_soon(ask)
                    await asked_for_a_pack(server)
        assert it.inside() == EMPTY


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
    async with world(tmp_path, max_clones=2) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            waiting = Steps()
            async with anyio.create_task_group() as tasks:
                for name in ("one", "two"):
                    tasks.start_soon(partial(it.add, server.url("app/.git"), name=name))
                await asked_for_a_pack(server)
                await asked_for_a_pack(server)
                requests = len(server.asked)
                tasks.start_soon(partial(it.add, server.url("app/.git"), name="three", progress=waiting))
                with anyio.fail_after(10):
                    await waiting.begun.wait()
                await anyio.wait_all_tasks_blocked()
                assert [step.phase for step in waiting.told] == ["waiting"]
                assert len(server.asked) == requests
                held.set()
        assert [repo.status for repo in await it.repos.status(ANN)] == ["ready"] * 3


async def test_one_thread_has_only_so_many_clones_waiting(tmp_path: Path) -> None:
    held = threading.Event()
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=held) as server:
            async with anyio.create_task_group() as tasks:
                clones = [Steps() for _ in range(10)]
                for number, steps in enumerate(clones):
                    tasks.start_soon(partial(it.add, server.url("app/.git"), name=f"n{number}", progress=steps))
                with anyio.fail_after(20):
                    for steps in clones:
                        await steps.begun.wait()
                with pytest.raises(RepoConflict):
                    await it.add(server.url("app/.git"), name="one-more")
                held.set()
        assert {repo.status for repo in await it.repos.status(ANN)} == {"ready"}


async def test_a_clone_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with world(tmp_path, git_timeout=1.5) as it:
        it.make()
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            with pytest.raises(CloneTimeout):
                await it.add(server.url("app/.git"), name="app")
        assert it.inside() == EMPTY


@pytest.mark.parametrize("options", [{"max_bytes": 300_000}, {"max_files": 50}], ids=["bytes", "files"])
async def test_a_clone_that_grows_too_large_is_ended(tmp_path: Path, options: dict[str, int]) -> None:
    async with world(tmp_path, **options) as it:
        url = it.make(files={f"{number}.bin": random.randbytes(10_000) for number in range(100)})
        with pytest.raises(RepoTooLarge):
            await it.add(url)
        assert it.inside() == EMPTY


async def test_a_clone_is_ended_while_it_grows_and_not_after(tmp_path: Path) -> None:
    """A pack that never ends: only watching the disk stops it."""
    async with world(tmp_path, max_bytes=1_000_000) as it:
        it.make(files={"big.bin": random.randbytes(4_000_000)})
        with git_server(tmp_path / "srv", stalled=threading.Event()) as server:
            with pytest.raises(RepoTooLarge):
                await it.add(server.url("app/.git"), name="app")


async def test_a_token_reaches_only_the_host_it_is_for_and_no_file(tmp_path: Path) -> None:
    """S5: any host with `github` in its name got the token."""
    token = "a-token-nobody-sees"
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", login=f"oauth2:{token}") as server:
            granted = {"GITLAB_TOKEN": token, "GITHUB_TOKEN": "another-token"}
            with pytest.raises(LoginNeeded):
                await it.add(server.url("app/.git"), name="app", environment=granted)
            assert server.logins == set()
            granted["GITLAB_HOST"] = f"127.0.0.1:{server.port}"
            with pytest.raises(LoginNeeded):
                await it.add(server.url("app/.git", host="localhost"), name="app", environment=granted)
            assert server.logins == set()
            added = await it.add(server.url("app/.git"), name="app", environment=granted)
            assert server.logins == {f"oauth2:{token}"}
        assert git(added.path, "remote", "get-url", "origin") == server.url("app/.git")
        for path in (tmp_path / "root").rglob("*"):
            assert not path.is_file() or token.encode() not in path.read_bytes()


async def test_hooks_filters_and_submodules_of_a_repository_do_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        inner = it.make("inner", files={"inner.txt": "x"})
        url = it.make(
            files={
                "a.txt": "plain",
                ".gitattributes": "*.txt filter=lfs\n*.txt filter=evil\n",
                ".gitmodules": f'[submodule "inner"]\n\tpath = inner\n\turl = {inner}\n\tupdate = !touch made\n',
                ".gitconfig": "[core]\n\tfsmonitor = touch made\n",
                "hooks/post-checkout": "#!/bin/sh\ntouch made\n",
            }
        )
        commit = git(Path(inner), "rev-parse", "HEAD")
        git(Path(url), "update-index", "--add", "--cacheinfo", f"160000,{commit},inner")
        git(Path(url), "commit", "-q", "-m", "with a submodule")
        added = await it.add(url)
        assert (added.path / "a.txt").read_text() == "plain"
        assert list((added.path / "inner").iterdir()) == []
        assert not (added.path / ".git/hooks").exists()
        assert not list(tmp_path.rglob("made"))


async def test_looking_at_a_repository_runs_nothing_an_agent_put_into_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make())
        made = tmp_path / "made"
        script = tmp_path / "script"
        script.write_text(f"#!/bin/sh\ntouch {made}\n")
        script.chmod(0o755)
        for setting in (
            "core.fsmonitor",
            "core.pager",
            "core.sshCommand",
            "credential.helper",
            "core.editor",
            "core.askPass",
        ):
            git(added.path, "config", setting, str(script))
        git(added.path, "config", "remote.origin.promisor", "true")
        git(added.path, "config", "extensions.partialClone", "origin")
        git(added.path, "config", "remote.origin.url", f"ext::{script}")
        git(added.path, "config", "core.hooksPath", str(tmp_path))
        (added.path / ".git/refs/heads/broken").write_text("0123456789012345678901234567890123456789\n")
        await it.repos.status(ANN)
        await it.prepare(ANN)
        assert not made.exists()


async def test_a_repository_that_points_elsewhere_shows_nothing_of_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        secret = make_repo(tmp_path / "secret", {"x": "y"}, branches=("secret-plan",))
        added = await it.add(it.make())

        async def shown() -> RepoStatus:
            (found,) = await it.repos.status(ANN)
            return found

        git_folder = added.path / ".git"
        git_folder.rename(added.path / "aside")
        git_folder.write_text(f"gitdir: {secret}/.git\n")
        assert (await shown()).status == "failed"
        git_folder.unlink()
        git_folder.symlink_to(secret / ".git")
        assert (await shown()).status == "failed"
        git_folder.unlink()
        (added.path / "aside").rename(git_folder)
        (git_folder / "commondir").write_text(f"{secret}/.git\n")
        assert (await shown()).status == "failed"
        assert "secret-plan" not in str(await shown())
        (git_folder / "commondir").unlink()
        (git_folder / "HEAD").rename(git_folder / "HEAD.aside")
        (git_folder / "HEAD").symlink_to(secret / ".git/HEAD")
        assert (await shown()).status == "failed"
        (git_folder / "HEAD.aside").replace(git_folder / "HEAD")
        assert (await shown()).status == "ready"


async def test_a_repository_whose_folder_is_gone_says_so_and_can_be_added_again(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        url = it.make()
        added = await it.add(url)
        added.path.rename(tmp_path / "taken-away")
        (found,) = await it.repos.status(ANN)
        assert (found.status, bool(found.error)) == ("failed", True)
        assert (await it.prepare(ANN)).repos == ()
        assert (await it.add(url)).newly_cloned
        assert [repo.name for repo in (await it.prepare(ANN)).repos] == ["app"]


async def test_a_folder_replaced_by_a_link_is_not_the_agents_working_directory(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make())
        (tmp_path / "outside").mkdir()
        added.path.rename(tmp_path / "aside")
        added.path.symlink_to(tmp_path / "outside")
        workspace = await it.prepare(ANN)
        assert workspace.repos == ()
        assert added.path not in (workspace.cwd_path, *workspace.add_dirs)
        await it.repos.remove(ANN, "app")
        await it.prepare(ANN)
        assert (tmp_path / "outside").is_dir()
        assert not added.path.is_symlink()


async def test_a_repository_with_folders_too_deep_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Measuring it failed in a way nobody had foreseen, and what was cloned stayed."""
    async with world(tmp_path) as it:
        url = it.make()
        blob = git(Path(url), "hash-object", "a.txt")
        git(Path(url), "update-index", "--add", "--cacheinfo", f"100644,{blob},{'d/' * 1500}file")
        git(Path(url), "commit", "-q", "-m", "deep")
        with pytest.raises(RepoTooLarge) as refused:
            await it.add(url)
        assert "200 deep" in refused.value.message
        assert it.inside() == EMPTY


async def test_slow_clones_of_one_owner_do_not_hold_up_anothers(tmp_path: Path) -> None:
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
                tasks.start_soon(partial(it.add, local, name="three", progress=waiting))
                with anyio.fail_after(10):
                    await waiting.begun.wait()
                    assert (await it.add(local, BOB)).newly_cloned
                assert [step.phase for step in waiting.told] == ["waiting"]
                held.set()
        assert [repo.status for repo in await it.repos.status(ANN)] == ["ready"] * 3
