"""Agents inside an agent, each a lane of its own: the nodes of a graph or swarm, and agents that are used as tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.composer import random_id

if TYPE_CHECKING:
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import Owner

__all__ = ["Nodes", "has_failed"]

Native = Mapping[str, Any]
_FAILED = "This agent failed."


class Nodes:
    """The lanes of one run. A node is known by its id and the lane it runs in, so that nested graphs do not mix."""

    def __init__(self, composer: Composer) -> None:
        self._say = composer
        self._lanes: dict[tuple[Owner, str], str] = {}
        self._steps: dict[tuple[Owner, str], str] = {}
        self._tools: dict[str, str] = {}
        self.inner: set[Owner] = set()
        """The lanes of agents that run as tools, and those inside them."""

    def feed(self, native: Native, lane: Owner) -> list[Event]:
        """A node's beginning, end or cancellation."""
        node = native["node_id"]
        match native.get("type"):
            case "multiagent_node_start":
                return self._start(node, str(native.get("node_type") or "agent"), lane)
            case "multiagent_node_stop":
                return self._stop(node, lane, failed=has_failed(native.get("node_result")))
            case "multiagent_node_cancel":
                told = self._say.custom("MultiAgentNodeCancel", {"node": node}, lane)
                return [*told, *self._stop(node, lane, failed=True)]
            case _:
                return []

    def inside(self, node: str, lane: Owner) -> tuple[list[Event], str]:
        """The node's own lane, opened now if its beginning was not told."""
        opened = [] if (lane, node) in self._lanes else self._start(node, "agent", lane)
        return opened, self._lanes[lane, node]

    def lane(self, node: str, lane: Owner) -> str | None:
        return self._lanes.get((lane, node))

    def of_tool(self, use: Native, data: Native, lane: Owner) -> tuple[list[Event], str | None]:
        """The lane of an agent that runs as a tool; None when the tool is no agent. Every agent says first that its loop begins."""
        tool_use_id = use["toolUseId"]
        if "init_event_loop" in data or "node_id" in data:
            opened = self._open_tool(tool_use_id, use["name"], lane)
            return opened, self._tools[tool_use_id]
        return [], self._tools.get(tool_use_id)

    def close_tool(self, tool_use_id: str) -> list[Event]:
        inside = self._tools.pop(tool_use_id, None)
        return self._say.end_subagent(inside) if inside else []

    def _open_tool(self, tool_use_id: str, name: str, lane: Owner) -> list[Event]:
        if tool_use_id in self._tools:
            return []
        self._tools[tool_use_id] = inside = random_id("subagent")
        self.inner.add(inside)
        return self._say.subagent(inside, name, parent=lane, parent_tool_call_id=tool_use_id)

    def _start(self, node: str, kind: str, lane: Owner) -> list[Event]:
        self._lanes[lane, node] = inside = random_id("subagent")
        if lane in self.inner:
            self.inner.add(inside)
        self._steps[lane, node] = step = f"{kind}:{node}"
        return [*self._say.step(step, lane), *self._say.subagent(inside, node, parent=lane)]

    def _stop(self, node: str, lane: Owner, *, failed: bool) -> list[Event]:
        inside, step = self._lanes.pop((lane, node), None), self._steps.pop((lane, node), None)
        ended = self._say.end_subagent(inside, error=_FAILED if failed else None) if inside else []
        return [*ended, *(self._say.end_step(step, lane) if step else [])]


def has_failed(result: Any) -> bool:
    """Whether a node, a graph or a swarm ended badly: the SDK says so instead of raising."""
    status = getattr(result, "status", None)
    return getattr(status, "value", status) == "failed"
