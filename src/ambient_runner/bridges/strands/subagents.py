"""Subagents of a run, each with a lane of its own: nodes of a graph or swarm, and agents used as tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.composer import random_id

if TYPE_CHECKING:
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import OwnerId

__all__ = ["SubagentLanes", "has_failed"]

Native = Mapping[str, Any]
_FAILED_MESSAGE = "This agent failed."


class SubagentLanes:
    """Lanes of one run. A node is identified by its id and the lane it runs in, so that nested graphs do not mix."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._lanes: dict[tuple[OwnerId, str], str] = {}
        self._steps: dict[tuple[OwnerId, str], str] = {}
        self._tool_lanes: dict[str, str] = {}
        self.nested: set[OwnerId] = set()
        """Lanes of agents that run as tools, and the lanes inner_lane them."""

    def feed_node(self, native: Native, lane: OwnerId) -> list[Event]:
        """Return the events of a node's start, end or cancellation."""
        node = native["node_id"]
        match native.get("type"):
            case "multiagent_node_start":
                return self._start_node(node, str(native.get("node_type") or "agent"), lane)
            case "multiagent_node_stop":
                return self._stop_node(node, lane, failed=has_failed(native.get("node_result")))
            case "multiagent_node_cancel":
                cancelled = self._composer.custom("MultiAgentNodeCancel", {"node": node}, lane)
                return [*cancelled, *self._stop_node(node, lane, failed=True)]
            case _:
                return []

    def enter_node(self, node: str, lane: OwnerId) -> tuple[list[Event], str]:
        """Return the node's lane, and the events that open it if its start was not reported."""
        opened = [] if (lane, node) in self._lanes else self._start_node(node, "agent", lane)
        return opened, self._lanes[lane, node]

    def find_lane(self, node: str, lane: OwnerId) -> str | None:
        return self._lanes.get((lane, node))

    def enter_tool(self, use: Native, data: Native, lane: OwnerId) -> tuple[list[Event], str | None]:
        """Return the lane of an agent that runs as a tool, and the events that open it; None when the tool is not an agent.

        The first event of an agent reports that its loop starts.
        """
        tool_use_id = use["toolUseId"]
        if "init_event_loop" in data or "node_id" in data:
            opened = self._open_tool(tool_use_id, use["name"], lane)
            return opened, self._tool_lanes[tool_use_id]
        return [], self._tool_lanes.get(tool_use_id)

    def close_tool(self, tool_use_id: str) -> list[Event]:
        inner_lane = self._tool_lanes.pop(tool_use_id, None)
        return self._composer.end_subagent(inner_lane) if inner_lane else []

    def _open_tool(self, tool_use_id: str, name: str, lane: OwnerId) -> list[Event]:
        if tool_use_id in self._tool_lanes:
            return []
        self._tool_lanes[tool_use_id] = inner_lane = random_id("subagent")
        self.nested.add(inner_lane)
        return self._composer.start_subagent(inner_lane, name, parent=lane, parent_tool_call_id=tool_use_id)

    def _start_node(self, node: str, kind: str, lane: OwnerId) -> list[Event]:
        self._lanes[lane, node] = inner_lane = random_id("subagent")
        if lane in self.nested:
            self.nested.add(inner_lane)
        self._steps[lane, node] = step = f"{kind}:{node}"
        return [*self._composer.start_step(step, lane), *self._composer.start_subagent(inner_lane, node, parent=lane)]

    def _stop_node(self, node: str, lane: OwnerId, *, failed: bool) -> list[Event]:
        inner_lane, step = self._lanes.pop((lane, node), None), self._steps.pop((lane, node), None)
        ended = self._composer.end_subagent(inner_lane, error=_FAILED_MESSAGE if failed else None) if inner_lane else []
        return [*ended, *(self._composer.end_step(step, lane) if step else [])]


def has_failed(result: Any) -> bool:
    """Return True if a node, graph or swarm failed: the SDK reports that in the result instead of raising."""
    status = getattr(result, "status", None)
    return getattr(status, "value", status) == "failed"
