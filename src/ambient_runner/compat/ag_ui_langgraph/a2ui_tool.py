"""The A2UI names of `ag_ui_langgraph`. `compat/a2ui.py` says what they do."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.tools import BaseTool, StructuredTool

from ambient_runner.compat.a2ui import A2UI_OPERATIONS_KEY, BASIC_CATALOG_ID, NOT_SUPPORTED, name_tool

__all__ = ["A2UI_OPERATIONS_KEY", "BASIC_CATALOG_ID", "A2UIGuidelines", "A2UIToolParams", "get_a2ui_tools"]


class A2UIGuidelines(TypedDict, total=False):
    """Texts for the model that writes a surface."""

    generation_guidelines: str | None
    design_guidelines: str | None
    composition_guide: str | None


class A2UIToolParams(TypedDict, total=False):
    """Parameters of `get_a2ui_tools`. Only the name and the description are used."""

    model: Any
    guidelines: A2UIGuidelines | None
    default_surface_id: str | None
    default_catalog_id: str | None
    tool_name: str | None
    tool_description: str | None
    catalog: dict[str, Any] | None
    recovery: dict[str, Any] | None
    on_a2ui_attempt: Any


def get_a2ui_tools(params: A2UIToolParams) -> BaseTool:
    """Return a tool that tells the model that A2UI is not supported."""
    name, description = name_tool(params)
    return StructuredTool.from_function(coroutine=_report_unsupported, name=name, description=description)


async def _report_unsupported(
    intent: str = "create", target_surface_id: str | None = None, changes: str | None = None
) -> str:
    return NOT_SUPPORTED
