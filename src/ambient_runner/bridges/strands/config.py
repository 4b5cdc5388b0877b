"""How a Strands agent is shown: what each tool does to the stream and to the shared state. Data and hooks, no SDK."""

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
    """A call whose arguments are complete. `tool_input` is what they say, or their text when they are not JSON."""

    input_data: RunAgentInput
    tool_name: str
    tool_use_id: str
    tool_input: Any
    args_str: str


@dataclass(frozen=True, kw_only=True)
class ToolResultContext(ToolCallContext):
    """A call that has been answered. `result_data` is what its result says: parsed if it is JSON, a list if it has several blocks."""

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
    """What a tool does besides running. Hooks may be plain functions, coroutines or (async) generators; one that fails harms no run."""

    skip_messages_snapshot: bool = False
    """Send no MESSAGES_SNAPSHOT after this tool's result."""
    continue_after_frontend_call: bool = False
    """Let the model go on after this frontend tool instead of waiting for the client."""
    stop_streaming_after_result: bool = False
    """End the run after this tool's result: the model is not asked again."""
    predict_state: PredictStateMapping | Iterable[PredictStateMapping] | None = None
    args_streamer: ArgsStreamer | None = None
    """Gives the arguments piece by piece, instead of as the model writes them."""
    state_from_args: StateFromArgs | None = None
    """Gives keys to set in the shared state when the arguments are complete."""
    state_from_result: StateFromResult | None = None
    """Gives keys to set in the shared state when the result is there."""
    custom_result_handler: CustomResultHandler | None = None
    """Gives AG-UI events to send after the result."""
    interrupt_on_call: bool = False
    """Ask a person before this tool runs."""

    def __post_init__(self) -> None:
        # An iterator could be read once, and there are many runs.
        object.__setattr__(self, "predict_state", tuple(normalize_predict_state(self.predict_state)))


@dataclass(frozen=True, kw_only=True)
class StrandsAgentConfig:
    """How a Strands agent is shown and limited."""

    tool_behaviors: dict[str, ToolBehavior] = field(default_factory=dict[str, ToolBehavior])
    """By the name of the tool."""
    state_context_builder: StateContextBuilder | None = None
    """Rewrites what the user said, so that the model knows the shared state: `(input, prompt) -> prompt`."""
    default_prompt: str = ""
    """What is asked when a request has nothing to answer; without it such a request is refused."""
    session_manager_provider: SessionManagerProvider | None = None
    """Gives each thread a Strands SessionManager, which then owns the history the model sees.

    Name the session after `current_run().thread`: the thread's id alone may be another user's too.
    """
    max_turns: int | None = None
    """How often the model may be asked in one run."""
    interrupt_seconds: float | None = None
    """How long a question to a person stays open; for ever when None."""

    def behavior(self, tool: str) -> ToolBehavior:
        """What the tool does besides running; nothing unless configured."""
        return self.tool_behaviors.get(tool, _PLAIN)


async def maybe_await(value: Awaitable[T] | T) -> T:
    """The value, awaited if it has to be."""
    return cast("T", await value if inspect.isawaitable(value) else value)


def normalize_predict_state(
    value: PredictStateMapping | Iterable[PredictStateMapping] | None,
) -> list[PredictStateMapping]:
    """The mappings as a list, however they were given."""
    match value:
        case None:
            return []
        case PredictStateMapping():
            return [value]
        case _:
            return list(value)


_PLAIN = ToolBehavior()
