"""Thoughts as events. AG-UI 1.0 has no THINKING events, so these are REASONING events under the package's names."""

from __future__ import annotations

from typing import Any

from ag_ui.core import (
    MessagesSnapshotEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
)

__all__ = [
    "CustomMessagesSnapshotEvent",
    "CustomThinkingTextMessageContentEvent",
    "CustomThinkingTextMessageEndEvent",
    "CustomThinkingTextMessageStartEvent",
]

CustomMessagesSnapshotEvent = MessagesSnapshotEvent


class _ThinkingEvent:
    """An event of a thought. The package calls its message id `thinking_id`."""

    message_id: str

    @property
    def thinking_id(self) -> str:
        return self.message_id


class CustomThinkingTextMessageStartEvent(_ThinkingEvent, ReasoningMessageStartEvent):
    """Start of a thought."""

    def __init__(self, *, thinking_id: str, **fields: Any) -> None:
        super().__init__(message_id=thinking_id, role="reasoning", **_without_type(fields))


class CustomThinkingTextMessageContentEvent(_ThinkingEvent, ReasoningMessageContentEvent):
    """A part of a thought."""

    def __init__(self, *, thinking_id: str, **fields: Any) -> None:
        super().__init__(message_id=thinking_id, **_without_type(fields))


class CustomThinkingTextMessageEndEvent(_ThinkingEvent, ReasoningMessageEndEvent):
    """End of a thought."""

    def __init__(self, *, thinking_id: str, **fields: Any) -> None:
        super().__init__(message_id=thinking_id, **_without_type(fields))


def _without_type(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without the type of the old event."""
    return {name: value for name, value in fields.items() if name != "type"}
