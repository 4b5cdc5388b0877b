"""The defaults of ConfigContext."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput
    from fastapi import Request

__all__ = ["default_extract_initial_state", "default_session_id"]


async def default_session_id(agui_content: RunAgentInput, request: Request) -> str:
    """Return the id of the thread."""
    return agui_content.thread_id


async def default_extract_initial_state(agui_content: RunAgentInput, request: Request) -> dict[str, Any]:
    """Return the client's state."""
    return agui_content.state or {}
