"""Status of MCP servers: connects to each server once, lists its tools, and caches the result for a while.

Probes run in tasks of this module, so a client may disconnect. Concurrent requests for the same server share one connection. The official
`mcp` package implements the protocol; it is imported with the first probe.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
import msgspec

from ambient_runner.errors import Draining, ServiceError, optional_dependency
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from anyio.abc import TaskGroup

    from ambient_runner.services.mcp.config import McpServer, ResolvedMcpServers

__all__ = ["McpStatus"]

_MAX_PAGES = 20
_RETRY_DELAY = 5.0
"""Seconds before a failed server is probed again with other credentials. Some sources return new ones with every request."""
_DECLARATIONS = "declarations"
"""Key in the result of a probe: the tools with their schemas, which are not part of the status."""
_Redact = Callable[[dict[str, Any]], dict[str, Any]]
_UNKNOWN_FAILURE = "It could not be reached, or did not respond as an MCP server. See this server's log for the reason."


@dataclass(kw_only=True, slots=True, eq=False)
class _Probe:
    """One probe of one server, running or done."""

    config_digest: str
    """Digest of the configuration with its variables expanded."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    result: dict[str, Any] = field(default_factory=lambda: _failed_result(_UNKNOWN_FAILURE))
    is_cacheable: bool = True
    """True if later requests may use the result."""
    finished_at: float = 0.0

    def should_retry(self, config_digest: str) -> bool:
        """Return True if the probe failed with a configuration whose variables have changed since."""
        failed = self.done.is_set() and self.result["status"] == "failed"
        return failed and self.config_digest != config_digest and time.monotonic() - self.finished_at > _RETRY_DELAY


