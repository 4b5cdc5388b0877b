"""State that is shown before it is there: what a user of a bridge says about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PredictStateMapping"]


@dataclass(frozen=True, kw_only=True)
class PredictStateMapping:
    """An argument of a tool that clients may show as a key of the state while it is still being written."""

    state_key: str
    tool: str
    tool_argument: str

    def to_payload(self) -> dict[str, str]:
        """The mapping as clients expect it in the `PredictState` event."""
        return {"state_key": self.state_key, "tool": self.tool, "tool_argument": self.tool_argument}
