"""Any AG-UI agent as an agent of this server: whatever has `run(input)` and gives AG-UI events, in any form they come.

    AGUIBridge(agent)

`agent` is an object with `run`, a function that makes one for each thread, or an async generator function that is the run itself. Events
are `ag_ui.core` models, ours, mappings, or pieces of SSE or NDJSON as text or bytes. `remote/` is for agents behind HTTP.
"""

from __future__ import annotations

import inspect
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.base import Closeable, FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.callbacks import call_hook, needed_arguments, stream_hook, takes_argument
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.decode import EventReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ag_ui.core import RunAgentInput

__all__ = ["AGUIBridge", "is_agui"]


class AGUIBridge(PlatformBridge):
    """An AG-UI agent as an agent of this server.

    An object serves every thread; one with `clone()` is cloned for each. A function or class is called once per thread, with the
    PlatformContext if it needs an argument, and may be a coroutine function.
    Raises: ConfigError when `agent` is none of these.
    """

    def __init__(self, agent: Any, *, capabilities: FrameworkCapabilities | None = None) -> None:
        if not callable(agent) and not _has_run(agent):
            raise ConfigError(
                f"{type(agent).__name__} is not an AG-UI agent. It needs `run(input)` that gives AG-UI events, "
                "or must be a function that makes such an agent."
            )
        self._agent = agent
        self._capabilities = capabilities or FrameworkCapabilities()

    def capabilities(self) -> FrameworkCapabilities:
        return self._capabilities

    def create_adapter(self, ctx: PlatformContext) -> AGUIAdapter:
        agent, own = _agent_of(self._agent, ctx)
        stop = getattr(agent, "interrupt", None)
        # Without a thread's id, stopping an agent that serves every thread would stop them all.
        can_stop = callable(stop) and (own or takes_argument(stop))
        return (StoppableAdapter if can_stop else AGUIAdapter)(agent, own=own)


class AGUIAdapter:
    """One thread's agent. A stop closes its events."""

    def __init__(self, agent: Any, *, own: bool) -> None:
        self._agent = agent
        self._own = own

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the ADR's name
        reader = EventReader()
        async with aclosing(stream_hook(await self._run(), input)) as said:
            async for piece in said:
                for event in _read(reader, piece):
                    yield event
        for event in reader.end():
            yield event

    async def aclose(self) -> None:
        """Close the thread's own agent; one that serves every thread stays."""
        if self._own and isinstance(self._agent, Closeable):
            await self._agent.aclose()

    async def _run(self) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(self._agent):
            return self._agent
        if inspect.isawaitable(self._agent):
            self._agent = await self._agent
        if not _has_run(self._agent):
            raise ConfigError(f"The agent's factory gave {type(self._agent).__name__}, which has no `run(input)`.")
        return self._agent.run


def _read(reader: EventReader, piece: Any) -> Sequence[Any]:
    if isinstance(piece, str | bytes):
        return reader.feed(piece)
    if isinstance(piece, bytearray | memoryview):
        return reader.feed(bytes(cast("bytearray", piece)))
    return (piece,)


class StoppableAdapter(AGUIAdapter):
    """One whose agent can be asked to stop."""

    _thread = ""

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the ADR's name
        self._thread = input.thread_id
        async with aclosing(super().run(input)) as events:
            async for event in events:
                yield event

    async def interrupt(self) -> None:
        stop = self._agent.interrupt
        await call_hook(stop, *([self._thread] if takes_argument(stop) else []))


def _agent_of(given: Any, ctx: PlatformContext) -> tuple[Any, bool]:
    """The agent of a thread, or what is awaited for it, and whether it is this thread's own."""
    if inspect.isasyncgenfunction(given):
        return given, False
    if isinstance(given, type) or not _has_run(given):
        return given(*([ctx] if needed_arguments(given) else [])), True
    clone = getattr(given, "clone", None)
    return (clone(), True) if callable(clone) else (given, False)


def is_agui(found: object) -> bool:
    """Whether this is an AG-UI agent beyond doubt: an async generator function of one argument, or `run` is one or says RunAgentInput."""
    if inspect.isasyncgenfunction(found):
        return len(needed_arguments(found)) == 1
    run = getattr(found, "run", None)
    if run is None or not callable(run):
        return False
    needed = needed_arguments(run)[isinstance(found, type) :]
    if len(needed) != 1:
        return False
    return inspect.isasyncgenfunction(run) or "RunAgentInput" in str(needed[0].annotation)


def _has_run(agent: object) -> bool:
    return callable(getattr(agent, "run", None))
