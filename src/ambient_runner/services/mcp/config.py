"""Which MCP servers a run has: three layers of configuration, merged by name, then filled in from what was granted.

The server's own file is weakest, the `.mcp.json` of the workspace (where it is trusted) is next, what the host application says of the
thread is strongest. A mistake costs the server that has it and is said; the others stay. Connecting is for `mcp_status.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from ambient_runner.errors import ServiceError
from ambient_runner.runs.isolate import foreign
from ambient_runner.services.workspaces.safe_files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.ledger.base import ThreadKey

__all__ = ["McpConfig", "Mistake", "Resolved", "Server", "ThreadServers", "expand", "fault_of", "layer_of", "resolve"]

ThreadServers = Callable[["ThreadKey"], Awaitable[Mapping[str, Any]]]
"""Gives the strongest layer for a thread, in the shape of a `.mcp.json`."""

PROJECT_FILE = ".mcp.json"
_MAX_FILE = 1 << 20
_MAX_SERVERS = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OURS = re.compile(r"ambient([_.]{2}.*)?")
"""Names under which agents know tools of this server itself."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_TYPES = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamable_http": "http", "sse": "sse"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """One server, ready to be started or called. `config` may hold credentials: it is not for clients or logs."""

    name: str
    display_name: str
    config: dict[str, Any] = field(repr=False)
    digest: str = field(default="", compare=False)
    """Changes with what was written, not with what was filled in: a new token is no new server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """Why a server, or a whole layer, was left out."""

    name: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """The servers of one run, and what was left out."""

    servers: tuple[Server, ...] = ()
    disabled: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    @property
    def configs(self) -> dict[str, dict[str, Any]]:
        """As SDKs take them: configuration by name."""
        return {server.name: server.config for server in self.servers}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    servers: Mapping[str, object] = field(default_factory=dict[str, object])
    disabled: frozenset[str] = frozenset()
    mistakes: tuple[Mistake, ...] = ()


class McpConfig:
    """Finds the layers of a thread. `project` says whether the workspace's own file counts."""

    def __init__(self, file: Path | None = None, *, project: bool = False, thread: ThreadServers | None = None) -> None:
        self._file = file
        self._project = project
        self._of_thread = thread

    async def of(self, thread: ThreadKey, folder: Path | None, environment: Mapping[str, str]) -> Resolved:
        """The servers of a thread whose work happens in `folder`. Raises: ServiceError when the application cannot say its part."""
        layers: list[_Layer] = []
        if self._file is not None:
            layers.append(await to_thread.run_sync(_of_server, self._file))
        if folder is not None:
            layers.append(await self._of_project(folder))
        if self._of_thread is not None:
            layers.append(layer_of(await _asked(self._of_thread, thread), "the MCP configuration of this thread"))
        return resolve(layers, environment)

    async def _of_project(self, folder: Path) -> _Layer:
        path = folder / PROJECT_FILE
        if self._project:
            return await to_thread.run_sync(_of_workspace, folder)
        # A link counts, wherever it leads: some cannot be looked at.
        if await to_thread.run_sync(os.path.lexists, path):
            said = (
                f"The workspace's {PROJECT_FILE} is not used. Set `mcp.project` if its authors may start programs here."
            )
            return _Layer(mistakes=(Mistake(name=PROJECT_FILE, message=said),))
        return _Layer()


async def _asked(servers: ThreadServers, thread: ThreadKey) -> Mapping[str, Any]:
    said = "The MCP servers of this thread could not be looked up. Try again in a moment."
    with foreign(lambda error: ServiceError(said)):
        return await servers(thread)


def fault_of(path: Path) -> str:
    """What is wrong with the operator's own file as a whole; empty for nothing. Blocks."""
    try:
        _operators(path)
    except ValueError as error:
        return str(error)
    return ""


def _of_server(path: Path) -> _Layer:
    try:
        return _operators(path)
    except ValueError as error:
        return _wrong("the server's MCP configuration", str(error))


def _operators(path: Path) -> _Layer:
    """The operator's own file, which may be a link. Raises: ValueError, whose text says what is wrong."""
    place = Path(os.path.realpath(path))  # `resolve` fails for a link to itself
    layer = _read(place.parent, place.name)
    if layer is None:
        raise ValueError("is not there")
    return layer


def _of_workspace(folder: Path) -> _Layer:
    try:
        return _read(folder, PROJECT_FILE) or _Layer()
    except ValueError as error:
        return _wrong(f"the workspace's {PROJECT_FILE}", str(error))


def _read(folder: Path, name: str) -> _Layer | None:
    """The layer in a plain file; None when there is none. Raises: ValueError, whose text says what is wrong."""
    try:
        data = read_file(folder, PurePosixPath(name), _MAX_FILE)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from error
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"is not JSON{where}") from error
    return _layer(value)


