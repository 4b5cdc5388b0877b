"""Tools of the client, as the model sees them: declared with the client's own schema, executed by nobody here.

ADK calls a tool long-running when its result comes from outside. A client's tool is exactly that: calling it gives nothing, and the run
pauses until the client sends the result.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from google.adk.tools import BaseTool
from google.genai import types

from ambient_runner.bridges.adk.interrupts import INTERNAL, QUESTIONS
from ambient_runner.bridges.toolkit.tool_schemas import clean_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools import ToolContext

    from ambient_runner.protocol.events import Tool

__all__ = ["ClientTool", "callable_tools", "offer"]

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_RESERVED = QUESTIONS | INTERNAL | {"transfer_to_agent"}
"""Calls that mean something to ADK itself."""


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


def callable_tools(tools: Sequence[Tool]) -> list[ClientTool]:
    """Those of the client's tools that the model can call. The log names the others."""
    fit = [tool for tool in tools if _NAME.fullmatch(tool.name) and tool.name not in _RESERVED]
    unfit = [tool.name[:64] for tool in tools if tool not in fit]
    if unfit:
        logger.warning(
            "Tools of a client were left out, a name is 1 to 64 letters, digits, _, . or - and none of ADK's: %r",
            unfit[:10],
        )
    return [ClientTool(tool) for tool in fit]


def offer(request: LlmRequest, tools: Sequence[ClientTool]) -> None:
    """Add the client's tools to what the model may call. A tool of the agent itself keeps its name."""
    request.append_tools([tool for tool in tools if tool.name not in request.tools_dict])
