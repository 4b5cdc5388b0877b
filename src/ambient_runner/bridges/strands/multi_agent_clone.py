"""Copies of the user's graph or swarm, one per run: its agents remember a conversation, which no other thread may see."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.multiagent import Swarm
from strands.multiagent.graph import Graph, GraphEdge, GraphNode

from ambient_runner.bridges.strands.agent_clone import check_template, clone_agent, copy_hooks
from ambient_runner.bridges.strands.sdk import initial_messages_of, plugins_of
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase

__all__ = ["check_multi_agent", "clone_multi_agent"]

_HANDOFF_TOOL = "handoff_to_agent"
"""Tool that a swarm adds to its agents. It belongs to that swarm."""


def check_multi_agent(template: Any) -> None:
    """Refuse a graph or swarm that cannot be copied. Raises: ConfigError."""
    if not isinstance(template, Graph | Swarm):
        raise ConfigError(
            f"A {type(template).__name__} cannot be copied for each run. Pass a function that returns a new one."
        )
    if template.session_manager is not None:
        raise ConfigError(
            "A session manager belongs to one conversation. Pass a function that returns the graph or swarm."
        )
    for node in template.nodes.values():
        if isinstance(node.executor, Agent):
            check_template(node.executor)
        else:
            check_multi_agent(node.executor)


def clone_multi_agent(template: Graph | Swarm) -> MultiAgentBase:
    """Return a copy of a graph or swarm whose agents have the history they were created with. Raises: ConfigError."""
    check_multi_agent(template)
    clone = _clone_graph(template) if isinstance(template, Graph) else _clone_swarm(template)
    copy_hooks(template, clone)
    return clone


def _clone_graph(template: Graph) -> Graph:
    nodes = {name: GraphNode(name, _clone_executor(node)) for name, node in template.nodes.items()}
    for name, node in template.nodes.items():
        nodes[name].dependencies = {nodes[dependency.node_id] for dependency in node.dependencies}
    edges = {
        GraphEdge(nodes[edge.from_node.node_id], nodes[edge.to_node.node_id], edge.condition) for edge in template.edges
    }
    return Graph(
        nodes,
        edges,
        {nodes[node.node_id] for node in template.entry_points},
        max_node_executions=template.max_node_executions,
        execution_timeout=template.execution_timeout,
        node_timeout=template.node_timeout,
        reset_on_revisit=template.reset_on_revisit,
        id=template.id,
        trace_attributes=template.trace_attributes,
        plugins=plugins_of(template) or None,
    )


def _clone_swarm(template: Swarm) -> Swarm:
    agents = {name: _clone_executor(node, without=_HANDOFF_TOOL) for name, node in template.nodes.items()}
    entry = template.entry_point
    return Swarm(
        list(agents.values()),
        entry_point=agents[str(entry.name)] if entry is not None else None,
        max_handoffs=template.max_handoffs,
        max_iterations=template.max_iterations,
        execution_timeout=template.execution_timeout,
        node_timeout=template.node_timeout,
        repetitive_handoff_detection_window=template.repetitive_handoff_detection_window,
        repetitive_handoff_min_unique_agents=template.repetitive_handoff_min_unique_agents,
        id=template.id,
        trace_attributes=template.trace_attributes,
        plugins=plugins_of(template) or None,
    )


def _clone_executor(node: Any, *, without: str = "") -> Any:
    """Return a copy of a node's agent, with the messages it had when the node was created, or of its graph or swarm."""
    if not isinstance(node.executor, Agent):
        return clone_multi_agent(node.executor)
    agent = clone_agent(node.executor, without_tools=(without,))
    agent.messages = copy.deepcopy(initial_messages_of(node))
    return agent
