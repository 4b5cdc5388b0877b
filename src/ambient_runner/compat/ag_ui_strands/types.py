"""The names of `ag_ui_strands.types`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel

__all__ = ["StrandsEventTypes", "StrandsMessage", "StrandsState", "StrandsToolCall"]


class StrandsEventTypes(StrEnum):
    """Kinds of streamed events."""

    MESSAGE_START = "message_start"
    MESSAGE_CONTENT = "message_content"
    MESSAGE_END = "message_end"
    TOOL_CALL_START = "tool_call_start"
    TOOL_CALL_END = "tool_call_end"
    ERROR = "error"


class StrandsMessage(BaseModel):
    """A message."""

    role: str
    content: str
    timestamp: str | None = None


class StrandsToolCall(BaseModel):
    """A tool call."""

    id: str
    name: str
    args: dict[str, Any]
    result: Any = None


class StrandsState(BaseModel):
    """The state of an agent."""

    messages: list[StrandsMessage] = []
    tool_calls: list[StrandsToolCall] = []
    metadata: dict[str, Any] = {}
