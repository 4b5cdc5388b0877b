"""A sandbox of the operating system for a whole agent, by bubblewrap: what the agent can see, write and reach.

The file system is read-only but for the workspace, the agent's home and a private temp directory. The user's home, directories of sockets
and what the caller hides are covered by empty directories; what the agent needs from below them is mounted again. Of a path and one below
it, the longer one decides. With a gateway, the agent is started by `gateway_inside.py`, and 127.0.0.1 leads to the gateway's socket.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ambient_runner.processes.bubblewrap import COMMON_OPTIONS, check_bubblewrap
from ambient_runner.processes.program_files import find_python_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["GATEWAY_PORT", "Sandbox", "sandboxed_command"]

GATEWAY_PORT = 18118
"""The port on 127.0.0.1 inside a sandbox that leads to the gateway. Every sandbox has its own network, so one number serves all."""

_TEMP_DIRECTORIES = ("/tmp", "/var/tmp")  # noqa: S108
_COVERED = ("/run", "/var/run", "/home", "/root", "/etc/shadow", "/etc/gshadow")
"""Sockets of the system (Docker, D-Bus, ssh-agent), homes, and what the agent could read only where the server runs as root."""
_SOCKET_TABLE = Path("/proc/net/unix")
_RESOLVER = Path("/etc/resolv.conf")
_INSIDE_PROGRAM = Path(__file__).with_name("gateway_inside.py")
_MAX_LINKS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """The limits of one agent. Raises: ValueError for a network `gateway` without the gateway's socket."""

    workspace: Path
    workspace_access: Literal["read", "write"] = "write"
    home: Path | None
    """The agent's home, writable. None leaves an empty temporary directory in place of the user's home."""
    writable: Sequence[Path] = ()
    """Further files and directories that the agent may change."""
    readable: Sequence[Path] = ()
    """Files and directories below hidden ones that the agent needs. The rest of the file system is readable anyway."""
    hidden: Sequence[Path] = ()
    """Files and directories that do not exist for the agent, besides the user's home: the store, other threads."""
    sockets: Sequence[Path] = ()
    """Unix sockets that the agent may connect to."""
    network: Literal["none", "gateway", "all"] = "none"
    gateway: Path | None = None
    """The socket of the gateway. Used with the network `gateway` only."""
    gateway_port: int = GATEWAY_PORT

    def __post_init__(self) -> None:
        if self.network == "gateway" and self.gateway is None:
            raise ValueError("A sandbox with the network `gateway` needs the gateway's socket.")


def sandboxed_command(command: Sequence[str], sandbox: Sandbox) -> list[str]:
    """Return the command line that runs a command in the sandbox, in the environment that it is started with.

    Raises: FileNotFoundError with the reason if bubblewrap does not work here.
    """
    status = check_bubblewrap()
    if status.path is None:
        raise FileNotFoundError(status.reason)
    mounts = _select_mounts(_list_mounts(sandbox))
    network = () if sandbox.network == "all" else ("--unshare-net",)
    options = [argument for mount in mounts for argument in mount.options()]
    remounts = [argument for mount in mounts for argument in mount.final_options()]
    directory = str(sandbox.workspace.resolve())
    inner = _gateway_command(command, sandbox)
    return [status.path, *COMMON_OPTIONS, *network, *options, *remounts, "--chdir", directory, "--", *inner]


def _gateway_command(command: Sequence[str], sandbox: Sandbox) -> list[str]:
    if sandbox.network != "gateway":
        return list(command)
    inside = [sys.executable, "-I", "-S", str(_INSIDE_PROGRAM)]
    return [*inside, str(sandbox.gateway), str(sandbox.gateway_port), *command]


class _Kind(IntEnum):
    """Kinds of mounts. Of two at the same path, the higher one wins."""

    HIDDEN = 0
    SOCKET = 1
    """A socket of the system. It is covered unless it is in a writable directory."""
    TEMPORARY = 2
    """An empty directory that the agent may write to."""
    LINK = 3
    READ = 4
    """Visible. What is writable as part of a directory above stays so."""
    WRITE = 5
    READ_ONLY = 6

    @property
    def is_cover(self) -> bool:
        return self <= _Kind.TEMPORARY


@dataclass(frozen=True, slots=True)
class _Mount:
    """One path of the sandbox. `path` has no links in its parents."""

    path: Path
    kind: _Kind
    target: str = ""

    def options(self) -> list[str]:
        path = str(self.path)
        match self.kind:
            case _Kind.LINK:
                return ["--symlink", self.target, path]
            case _Kind.READ | _Kind.READ_ONLY:
                return ["--ro-bind", path, path]
            case _Kind.WRITE:
                return ["--bind", path, path]
            case _ if self.path.is_dir():
                return ["--tmpfs", path]
            case _:
                return ["--ro-bind", os.devnull, path]

    def final_options(self) -> list[str]:
        """Return what follows all mounts: an empty directory becomes read-only once everything below it is mounted."""
        return ["--remount-ro", str(self.path)] if self.kind is _Kind.HIDDEN and self.path.is_dir() else []


