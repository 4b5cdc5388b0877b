"""The A2UI names of `ag_ui_langgraph`. A2UI is not supported: the names are there so that a server with one such agent starts."""

from __future__ import annotations

import logging
from typing import Any, TypedDict

from langchain_core.tools import BaseTool, StructuredTool

__all__ = ["A2UI_OPERATIONS_KEY", "BASIC_CATALOG_ID", "A2UIGuidelines", "A2UIToolParams", "get_a2ui_tools"]

logger = logging.getLogger(__name__)

A2UI_OPERATIONS_KEY = "a2ui_operations"
BASIC_CATALOG_ID = "https://a2ui.org/specification/v0_9/basic_catalog.json"
_NOT_SUPPORTED = "A2UI is not supported here. Answer in text."


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
    name = params.get("tool_name") or "generate_a2ui"
    logger.warning(
        "A2UI is not supported: the agent runs without surfaces, and its tool %s says so to the model.", name
    )
    description = (
        params.get("tool_description") or "Generate or edit an A2UI surface. It is not available at the moment."
    )
    return StructuredTool.from_function(coroutine=_report_unsupported, name=name, description=description)


async def _report_unsupported(
    intent: str = "create", target_surface_id: str | None = None, changes: str | None = None
) -> str:
    return _NOT_SUPPORTED
