"""Configuration of a Strands agent: effects of each tool on the stream and the shared state. Data and hooks, no SDK.

The dataclasses have the field order of the package `ag_ui_strands`, so that positional arguments mean the same in both.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ambient_runner.bridges.strands.url_fetch import UrlFetchPolicy  # noqa: TC001  its fields can be set in ambient.toml
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping, normalize_predict_state
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput
    from strands.session.session_manager import SessionManager

__all__ = [
    "ClientToolRule",
    "PredictStateMapping",
    "StrandsAgentConfig",
    "ToolBehavior",
    "ToolCallContext",
    "ToolResultContext",
    "ToolStreamEventContext",
    "maybe_await",
    "normalize_predict_state",
]

T = TypeVar("T")


@dataclass
class ToolCallContext:
    """A tool call with complete arguments. `tool_input` is their parsed value, or their text if they are not JSON."""

    input_data: RunAgentInput
    tool_name: str
    tool_use_id: str
    tool_input: Any
    args_str: str


@dataclass
class ToolResultContext(ToolCallContext):
    """A tool call with its result. `result_data` is parsed if the result is JSON, and a list if it has several blocks."""

    result_data: Any
    message_id: str


@dataclass
class ToolStreamEventContext:
    """A value that a tool yields while it runs."""

    tool_use_id: str
    tool_name: str
    stream_data: Any


ArgsStreamer = Callable[[ToolCallContext], AsyncIterator[str] | Any]
StateFromArgs = Callable[[ToolCallContext], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
StateFromResult = Callable[[ToolResultContext], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
CustomResultHandler = Callable[[ToolResultContext], AsyncIterator[Any] | Any]
StateContextBuilder = Callable[["RunAgentInput", str], Awaitable[str] | str]
SessionManagerProvider = Callable[["RunAgentInput"], "Awaitable[SessionManager] | SessionManager"]
ToolStreamEventHandler = Callable[[ToolStreamEventContext], AsyncIterator[Any] | Any]
ThreadAgentKwargsProvider = Callable[["RunAgentInput"], Awaitable[Mapping[str, Any]] | Mapping[str, Any]]
TemplateToolsProvider = Callable[["RunAgentInput"], Awaitable[Iterable[Any] | None] | Iterable[Any] | None]
ClientToolRule = Literal["all", "declared"] | Collection[str]
"""Which tools the client executes if the agent has a tool of the same name: all of them, none (`declared`), or these names."""


@dataclass
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
    interrupt_on_call: bool = False
    """Request approval before this tool runs. The client cannot execute such a tool in the agent's place."""
    predict_state: PredictStateMapping | Iterable[PredictStateMapping] | None = None
    args_streamer: ArgsStreamer | None = None
    """Yields the arguments in parts, in place of the model's own deltas."""
    state_from_args: StateFromArgs | None = None
    """Returns keys to set in the shared state when the arguments are complete."""
    state_from_result: StateFromResult | None = None
    """Returns keys to set in the shared state when the result exists."""
    custom_result_handler: CustomResultHandler | None = None
    """Yields AG-UI events to send after the result."""
    tool_stream_event_handler: ToolStreamEventHandler | None = None
    """Yields AG-UI events for each value that the tool yields while it runs, in place of the state in `{"state": …}`."""
    client_may_answer: bool = True
    """Let the client execute this tool of the agent if it declares one of the same name. False keeps the tool on the server."""

    def __post_init__(self) -> None:
        # An iterator could be read only once, and there are many runs.
        self.predict_state = tuple(normalize_predict_state(self.predict_state))


@dataclass
class StrandsAgentConfig:
    """Configuration of a Strands agent."""

    tool_behaviors: dict[str, ToolBehavior] = field(default_factory=dict[str, ToolBehavior])
    """Behavior by tool name."""
    state_context_builder: StateContextBuilder | None = None
    """Rewrites the last user message, so that the model knows the shared state: `(input, prompt) -> prompt`."""
    thread_agent_kwargs: ThreadAgentKwargsProvider | None = None
    """Returns arguments for the constructor of a thread's `strands.Agent`, such as a `conversation_manager`, in place of the template's."""
    template_tools_provider: TemplateToolsProvider | None = None
    """Returns those of the agent's tools, or their names, that the model may call in this run; None for all of them."""
    session_manager_provider: SessionManagerProvider | None = None
    """Returns the Strands SessionManager of a thread, which then owns the history the model sees.

    Derive the session id from `current_run().thread`: another user may have a thread with the same id.
    """
    emit_messages_snapshot: bool = True
    """Send a MESSAGES_SNAPSHOT after each tool result. A server sends one at the end of a run in any case."""
    replay_history_into_strands: bool = True
    """Load the thread's messages into the agent before each run. False for an agent that keeps its own history."""
    url_fetch_policy: UrlFetchPolicy | None = None
    """Limits for fetching attachments that a client names by URL; None to fetch none."""
    audio_input_supported: bool = True
    """Pass audio attachments to the model."""
    default_prompt: str = ""
    """User message for a request with nothing to answer. Without it, such a request is refused."""
    wrap_interrupt_answer: bool = False
    """Give a tool `{"response": payload}` as the answer to its interrupt, as `ag_ui_strands` does, and not the payload itself."""
    max_turns: int | None = None
    """Limit of model calls in one run."""
    interrupt_timeout: float | None = None
    """Seconds until an interrupt expires; None for never."""
    client_tools: ClientToolRule | None = None
    """Tools that the client executes although the agent has a tool of the same name: `"all"` that the client declares, `"declared"` for
    none, or their names. None is `"all"` for a StrandsAgent and its endpoints, `"declared"` for a StrandsBridge.
    """

    def __post_init__(self) -> None:
        rule = self.client_tools
        if isinstance(rule, str) and rule not in {"all", "declared"}:
            raise ConfigError(f'client_tools must be "all", "declared" or a list of tool names, not {rule!r}.')

    def behavior(self, tool: str) -> ToolBehavior:
        """Return the behavior of a tool; the default if none is configured."""
        return self.tool_behaviors.get(tool, _DEFAULT_BEHAVIOR)

    @property
    def continuing_tools(self) -> set[str]:
        """Client tools after whose call the model continues."""
        return {name for name, behavior in self.tool_behaviors.items() if behavior.continue_after_frontend_call}

    def server_tools(self, own_tools: Iterable[str]) -> set[str]:
        """Return those of the agent's own tools that only the agent executes, whatever the client declares."""
        return {name for name in own_tools if not self._client_may_answer(name)}

    def _client_may_answer(self, tool: str) -> bool:
        behavior, rule = self.behavior(tool), self.client_tools
        if behavior.interrupt_on_call or not behavior.client_may_answer:
            return False
        return rule in {None, "all"} if rule is None or isinstance(rule, str) else tool in rule


async def maybe_await(value: Awaitable[T] | T) -> T:
    """Return the value, awaited if it is awaitable."""
    return cast("T", await value if inspect.isawaitable(value) else value)


_DEFAULT_BEHAVIOR = ToolBehavior()
