"""Ids of the calls of agents that are used as tools. Pure.

Their models count for themselves, so two agents of one run may use the same id, and so may two turns of one agent. The ids of the outer
agent and of nodes are made unique when the model produces them (`instrumentation.py`); an agent inside a tool is out of reach there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.protocol.ids import client_safe_id

if TYPE_CHECKING:
    from collections.abc import Collection, Container

    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["NestedCallIds"]


class NestedCallIds:
    """The client-visible ids of nested calls. `earlier` are the calls of earlier runs; `answered` those with a result, now or later."""

    def __init__(self, earlier: Collection[str], answered: Container[str]) -> None:
        self._taken = set(earlier)
        self._earlier = earlier
        self._answered = answered
        self._visible_ids: dict[tuple[SubagentId, str], str] = {}

    def reserve(self, call_id: str) -> None:
        """Mark the id of a call of the outer agent as used."""
        self._taken.add(call_id)

    def start_call(self, call_id: str, subagent_id: SubagentId, parent_call_id: str) -> str:
        """Return the id of a call that starts. A call that starts again before it has a result keeps its id."""
        known = self._visible_ids.get((subagent_id, call_id))
        if known is not None and known not in self._answered:
            return known
        own = client_safe_id(call_id)
        wanted = own if own not in self._taken else _qualified_id(parent_call_id, call_id)
        visible_id = allocate_tool_call_id(wanted, self._taken)
        self._taken.add(visible_id)
        self._visible_ids[subagent_id, call_id] = visible_id
        return visible_id

    def find_call(self, call_id: str, subagent_id: SubagentId, parent_call_id: str) -> str:
        """Return the id of a call of this run, or of the run that this one resumes."""
        known = self._visible_ids.get((subagent_id, call_id))
        if known is not None:
            return known
        qualified = _qualified_id(parent_call_id, call_id)
        is_resumed = qualified in self._earlier and qualified not in self._answered
        return qualified if is_resumed else client_safe_id(call_id)


def _qualified_id(parent_call_id: str, call_id: str) -> str:
    return client_safe_id(f"{parent_call_id}::{call_id}")
