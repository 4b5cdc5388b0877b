"""Predicted state: tool arguments that clients show as state while they are streamed. Users of a bridge configure it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PredictStateMapping"]


@dataclass(frozen=True, kw_only=True)
class PredictStateMapping:
    """Maps a tool argument to the state key that clients show it as while it is being streamed."""

    state_key: str
    tool: str
    tool_argument: str

    def to_payload(self) -> dict[str, str]:
        """Return the mapping in the form of the `PredictState` event."""
        return {"state_key": self.state_key, "tool": self.tool, "tool_argument": self.tool_argument}
