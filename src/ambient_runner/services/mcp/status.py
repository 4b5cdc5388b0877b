"""Whether MCP servers answer, and what they offer: each is really connected to, once, and the answer is kept for a while.

Connections are made in tasks this module owns, so whoever asks may leave. Those who ask for the same server at the same time wait for the
same connection. The official `mcp` package speaks the protocol; it is imported when the first server is looked at.
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

from ambient_runner.errors import Draining, ServiceError, needing
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from anyio.abc import TaskGroup

    from ambient_runner.services.mcp.config import Resolved, Server

__all__ = ["McpStatus"]

_MAX_PAGES = 20
_PAUSE = 5.0
"""Seconds before a server that failed is tried with other credentials: some sources give new ones every time they are asked."""
_Clean = Callable[[dict[str, Any]], dict[str, Any]]
_FAILED = "It could not be reached, or did not answer as an MCP server does. The log of this server has the reason."


@dataclass(kw_only=True, slots=True, eq=False)
class _Look:
    """One look at one server, under way or done."""

    filled: str
    """What was filled in, as a digest."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    found: dict[str, Any] = field(default_factory=lambda: _failed(_FAILED))
    counts: bool = True
    """Whether the answer is kept for those who ask later."""
    at: float = 0.0

    def is_worth_another(self, filled: str) -> bool:
        """Whether it failed, for what is no longer filled in."""
        failed = self.done.is_set() and self.found["status"] == "failed"
        return failed and self.filled != filled and time.monotonic() - self.at > _PAUSE


class McpStatus:
    """Looks at servers. Use it in `async with`: leaving ends what is under way, child processes included."""

    def __init__(self, *, timeout: float = 10.0, keep: float = 60.0, at_once: int = 8) -> None:
        self._timeout = timeout
        self._keep = keep
        self._places = anyio.CapacityLimiter(at_once)
        self._looks: dict[str, _Look] = {}
        self._exit = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call_off()
        await self._exit.__aexit__(kind, error, trace)
        self._looks.clear()

    def call_off(self) -> None:
        """End what is under way soon, and begin no more. Those who wait hear that the server is shutting down."""
        self._tasks = None
        for look in self._looks.values():
            look.scope.cancel()

    async def look(
        self,
        resolved: Resolved,
        folder: Path | None = None,
        *,
        whom: object = None,
        clean: _Clean = lambda found: found,
    ) -> list[dict[str, Any]]:
        """Every server of a configuration: `{name, displayName, status, version, tools}`, and `error` where it is not well.

        `whom` is who asks: what was found with the credentials of one is not for another. `clean` takes these out of what is found.
        Raises: Draining while the server shuts down.
        """
        looks = [(server, self._begun(server, folder, whom, clean)) for server in resolved.servers]
        rows: list[dict[str, Any]] = []
        for server, look in looks:
            await look.done.wait()
            if look.scope.cancel_called:
                raise Draining
            rows.append({"name": server.name, "displayName": server.display_name, **look.found})
        rows += [_row(name, "disabled") for name in resolved.disabled]
        return rows + [_row(mistake.name, "invalid", mistake.message) for mistake in resolved.mistakes]

    def _begun(self, server: Server, folder: Path | None, whom: object, clean: _Clean) -> _Look:
        """The look at this configuration, begun now unless there is one that counts. What was filled in may change meanwhile."""
        self._forget_old()
        filled = _digest(server.config)
        key = _digest([whom, server.name, server.digest or filled, str(folder)])
        look = self._looks.get(key)
        if look is None or look.is_worth_another(filled):
            if self._tasks is None:
                raise Draining
            look = self._looks[key] = _Look(filled=filled)
            self._tasks.start_soon(self._connect, server, folder, look, clean)
        return look

    def _forget_old(self) -> None:
        old = time.monotonic() - self._keep
        for key in [
            key for key, look in self._looks.items() if look.done.is_set() and (look.at < old or not look.counts)
        ]:
            del self._looks[key]

    async def _connect(self, server: Server, folder: Path | None, look: _Look, clean: _Clean) -> None:
        try:
            with look.scope, isolate("looking at an MCP server"):
                look.found = clean(await self._in_turn(server, folder, look))
        finally:
            look.at = time.monotonic()
            look.done.set()

    async def _in_turn(self, server: Server, folder: Path | None, look: _Look) -> dict[str, Any]:
        """The time for a look begins when it is asked for: whoever asks waits no longer because there are many servers."""
        deadline = anyio.current_time() + self._timeout
        with anyio.CancelScope(deadline=deadline) as turn:
            await self._places.acquire_on_behalf_of(look)
        if turn.cancelled_caught:
            look.counts = False
            return _failed("Too many servers were looked at, and this one's turn did not come. Ask again in a moment.")
        try:
            return await self._ask(server, folder, deadline)
        finally:
            self._places.release_on_behalf_of(look)

    async def _ask(self, server: Server, folder: Path | None, deadline: float) -> dict[str, Any]:
        """What the server says of itself, or in a sentence why it says nothing."""
        found = _failed(_FAILED)
        try:
            with needing("mcp", "httpx2", install="ambient-runner[mcp]", refusal=ServiceError):
                import httpx2
                import mcp
        except ServiceError as missing:
            return _failed(missing.message)
        try:
            with anyio.fail_after(deadline - anyio.current_time()):
                found = await self._meet(server, folder)
        except* TimeoutError:
            found = _failed(f"It did not answer within {self._timeout:g} seconds.")
        except* OSError as errors:
            found = _failed(f"It could not be started or reached: {_reason(errors)}.")
        except* (mcp.MCPError, httpx2.HTTPError):
            found = _failed("It refused, or could not be reached. Check its URL, its headers and what was granted.")
        return found

    async def _meet(self, server: Server, folder: Path | None) -> dict[str, Any]:
        from mcp import Client

        async with AsyncExitStack() as stack:
            transport = await self._transport(server.config, folder, stack)
            client = await stack.enter_async_context(Client(transport, read_timeout_seconds=self._timeout))
            tools: list[dict[str, Any]] = []
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [_tool(tool) for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    break
            info = client.server_info
            return {"status": "connected", "version": info.version if info else "", "tools": tools}

    async def _transport(self, config: dict[str, Any], folder: Path | None, stack: AsyncExitStack) -> Any:
        """The way to a server. A child's environment is what its configuration says and nothing that this process has."""
        import httpx2
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        from ambient_runner.services.mcp.http_client import http_client
        from ambient_runner.services.mcp.stdio_client import stdio_client

        if config["type"] == "stdio":
            return stdio_client([config["command"], *config["args"]], config["env"], folder)
        if config["type"] == "sse":
            return sse_client(config["url"], config["headers"], self._timeout, httpx_client_factory=http_client)
        client = http_client(config["headers"], httpx2.Timeout(self._timeout))
        return streamable_http_client(config["url"], http_client=await stack.enter_async_context(client))


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _tool(tool: Any) -> dict[str, Any]:
    notes = tool.annotations
    return {
        "name": tool.name,
        "annotations": notes.model_dump(mode="json", by_alias=True, exclude_none=True) if notes else {},
    }


def _failed(error: str) -> dict[str, Any]:
    return {"status": "failed", "version": "", "tools": [], "error": error}


def _row(name: str, status: str, error: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "displayName": name, "status": status, "version": "", "tools": []}
    return row | ({"error": error} if error else {})


def _reason(errors: BaseExceptionGroup[OSError]) -> str:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    return (first.strerror if isinstance(first, OSError) else None) or "no connection"
