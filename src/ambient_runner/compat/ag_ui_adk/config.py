"""Predicted state: tool arguments that clients show as state while they are streamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PredictStateMapping", "normalize_predict_state"]


@dataclass
class PredictStateMapping:
    """Maps an argument of a tool to a state key. With `emit_confirm_tool` the client confirms the change after the call."""

    state_key: str
    tool: str
    tool_argument: str
    emit_confirm_tool: bool = True
    stream_tool_call: bool = False

    def to_payload(self) -> dict[str, str]:
        """Return the mapping in the form of the `PredictState` event."""
        return {"state_key": self.state_key, "tool": self.tool, "tool_argument": self.tool_argument}


def normalize_predict_state(
    value: PredictStateMapping | Iterable[PredictStateMapping] | None,
) -> list[PredictStateMapping]:
    """Return one mapping, several or none as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, PredictStateMapping) else list(value)
