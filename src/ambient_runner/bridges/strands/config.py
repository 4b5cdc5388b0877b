"""Configuration of a Strands agent: effects of each tool on the stream and the shared state. Data and hooks, no SDK."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput
    from strands.session.session_manager import SessionManager

__all__ = [
    "PredictStateMapping",
    "StrandsAgentConfig",
    "ToolBehavior",
    "ToolCallContext",
    "ToolResultContext",
    "maybe_await",
    "normalize_predict_state",
]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ToolCallContext:
    """A tool call with complete arguments. `tool_input` is their parsed value, or their text if they are not JSON."""

    input_data: RunAgentInput
    tool_name: str
    tool_use_id: str
    tool_input: Any
    args_str: str


@dataclass(frozen=True, kw_only=True)
class ToolResultContext(ToolCallContext):
    """A tool call with its result. `result_data` is parsed if the result is JSON, and a list if it has several blocks."""

    result_data: Any
    message_id: str


ArgsStreamer = Callable[[ToolCallContext], AsyncIterator[str] | Any]
StateFromArgs = Callable[[ToolCallContext], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
StateFromResult = Callable[[ToolResultContext], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
CustomResultHandler = Callable[[ToolResultContext], AsyncIterator[Any] | Any]
StateContextBuilder = Callable[["RunAgentInput", str], Awaitable[str] | str]
SessionManagerProvider = Callable[["RunAgentInput"], "Awaitable[SessionManager] | SessionManager"]


@dataclass(frozen=True, kw_only=True)
class ToolBehavior:
    """Effects of a tool in addition to its execution.

    Hooks are plain or async functions or generators. A failing hook does not fail the run.
    """

    skip_messages_snapshot: bool = False
    """Send no MESSAGES_SNAPSHOT after this tool's result."""
    continue_after_frontend_call: bool = False
    """Let the model continue after a call of this client tool instead of waiting for the client."""
    stop_streaming_after_result: bool = False
    """End the run after this tool's result: the model is not called again."""
    predict_state: PredictStateMapping | Iterable[PredictStateMapping] | None = None
    args_streamer: ArgsStreamer | None = None
    """Yields the arguments in parts, in place of the model's own deltas."""
    state_from_args: StateFromArgs | None = None
    """Returns keys to set in the shared state when the arguments are complete."""
    state_from_result: StateFromResult | None = None
    """Returns keys to set in the shared state when the result exists."""
    custom_result_handler: CustomResultHandler | None = None
    """Yields AG-UI events to send after the result."""
    interrupt_on_call: bool = False
    """Request approval before this tool runs."""

    def __post_init__(self) -> None:
        # An iterator could be read only once, and there are many runs.
        object.__setattr__(self, "predict_state", tuple(normalize_predict_state(self.predict_state)))


@dataclass(frozen=True, kw_only=True)
class StrandsAgentConfig:
    """Configuration of a Strands agent."""

    tool_behaviors: dict[str, ToolBehavior] = field(default_factory=dict[str, ToolBehavior])
    """Behavior by tool name."""
    state_context_builder: StateContextBuilder | None = None
    """Rewrites the last user message, so that the model knows the shared state: `(input, prompt) -> prompt`."""
    default_prompt: str = ""
    """User message for a request with nothing to answer. Without it, such a request is refused."""
    session_manager_provider: SessionManagerProvider | None = None
    """Returns the Strands SessionManager of a thread, which then owns the history the model sees.

    Derive the session id from `current_run().thread`: another user may have a thread with the same id.
    """
    max_turns: int | None = None
    """Limit of model calls in one run."""
    interrupt_timeout: float | None = None
    """Seconds until an interrupt expires; None for never."""

    def behavior(self, tool: str) -> ToolBehavior:
        """Return the behavior of a tool; the default if none is configured."""
        return self.tool_behaviors.get(tool, _DEFAULT_BEHAVIOR)


async def maybe_await(value: Awaitable[T] | T) -> T:
    """Return the value, awaited if it is awaitable."""
    return cast("T", await value if inspect.isawaitable(value) else value)


def normalize_predict_state(
    value: PredictStateMapping | Iterable[PredictStateMapping] | None,
) -> list[PredictStateMapping]:
    """Return the mappings as a list, from a single one, an iterable or None."""
    match value:
        case None:
            return []
        case PredictStateMapping():
            return [value]
        case _:
            return list(value)


_DEFAULT_BEHAVIOR = ToolBehavior()
