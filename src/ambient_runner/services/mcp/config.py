"""MCP configuration of a run: three layers merged by name, with variables filled in from the granted credentials.

The server's own file has the lowest precedence, then the workspace's `.mcp.json` (where it is trusted), then what the host application
returns for the thread. An invalid entry is left out and reported; the others stay. `status.py` connects to the servers.
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
from ambient_runner.files.safe_files import read_file
from ambient_runner.protocol.strict_json import MAX_DEPTH, is_too_deep
from ambient_runner.runs.isolate import reraise_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.ledger.records import ThreadKey

__all__ = [
    "McpConfig",
    "McpConfigProblem",
    "McpServer",
    "ResolvedMcpServers",
    "ThreadServers",
    "config_file_problem",
    "expand_variables",
    "load_layer",
    "resolve_servers",
]

ThreadServers = Callable[["ThreadKey"], Awaitable[Mapping[str, Any]]]
"""Returns the layer of a thread, which has the highest precedence, in the shape of a `.mcp.json`."""

PROJECT_FILE = ".mcp.json"
_MAX_FILE_BYTES = 1 << 20
_MAX_SERVERS = 100
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED_NAME = re.compile(r"ambient([_.]{2}.*)?")
"""Names reserved for this server's own tools."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_TYPES = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamable_http": "http", "sse": "sse"}


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServer:
    """One server, ready to be started or called. `config` may hold credentials: never send it to clients or logs."""

    name: str
    display_name: str
    config: dict[str, Any] = field(repr=False)
    digest: str = field(default="", compare=False)
    """Digest of the entry before variables are expanded: a new token does not make a new server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class McpConfigProblem:
    """The reason why a server, or a whole layer, was left out."""

    name: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedMcpServers:
    """The servers of one run, and what was left out."""

    servers: tuple[McpServer, ...] = ()
    disabled: tuple[str, ...] = ()
    problems: tuple[McpConfigProblem, ...] = ()

    @property
    def configs(self) -> dict[str, dict[str, Any]]:
        """Configurations by name, as SDKs take them."""
        return {server.name: server.config for server in self.servers}


@dataclass(frozen=True, kw_only=True, slots=True)
class _McpLayer:
    servers: Mapping[str, object] = field(default_factory=dict[str, object])
    disabled: frozenset[str] = frozenset()
    problems: tuple[McpConfigProblem, ...] = ()


class McpConfig:
    """Reads the layers of a thread. With `project`, the workspace's own file is one of them."""

    def __init__(self, file: Path | None = None, *, project: bool = False, thread: ThreadServers | None = None) -> None:
        self._file = file
        self._project = project
        self._thread_servers = thread

    async def resolve_for_thread(
        self, thread: ThreadKey, directory: Path | None, environment: Mapping[str, str]
    ) -> ResolvedMcpServers:
        """Return the servers of a thread whose agent works in `directory`. Raises: ServiceError when the thread's layer is unavailable."""
        layers: list[_McpLayer] = []
        if self._file is not None:
            layers.append(await to_thread.run_sync(_load_server_layer, self._file))
        if directory is not None:
            layers.append(await self._project_layer(directory))
        if self._thread_servers is not None:
            layers.append(
                load_layer(
                    await _fetch_thread_servers(self._thread_servers, thread), "the MCP configuration of this thread"
                )
            )
        return resolve_servers(layers, environment)

    async def _project_layer(self, directory: Path) -> _McpLayer:
        path = directory / PROJECT_FILE
        if self._project:
            return await to_thread.run_sync(_load_project_layer, directory)
        # lexists: a link counts, even one that cannot be resolved.
        if await to_thread.run_sync(os.path.lexists, path):
            message = f"The workspace's {PROJECT_FILE} is ignored. Set `mcp.project` if its authors may start programs on this server."
            return _McpLayer(problems=(McpConfigProblem(name=PROJECT_FILE, message=message),))
        return _McpLayer()


async def _fetch_thread_servers(servers: ThreadServers, thread: ThreadKey) -> Mapping[str, Any]:
    message = "The MCP servers of this thread could not be looked up. Try again in a moment."
    with reraise_as(lambda error: ServiceError(message)):
        return await servers(thread)


def config_file_problem(path: Path) -> str:
    """Return what is wrong with the operator's file as a whole; empty if it is valid. Blocks."""
    try:
        _read_server_file(path)
    except ValueError as error:
        return str(error)
    return ""


def _load_server_layer(path: Path) -> _McpLayer:
    try:
        return _read_server_file(path)
    except ValueError as error:
        return _invalid_layer("the server's MCP configuration", str(error))


def _read_server_file(path: Path) -> _McpLayer:
    """Read the operator's file, which may be a link. Raises: ValueError, whose text says what is wrong."""
    target = Path(os.path.realpath(path))  # `resolve` fails for a link to itself
    layer = _read_layer(target.parent, target.name)
    if layer is None:
        raise ValueError("does not exist")
    return layer


def _load_project_layer(directory: Path) -> _McpLayer:
    try:
        return _read_layer(directory, PROJECT_FILE) or _McpLayer()
    except ValueError as error:
        return _invalid_layer(f"the workspace's {PROJECT_FILE}", str(error))


