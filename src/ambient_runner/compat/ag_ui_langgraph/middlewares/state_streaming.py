"""StateStreamingMiddleware of `ag_ui_langgraph`: tool arguments that are shown as state while the model streams them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from ambient_runner.errors import optional_dependency

with optional_dependency("langchain", install="langchain"):
    from langchain.agents.middleware import AgentMiddleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["StateItem", "StateStreamingMiddleware"]


@dataclass(frozen=True)
class StateItem:
    """A tool argument and the state key it is shown under."""

    state_key: str
    tool: str
    tool_argument: str


class StateStreamingMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the arguments of these tools as state. A call right after the result of such a tool is not shown again."""

    def __init__(self, *items: StateItem) -> None:
        super().__init__()
        self._items = items

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with self._announce_mappings(request):
            return handler(request)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with self._announce_mappings(request):
            return await handler(request)

    @contextmanager
    def _announce_mappings(self, request: Any) -> Generator[None]:
        """Add the mappings to the metadata of the model call."""
        last = request.messages[-1] if request.messages else None
        is_repeated = isinstance(last, ToolMessage) and last.name in {item.tool for item in self._items}
        mappings = [] if is_repeated else [asdict(item) for item in self._items]
        config = ensure_config()
        metadata = {**config.get("metadata", {}), **({"predict_state": mappings} if mappings else {})}
        token = var_child_runnable_config.set({**config, "metadata": metadata})
        try:
            yield
        finally:
            var_child_runnable_config.reset(token)
