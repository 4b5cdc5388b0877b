"""How a LangGraph graph is served: what clients see and may set. Data and hooks, no SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ag_ui.core import RunAgentInput

__all__ = ["LangGraphConfig", "PredictStateMapping"]

_RESERVED = frozenset({"tools", "copilotkit", "remaining_steps", "is_last_step"})
"""Keys of the state that we or the SDK set."""


@dataclass(frozen=True, kw_only=True)
class LangGraphConfig:
    """How a graph is shown and limited."""

    messages_key: str = "messages"
    """The key of the graph's state that holds the conversation."""
    hidden_state: Sequence[str] = ()
    """Further keys of the state that clients never see and never set."""
    predict_state: Sequence[PredictStateMapping] = ()
    """Arguments to show as state. The metadata `predict_state` of a model's call adds to these."""
    recursion_limit: int | None = None
    """How many steps a run may take. None is the graph's own limit, if it has one (`with_config`), else 100.

    The SDK's is met by an endless graph only when it has eaten the memory.
    """
    configurable: Sequence[str] = ()
    """What a client may set in the run's `configurable`, by `forwardedProps.configurable`."""
    client_context: Sequence[str] = ()
    """What a client may set in the run's context, by `forwardedProps.context`."""
    context: Callable[[RunAgentInput], Any] | None = None
    """Gives the run's context: a mapping of what the graph's context schema has. It wins over what the client sets."""
    time_travel: bool = False
    """Whether a client may say where the graph goes on: `forwardedProps.checkpointId` and `forwardedProps.command`."""
    interrupt_seconds: float | None = None
    """How long a question to a person stays open; for ever when None."""
    default_prompt: str = ""
    """What is asked when a request has nothing to answer; without it such a request is refused."""

    @property
    def hidden(self) -> frozenset[str]:
        """All keys of the state that clients never see and never set."""
        return frozenset({self.messages_key, *_RESERVED, *self.hidden_state})
