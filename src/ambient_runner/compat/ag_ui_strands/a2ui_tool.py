"""The A2UI names of `ag_ui_strands`. `compat/a2ui.py` says what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.compat.a2ui import A2UI_OPERATIONS_KEY, BASIC_CATALOG_ID, INPUT_SCHEMA, NOT_SUPPORTED, name_tool
from ambient_runner.errors import optional_dependency

with optional_dependency("strands", install="ambient-runner[strands]"):
    from strands.tools.tools import PythonAgentTool

if TYPE_CHECKING:
    import logging

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

A2UI_STREAM_KEY = "__a2uiRenderStream"
A2UIGuidelines = dict[str, Any]
A2UIToolParams = dict[str, Any]


def get_a2ui_tools(params: A2UIToolParams, glue: dict[str, Any] | None = None) -> AgentTool:
    """Return a tool that tells the model that A2UI is not supported. Of `params` only `tool_name` and `tool_description` are used."""
    name, description = name_tool(params)
    spec: Any = {"name": name, "description": description, "inputSchema": {"json": INPUT_SCHEMA}}
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
    return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": NOT_SUPPORTED}]}
