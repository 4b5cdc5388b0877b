"""HistoryWindow: the part of a thread's history that the agent's conversation manager keeps for the model.

Every run loads the thread's history into the agent. What the manager removed or summarized in earlier runs must stay so: its state, as the
SDK's sessions store it, is stored with the thread.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from strands import Agent

__all__ = ["HistoryWindow"]

_REMOVED_COUNT = "removed_message_count"


class HistoryWindow:
    """The conversation manager of one agent. `load` sets the agent's messages, `dump` returns the state for the next run."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._initial_state = {**agent.conversation_manager.get_state(), _REMOVED_COUNT: 0}
        if "summary_message" in self._initial_state:
            self._initial_state["summary_message"] = None  # a template's conversation is not this thread's

    def load(self, messages: list[Any], stored: Any) -> None:
        """Set the agent's messages to those of the history that its manager keeps. `stored` is the result of an earlier `dump`."""
        manager, count = self._agent.conversation_manager, _removed_count(stored)
        if not 0 < count <= len(messages):
            count, stored = 0, self._initial_state  # nothing was removed, or the thread was rewound
        try:
            summary = manager.restore_from_session(copy.deepcopy(stored)) or []
        except ValueError:  # the state of another kind of manager
            count, summary = 0, manager.restore_from_session(copy.deepcopy(self._initial_state)) or []
        self._agent.messages = [*summary, *(_without_orphaned_results(messages[count:]) if count else messages)]
        manager.apply_management(self._agent)

    def dump(self) -> dict[str, Any] | None:
        """Return the manager's state; None if it has not removed anything."""
        state = self._agent.conversation_manager.get_state()
        return state if _removed_count(state) else None


def _removed_count(state: Any) -> int:
    count: Any = cast("dict[str, Any]", state).get(_REMOVED_COUNT) if isinstance(state, dict) else 0
    return count if isinstance(count, int) else 0


def _without_orphaned_results(messages: list[Any]) -> list[Any]:
    """Return the messages from the first one that needs no earlier one: providers refuse results without their calls."""
    for index, message in enumerate(messages):
        if message["role"] == "user" and not any("toolResult" in block for block in message["content"]):
            return messages[index:]
    return messages
