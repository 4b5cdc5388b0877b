"""A2UI, which is not supported: the part that the `a2ui_tool` modules of the published packages share.

Their names are there so that a server with one such agent starts. The tool tells the model that A2UI is not supported.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["A2UI_OPERATIONS_KEY", "BASIC_CATALOG_ID", "INPUT_SCHEMA", "NOT_SUPPORTED", "name_tool"]

logger = logging.getLogger(__name__)

A2UI_OPERATIONS_KEY = "a2ui_operations"
BASIC_CATALOG_ID = "https://a2ui.org/specification/v0_9/basic_catalog.json"
NOT_SUPPORTED = "A2UI is not supported here. Answer in text."
"""The result of the tool."""
INPUT_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("intent", "target_surface_id", "changes")},
}


def name_tool(params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the description of the tool for these parameters. The log warns that A2UI is not supported."""
    name = params.get("tool_name") or "generate_a2ui"
    logger.warning(
        "A2UI is not supported: the agent runs without surfaces, and its tool %s says so to the model.", name
    )
    return name, params.get(
        "tool_description"
    ) or "Generate or edit an A2UI surface. It is not available at the moment."
