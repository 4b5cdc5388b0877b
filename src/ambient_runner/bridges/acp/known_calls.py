"""Tool calls of a turn as the agent has reported them so far, also in updates that no run has received yet.

A permission request is decided when it arrives. What it is about is often said only in the updates before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.messages import as_text
from ambient_runner.bridges.acp.tool_records import FINAL_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import Tool

__all__ = ["KnownCalls"]


class KnownCalls:
    """The calls of one turn, by the agent's ids."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Any]] = {}
        self._own_tools: dict[str, Tool] = {}

    def add(self, tool_call: Mapping[str, Any], tool: Tool | None) -> None:
        """Take over the members of an update, or of the `toolCall` of a request. `tool` is the client's tool that is called."""
        call_id = as_text(tool_call.get("toolCallId"))
        if not call_id:
            return
        is_new = tool_call.get("sessionUpdate") == "tool_call"
        if tool is not None:
            self._own_tools[call_id] = tool
        elif is_new:
            self._own_tools.pop(call_id, None)
        if tool_call.get("status") in FINAL_STATUSES:
            self._members.pop(call_id, None)
            return
        known = {} if is_new else self._members.get(call_id, {})
        self._members[call_id] = {**known, **{name: item for name, item in tool_call.items() if item is not None}}

    def members_of(self, call_id: str) -> Mapping[str, Any]:
        """Return the newest members of a call that has not ended."""
        return self._members.get(call_id, {})

    def own_tool(self, tool_call: Mapping[str, Any]) -> Tool | None:
        """Return the client's tool that an update of a call is about; None for a tool of the agent."""
        return self._own_tools.get(as_text(tool_call.get("toolCallId")))

    def clear(self) -> None:
        """Forget all calls: the turn has ended."""
        self._members.clear()
        self._own_tools.clear()
