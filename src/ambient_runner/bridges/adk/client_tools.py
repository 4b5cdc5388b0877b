"""The client's tools as ADK tools: declared with the client's schema, executed by the client.

They are ADK's long-running tools, whose results come from outside: a call returns nothing, and the run pauses until the client sends the
result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.adk.tools import BaseTool
from google.genai import types

from ambient_runner.bridges.adk.interrupts import INTERNAL_TOOLS, INTERRUPT_CALLS
from ambient_runner.bridges.toolkit.tool_schemas import callable_tools, clean_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.tools import ToolContext

    from ambient_runner.protocol.events import Tool

__all__ = ["RESERVED_NAMES", "ClientTool", "create_client_tools"]

_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
RESERVED_NAMES = INTERRUPT_CALLS | INTERNAL_TOOLS | {"transfer_to_agent"}
"""Tool names with a special meaning in ADK."""


class ClientTool(BaseTool):
    """One tool of one request."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description, is_long_running=True)
        self.declared_name = tool.name
        """The client's name of it. A toolset may offer it under a name with a prefix."""
        self._schema = clean_schema(tool.parameters, dialect="gemini")

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> None:
        return None


def create_client_tools(tools: Sequence[Tool]) -> list[ClientTool]:
    """Return the client's tools whose names ADK accepts, as ADK tools."""
    return [ClientTool(tool) for tool in callable_tools(tools, pattern=_TOOL_NAME)]
