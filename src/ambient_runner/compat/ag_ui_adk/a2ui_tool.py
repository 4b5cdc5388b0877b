"""The A2UI names of `ag_ui_adk`. `compat/a2ui.py` says what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.tools import BaseTool
from google.genai import types

from ambient_runner.compat.a2ui import INPUT_SCHEMA, NOT_SUPPORTED, name_tool

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from ag_ui.core import RunAgentInput
    from google.adk.tools import ToolContext

__all__ = ["A2UISubAgentTool", "get_a2ui_tool", "is_auto_injected_a2ui_tool", "plan_a2ui_injection"]


class A2UISubAgentTool(BaseTool):
    """A tool that tells the model that A2UI is not supported. Of `cfg` only `tool_name` and `tool_description` are used."""

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        name, description = name_tool(cfg)
        super().__init__(name=name, description=description)

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=INPUT_SCHEMA
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> str:
        return NOT_SUPPORTED


def get_a2ui_tool(params: Mapping[str, Any]) -> BaseTool:
    """Return a tool that tells the model that A2UI is not supported."""
    return A2UISubAgentTool(params)


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
