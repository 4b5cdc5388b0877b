"""Settings of a LangGraph agent: what clients see, what they may set, and limits. Data and hooks, no SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping
from ambient_runner.runs.lowering import PropRule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ag_ui.core import RunAgentInput

__all__ = ["LangGraphConfig", "PredictStateMapping"]

_RESERVED_KEYS = frozenset({"tools", "copilotkit", "remaining_steps", "is_last_step"})
"""Keys of the state that the bridge or the SDK sets."""


@dataclass(frozen=True, kw_only=True)
class LangGraphConfig:
    """Display options and limits of a graph."""

    messages_key: str = "messages"
    """The key of the graph's state that holds the conversation."""
    shared_state: Sequence[str] = ()
    """Keys of the state that clients see although the graph's output schema lacks them."""
    hidden_state: Sequence[str] = ()
    """Further keys of the state that clients never see and never set."""
    predict_state: Sequence[PredictStateMapping] = ()
    """Tool arguments to show as state while the model streams them. The metadata `predict_state` of a model call adds to these."""
    recursion_limit: int | None = None
    """Maximum number of steps per run. None means the graph's own limit (`with_config`), or 100 if it has none.

    The SDK's default is so high that an endless graph exhausts the memory first.
    """
    configurable: Sequence[str] = ()
    """Keys of the run's `configurable` that a client may set with `forwardedProps.configurable`."""
    client_context: Sequence[str] = ()
    """Keys of the run's context that a client may set with `forwardedProps.context`."""
    context: Callable[[RunAgentInput], Any] | None = None
    """Returns the run's context: a mapping for the graph's context schema. It overrides what the client sets."""
    time_travel: bool = False
    """True if a client may choose where the graph continues: `forwardedProps.checkpointId` and `forwardedProps.command`."""
    interrupt_timeout: float | None = None
    """Seconds until an interrupt expires; None means never."""
    emit_interrupt_outcome: bool = True
    """False sends interrupts to clients before AG-UI 1.0 as CUSTOM `on_interrupt` alone, for pages that read the graph's own value:
    CopilotKit ignores the event if the run also has an outcome."""
    default_prompt: str = ""
    """User message for a request that has nothing to answer; without it such a request is refused."""

    @property
    def prop_rules(self) -> dict[str, PropRule]:
        """The keys of `forwardedProps` that the bridge reads."""
        command = None if self.time_travel else ("resume",)
        return {
            "command": PropRule(members=command, setting="time_travel"),
            "checkpointId": PropRule(values=None if self.time_travel else (), setting="time_travel"),
            "configurable": PropRule(members=tuple(self.configurable), setting="configurable"),
            "context": PropRule(members=tuple(self.client_context), setting="client_context"),
        }

    @property
    def hidden_keys(self) -> frozenset[str]:
        """All keys of the state that clients never see and never set."""
        return frozenset({self.messages_key, *_RESERVED_KEYS, *self.hidden_state})
