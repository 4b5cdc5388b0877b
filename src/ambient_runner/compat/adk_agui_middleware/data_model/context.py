"""Configuration of a service: who sends a request, and the handlers of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner import adk
from ambient_runner.adk import HandlerContext
from ambient_runner.compat.adk_agui_middleware.tools.default_config_context import (
    default_extract_initial_state,
    default_session_id,
)

if TYPE_CHECKING:
    from ambient_runner.bridges.adk.config import Extractor, StateExtractor

__all__ = ["ConfigContext", "HandlerContext"]


@dataclass(kw_only=True)
class ConfigContext(adk.ConfigContext):
    """Identity of a request: fixed values, or plain or async functions of the input and the request.

    The last three fields have no effect: complete ADK events never repeat what was streamed, and ADK events are not sent to clients.
    """

    session_id: str | Extractor | None = default_session_id
    extract_initial_state: StateExtractor | None = default_extract_initial_state
    retune_on_stream_complete: bool = False
    is_add_adk_event_in_agui_event: bool = False
    auto_remove_agui_raw_event: bool = False
