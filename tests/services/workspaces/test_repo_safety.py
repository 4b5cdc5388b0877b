"""What a stranger sends, or an agent leaves in a repository, does no harm. Faults S1, S2, S3 and S5 of the reference have tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.errors import Forbidden, InvalidInput, Refused, RepoAuthRequired
from ambient_runner.services.workspaces.repos import Repos, RepoStatus
from ambient_runner.services.workspaces.workspaces import Workspaces
from tests.services.remotes import ANN, BOB, NOTHING, PATH, git, git_server, make_repo
from tests.services.world import EMPTY, World, world


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
    workspaces = Workspaces(tmp_path / "root", git_environment=PATH)
    async with workspaces:
        repos = Repos(workspaces)
        for refused in (url, f"file://{url}", "http://127.0.0.1/x", "https://127.0.0.1/x", "git@localhost:x"):
            with pytest.raises(Forbidden):
                await repos.add(ANN, refused, environment=NOTHING)
    assert list((tmp_path / "root").iterdir()) == []


async def test_no_user_can_clone_from_the_workspace_of_another(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        added = await it.add(it.make(), BOB)
        with pytest.raises(Forbidden):
            await it.add(str(added.path))


async def test_a_token_reaches_only_the_host_it_is_for_and_no_file(tmp_path: Path) -> None:
    """S5: any host with `github` in its name got the token."""
    token = "a-secret-token"
    async with world(tmp_path) as it:
        it.make()
        with git_server(tmp_path / "srv", login=f"oauth2:{token}") as server:
            granted = {"GITLAB_TOKEN": token, "GITHUB_TOKEN": "another-token"}
            with pytest.raises(RepoAuthRequired):
                await it.add(server.url("app/.git"), name="app", environment=granted)
            assert server.logins == set()
            granted["GITLAB_HOST"] = f"127.0.0.1:{server.port}"
            with pytest.raises(RepoAuthRequired):
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


async def test_a_repository_that_points_outside_of_the_workspace_shows_nothing_of_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        secret = make_repo(tmp_path / "secret", {"x": "y"}, branches=("secret-plan",))
        added = await it.add(it.make())

        async def shown() -> RepoStatus:
            (found,) = await it.repos.status(ANN)
            return found

        git_directory = added.path / ".git"
        git_directory.rename(added.path / "aside")
        git_directory.write_text(f"gitdir: {secret}/.git\n")
        assert (await shown()).status == "failed"
        git_directory.unlink()
        git_directory.symlink_to(secret / ".git")
        assert (await shown()).status == "failed"
        git_directory.unlink()
        (added.path / "aside").rename(git_directory)
        (git_directory / "commondir").write_text(f"{secret}/.git\n")
        assert (await shown()).status == "failed"
        assert "secret-plan" not in str(await shown())
        (git_directory / "commondir").unlink()
        (git_directory / "HEAD").rename(git_directory / "HEAD.aside")
        (git_directory / "HEAD").symlink_to(secret / ".git/HEAD")
        assert (await shown()).status == "failed"
        (git_directory / "HEAD.aside").replace(git_directory / "HEAD")
        assert (await shown()).status == "ready"


async def test_a_directory_replaced_by_a_link_is_not_the_agents_working_directory(tmp_path: Path) -> None:
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
