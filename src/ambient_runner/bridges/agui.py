"""Bridge for any AG-UI agent: an object whose `run(input)` yields AG-UI events in any form.

    AGUIBridge(agent)

`agent` is an object with `run`, a function that returns one for each thread, or a generator function that is itself the run. A plain
generator is stepped in a thread. Events are `ag_ui.core` models, ours, mappings, or chunks of SSE or NDJSON as text or bytes. `remote/` is
for agents behind HTTP.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from ambient_runner.bridges.base import Closeable, FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.callbacks import accepts_argument, call_hook, required_parameters, stream_hook
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable
from ambient_runner.bridges.toolkit.run_input import read_run_input
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.bridges.toolkit.tools import declare_tool
from ambient_runner.bridges.toolkit.worker_threads import iterate_in_thread
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.decode import EventReader
from ambient_runner.protocol.reserved_events import to_plain_event
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from ag_ui.core import RunAgentInput

    from ambient_runner.protocol.events import Tool

__all__ = ["AGUIBridge", "is_agui_agent"]


class AGUIBridge(PlatformBridge):
    """Serves an AG-UI agent.

    An object serves every thread; an object with `clone()` is cloned for each. A function or class is called once per thread, with the
    PlatformContext if it requires an argument, and may be a coroutine function.
    Raises: ConfigError when `agent` is none of these.
    """

    def __init__(self, agent: Any, *, capabilities: FrameworkCapabilities | None = None) -> None:
        if not callable(agent) and not _has_run(agent):
            raise ConfigError(
                f"{type(agent).__name__} is not an AG-UI agent. It needs a `run(input)` that yields AG-UI events, "
                "or must be a function that returns such an agent."
            )
        self._agent = agent
        self._capabilities = capabilities or FrameworkCapabilities()

    def capabilities(self) -> FrameworkCapabilities:
        return self._capabilities

    def create_adapter(self, ctx: PlatformContext) -> AGUIAdapter:
        agent, own = _agent_for_thread(self._agent, ctx)
        stop = getattr(agent, "interrupt", None)
        # Without a thread's id, stopping an agent that serves every thread would stop them all.
        can_stop = callable(stop) and (own or accepts_argument(stop))
        return (StoppableAdapter if can_stop else AGUIAdapter)(agent, own=own, list_tools=self._list_tools_of)

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        """Return the tools that the agent declares in `get_capabilities()`, as AG-UI has them: `tools.items`.

        Those of an agent that a function creates for each thread are not known.
        """
        return await self._list_tools_of(self._agent)

    async def _list_tools_of(self, agent: Any) -> list[Tool]:
        return await _declared_tools(agent)


class AGUIAdapter:
    """Runs the agent of one thread. A stop closes its event stream. `list_tools` returns the tools that the agent has itself."""

    def __init__(self, agent: Any, *, own: bool, list_tools: Callable[[Any], Awaitable[list[Tool]]]) -> None:
        self._agent = agent
        self._owns_agent = own
        self._list_tools = list_tools

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        run = await self._run_function()
        if input.tools:
            tools = Toolbox(
                (await read_run_input(input)).tools, [tool.name for tool in await self._list_tools(self._agent)]
            )
            input = _with_tools(input, tools)  # noqa: A001  the adapter contract's name
            for event in tools.dropped_events():
                yield event
        reader = EventReader()
        async with aclosing(stream_hook(_start_run, run, input)) as pieces:
            async for piece in pieces:
                for event in _decode_events(reader, piece):
                    yield event
        for event in reader.finish():
            yield event

    async def aclose(self) -> None:
        """Close the agent if it belongs to this thread alone."""
        if self._owns_agent and isinstance(self._agent, Closeable):
            await self._agent.aclose()

    async def _run_function(self) -> Callable[..., Any]:
        if _is_generator_function(self._agent):
            return self._agent
        if inspect.isawaitable(self._agent):
            self._agent = await self._agent
        if not _has_run(self._agent):
            raise ConfigError(
                f"The agent factory returned {type(self._agent).__name__}, which has no `run(input)`. Return an AG-UI agent."
            )
        return self._agent.run


def _with_tools(run_input: RunAgentInput, tools: Toolbox) -> RunAgentInput:
    """Return the input without the client's tools that the agent has itself."""
    if not tools.taken_names:
        return run_input
    offered = [tool for tool in run_input.tools or () if tools.is_client_tool(tool.name)]
    return run_input.model_copy(update={"tools": offered})


async def _declared_tools(agent: Any) -> list[Tool]:
    """Return the tools that an agent declares. An agent without `get_capabilities`, or whose function fails, declares none."""
    declare: Any = getattr(agent, "get_capabilities", None)
    if isinstance(agent, type) or not callable(declare):
        return []
    with isolate("reading the capabilities of an AG-UI agent"):
        capabilities = as_object(to_jsonable(await call_hook(declare)))
        items: Any = as_object(capabilities.get("tools")).get("items") or ()
        return [declare_tool(item["name"], item.get("description"), item.get("parameters")) for item in items]
    return []


def _start_run(run: Callable[..., Any], run_input: RunAgentInput) -> Any:
    """Call the agent's `run`. A plain generator is stepped in a thread: it may block."""
    result = run(run_input)
    return iterate_in_thread(cast("Iterator[Any]", result)) if isinstance(result, Iterator) else result


def _decode_events(reader: EventReader, piece: Any) -> Sequence[Any]:
    if isinstance(piece, str | bytes):
        return reader.feed(piece)
    if isinstance(piece, bytearray | memoryview):
        return reader.feed(bytes(cast("bytearray", piece)))
    return (to_plain_event(piece),)


class StoppableAdapter(AGUIAdapter):
    """Runs an agent that has `interrupt`."""

    _thread_id = ""

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        self._thread_id = input.thread_id
        async with aclosing(super().run(input)) as events:
            async for event in events:
                yield event

    async def interrupt(self) -> None:
        stop = self._agent.interrupt
        await call_hook(stop, *([self._thread_id] if accepts_argument(stop) else []))


def _agent_for_thread(agent: Any, ctx: PlatformContext) -> tuple[Any, bool]:
    """Return the agent of a thread, or an awaitable of it, and True if it belongs to this thread alone."""
    if _is_generator_function(agent):
        return agent, False
    if isinstance(agent, type) or not _has_run(agent):
        return agent(*([ctx] if required_parameters(agent) else [])), True
    # A wrapper that passes on the attributes of its agent would be left out: its `clone` returns a clone of that agent.
    is_cloneable = callable(getattr(agent.__class__, "clone", None))
    return (agent.clone(), True) if is_cloneable else (agent, False)


def is_agui_agent(candidate: object) -> bool:
    """Return True if the object is certainly an AG-UI agent.

    That is a generator function of one argument, async or plain, or an object whose `run` is one or is annotated with RunAgentInput.
    """
    if _is_generator_function(candidate):
        return len(required_parameters(candidate)) == 1
    run = getattr(candidate, "run", None)
    if run is None or not callable(run):
        return False
    required = required_parameters(run)[isinstance(candidate, type) :]
    if len(required) != 1:
        return False
    return _is_generator_function(run) or "RunAgentInput" in str(required[0].annotation)


def _is_generator_function(candidate: object) -> TypeGuard[Callable[..., Any]]:
    return inspect.isasyncgenfunction(candidate) or inspect.isgeneratorfunction(candidate)


def _has_run(agent: object) -> bool:
    return callable(getattr(agent, "run", None))
