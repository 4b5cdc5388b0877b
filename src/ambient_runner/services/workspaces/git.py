"""Git as a child process with minimal privileges.

It reads no configuration of this machine, runs no hooks, filters or submodules, never prompts, follows no redirect, speaks one protocol,
connects to the addresses that were checked, and gets the one login that belongs to the host. Its memory is limited, and its process group
is killed at the end of the call.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import (
    GitUnavailable,
    RepoAuthRequired,
    RepoNotFound,
    RepoRedirected,
    RepoTooLarge,
    ServiceError,
)
from ambient_runner.processes.spawn import end_process, open_process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

    from ambient_runner.services.workspaces.clone_sources import CloneSource
    from ambient_runner.services.workspaces.git_logins import GitLogin

__all__ = ["NO_SUCH_BRANCH", "Git", "GitRemote"]

logger = logging.getLogger(__name__)

_FIXED_VARIABLES = {
    "HOME": "/dev/null",  # no ~/.netrc, no ~/.gitconfig, no ~/.config
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PROTOCOL_FROM_USER": "0",
    "MALLOC_ARENA_MAX": "2",  # or every thread reserves address space that it never uses but that counts against the limit
}
_CONFIG_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.askPass=",
    "credential.helper=",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=60",
    # Git streams large files, so that a repository cannot decide how much memory git takes.
    "core.bigFileThreshold=64m",
    "core.packedGitWindowSize=64m",
    "core.packedGitLimit=512m",
    "pack.threads=4",
)
NO_SUCH_BRANCH = (
    "The repository has no branch or tag of that name. Check its spelling, or name none to get the default branch."
)
_NO_PROTOCOL = "none"
_CREDENTIAL_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$AMBIENT_GIT_USER" "$AMBIENT_GIT_TOKEN"; }; f'
)
_MAX_OUTPUT_BYTES = 4 << 20
# The shell sets the memory limit for git and all its child processes. On systems without `ulimit -v`, git runs without one.
_LIMITED_COMMAND = ("/bin/sh", "-c", 'ulimit -v "$0" 2>/dev/null; exec git "$@"')
_EXIT_NOT_FOUND = 127


@dataclass(frozen=True, kw_only=True, slots=True)
class GitRemote:
    """The source a command may connect to, and the login it uses."""

    source: CloneSource
    login: GitLogin | None = None
    ssh_agent: str = ""
    """Socket of the granted ssh agent; ssh uses no other key."""

    def config_options(self) -> list[str]:
        source = self.source
        settings: list[str] = []
        if source.scheme in ("http", "https") and source.addresses and not source.host.startswith("["):
            settings.append(f"http.curloptResolve={source.host}:{source.port}:{','.join(source.addresses)}")
        if self.login:
            settings.append(f"credential.{self.login.origin}.helper={_CREDENTIAL_HELPER}")
        return settings

    def environment_variables(self) -> dict[str, str]:
        variables = {"GIT_ALLOW_PROTOCOL": self.source.scheme}
        if self.login:
            variables |= {"AMBIENT_GIT_USER": self.login.user, "AMBIENT_GIT_TOKEN": self.login.token}
        if self.source.scheme == "ssh":
            variables |= {"GIT_SSH_COMMAND": self._ssh_command(), "GIT_SSH_VARIANT": "ssh"}
        return variables

    def _ssh_command(self) -> str:
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ProxyCommand": "none",
            "PermitLocalCommand": "no",
            "ForwardAgent": "no",
            "IdentityFile": "none",
            "IdentityAgent": self.ssh_agent or "none",
            "ConnectTimeout": "30",
            "HostKeyAlias": self.source.host.strip("[]"),
            "HostName": next(iter(self.source.addresses), self.source.host.strip("[]")),
        }
        return shlex.join(["ssh", "-F", "/dev/null", *(f"-o{name}={value}" for name, value in options.items())])


@dataclass(frozen=True, kw_only=True, slots=True)
class Git:
    """Runs git. `base_environment` holds the only variables it gets of this process's own: those of `git_environment`."""

    base_environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    max_memory: int = 2 << 30
    """Bytes of address space for each git process."""

    async def run(
        self,
        *args: str,
        remote: GitRemote | None = None,
        cwd: Path | None = None,
        on_stderr: Callable[[bytes], None] = lambda data: None,
    ) -> str:
        """Run git and return its output. Cancellation kills git and its child processes.

        Raises: ServiceError, whose message says what to do and contains nothing of the URL.
        """
        stderr = _StderrTail()

        def on_data(data: bytes) -> None:
            stderr.feed(data)
            on_stderr(data)

        async with self._spawn_git(args, remote, cwd) as process:
            assert process.stdout
            assert process.stderr
            out = bytearray()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read_stream, process.stderr, on_data)
                await _read_stream(process.stdout, lambda data: out.extend(data[: _MAX_OUTPUT_BYTES - len(out)]))
            code = await process.wait()
        _check_exit(code, stderr.text, remote, cwd)
        return out.decode("utf-8", "replace")

    async def prints_at_most(self, limit: int, *args: str, cwd: Path) -> bool:
        """Return True if git prints at most `limit` entries, with `-z`. It is killed at the first one above.

        Raises: ServiceError.
        """
        stderr, count = _StderrTail(), 0
        async with self._spawn_git(args, None, cwd) as process:
            assert process.stdout
            assert process.stderr
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read_stream, process.stderr, stderr.feed)
                async for data in process.stdout:
                    count += data.count(b"\0")
                    if count > limit:
                        tasks.cancel_scope.cancel()
                        return False
            code = await process.wait()
        _check_exit(code, stderr.text, None, cwd)
        return True

    @asynccontextmanager
    async def _spawn_git(
        self, args: Sequence[str], remote: GitRemote | None, cwd: Path | None
    ) -> AsyncGenerator[Process, None]:
        settings = [*_CONFIG_OPTIONS, *(remote.config_options() if remote else ())]
        options = [part for setting in settings for part in ("-c", setting)]
        command = [*_LIMITED_COMMAND, str(self.max_memory >> 10), *options, *args]
        try:
            process = await open_process(
                command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=self._child_environment(remote), cwd=cwd
            )
        except FileNotFoundError as error:
            raise GitUnavailable from error
        try:
            yield process
        finally:
            await end_process(process)

    def _child_environment(self, remote: GitRemote | None) -> dict[str, str]:
        remote_variables = remote.environment_variables() if remote else {"GIT_ALLOW_PROTOCOL": _NO_PROTOCOL}
        return {"PATH": os.defpath, **self.base_environment} | _FIXED_VARIABLES | remote_variables


