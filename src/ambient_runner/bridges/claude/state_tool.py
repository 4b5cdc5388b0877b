"""The tool with which Claude changes the state that it shares with the client."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import SdkMcpTool

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["STATE_TOOL", "StateUpdate", "create_state_tool"]

STATE_TOOL = "update_state"

_DESCRIPTION = (
    "Change the state that you share with the user's page, which shows it. The user's messages contain the current state. "
    "Keys that you do not name stay as they are."
)
_SCHEMA = {
    "type": "object",
    "properties": {
        "changes": {"type": "object", "description": "The keys to set, each with its complete new value."},
    },
    "required": ["changes"],
}


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """A change of the shared state: the keys to set."""

    changes: dict[str, Any]


def create_state_tool(on_update: Callable[[StateUpdate], None]) -> SdkMcpTool[Any]:
    """Return the tool. `on_update` is notified of each change, before the call has its result."""

    async def handle_call(arguments: Any) -> dict[str, Any]:
        changes = _parse_changes(arguments.get("changes"))
        if changes is None:
            return {**_tool_result("`changes` must be an object with the keys to set."), "is_error": True}
        on_update(StateUpdate(changes))
        return _tool_result("Updated.")

    return SdkMcpTool(STATE_TOOL, _DESCRIPTION, _SCHEMA, handle_call)


def _parse_changes(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _tool_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}
