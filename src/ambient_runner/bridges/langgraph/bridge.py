"""The LangGraph bridge: what the server makes adapters with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.hooks import call_hook
from ambient_runner.errors import BridgeUnavailable, ConfigError

try:
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

    from ambient_runner.bridges.langgraph.conversation import Conversation, place_of
    from ambient_runner.bridges.langgraph.graphs import LocalGraph
    from ambient_runner.bridges.langgraph.opening import RESERVED
    from ambient_runner.bridges.langgraph.remote import RemoteGraph
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"langgraph", "langchain_core", "langgraph_sdk"}:
        raise
    raise BridgeUnavailable("LangGraph graphs need another package: pip install 'ambient-runner[langgraph]'") from error

from ambient_runner.bridges.langgraph.config import LangGraphConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.langgraph.graphs import Graph
    from ambient_runner.ledger.base import ThreadKey

__all__ = ["LangGraphBridge"]

Factory = Callable[..., Any]
_PLATFORM = ("model", "max_tokens", "temperature", "system_prompt_append", "workspace_path", "cwd_path")


class LangGraphBridge(PlatformBridge):
    """A LangGraph graph as an agent of this server.

    `graph` is a compiled graph, or a function that makes the graph of a thread, plain or async: it gets the PlatformContext if it takes
    an argument. Or the graph is on a LangGraph server: `url`, its `graph_id` there, and `api_key` or `headers` if the server wants some.
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
        self.hidden_state = frozenset({self._config.messages_key, *RESERVED, *self._config.hidden_state})
        self._make = _maker(graph, url, lambda: RemoteGraph(url or "", graph_id, api_key, headers or {}))

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> Conversation:
        asked = {name: getattr(ctx, name) for name in _PLATFORM if getattr(ctx, name) not in (None, "")}
        return Conversation(lambda: self._made(ctx), self._config, asked)

    async def forget(self, thread: ThreadKey) -> None:
        """Erase what the graph's checkpointer has of a thread."""
        graph = await self._made(PlatformContext(session_id=thread.id))
        try:
            await graph.forget(graph.place(place_of(thread)))
        finally:
            await graph.aclose()

    async def _made(self, ctx: PlatformContext) -> Graph:
        return await self._make(ctx)


def _maker(graph: Any, url: str | None, remote: Callable[[], Graph]) -> Callable[[PlatformContext], Any]:
    """How to get the graph of a thread. Raises: ConfigError."""
    if (graph is None) == (url is None):
        raise ConfigError(
            "Give LangGraphBridge a compiled graph, a function that makes one, or the url of a LangGraph server."
        )
    if url is not None:
        return _once(remote)
    if isinstance(graph, Pregel):
        local = LocalGraph(cast("Any", graph))
        return _once(lambda: local)
    if not callable(graph):
        raise ConfigError(f"A compiled graph is needed, or a function that makes one, not {_kind(graph)}.")
    return _called(cast("Factory", graph))


def _once(give: Callable[[], Graph]) -> Callable[[PlatformContext], Any]:
    async def make(ctx: PlatformContext) -> Graph:
        return give()

    return make


def _called(factory: Factory) -> Callable[[PlatformContext], Any]:
    takes_context = bool(inspect.signature(factory).parameters)

    async def make(ctx: PlatformContext) -> Graph:
        made = await call_hook(factory, *([ctx] if takes_context else []))
        if not isinstance(made, Pregel):
            raise ConfigError(f"The function made {_kind(made)}. It must give a compiled graph: `builder.compile()`.")
        return LocalGraph(cast("Any", made))

    return make


def _kind(thing: Any) -> str:
    hint = " that is not compiled: call its `compile()`" if hasattr(thing, "compile") else ""
    return f"a {type(thing).__name__}{hint}"
