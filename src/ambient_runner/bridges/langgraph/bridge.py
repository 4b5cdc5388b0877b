"""The LangGraph bridge: creates the adapters of threads, and owns what a graph factory opens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import anyio

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.callbacks import call_hook, required_parameters
from ambient_runner.errors import ConfigError, optional_dependency

with optional_dependency("langgraph", "langchain_core", "langgraph_sdk", install="ambient-runner[langgraph]"):
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

    from ambient_runner.bridges.langgraph.adapter import LangGraphAdapter
    from ambient_runner.bridges.langgraph.graph import Graph, qualified_thread_id
    from ambient_runner.bridges.langgraph.local_graph import LocalGraph
    from ambient_runner.bridges.langgraph.remote_graph import RemoteGraph

from ambient_runner.bridges.langgraph.config import LangGraphConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Tool

__all__ = ["LangGraphBridge"]

logger = logging.getLogger(__name__)

_UserFactory = Callable[..., Any]
"""A user's function that returns a graph, or an async context manager of one."""
_GraphFactory = Callable[[PlatformContext], Awaitable[Graph]]
"""Returns the graph of a thread."""


class LangGraphBridge(PlatformBridge):
    """A LangGraph graph as an agent of this server.

    `graph` is a compiled graph, or a function, plain or async, that returns the graph of a thread. The function gets the PlatformContext if
    it requires an argument. It may also return an async context manager of the graph: that is closed with the bridge, or with the thread if
    the function requires an argument. Alternatively the graph is on a LangGraph server: `url`, its `graph_id` there, and `api_key` or
    `headers` if the server requires them.
    Raises: ConfigError.
    """

    restates_messages = False  # `history.py` does that.
    corrects_history = True
    settings_types = {"config": LangGraphConfig}

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
        self.hidden_state = self._config.hidden_keys
        self.forwarded_props = self._config.prop_rules
        if (graph is None) == (url is None):
            raise ConfigError(
                "LangGraphBridge needs a compiled graph, a function that returns one, or the url of a LangGraph server."
            )
        self._opened = AsyncExitStack()
        self._has_checked_schema = False
        self._create_graph = (
            _local_factory(graph, self._opened)
            if url is None
            else _to_async_factory(lambda: RemoteGraph(url, graph_id, api_key, headers or {}))
        )

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> LangGraphAdapter:
        return LangGraphAdapter(lambda: self._create_checked_graph(ctx), self._config, _platform_settings(ctx))

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        """Return the declarations of the tools in the tool nodes of the graph and of its subgraphs."""
        graph = await self._create_graph(ctx)
        try:
            return await graph.list_tools()
        finally:
            await graph.aclose()

    async def aclose(self) -> None:
        """Close what the function opened for all threads."""
        await self._opened.aclose()

    async def _create_checked_graph(self, ctx: PlatformContext) -> Graph:
        """Return the graph of a thread. The schema of the first one is checked."""
        graph = await self._create_graph(ctx)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(graph.aclose)
            if not self._has_checked_schema:
                self._check_messages_key(ctx, (await graph.read_schema()).input_keys)
            stack.pop_all()
        return graph

    def _check_messages_key(self, ctx: PlatformContext, input_keys: Collection[str] | None) -> None:
        """Log a warning if the input has no conversation: such a graph runs, but never sees a user's message."""
        self._has_checked_schema = True
        key = self._config.messages_key
        if input_keys is not None and key not in input_keys:
            logger.warning(
                "Thread %s: the input of its graph has no key %r, so the graph does not receive the user's messages. Its "
                "keys are: %s. Add the key to its state, or name the right one: LangGraphConfig(messages_key=…).",
                ctx.session_id,
                key,
                ", ".join(sorted(input_keys)) or "none",
            )

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Erase what the graph's checkpointer has of a thread."""
        graph = await self._create_graph(PlatformContext(session_id=thread.id))
        try:
            await graph.erase_thread(graph.storage_id(qualified_thread_id(thread)))
        finally:
            await graph.aclose()


def _platform_settings(ctx: PlatformContext) -> dict[str, Any]:
    """Return the platform's settings that have a value."""
    settings = {
        "model": ctx.model,
        "max_tokens": ctx.max_tokens,
        "temperature": ctx.temperature,
        "system_prompt_append": ctx.system_prompt_append,
        "workspace_path": ctx.workspace_path,
        "cwd_path": ctx.cwd_path,
    }
    return {name: value for name, value in settings.items() if value not in (None, "")}


def _local_factory(graph: Any, opened: AsyncExitStack) -> _GraphFactory:
    """Return the factory of a graph in this process. Raises: ConfigError."""
    if isinstance(graph, Pregel):
        local = LocalGraph(cast("Any", graph))
        return _to_async_factory(lambda: local)
    if not callable(graph):
        raise ConfigError(
            f"LangGraphBridge needs a compiled graph or a function that returns one, not {_describe_type(graph)}."
        )
    return _wrap_user_factory(cast("_UserFactory", graph), opened)


def _to_async_factory(create: Callable[[], Graph]) -> _GraphFactory:
    async def create_graph(ctx: PlatformContext) -> Graph:
        return create()

    return create_graph


def _wrap_user_factory(factory: _UserFactory, opened: AsyncExitStack) -> _GraphFactory:
    """Return a factory that calls the user's. A context manager of a graph for all threads is entered once, into `opened`."""
    needs_context = bool(required_parameters(factory))
    shared: list[LocalGraph] = []
    lock = anyio.Lock()

    async def share_graph(manager: AbstractAsyncContextManager[Any]) -> Graph:
        async with lock:
            if not shared:
                shared.append(LocalGraph(_require_compiled(await opened.enter_async_context(manager))))
                opened.callback(shared.clear)
            return shared[0]

    async def create_graph(ctx: PlatformContext) -> Graph:
        if shared:
            return shared[0]
        result = await call_hook(factory, *([ctx] if needs_context else []))
        if not isinstance(result, AbstractAsyncContextManager):
            return LocalGraph(_require_compiled(result))
        manager = cast("AbstractAsyncContextManager[Any]", result)
        if not needs_context:
            return await share_graph(manager)
        async with AsyncExitStack() as stack:
            graph = _require_compiled(await stack.enter_async_context(manager))
            return LocalGraph(graph, stack.pop_all().aclose)

    return create_graph


def _require_compiled(graph: Any) -> Any:
    """Return the graph. Raises: ConfigError if it is not compiled."""
    if not isinstance(graph, Pregel):
        raise ConfigError(
            f"The function of LangGraphBridge returned {_describe_type(graph)}. "
            "It must return a compiled graph: `builder.compile()`."
        )
    return cast("Any", graph)


def _describe_type(value: Any) -> str:
    hint = " that is not compiled: call its `compile()`" if hasattr(value, "compile") else ""
    return f"a {type(value).__name__}{hint}"
