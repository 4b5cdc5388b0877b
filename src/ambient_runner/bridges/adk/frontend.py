"""Tools of the client, as the model sees them: declared with the client's own schema, executed by nobody here.

ADK calls a tool long-running when its result comes from outside. A client's tool is exactly that: calling it gives nothing, and the run
pauses until the client sends the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.tools import BaseTool
from google.genai import types

from ambient_runner.protocol.tools import clean_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools import ToolContext

    from ambient_runner.protocol.events import Tool


class ClientTool(BaseTool):
    """One tool of one request."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description, is_long_running=True)
        self._schema = clean_schema(tool.parameters, dialect="gemini")

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> None:
        return None


def offer(request: LlmRequest, tools: Sequence[ClientTool]) -> None:
    """Add the client's tools to what the model may call. A tool of the agent itself keeps its name."""
    request.append_tools([tool for tool in tools if tool.name not in request.tools_dict])