def _read_layer(directory: Path, name: str) -> _McpLayer | None:
    """Read the layer in a regular file; None when there is no file. Raises: ValueError, whose text says what is wrong."""
    try:
        data = read_file(directory, PurePosixPath(name), _MAX_FILE_BYTES)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from error
    if data is None:
        return None
    if is_too_deep(data):
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"is not JSON{where}") from error
    return _parse_layer(value)


def load_layer(value: object, origin: str) -> _McpLayer:
    """Parse a `.mcp.json` value: `mcpServers` by name, and `disabled`, a list of names. An invalid one is an empty layer with a problem."""
    try:
        return _parse_layer(value)
    except ValueError as error:
        return _invalid_layer(origin, str(error))


def _parse_layer(value: object) -> _McpLayer:
    """Parse a layer. Raises: ValueError, whose text says what is wrong."""
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
    return _McpLayer(servers=cast("Mapping[str, object]", servers), disabled=frozenset(cast("list[str]", names)))


def _invalid_layer(origin: str, reason: str) -> _McpLayer:
    return _McpLayer(
        problems=(
            McpConfigProblem(name=origin, message=f"{origin[0].upper()}{origin[1:]} {reason}: none of it is used."),
        )
    )


def resolve_servers(layers: Sequence[_McpLayer], environment: Mapping[str, str]) -> ResolvedMcpServers:
    """Merge the layers. Later layers replace servers of the same name; a server that any layer disables is off."""
    merged = {name: entry for layer in layers for name, entry in layer.servers.items()}
    disabled = frozenset[str]().union(*(layer.disabled for layer in layers))
    disabled |= {name for name, entry in merged.items() if _is_disabled(entry)}
    servers: list[McpServer] = []
    problems = [problem for layer in layers for problem in layer.problems]
    for name, entry in merged.items():
        if name in disabled:
            continue
        try:
            servers.append(_parse_server(name, entry, environment))
        except ValueError as error:
            problems.append(
                McpConfigProblem(name=name[:64], message=f"The MCP server {name[:64]!r} {error}. It is left out.")
            )
    return ResolvedMcpServers(
        servers=tuple(servers), disabled=tuple(sorted(disabled & merged.keys())), problems=tuple(problems)
    )


def _is_disabled(entry: object) -> bool:
    return isinstance(entry, Mapping) and cast("Mapping[str, object]", entry).get("disabled") is True


def _parse_server(name: str, entry: object, environment: Mapping[str, str]) -> McpServer:
    """Check one entry and expand its variables. Raises: ValueError, whose text says what is wrong."""
    if not _SERVER_NAME.fullmatch(name):
        raise ValueError("has an invalid name: use 1 to 64 letters, digits, _, . or -")
    if _RESERVED_NAME.fullmatch(name):
        raise ValueError("has a name that is reserved for this server's own tools. Give it another name")
    if not isinstance(entry, Mapping) or not entry:
        raise ValueError("is not an object with a `command` or a `url`")
    members = cast("dict[str, object]", expand_variables(dict(cast("Mapping[str, object]", entry)), environment))
    kind = _TYPES.get(str(members.get("type", "stdio" if "command" in members else "http")))
    display_name = members.get("displayName")
    config = _stdio_config(members) if kind == "stdio" else _remote_config(kind, members)
    digest = hashlib.sha256(json.dumps(entry, sort_keys=True, default=repr).encode()).hexdigest()
    return McpServer(
        name=name,
        display_name=display_name if isinstance(display_name, str) and display_name else name,
        config=config,
        digest=digest,
    )


def _stdio_config(members: Mapping[str, object]) -> dict[str, Any]:
    command, args = members.get("command"), members.get("args", [])
    if not isinstance(command, str) or not command:
        raise ValueError("needs a `command`")
    if not isinstance(args, list) or not _are_strings(cast("list[object]", args)):
        raise ValueError("has `args` that are not a list of strings")
    return {"type": "stdio", "command": command, "args": args, "env": _string_members(members, "env")}


def _remote_config(kind: str | None, members: Mapping[str, object]) -> dict[str, Any]:
    url = members.get("url")
    if kind is None:
        raise ValueError("has a `type` that is not stdio, http or sse")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError("needs a `command`, or a `url` that begins with https:// or http://")
    return {"type": kind, "url": url, "headers": _string_members(members, "headers")}


def _string_members(members: Mapping[str, object], name: str) -> dict[str, str]:
    value = members.get(name, {})
    if isinstance(value, dict) and _are_strings(cast("dict[str, object]", value).values()):
        return cast("dict[str, str]", value)
    raise ValueError(f"has `{name}` that is not an object of strings")


def _are_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) and "\0" not in value for value in values)


def expand_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Return the value with `${NAME}` and `${NAME:-default}` expanded in every string. Raises: ValueError when a name has no value."""
    match value:
        case str():
            return _VARIABLE.sub(lambda found: _lookup_variable(found, environment), value)
        case dict():
            return {key: expand_variables(item, environment) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [expand_variables(item, environment) for item in cast("list[Any]", value)]
        case _:
            return value


def _lookup_variable(match: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = match[1], match[2]
    if environment.get(name):
        return environment[name]
    if default is None:
        raise ValueError(f"needs {name}, which was not granted to this run")
    return default
