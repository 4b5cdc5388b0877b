"""Subagents of a run: subgraphs, each from its first event to the end of the node it runs in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.bridges.langgraph.instrumentation import ToolChain
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["Namespace", "Subagents"]

Namespace = tuple[str, ...]
"""Path to a graph in a run: the names of the nodes around it, each with the id of its task. With its own name appended, a node's path."""


class Subagents:
    """Subagents of one run, one per namespace. The graph itself is the agent."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._subagents_by_namespace: dict[Namespace, str] = {}
        self._counts: dict[Namespace, int] = {}
        self._tool_calls: dict[str, tuple[str, str]] = {}
        self._chains: dict[str, list[tuple[ToolChain, str]]] = {}

    def subagent_of(self, namespace: Namespace) -> SubagentId:
        return self._subagents_by_namespace.get(namespace)

    def record_tool_call(self, node: Namespace, node_input: Any, client_call_id: Callable[[str], str]) -> None:
        """Record the tool call that a node executes, if its input is one: a subgraph in the node works for that call."""
        call = cast("Mapping[str, Any]", node_input).get("tool_call") if isinstance(node_input, Mapping) else None
        if isinstance(call, Mapping) and "id" in call and "name" in call:
            self._tool_calls[node[-1]] = (client_call_id(str(call["id"])), str(call["name"]))  # pyright: ignore[reportUnknownArgumentType]

    def record_chain(self, chain: ToolChain, client_call_id: Callable[[str], str]) -> None:
        """Record what a tool calls. If it is a graph, the next namespace inside the node of the tool is that of the graph."""
        call_id = client_call_id(chain.tool_call_id) if chain.tool_call_id else ""
        self._chains.setdefault(chain.node.rpartition("|")[2], []).append((chain, call_id))

    def tool_call_of(self, node: Namespace) -> str | None:
        """Return the id of the tool call that a node executes, if known."""
        return self._tool_calls.get(node[-1], (None, ""))[0]

    def enter_namespace(self, namespace: Namespace) -> list[Event]:
        """Return the starts of a namespace's subagent and of those around it, as far as they have not started."""
        if not namespace or namespace in self._subagents_by_namespace:
            return []
        events = self.enter_namespace(namespace[:-1])
        count = self._counts[namespace] = self._counts.get(namespace, 0) + 1
        subagent_id = self._subagents_by_namespace[namespace] = "|".join(namespace) + (f"~{count}" if count > 1 else "")
        call_id, tool = self._take_chain(namespace) or self._tool_calls.get(namespace[-1], (None, ""))
        return [
            *events,
            *self._composer.start_subagent(
                subagent_id,
                tool or _subgraph_name(namespace),
                parent=self.subagent_of(namespace[:-1]),
                parent_tool_call_id=call_id,
            ),
        ]

    def _take_chain(self, namespace: Namespace) -> tuple[str | None, str] | None:
        """Return the call and the name of the first chain of the node's tools that still runs and has no namespace yet."""
        chains = self._chains.get(_node_of(namespace)[-1], [])
        while chains:
            chain, call_id = chains.pop(0)
            if not chain.is_over:
                return call_id or None, chain.name
        return None

    def leave_node(self, node: Namespace, *, has_failed: bool = False) -> list[Event]:
        """Return the ends of all subagents in a node, the innermost first. The log has the reason of a failure."""
        error = "The subgraph failed." if has_failed else None
        inside = [namespace for namespace in self._subagents_by_namespace if namespace[: len(node)] == node]
        return [
            event
            for namespace in sorted(inside, key=len, reverse=True)
            for event in self._composer.end_subagent(self._subagents_by_namespace.pop(namespace), error=error)
        ]


def _subgraph_name(namespace: Namespace) -> str:
    return _node_of(namespace)[-1].partition(":")[0]


def _node_of(namespace: Namespace) -> Namespace:
    """Return the path of the node around a graph. A node that calls several graphs numbers them."""
    return _node_of(namespace[:-1]) if namespace[-1].isdigit() and len(namespace) > 1 else namespace