def layer_of(value: object, what: str) -> _Layer:
    """A `.mcp.json` as a layer: `mcpServers` by name, and `disabled`, a list of names."""
    try:
        return _layer(value)
    except ValueError as error:
        return _wrong(what, str(error))


def _layer(value: object) -> _Layer:
    """Raises: ValueError, whose text says what is wrong."""
    members = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None
    if members is None:
        raise ValueError("must be an object with `mcpServers`")
    if "servers" in members and "mcpServers" not in members:
        raise ValueError("has `servers`, which is called `mcpServers` here")
    servers, disabled = members.get("mcpServers", {}), members.get("disabled", [])
    if not isinstance(servers, Mapping) or len(cast("Mapping[str, object]", servers)) > _MAX_SERVERS:
        raise ValueError(f"must have `mcpServers`, an object of at most {_MAX_SERVERS} servers by name")
    names = cast("list[object]", disabled) if isinstance(disabled, list) else [disabled]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("must have `disabled`, a list of names")
    return _Layer(servers=cast("Mapping[str, object]", servers), disabled=frozenset(cast("list[str]", names)))


def _wrong(what: str, fault: str) -> _Layer:
    return _Layer(mistakes=(Mistake(name=what, message=f"{what[0].upper()}{what[1:]} {fault}: none of it is used."),))


def resolve(layers: Sequence[_Layer], environment: Mapping[str, str]) -> Resolved:
    """Later layers replace servers of the same name; a name that any layer disables is off."""
    merged = {name: entry for layer in layers for name, entry in layer.servers.items()}
    off = frozenset[str]().union(*(layer.disabled for layer in layers))
    off |= {name for name, entry in merged.items() if _is_off(entry)}
    servers: list[Server] = []
    mistakes = [mistake for layer in layers for mistake in layer.mistakes]
    for name, entry in merged.items():
        if name in off:
            continue
        try:
            servers.append(_server(name, entry, environment))
        except ValueError as error:
            mistakes.append(Mistake(name=name[:64], message=f"The MCP server {name[:64]!r} {error}. It is left out."))
    return Resolved(servers=tuple(servers), disabled=tuple(sorted(off & merged.keys())), mistakes=tuple(mistakes))


def _is_off(entry: object) -> bool:
    return isinstance(entry, Mapping) and cast("Mapping[str, object]", entry).get("disabled") is True


def _server(name: str, entry: object, environment: Mapping[str, str]) -> Server:
    """One server, checked and filled in. Raises: ValueError, whose text says what is wrong."""
    if not _NAME.fullmatch(name):
        raise ValueError("has a name that is not 1 to 64 letters, digits, _, . or -")
    if _OURS.fullmatch(name):
        raise ValueError("has a name that this server uses for tools of its own. Give it another one")
    if not isinstance(entry, Mapping) or not entry:
        raise ValueError("is not an object that says how to start or reach it")
    members = cast("dict[str, object]", expand(dict(cast("Mapping[str, object]", entry)), environment))
    kind = _TYPES.get(str(members.get("type", "stdio" if "command" in members else "http")))
    shown = members.get("displayName")
    config = _stdio(members) if kind == "stdio" else _remote(kind, members)
    written = hashlib.sha256(json.dumps(entry, sort_keys=True, default=repr).encode()).hexdigest()
    return Server(
        name=name, display_name=shown if isinstance(shown, str) and shown else name, config=config, digest=written
    )


def _stdio(members: Mapping[str, object]) -> dict[str, Any]:
    command, args = members.get("command"), members.get("args", [])
    if not isinstance(command, str) or not command:
        raise ValueError("needs a `command`")
    if not isinstance(args, list) or not _all_text(cast("list[object]", args)):
        raise ValueError("has `args` that are not a list of texts")
    return {"type": "stdio", "command": command, "args": args, "env": _texts(members, "env")}


def _remote(kind: str | None, members: Mapping[str, object]) -> dict[str, Any]:
    url = members.get("url")
    if kind is None:
        raise ValueError("has a `type` that is not stdio, http or sse")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError("needs a `command`, or a `url` that begins with https:// or http://")
    return {"type": kind, "url": url, "headers": _texts(members, "headers")}


def _texts(members: Mapping[str, object], name: str) -> dict[str, str]:
    value = members.get(name, {})
    if isinstance(value, dict) and _all_text(cast("dict[str, object]", value).values()):
        return cast("dict[str, str]", value)
    raise ValueError(f"has `{name}` that is not an object of texts")


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) and "\0" not in value for value in values)


def expand(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with `${NAME}` and `${NAME:-default}` filled in, in every text. Raises: ValueError when a name has no value."""
    match value:
        case str():
            return _VARIABLE.sub(lambda found: _granted(found, environment), value)
        case dict():
            return {key: expand(item, environment) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [expand(item, environment) for item in cast("list[Any]", value)]
        case _:
            return value


def _granted(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = found[1], found[2]
    if environment.get(name):
        return environment[name]
    if default is None:
        raise ValueError(f"needs {name}, which was not granted to this run")
    return default
