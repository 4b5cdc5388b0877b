"""The client's tools for a Strands agent: offered to the model, executed by the client.

A call of one is a Strands interrupt: the SDK executes the other calls of the turn and then pauses before it calls the model again.
`instrumentation.py` inserts this into the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strands.tools.tools import PythonAgentTool

from ambient_runner.bridges.toolkit.tool_schemas import clean_schema

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Tool

__all__ = ["CLIENT_TOOL_INTERRUPT", "fixed_result_tool", "tool_spec"]

CLIENT_TOOL_INTERRUPT = "ambient-frontend"
"""Name of the SDK interrupt that waits for the result of a client tool."""


def tool_spec(tool: Tool) -> dict[str, Any]:
    """Return a client tool as the SDK's tool specification."""
    return {
        "name": tool.name,
        "description": tool.description or tool.name,
        "inputSchema": {"json": clean_schema(tool.parameters, dialect="json")},
    }


def fixed_result_tool(tool: Tool, result: dict[str, Any]) -> PythonAgentTool:
    """Return a stand-in for a client tool that returns this result to the SDK."""

    async def return_result(use: Any, **state: Any) -> Any:
        return {**result, "toolUseId": use["toolUseId"]}

    spec: Any = tool_spec(tool)
    return PythonAgentTool(tool.name, spec, return_result)