class McpStatus:
    """Probes servers. Use it in `async with`: leaving cancels running probes and ends their child processes."""

    def __init__(self, *, timeout: float = 10.0, cache_seconds: float = 60.0, max_concurrent: int = 8) -> None:
        self._timeout = timeout
        self._cache_seconds = cache_seconds
        self._slots = anyio.CapacityLimiter(max_concurrent)
        self._probes: dict[str, _Probe] = {}
        self._exit = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel_all()
        await self._exit.__aexit__(kind, error, trace)
        self._probes.clear()

    def cancel_all(self) -> None:
        """Cancel running probes without waiting, and start no more. Waiters get Draining."""
        self._tasks = None
        for probe in self._probes.values():
            probe.scope.cancel()

    async def list_tools(
        self,
        resolved: ResolvedMcpServers,
        cwd: Path | None = None,
        *,
        subject: object = None,
        redact: _Redact = lambda found: found,
    ) -> list[dict[str, Any]]:
        """Return the tools of all servers that can be reached: `{server, name, description, inputSchema}`.

        Raises: Draining while the server shuts down.
        """
        probes = await self._finish_probes(resolved, cwd, subject, redact)
        return [
            {"server": server.name, **tool} for server, probe in probes for tool in probe.result.get(_DECLARATIONS, ())
        ]

    async def probe(
        self,
        resolved: ResolvedMcpServers,
        cwd: Path | None = None,
        *,
        subject: object = None,
        redact: _Redact = lambda found: found,
    ) -> list[dict[str, Any]]:
        """Return a row for every server: `{name, displayName, status, version, tools}`, and `error` where it failed.

        Results are cached per `subject`: what one user's credentials found is not for another. `redact` removes secrets from a result.
        Raises: Draining while the server shuts down.
        """
        rows: list[dict[str, Any]] = []
        for server, probe in await self._finish_probes(resolved, cwd, subject, redact):
            shown = {key: value for key, value in probe.result.items() if key != _DECLARATIONS}
            rows.append({"name": server.name, "displayName": server.display_name, **shown})
        rows += [_status_row(name, "disabled") for name in resolved.disabled]
        return rows + [_status_row(problem.name, "invalid", problem.message) for problem in resolved.problems]

    async def _finish_probes(
        self, resolved: ResolvedMcpServers, cwd: Path | None, subject: object, redact: _Redact
    ) -> list[tuple[McpServer, _Probe]]:
        """Return a finished probe of every server. Raises: Draining."""
        probes = [(server, self._start_probe(server, cwd, subject, redact)) for server in resolved.servers]
        for _, probe in probes:
            await probe.done.wait()
            if probe.scope.cancel_called:
                raise Draining
        return probes

    def _start_probe(self, server: McpServer, cwd: Path | None, subject: object, redact: _Redact) -> _Probe:
        """Return the probe of this configuration, started now unless one is running or cached. Expanded variables may differ from it."""
        self._evict_expired()
        config_digest = _hash_json(server.config)
        key = _hash_json([subject, server.name, server.digest or config_digest, str(cwd)])
        probe = self._probes.get(key)
        if probe is None or probe.should_retry(config_digest):
            if self._tasks is None:
                raise Draining
            probe = self._probes[key] = _Probe(config_digest=config_digest)
            self._tasks.start_soon(self._run_probe, server, cwd, probe, redact)
        return probe

    def _evict_expired(self) -> None:
        oldest = time.monotonic() - self._cache_seconds
        for key in [
            key
            for key, probe in self._probes.items()
            if probe.done.is_set() and (probe.finished_at < oldest or not probe.is_cacheable)
        ]:
            del self._probes[key]

    async def _run_probe(self, server: McpServer, cwd: Path | None, probe: _Probe, redact: _Redact) -> None:
        try:
            with probe.scope, isolate(f"probing the MCP server {server.name!r}"):
                probe.result = redact(await self._probe_with_slot(server, cwd, probe))
        finally:
            probe.finished_at = time.monotonic()
            probe.done.set()

    async def _probe_with_slot(self, server: McpServer, cwd: Path | None, probe: _Probe) -> dict[str, Any]:
        """Probe when a slot is free. The timeout starts with the request, so many servers do not make it wait longer."""
        deadline = anyio.current_time() + self._timeout
        with anyio.CancelScope(deadline=deadline) as waiting:
            await self._slots.acquire_on_behalf_of(probe)
        if waiting.cancelled_caught:
            probe.is_cacheable = False
            return _failed_result(
                "Too many servers were being probed, and none finished in time. Try again in a moment."
            )
        try:
            return await self._probe_server(server, cwd, deadline)
        finally:
            self._slots.release_on_behalf_of(probe)

    async def _probe_server(self, server: McpServer, cwd: Path | None, deadline: float) -> dict[str, Any]:
        """Return the server's version and tools, or the reason why it failed."""
        result = _failed_result(_UNKNOWN_FAILURE)
        try:
            with optional_dependency("mcp", install="ambient-runner[mcp]", refusal=ServiceError):
                from ambient_runner.services.mcp.client import McpError, httpx
        except ServiceError as missing:
            return _failed_result(missing.message)
        try:
            with anyio.fail_after(deadline - anyio.current_time()):
                result = await self._list_tools(server, cwd)
        except* TimeoutError:
            result = _failed_result(f"It did not respond within {self._timeout:g} seconds.")
        except* OSError as errors:
            result = _failed_result(f"It could not be started or reached: {_first_reason(errors)}.")
        except* (McpError, httpx.HTTPError):
            result = _failed_result(
                "It refused the connection, or could not be reached. Check its URL, its headers and the granted credentials."
            )
        return result

    async def _list_tools(self, server: McpServer, cwd: Path | None) -> dict[str, Any]:
        from ambient_runner.services.mcp.client import open_client

        async with AsyncExitStack() as stack:
            transport = await self._open_transport(server.config, cwd, stack)
            client = await stack.enter_async_context(open_client(transport, self._timeout))
            tools: list[Any] = []
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                page, cursor = await client.list_tools(cursor)
                tools += page
                if cursor is None:
                    break
            return {
                "status": "connected",
                "version": client.server_version,
                "tools": [_describe_tool(tool) for tool in tools],
                _DECLARATIONS: [_declare_tool(tool) for tool in tools],
            }

    async def _open_transport(self, config: dict[str, Any], cwd: Path | None, stack: AsyncExitStack) -> Any:
        """Open the transport to a server. A child process gets the environment of its configuration and nothing of this process's own."""
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        from ambient_runner.services.mcp.client import httpx
        from ambient_runner.services.mcp.http_client import http_client
        from ambient_runner.services.mcp.stdio_client import stdio_client

        if config["type"] == "stdio":
            return stdio_client([config["command"], *config["args"]], config["env"], cwd)
        if config["type"] == "sse":
            return sse_client(config["url"], config["headers"], self._timeout, httpx_client_factory=http_client)
        client = http_client(config["headers"], httpx.Timeout(self._timeout))
        return streamable_http_client(config["url"], http_client=await stack.enter_async_context(client))


def _hash_json(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _describe_tool(tool: Any) -> dict[str, Any]:
    annotations = tool.annotations
    return {
        "name": tool.name,
        "annotations": annotations.model_dump(mode="json", by_alias=True, exclude_none=True) if annotations else {},
    }


def _declare_tool(tool: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = tool.model_dump(mode="json", by_alias=True)
    return {key: dumped.get(key) for key in ("name", "description", "inputSchema")}


def _failed_result(error: str) -> dict[str, Any]:
    return {"status": "failed", "version": "", "tools": [], "error": error}


def _status_row(name: str, status: str, error: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "displayName": name, "status": status, "version": "", "tools": []}
    return row | ({"error": error} if error else {})


def _first_reason(errors: BaseExceptionGroup[OSError]) -> str:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    return (first.strerror if isinstance(first, OSError) else None) or "no connection"
