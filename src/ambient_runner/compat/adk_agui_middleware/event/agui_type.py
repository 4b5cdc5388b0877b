"""Messages, with the package's own kind for thoughts. AG-UI 1.0 has `ReasoningMessage` for them, which clients get."""

from __future__ import annotations

from typing import Annotated, Literal

from ag_ui.core import AssistantMessage, BaseMessage, DeveloperMessage, SystemMessage, ToolMessage, UserMessage
from pydantic import Field

__all__ = ["Message", "ThinkingMessage"]


class ThinkingMessage(BaseMessage):
    """A thought of the agent."""

    role: Literal["thinking"] = "thinking"  # pyright: ignore[reportIncompatibleVariableOverride]
    content: str  # pyright: ignore[reportIncompatibleVariableOverride]


Message = Annotated[
    ThinkingMessage | DeveloperMessage | SystemMessage | AssistantMessage | UserMessage | ToolMessage,
    Field(discriminator="role"),
]
