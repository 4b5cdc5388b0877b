"""Control results of a translate handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.adk import TranslateEvent

if TYPE_CHECKING:
    from google.adk.events import Event

__all__ = ["create_translate_replace_adk_event", "create_translate_retune_event"]


def create_translate_retune_event() -> TranslateEvent:
    """Return the result that skips the default translation."""
    return TranslateEvent(is_retune=True)


def create_translate_replace_adk_event(event: Event) -> TranslateEvent:
    """Return the result with which the default translation continues with another ADK event."""
    return TranslateEvent(adk_event=event, is_replace=True)
