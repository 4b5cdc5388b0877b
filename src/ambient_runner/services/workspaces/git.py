"""Git as a child process, trusted with as little as it needs.

It sees no configuration of this machine, runs no hooks, filters or submodules, asks nobody, follows no redirect, speaks one protocol,
connects to the addresses that were checked, and has the one login that belongs to the host. Its memory has an end, and its process group
dies with the call.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import GitUnavailable, LoginNeeded, RepoMissing, RepoMoved, RepoTooLarge, ServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

    from ambient_runner.services.workspaces.clone_sources import Source
    from ambient_runner.services.workspaces.git_logins import Login

__all__ = ["NO_BRANCH", "Git", "Remote"]

logger = logging.getLogger(__name__)

_FIXED = {
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
    "MALLOC_ARENA_MAX": "2",  # or every thread reserves memory that it never uses, and that counts
}
_SETTINGS = (
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
    # What is large goes through git in pieces, so that its memory is not the repository's to choose.
    "core.bigFileThreshold=64m",
    "core.packedGitWindowSize=64m",
    "core.packedGitLimit=512m",
    "pack.threads=4",
)
NO_BRANCH = (
    "The repository has no branch or tag of that name. Check its spelling, or name none to get the default branch."
)
_NO_PROTOCOL = "none"
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$AMBIENT_GIT_USER" "$AMBIENT_GIT_TOKEN"; }; f'
)
_LONGEST_OUTPUT = 4 << 20
# The shell sets the limit for git and for all that git starts. Where there is no such limit, git runs without.
_LIMITED = ("/bin/sh", "-c", 'ulimit -v "$0" 2>/dev/null; exec git "$@"')
_NOT_FOUND = 127


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """Where a command may connect to, and as whom."""

    source: Source
    login: Login | None = None
    agent: str = ""
    """The socket of an ssh agent that was granted; ssh uses no other key."""

    def settings(self) -> list[str]:
        source = self.source
        settings: list[str] = []
        if source.scheme in ("http", "https") and source.addresses and not source.host.startswith("["):
            settings.append(f"http.curloptResolve={source.host}:{source.port}:{','.join(source.addresses)}")
        if self.login:
            settings.append(f"credential.{self.login.place}.helper={_HELPER}")
        return settings

    def variables(self) -> dict[str, str]:
        variables = {"GIT_ALLOW_PROTOCOL": self.source.scheme}
        if self.login:
            variables |= {"AMBIENT_GIT_USER": self.login.user, "AMBIENT_GIT_TOKEN": self.login.token}
        if self.source.scheme == "ssh":
            variables |= {"GIT_SSH_COMMAND": self._ssh(), "GIT_SSH_VARIANT": "ssh"}
        return variables

    def _ssh(self) -> str:
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ProxyCommand": "none",
            "PermitLocalCommand": "no",
            "ForwardAgent": "no",
            "IdentityFile": "none",
            "IdentityAgent": self.agent or "none",
            "ConnectTimeout": "30",
            "HostKeyAlias": self.source.host.strip("[]"),
            "HostName": next(iter(self.source.addresses), self.source.host.strip("[]")),
        }
        return shlex.join(["ssh", "-F", "/dev/null", *(f"-o{name}={value}" for name, value in options.items())])


@dataclass(frozen=True, kw_only=True, slots=True)
class Git:
    """Runs git. `base` is what it may have of this process's own variables: those of `git_environment`, no others."""

    base: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    most_memory: int = 2 << 30
    """Bytes of address space each of its processes may have."""

    async def run(
        self,
        *args: str,
        remote: Remote | None = None,
        folder: Path | None = None,
        on_stderr: Callable[[bytes], None] = lambda data: None,
    ) -> str:
        """What git prints. Being cancelled ends git and everything it started.

        Raises: ServiceError, with a sentence about what to do and nothing of the URL in it.
        """
        said = _Tail()

        def hear(data: bytes) -> None:
            said.feed(data)
            on_stderr(data)

        async with self._process(args, remote, folder) as process:
            assert process.stdout
            assert process.stderr
            out = bytearray()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, process.stderr, hear)
                await _read(process.stdout, lambda data: out.extend(data[: _LONGEST_OUTPUT - len(out)]))
            code = await process.wait()
        _check(code, said.text, remote)
        return out.decode("utf-8", "replace")

    async def has_at_most(self, most: int, *args: str, folder: Path) -> bool:
        """Whether git prints no more entries than these, with `-z`. It is ended at the first that is too many.

        Raises: ServiceError.
        """
        said, found = _Tail(), 0
        async with self._process(args, None, folder) as process:
            assert process.stdout
            assert process.stderr
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, process.stderr, said.feed)
                async for data in process.stdout:
                    found += data.count(b"\0")
                    if found > most:
                        tasks.cancel_scope.cancel()
                        return False
            code = await process.wait()
        _check(code, said.text, None)
        return True

    @asynccontextmanager
    async def _process(
        self, args: Sequence[str], remote: Remote | None, folder: Path | None
    ) -> AsyncGenerator[Process, None]:
        settings = [*_SETTINGS, *(remote.settings() if remote else ())]
        options = [part for setting in settings for part in ("-c", setting)]
        command = [*_LIMITED, str(self.most_memory >> 10), *options, *args]
        try:
            process = await anyio.open_process(
                command,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=self._variables(remote),
                cwd=folder,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise GitUnavailable from error
        try:
            yield process
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def _variables(self, remote: Remote | None) -> dict[str, str]:
        allowed = remote.variables() if remote else {"GIT_ALLOW_PROTOCOL": _NO_PROTOCOL}
        return {"PATH": os.defpath, **self.base} | _FIXED | allowed


class _Tail:
    """The end of what git said."""

    def __init__(self) -> None:
        self._data = b""

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-8192:]


