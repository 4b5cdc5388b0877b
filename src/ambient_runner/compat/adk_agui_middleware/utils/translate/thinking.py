"""Thoughts as results of a translate handler."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ag_ui.core import ReasoningEndEvent, ReasoningStartEvent

from ambient_runner.adk import TranslateEvent
from ambient_runner.compat.adk_agui_middleware.event.agui_event import (
    CustomThinkingTextMessageContentEvent,
    CustomThinkingTextMessageEndEvent,
    CustomThinkingTextMessageStartEvent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.adk.events import Event

__all__ = ["ThinkingEventUtil", "ThinkingMessageEventUtil"]

_SPAN_ID = "thinking"
"""Id of the span of thoughts, which has no id in the package."""


class ThinkingEventUtil:
    """Start and end of the agent's thoughts."""

    @staticmethod
    def create_thinking_event_start(adk_event: Event | None = None) -> TranslateEvent:
        """Return the start of thoughts."""
        return TranslateEvent(agui_event=ReasoningStartEvent(message_id=_SPAN_ID))

    @staticmethod
    def create_thinking_event_end(adk_event: Event | None = None) -> TranslateEvent:
        """Return the end of thoughts."""
        return TranslateEvent(agui_event=ReasoningEndEvent(message_id=_SPAN_ID))


class ThinkingMessageEventUtil:
    """One thought."""

    @staticmethod
    def create_thinking_message_start_event(thinking_id: str, adk_event: Event | None = None) -> TranslateEvent:
        """Return the start of a thought."""
        return TranslateEvent(agui_event=CustomThinkingTextMessageStartEvent(thinking_id=thinking_id))

    @staticmethod
    def create_thinking_message_content_event(
        message: str, thinking_id: str, adk_event: Event | None = None
    ) -> TranslateEvent:
        """Return a part of a thought."""
        return TranslateEvent(agui_event=CustomThinkingTextMessageContentEvent(thinking_id=thinking_id, delta=message))

    @staticmethod
    def create_thinking_message_end_event(thinking_id: str, adk_event: Event | None = None) -> TranslateEvent:
        """Return the end of a thought."""
        return TranslateEvent(agui_event=CustomThinkingTextMessageEndEvent(thinking_id=thinking_id))

    async def generate_thinking_message_event(
        self, message: str, uid: str | None = None, adk_event: Event | None = None
    ) -> AsyncGenerator[TranslateEvent, None]:
        """Yield a whole thought."""
        thinking_id = uid or str(uuid.uuid4())
        yield self.create_thinking_message_start_event(thinking_id)
        yield self.create_thinking_message_content_event(message, thinking_id)
        yield self.create_thinking_message_end_event(thinking_id)

    async def generate_thinking_message_event_with_generator(
        self, message: AsyncGenerator[str, None], uid: str | None = None, adk_event: Event | None = None
    ) -> AsyncGenerator[TranslateEvent, None]:
        """Yield a thought whose parts come from a generator."""
        thinking_id = uid or str(uuid.uuid4())
        yield self.create_thinking_message_start_event(thinking_id)
        async for part in message:
            yield self.create_thinking_message_content_event(part, thinking_id)
        yield self.create_thinking_message_end_event(thinking_id)
