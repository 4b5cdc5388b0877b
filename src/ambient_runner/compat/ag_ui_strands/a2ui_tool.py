"""The A2UI names of `ag_ui_strands`. A2UI is not supported: the names are there so that a server with one such agent starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ambient_runner.errors import optional_dependency

with optional_dependency("strands", install="ambient-runner[strands]"):
    from strands.tools.tools import PythonAgentTool

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput
    from strands.types.tools import AgentTool

__all__ = [
    "A2UI_OPERATIONS_KEY",
    "A2UI_STREAM_KEY",
    "BASIC_CATALOG_ID",
    "A2UIGuidelines",
    "A2UIToolParams",
    "get_a2ui_tools",
    "is_auto_injected_a2ui_tool",
    "plan_a2ui_injection",
]

logger = logging.getLogger(__name__)

A2UI_OPERATIONS_KEY = "a2ui_operations"
A2UI_STREAM_KEY = "__a2uiRenderStream"
BASIC_CATALOG_ID = "https://a2ui.org/specification/v0_9/basic_catalog.json"
A2UIGuidelines = dict[str, Any]
A2UIToolParams = dict[str, Any]
_DESCRIPTION = "Generate or edit an A2UI surface. It is not available at the moment."
_NOT_SUPPORTED = "A2UI is not supported here. Answer in text."
_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("intent", "target_surface_id", "changes")},
}


def get_a2ui_tools(params: A2UIToolParams, glue: dict[str, Any] | None = None) -> AgentTool:
    """Return a tool that tells the model that A2UI is not supported. Of `params` only `tool_name` and `tool_description` are used."""
    name = params.get("tool_name") or "generate_a2ui"
    logger.warning(
        "A2UI is not supported: the agent runs without surfaces, and its tool %s says so to the model.", name
    )
    description = params.get("tool_description") or _DESCRIPTION
    spec: Any = {"name": name, "description": description, "inputSchema": {"json": _SCHEMA}}
    return PythonAgentTool(name, spec, _report_unsupported)


def plan_a2ui_injection(
    *,
    model: Any,
    input: RunAgentInput,  # noqa: A002  the published name
    existing_tool_names: list[str],
    config: dict[str, Any] | None = None,
    log: logging.Logger | None = None,
    strands_agent: Any = None,
    agui_state: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Return None: no tool is added to an agent."""
    return None


def is_auto_injected_a2ui_tool(tool: Any) -> bool:
    """Return False: no tool is added to an agent."""
    return False


async def _report_unsupported(tool_use: Any, **_: Any) -> Any:
    return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": _NOT_SUPPORTED}]}
