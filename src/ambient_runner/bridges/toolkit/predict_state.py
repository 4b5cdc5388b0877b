"""Predicted state: tool arguments that clients show as state while they are streamed. Users of a bridge configure it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PredictStateMapping", "normalize_predict_state", "predictions_by_tool"]


@dataclass
class PredictStateMapping:
    """Maps a tool argument to the state key that clients show it as while it is being streamed."""

    state_key: str
    tool: str
    tool_argument: str

    def to_payload(self) -> dict[str, str]:
        """Return the mapping in the form of the `PredictState` event."""
        return {"state_key": self.state_key, "tool": self.tool, "tool_argument": self.tool_argument}


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


def predictions_by_tool(
    value: PredictStateMapping | Iterable[PredictStateMapping] | None,
) -> dict[str, list[dict[str, str]]]:
    """Return the value of the `PredictState` event of each tool that has mappings."""
    predictions: dict[str, list[dict[str, str]]] = {}
    for mapping in normalize_predict_state(value):
        predictions.setdefault(mapping.tool, []).append(mapping.to_payload())
    return predictions
