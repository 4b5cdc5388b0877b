"""Git as a child process: its environment, its logins, and the errors for its failures."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ambient_runner.config import git_environment
from ambient_runner.errors import GitUnavailable, RepoAuthRequired, RepoNotFound, RepoRedirected, ServiceError
from ambient_runner.processes.orphan_reaper import MARK
from ambient_runner.services.workspaces.clone_sources import CloneSource
from ambient_runner.services.workspaces.git import Git, GitRemote
from ambient_runner.services.workspaces.git_logins import GitLogin
from tests.machine_speed import unless_hung
from tests.services.remotes import PATH, GitServer, git, git_server, make_repo

GIT = Git(base_environment=PATH)
TOKEN = "a-secret-token"


def source_of(server: GitServer, name: str = "app/.git", host: str = "127.0.0.1") -> CloneSource:
    return CloneSource(url=server.url(name, host), scheme="http", host=host, port=server.port, addresses=("127.0.0.1",))


def login_at(server: GitServer, host: str = "127.0.0.1") -> GitLogin:
    return GitLogin(origin=f"http://{host}:{server.port}", user="oauth2", token=TOKEN)


@pytest.fixture
def served(tmp_path: Path) -> Path:
    make_repo(tmp_path / "srv" / "app", {"a": "1"})
    return tmp_path / "srv"


async def test_git_gets_a_few_fixed_variables_and_nothing_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-the-server")
    own = {**PATH, "SSL_CERT_FILE": "/certs", "GIT_SSH_COMMAND": "evil", "LD_PRELOAD": "evil", "BOT_TOKEN": "x"}
    git = Git(base_environment=git_environment(own))
    printed = await git.run("-c", "alias.show-all=!env", "show-all")
    found = dict(line.split("=", 1) for line in printed.splitlines())
    # What git and the shell add themselves is theirs to choose.
    added = {"GIT_EXEC_PATH", "GIT_PREFIX", "PWD", "OLDPWD", "SHLVL", "_", "GIT_CONFIG_PARAMETERS", "GIT_DIR"}
    assert found.pop(MARK).startswith(f"{os.getpid()}-")  # By which it is ended if the server is killed.
    assert {name: value for name, value in found.items() if name not in added | {"PATH"}} == {
        "SSL_CERT_FILE": "/certs",
        "HOME": "/dev/null",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_ALLOW_PROTOCOL": "none",
        "MALLOC_ARENA_MAX": "2",
    }


async def test_a_login_is_sent_to_its_own_host(served: Path) -> None:
    with git_server(served, login=f"oauth2:{TOKEN}") as server:
        refs = await GIT.run(
            "ls-remote", "--", source_of(server).url, remote=GitRemote(source=source_of(server), login=login_at(server))
        )
        assert "refs/heads/trunk" in refs
        assert server.logins == {f"oauth2:{TOKEN}"}


@pytest.mark.parametrize("host", ["evil-github.localhost", "localhost", "127.0.0.1.nip.test"])
async def test_a_host_other_than_the_logins_own_gets_nothing_even_if_it_asks(served: Path, host: str) -> None:
    with git_server(served, login="any:one") as server:
        source = source_of(server, host=host)
        with pytest.raises(ServiceError):
            await GIT.run("ls-remote", "--", source.url, remote=GitRemote(source=source, login=login_at(server)))
        assert {asked for _, asked, _ in server.requests} == {f"{host}:{server.port}"}
        assert server.logins == set()


async def test_a_redirect_is_not_followed_and_takes_no_login_along(served: Path) -> None:
    with git_server(served) as other, git_server(served, redirect=f"http://127.0.0.1:{other.port}") as server:
        with pytest.raises(RepoRedirected):
            await GIT.run(
                "ls-remote",
                "--",
                source_of(server).url,
                remote=GitRemote(source=source_of(server), login=login_at(server)),
            )
        assert other.requests == []


async def test_the_token_is_on_no_command_line(served: Path) -> None:
    held = threading.Event()
    with git_server(served, stalled=held) as server:
        async with anyio.create_task_group() as tasks:
            remote = GitRemote(source=source_of(server), login=login_at(server))
            into = served / "clone"
            tasks.start_soon(lambda: GIT.run("clone", "--", server.url("app/.git"), str(into), remote=remote))
            with unless_hung():
                await anyio.to_thread.run_sync(server.pack_requests.acquire)
            commands = {path: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_readable(path)}
            assert any(str(into).encode() in command for command in commands.values())
            assert not any(TOKEN.encode() in command for command in commands.values())
            held.set()
    written = [path for path in served.rglob("*") if path.is_file()]
    assert written
    assert not any(TOKEN.encode() in path.read_bytes() for path in written)


def _is_readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


async def test_being_cancelled_ends_git_and_what_it_started(served: Path) -> None:
    with git_server(served, stalled=threading.Event()) as server:
        into = served / "clone-to-be-cancelled"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: GIT.run(
                    "clone", "--", server.url("app/.git"), str(into), remote=GitRemote(source=source_of(server))
                )
            )
            with unless_hung():
                await anyio.to_thread.run_sync(server.pack_requests.acquire)
            running = [os.pidfd_open(pid) for pid in processes_about(str(into), str(server.port))]
            tasks.cancel_scope.cancel()
        with unless_hung():
            for process in running:
                await anyio.wait_readable(process)  # it is when the process has ended
                os.close(process)
        assert len(running) >= 2


def processes_about(*words: str) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if command.startswith(("git\0", "/usr/lib/git", "git-", "/usr/bin/git")) and any(
            word in command for word in words
        ):
            found.append(int(path.parent.name))
    return found


async def test_git_itself_refuses_a_protocol_that_was_not_requested(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"a": "1"})
    remote = GitRemote(source=CloneSource(url="https://host/x", scheme="https", host="host", port=443))
    for allowed in (remote, None):
        for url in (f"ext::touch {tmp_path}/made", f"file://{repo}", str(repo)):
            with pytest.raises(ServiceError):
                await GIT.run("ls-remote", "--", url, remote=allowed)
    assert not (tmp_path / "made").exists()


async def test_ssh_gets_no_key_but_the_granted_agents_and_connects_where_was_checked(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ssh").write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" > ' + shlex.quote(str(tmp_path / "seen")) + "\nexit 255\n"
    )
    (tools / "ssh").chmod(0o755)
    source = CloneSource(
        url="git@host.example:a/b", scheme="ssh", host="host.example", port=22, addresses=("192.0.2.7",)
    )
    with pytest.raises(ServiceError):
        await Git(base_environment={"PATH": f"{tools}:{os.environ['PATH']}"}).run(
            "ls-remote", "--", source.url, remote=GitRemote(source=source, ssh_agent="/granted/agent")
        )
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen[:2] == ["-F", "/dev/null"]
    assert set(seen) >= {
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-oProxyCommand=none",
        "-oIdentityFile=none",
        "-oIdentityAgent=/granted/agent",
        "-oHostKeyAlias=host.example",
        "-oHostName=192.0.2.7",
    }


async def test_without_a_granted_agent_ssh_uses_none() -> None:
    remote = GitRemote(source=CloneSource(url="git@h:a", scheme="ssh", host="h", port=22))
    assert "-oIdentityAgent=none" in shlex.split(remote.environment_variables()["GIT_SSH_COMMAND"])


@pytest.mark.parametrize(
    ("name", "login", "error"),
    [("nothing-here", "", RepoNotFound), ("app/.git", "other:one", RepoAuthRequired)],
)
async def test_a_failure_message_says_what_to_do_without_the_url(
    served: Path, name: str, login: str, error: type[ServiceError]
) -> None:
    with git_server(served, login=login) as server:
        source = source_of(server, name)
        with pytest.raises(error) as failed:
            await GIT.run("ls-remote", "--", source.url, remote=GitRemote(source=source, login=login_at(server)))
        assert source.url not in failed.value.message
        assert TOKEN not in failed.value.message


async def test_a_missing_git_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GitUnavailable):
        await Git(base_environment={"PATH": str(tmp_path)}).run("--version")


async def test_unknown_git_output_goes_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Its words went to the client, and much of them is the other side's to say."""
    remote = GitRemote(
        source=CloneSource(url="https://host/x", scheme="https", host="host", port=443),
        login=GitLogin(origin="https://host", user="oauth2", token=TOKEN),
    )
    stderr = f"fatal: words of a stranger about https://host/x and {TOKEN}"
    with pytest.raises(ServiceError) as failed, caplog.at_level(logging.WARNING):
        await GIT.run("-c", f"alias.fail=!echo {shlex.quote(stderr)} >&2; exit 1", "fail", remote=remote)
    assert "stranger" not in failed.value.message
    assert "words of a stranger about the repository and ***" in caplog.text
    assert TOKEN not in caplog.text


async def test_output_without_end_is_cut() -> None:
    printed = await GIT.run("-c", "alias.flood=!yes | head -c 9000000", "flood")
    assert len(printed) == 4 << 20


async def test_no_program_of_a_repositorys_own_configuration_runs(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"a": "1"})
    made = tmp_path / "made"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {made}\n")
    script.chmod(0o755)
    (repo / ".git/hooks").mkdir(exist_ok=True)
    (repo / ".git/hooks/post-checkout").symlink_to(script)
    git(repo, "config", "core.fsmonitor", str(script))
    await GIT.run("checkout", "-q", "-b", "other", cwd=repo)
    await GIT.run("status", cwd=repo)
    assert git(repo, "symbolic-ref", "--short", "HEAD") == "other"
    assert not made.exists()
    for args in (["checkout", "-q", "-b", "third"], ["status"]):  # plain git would have run each of them
        git(repo, *args)
        assert made.exists()
        made.unlink()
        (repo / ".git/hooks/post-checkout").unlink(missing_ok=True)