def _list_mounts(sandbox: Sandbox) -> Iterator[_Mount]:
    """Yield the mounts that the sandbox asks for, in any order."""
    is_writable = sandbox.workspace_access == "write"
    writable = [*sandbox.writable, *([sandbox.home] if sandbox.home else [])]
    owned = [_follow_links(path)[-1] for path in [*writable, *([sandbox.workspace] if is_writable else [])]]
    visible = [*_needed_files(sandbox), *sandbox.readable, *sandbox.sockets]
    yield from _mounts_of(map(Path, _TEMP_DIRECTORIES), _Kind.TEMPORARY)
    yield from _mounts_of([*map(Path, _COVERED), *sandbox.hidden], _Kind.HIDDEN)
    yield from _mounts_of(_user_homes(), _Kind.HIDDEN if sandbox.home else _Kind.TEMPORARY)
    yield from _mounts_of(_system_sockets(), _Kind.SOCKET)
    yield from _mounts_of(visible, _Kind.READ, owned)
    yield from _mounts_of(writable, _Kind.WRITE, owned)
    yield from _mounts_of([sandbox.workspace], _Kind.WRITE if is_writable else _Kind.READ_ONLY, owned)


def _select_mounts(mounts: Iterable[_Mount]) -> list[_Mount]:
    """Return the mounts that change something, parents before what is below them.

    A directory that is hidden below a hidden one is left out, so that not even its name is seen.
    """
    selected: list[_Mount] = []
    for mount in sorted(set(mounts), key=lambda mount: (mount.path.parts, mount.kind)):
        above = next((other for other in reversed(selected) if mount.path.is_relative_to(other.path)), None)
        if not _has_effect(mount, above):
            continue
        if above is not None and above.path == mount.path:
            selected.remove(above)
        selected.append(mount)
    return selected


def _has_effect(mount: _Mount, above: _Mount | None) -> bool:
    """Return True if a mount changes what is seen at its path, given the last mount at or above it."""
    is_covered = above is not None and above.kind.is_cover
    match mount.kind:
        case _Kind.HIDDEN:
            return not is_covered
        case _Kind.SOCKET:
            return above is None or above.kind is _Kind.READ
        case _Kind.LINK | _Kind.READ:
            return is_covered
        case _:
            return True


def _mounts_of(paths: Iterable[Path], kind: _Kind, owned: Sequence[Path] = ()) -> Iterator[_Mount]:
    """Yield the mounts of the paths that exist, and of the links on the way to them.

    Links in directories that the agent owns are not followed: it could have made them, to get at what they lead to with its next start.
    """
    for path in paths:
        try:
            *links, found = _follow_links(path)
        except OSError:
            if kind.is_cover:
                continue  # In a directory of another user: the agent, who has this user's rights, does not get there either.
            raise
        is_redirected = any(link.is_relative_to(directory) for link in links for directory in owned)
        if found == Path("/") or is_redirected or not _exists(found):
            continue
        yield _Mount(found, kind)
        if not kind.is_cover:
            yield from (_Mount(link, _Kind.LINK, str(link.readlink())) for link in links)


def _follow_links(path: Path) -> list[Path]:
    """Return the links on the way to a path, then the path without links."""
    links: list[Path] = []
    current, rest = Path("/"), list(path.absolute().parts[1:])
    while rest and len(links) < _MAX_LINKS:
        name = rest.pop(0)
        current = current.parent if name == ".." else current / name
        if current.is_symlink():
            links.append(current)
            target = current.readlink()
            rest = [*(target.parts[1:] if target.is_absolute() else target.parts), *rest]
            current = Path("/") if target.is_absolute() else current.parent
    return [*links, current]


def _exists(path: Path) -> bool:
    with suppress(OSError):
        path.lstat()
        return True
    return False


def _user_homes() -> list[Path]:
    """Return the home of this process and that of its user, which differ where HOME is set to another directory."""
    import pwd  # Not on Windows, where this module is imported but never used.

    homes: list[Path] = []
    with suppress(RuntimeError):  # There is none.
        homes.append(Path.home())
    with suppress(KeyError):
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return homes


def _needed_files(sandbox: Sandbox) -> list[Path]:
    """Return what our own programs in the sandbox need, and what names are resolved with."""
    files = find_python_files()
    if sandbox.network == "gateway" and sandbox.gateway is not None:
        files += [_INSIDE_PROGRAM, sandbox.gateway]
    return [*files, _RESOLVER] if sandbox.network == "all" else files


def _system_sockets() -> list[Path]:
    """Return the sockets in the file system that programs outside listen on: a read-only mount does not keep anyone from connecting."""
    with suppress(OSError):
        rows = [line.split(maxsplit=7) for line in _SOCKET_TABLE.read_text(errors="replace").splitlines()[1:]]
        return [Path(row[7]) for row in rows if len(row) == 8 and row[7].startswith("/")]
    return []
