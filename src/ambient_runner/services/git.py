"""Git as a child process, trusted with as little as it needs.

It sees no configuration of this machine, runs no hooks, filters or submodules, asks nobody, follows no redirect, speaks one protocol,
connects to the addresses that were checked, and has the one login that belongs to the host. Its process group dies with the call.
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

from ambient_runner.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

    from ambient_runner.services.sources import Source
    from ambient_runner.services.tokens import Login

__all__ = ["Git", "Remote"]

logger = logging.getLogger(__name__)

_PASSED = ("PATH", "LANG", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
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
)
_NO_PROTOCOL = "none"
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$AMBIENT_GIT_USER" "$AMBIENT_GIT_TOKEN"; }; f'
)
_LONGEST_OUTPUT = 4 << 20
_LONGEST_REASON = 200


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
    """Runs git. `base` is what it may have of this process's own variables; the names it has no use for are left out."""

    base: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

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
        if code:
            raise _failure(said.text, remote)
        return out.decode("utf-8", "replace")

    @asynccontextmanager
    async def _process(
        self, args: Sequence[str], remote: Remote | None, folder: Path | None
    ) -> AsyncGenerator[Process, None]:
        settings = [*_SETTINGS, *(remote.settings() if remote else ())]
        command = ["git", *(part for setting in settings for part in ("-c", setting)), *args]
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
            raise ServiceError("git is not installed on this server. Its operator has to install it.") from error
        try:
            yield process
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def _variables(self, remote: Remote | None) -> dict[str, str]:
        passed = {name: self.base[name] for name in (*_PASSED, *_PROXIES) if name in self.base}
        allowed = remote.variables() if remote else {"GIT_ALLOW_PROTOCOL": _NO_PROTOCOL}
        return {"PATH": os.defpath} | passed | _FIXED | allowed


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
_REASONS = (
    (
        r"could not read (Username|Password)|Authentication failed|returned error: 40[13]|Permission denied \(|HTTP Basic: Access denied",
        "The repository asks for a login, and the token that was granted does not open it or there is none. "
        "Give this server a token that can read the repository.",
    ),
    (
        r"Host key verification failed",
        "The host's ssh key is not known to this server. Its operator has to add it to known_hosts.",
    ),
    (
        r"repository .* not found|Repository not found|returned error: 404|does not appear to be a git repository|not a git repository",
        "There is no repository at that URL, or it is not visible with the token that was granted.",
    ),
    (r"returned error: 3\d\d|redirect", "The URL leads to another one. Send the final URL; it usually ends in .git."),
    (r"Remote branch .* not found|couldn't find remote ref", "The repository has no branch of that name."),
    (r"Could not resolve host|Could not resolve hostname", "That host has no address. Check the spelling of the URL."),
    (
        r"Failed to connect|Connection refused|Connection timed out|Couldn't connect|Connection reset|Operation too slow",
        "The host did not answer, or too slowly. Try again in a moment.",
    ),
    (r"transport '.*' not allowed", "This server does not clone by that protocol."),
    (r"No space left on device|Disk quota exceeded", "The server's disk is full. Its operator has to make room."),
)


def _failure(said: str, remote: Remote | None) -> ServiceError:
    """Only git's own last words are passed on: what the other side says is up to the other side."""
    for pattern, sentence in _REASONS:
        if re.search(pattern, said):
            return ServiceError(sentence)
    logger.warning("git failed: %s", _scrubbed(said, remote))
    words = re.findall(r"^(?:fatal|error): (.*)$", said, re.MULTILINE)
    reason = _scrubbed(words[-1], remote)[:_LONGEST_REASON] if words else "it said no reason"
    return ServiceError(f"git could not do this: {reason}")


def _scrubbed(text: str, remote: Remote | None) -> str:
    if remote:
        text = text.replace(remote.source.url, "the repository")
        text = text.replace(remote.login.token, "***") if remote.login else text
    return "".join(char if char.isprintable() else " " for char in text)
