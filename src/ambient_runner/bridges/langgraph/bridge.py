"""The LangGraph bridge: what the server makes adapters with."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import anyio

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.callbacks import call_hook, needed_arguments
from ambient_runner.errors import ConfigError, needing

with needing("langgraph", "langchain_core", "langgraph_sdk", install="ambient-runner[langgraph]"):
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

    from ambient_runner.bridges.langgraph.adapter import Conversation
    from ambient_runner.bridges.langgraph.graph import Graph, LocalGraph, place_of
    from ambient_runner.bridges.langgraph.remote_graph import RemoteGraph

from ambient_runner.bridges.langgraph.config import LangGraphConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ambient_runner.ledger.base import ThreadKey

__all__ = ["LangGraphBridge"]

logger = logging.getLogger(__name__)

_Factory = Callable[..., Any]
_Make = Callable[[PlatformContext], Awaitable[Graph]]
"""Gives the graph of a thread."""


class LangGraphBridge(PlatformBridge):
    """A LangGraph graph as an agent of this server.

    `graph` is a compiled graph, or a function that makes the graph of a thread, plain or async: it gets the PlatformContext if it needs
    an argument. It may also give an async context manager that gives the graph: that is closed with the bridge, or with the thread if the
    function needs an argument. Or the graph is on a LangGraph server: `url`, its `graph_id` there, and `api_key` or `headers` if the
    server wants some.
    Raises: ConfigError.
    """

    def __init__(
        self,
        graph: Any = None,
        config: LangGraphConfig | None = None,
        *,
        url: str | None = None,
        graph_id: str = "agent",
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config or LangGraphConfig()
        self.default_prompt = self._config.default_prompt
        self.hidden_state = self._config.hidden
        if (graph is None) == (url is None):
            raise ConfigError(
                "Give LangGraphBridge a compiled graph, a function that makes one, or the url of a LangGraph server."
            )
        self._opened = AsyncExitStack()
        self._has_looked = False
        self._make = (
            _local(graph, self._opened)
            if url is None
            else _giving(lambda: RemoteGraph(url, graph_id, api_key, headers or {}))
        )

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> Conversation:
        return Conversation(lambda: self._looked_at(ctx), self._config, _platform(ctx))

    async def aclose(self) -> None:
        """Close what the function opened for all threads."""
        await self._opened.aclose()

    async def _looked_at(self, ctx: PlatformContext) -> Graph:
        """The graph of a thread. The first is looked at: one without a conversation runs, and answers nobody."""
        graph = await self._make(ctx)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(graph.aclose)
            if not self._has_looked:
                self._look((await graph.shape()).inputs)
            stack.pop_all()
        return graph

    def _look(self, inputs: Collection[str] | None) -> None:
        self._has_looked = True
        key = self._config.messages_key
        if inputs is not None and key not in inputs:
            logger.warning(
                "The graph's input has no key %r, so it does not get what users say. It has: %s. "
                "Add the key to its state, or name the right one: LangGraphConfig(messages_key=…).",
                key,
                ", ".join(sorted(inputs)) or "none",
            )

    async def forget(self, thread: ThreadKey) -> None:
        """Erase what the graph's checkpointer has of a thread."""
        graph = await self._make(PlatformContext(session_id=thread.id))
        try:
            await graph.forget(graph.place(place_of(thread)))
        finally:
            await graph.aclose()


def _platform(ctx: PlatformContext) -> dict[str, Any]:
    """What the platform asks for, where it says something."""
    asked = {
        "model": ctx.model,
        "max_tokens": ctx.max_tokens,
        "temperature": ctx.temperature,
        "system_prompt_append": ctx.system_prompt_append,
        "workspace_path": ctx.workspace_path,
        "cwd_path": ctx.cwd_path,
    }
    return {name: item for name, item in asked.items() if item not in (None, "")}


def _local(graph: Any, opened: AsyncExitStack) -> _Make:
    """How to get a graph that is in this process. Raises: ConfigError."""
    if isinstance(graph, Pregel):
        local = LocalGraph(cast("Any", graph))
        return _giving(lambda: local)
    if not callable(graph):
        raise ConfigError(f"A compiled graph is needed, or a function that makes one, not {_kind(graph)}.")
    return _called(cast("_Factory", graph), opened)


def _giving(give: Callable[[], Graph]) -> _Make:
    async def make(ctx: PlatformContext) -> Graph:
        return give()

    return make


def _called(factory: _Factory, opened: AsyncExitStack) -> _Make:
    needs_context = bool(needed_arguments(factory))
    shared: list[LocalGraph] = []
    one_at_a_time = anyio.Lock()

    async def share(given: AbstractAsyncContextManager[Any]) -> Graph:
        async with one_at_a_time:
            if not shared:
                shared.append(LocalGraph(_compiled(await opened.enter_async_context(given))))
                opened.callback(shared.clear)
            return shared[0]

    async def make(ctx: PlatformContext) -> Graph:
        if shared:
            return shared[0]
        made = await call_hook(factory, *([ctx] if needs_context else []))
        if not isinstance(made, AbstractAsyncContextManager):
            return LocalGraph(_compiled(made))
        given = cast("AbstractAsyncContextManager[Any]", made)
        if not needs_context:
            return await share(given)
        async with AsyncExitStack() as stack:
            graph = _compiled(await stack.enter_async_context(given))
            return LocalGraph(graph, stack.pop_all().aclose)

    return make


def _compiled(made: Any) -> Any:
    """Raises: ConfigError."""
    if not isinstance(made, Pregel):
        raise ConfigError(f"The function made {_kind(made)}. It must give a compiled graph: `builder.compile()`.")
    return cast("Any", made)


def _kind(thing: Any) -> str:
    hint = " that is not compiled: call its `compile()`" if hasattr(thing, "compile") else ""
    return f"a {type(thing).__name__}{hint}"