class _StderrTail:
    """The last bytes of git's stderr."""

    def __init__(self) -> None:
        self._data = b""

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-8192:]


async def _read_stream(stream: ByteReceiveStream, on_data: Callable[[bytes], object]) -> None:
    async for data in stream:
        on_data(data)


# Patterns of git's messages under LC_ALL=C, in the order of matching, and the error for each.
_KNOWN_FAILURES: tuple[tuple[str, type[ServiceError] | str], ...] = (
    (
        r"could not read (Username|Password)|Authentication failed|returned error: 40[13]|Permission denied \(|HTTP Basic: Access denied",
        RepoAuthRequired,
    ),
    (
        r"Host key verification failed",
        "This server does not know the host's ssh key. Its operator has to add it to known_hosts.",
    ),
    (
        r"repository .* not found|Repository not found|returned error: 404|does not appear to be a git repository|not a git repository",
        RepoNotFound,
    ),
    (r"returned error: 3\d\d|redirect", RepoRedirected),
    (r"Remote branch .* not found|couldn't find remote ref", NO_SUCH_BRANCH),
    (
        r"Could not resolve host|Could not resolve hostname",
        "The host name cannot be resolved. Check the spelling of the URL.",
    ),
    (
        r"Failed to connect|Connection refused|Connection timed out|Couldn't connect|Connection reset|Operation too slow",
        "The host did not respond, or too slowly. Try again in a moment.",
    ),
    (r"transport '.*' not allowed", "This server does not clone with that protocol. Send a URL with another one."),
    (r"[Oo]ut of memory|Cannot allocate memory", RepoTooLarge),
    (r"No space left on device|Disk quota exceeded", "The server's disk is full. Its operator has to free some space."),
)
_UNKNOWN_FAILURE = "git failed. Try again; if it fails again, see the server's log for the reason."


def _check_exit(code: int, stderr: str, remote: GitRemote | None, cwd: Path | None) -> None:
    if code == _EXIT_NOT_FOUND:
        raise GitUnavailable
    if code:
        raise _error_from_stderr(stderr, remote, cwd)


def _error_from_stderr(stderr: str, remote: GitRemote | None, cwd: Path | None) -> ServiceError:
    """Return the error for git's stderr. None of that text is passed on to the client: the remote controls much of it."""
    for pattern, reason in _KNOWN_FAILURES:
        if re.search(pattern, stderr):
            return ServiceError(reason) if isinstance(reason, str) else reason()
    host = remote.source.netloc if remote else ""
    logger.warning(
        "git failed in %s for a reason this server does not know; its last output was: %s",
        cwd or f"a transfer from {host or 'a local repository'}",
        _scrub_stderr(stderr, remote),
    )
    return ServiceError(_UNKNOWN_FAILURE)


def _scrub_stderr(text: str, remote: GitRemote | None) -> str:
    if remote:
        text = text.replace(remote.source.url, "the repository")
        text = text.replace(remote.login.token, "***") if remote.login else text
    return "".join(char if char.isprintable() else " " for char in text)
