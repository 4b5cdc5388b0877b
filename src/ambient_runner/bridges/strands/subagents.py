"""Subagents of a run: nodes of a graph or swarm, and agents used as tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.composer import random_id

if TYPE_CHECKING:
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["Subagents", "has_failed"]

Native = Mapping[str, Any]
_FAILED_MESSAGE = "This agent failed."


class Subagents:
    """Subagents of one run. A node is identified by its id and the subagent it runs in, so that nested graphs do not mix."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._subagents_by_node: dict[tuple[SubagentId, str], str] = {}
        self._steps: dict[tuple[SubagentId, str], str] = {}
        self._subagents_by_call: dict[str, str] = {}
        self.parent_calls: dict[SubagentId, str] = {}
        """The call in which a subagent runs, for those that run as tools and for the subagents inside them."""

    def feed_node(self, native: Native, subagent_id: SubagentId) -> list[Event]:
        """Return the events of a node's start, end or cancellation."""
        node = native["node_id"]
        match native.get("type"):
            case "multiagent_node_start":
                return self._start_node(node, str(native.get("node_type") or "agent"), subagent_id)
            case "multiagent_node_stop":
                return self._stop_node(node, subagent_id, failed=has_failed(native.get("node_result")))
            case "multiagent_node_cancel":
                cancelled = self._composer.custom("MultiAgentNodeCancel", {"node": node}, subagent_id)
                return [*cancelled, *self._stop_node(node, subagent_id, failed=True)]
            case _:
                return []

    def enter_node(self, node: str, subagent_id: SubagentId) -> tuple[list[Event], str]:
        """Return the events that start a node's subagent, if its start was not reported, and the subagent's id."""
        opened = [] if (subagent_id, node) in self._subagents_by_node else self._start_node(node, "agent", subagent_id)
        return opened, self._subagents_by_node[subagent_id, node]

    def subagent_of(self, node: str, subagent_id: SubagentId) -> str | None:
        return self._subagents_by_node.get((subagent_id, node))

    def enter_tool(
        self, tool_use_id: str, name: str, data: Native, subagent_id: SubagentId
    ) -> tuple[list[Event], str | None]:
        """Return the events that start an agent used as a tool, and its subagent id; None when the tool is not an agent.

        The first event of an agent reports that its loop starts.
        """
        if "init_event_loop" in data or "node_id" in data:
            opened = self._open_tool(tool_use_id, name, subagent_id)
            return opened, self._subagents_by_call[tool_use_id]
        return [], self._subagents_by_call.get(tool_use_id)

    def close_tool(self, tool_use_id: str) -> list[Event]:
        inner_id = self._subagents_by_call.pop(tool_use_id, None)
        return self._composer.end_subagent(inner_id) if inner_id else []

    def _open_tool(self, tool_use_id: str, name: str, subagent_id: SubagentId) -> list[Event]:
        if tool_use_id in self._subagents_by_call:
            return []
        self._subagents_by_call[tool_use_id] = inner_id = random_id("subagent")
        self.parent_calls[inner_id] = tool_use_id
        return self._composer.start_subagent(inner_id, name, parent=subagent_id, parent_tool_call_id=tool_use_id)

    def _start_node(self, node: str, kind: str, subagent_id: SubagentId) -> list[Event]:
        self._subagents_by_node[subagent_id, node] = inner_id = random_id("subagent")
        if subagent_id in self.parent_calls:
            self.parent_calls[inner_id] = self.parent_calls[subagent_id]
        self._steps[subagent_id, node] = step = f"{kind}:{node}"
        return [
            *self._composer.start_step(step, subagent_id),
            *self._composer.start_subagent(inner_id, node, parent=subagent_id),
        ]

    def _stop_node(self, node: str, subagent_id: SubagentId, *, failed: bool) -> list[Event]:
        inner_id, step = (
            self._subagents_by_node.pop((subagent_id, node), None),
            self._steps.pop((subagent_id, node), None),
        )
        ended = self._composer.end_subagent(inner_id, error=_FAILED_MESSAGE if failed else None) if inner_id else []
        return [*ended, *(self._composer.end_step(step, subagent_id) if step else [])]


def has_failed(result: Any) -> bool:
    """Return True if a node, graph or swarm failed: the SDK reports that in the result instead of raising."""
    status = getattr(result, "status", None)
    return getattr(status, "value", status) == "failed"
