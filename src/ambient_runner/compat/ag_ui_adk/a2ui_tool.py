"""The A2UI names of `ag_ui_adk`. A2UI is not supported: the names are there so that a server with one such agent starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from google.adk.tools import BaseTool
from google.genai import types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ag_ui.core import RunAgentInput
    from google.adk.tools import ToolContext

__all__ = ["A2UISubAgentTool", "get_a2ui_tool", "is_auto_injected_a2ui_tool", "plan_a2ui_injection"]

logger = logging.getLogger(__name__)

_TOOL_NAME = "generate_a2ui"
_DESCRIPTION = "Generate or edit an A2UI surface. It is not available at the moment."
_NOT_SUPPORTED = "A2UI is not supported here. Answer in text."
_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("intent", "target_surface_id", "changes")},
}


class A2UISubAgentTool(BaseTool):
    """A tool that tells the model that A2UI is not supported. Of `cfg` only `tool_name` and `tool_description` are used."""

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__(
            name=cfg.get("tool_name") or _TOOL_NAME, description=cfg.get("tool_description") or _DESCRIPTION
        )

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=_SCHEMA)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> str:
        return _NOT_SUPPORTED


def get_a2ui_tool(params: Mapping[str, Any]) -> BaseTool:
    """Return a tool that tells the model that A2UI is not supported."""
    tool = A2UISubAgentTool(params)
    logger.warning(
        "A2UI is not supported: the agent runs without surfaces, and its tool %s says so to the model.", tool.name
    )
    return tool


def plan_a2ui_injection(
    *,
    model: Any,
    input: RunAgentInput,  # noqa: A002  the published name
    existing_tool_names: list[str],
    config: dict[str, Any] | None = None,
    log: logging.Logger | None = None,
) -> dict[str, Any] | None:
    """Return None: no tool is added to an agent."""
    return None


def is_auto_injected_a2ui_tool(tool: Any) -> bool:
    """Return False: no tool is added to an agent."""
    return False