async def _read(stream: ByteReceiveStream, take: Callable[[bytes], object]) -> None:
    async for data in stream:
        take(data)


# What git says, in the order of looking, and what a person can do about it. The texts are git's own of LC_ALL=C.
_REASONS: tuple[tuple[str, type[ServiceError] | str], ...] = (
    (
        r"could not read (Username|Password)|Authentication failed|returned error: 40[13]|Permission denied \(|HTTP Basic: Access denied",
        LoginNeeded,
    ),
    (
        r"Host key verification failed",
        "The host's ssh key is not known to this server. Its operator has to add it to known_hosts.",
    ),
    (
        r"repository .* not found|Repository not found|returned error: 404|does not appear to be a git repository|not a git repository",
        RepoMissing,
    ),
    (r"returned error: 3\d\d|redirect", RepoMoved),
    (r"Remote branch .* not found|couldn't find remote ref", NO_BRANCH),
    (r"Could not resolve host|Could not resolve hostname", "That host has no address. Check the spelling of the URL."),
    (
        r"Failed to connect|Connection refused|Connection timed out|Couldn't connect|Connection reset|Operation too slow",
        "The host did not answer, or too slowly. Try again in a moment.",
    ),
    (r"transport '.*' not allowed", "This server does not clone by that protocol. Send a URL of another one."),
    (r"[Oo]ut of memory|Cannot allocate memory", RepoTooLarge),
    (r"No space left on device|Disk quota exceeded", "The server's disk is full. Its operator has to make room."),
)
_UNKNOWN = "git could not do this. Try again; if it fails once more, the server's log has the reason."


def _check(code: int, said: str, remote: Remote | None) -> None:
    if code == _NOT_FOUND:
        raise GitUnavailable
    if code:
        raise _failure(said, remote)


def _failure(said: str, remote: Remote | None) -> ServiceError:
    """Nothing of what git said is passed on: much of it is the other side's to say."""
    for pattern, reason in _REASONS:
        if re.search(pattern, said):
            return ServiceError(reason) if isinstance(reason, str) else reason()
    logger.warning("git failed: %s", _scrubbed(said, remote))
    return ServiceError(_UNKNOWN)


def _scrubbed(text: str, remote: Remote | None) -> str:
    if remote:
        text = text.replace(remote.source.url, "the repository")
        text = text.replace(remote.login.token, "***") if remote.login else text
    return "".join(char if char.isprintable() else " " for char in text)
