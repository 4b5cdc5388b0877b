"""The graph's own tools: those of its tool nodes, and their declarations for clients. The graph is not run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from ambient_runner.bridges.langgraph.client_tools import TOOLS_ATTRIBUTE
from ambient_runner.bridges.toolkit.tools import declare_tool
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import Tool

__all__ = ["declare_tools", "own_tools"]


def own_tools(graph: Any) -> dict[str, Any]:
    """Return the tools in the tool nodes of a compiled graph and of its subgraphs, by name."""
    graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
    nodes = [node.bound for subgraph in graphs for node in getattr(subgraph, "nodes", {}).values()]
    return {name: tool for node in nodes for name, tool in _tools_of_node(node).items()}


def declare_tools(tools: Mapping[str, Any]) -> list[Tool]:
    """Return the declarations of these tools, as a model gets them: without the arguments that the graph injects."""
    return [_declare(name, tool) for name, tool in tools.items()]


def _declare(name: str, tool: Any) -> Tool:
    with isolate(f"reading the schema of the tool {name!r}"):
        function: dict[str, Any] = convert_to_openai_tool(tool)["function"]
        return declare_tool(name, function.get("description"), function.get("parameters"))
    return declare_tool(name)


def _tools_of_node(node: Any) -> Mapping[str, Any]:
    wrapped: Any = getattr(node, "afunc", None)
    return getattr(node, "tools_by_name", None) or getattr(wrapped, TOOLS_ATTRIBUTE, {})
