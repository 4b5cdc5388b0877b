"""Metadata for the audience `safe`: what this server writes, where it writes it. Everything else is data of an agent or a provider.

An agent may use the same names. What it writes under them passes only where the server would write it, and only in the server's form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.protocol.events import (
    ReasoningEnd,
    ReasoningMessage,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    RunStarted,
    ToolCallResult,
    ToolMessage,
)

if TYPE_CHECKING:
    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.protocol.events import BaseEvent, Message, Metadata, ToolCall

__all__ = ["is_summary", "safe_metadata", "without_summary_mark"]

_SUMMARY = "summary"
_CHECKPOINT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_REFERENCE_LENGTH = 256


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_checkpoint_id(value: Any) -> bool:
    return isinstance(value, str) and _CHECKPOINT_ID.fullmatch(value) is not None


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_REFERENCE_LENGTH


_Members = Mapping[str, Callable[[Any], bool]]
_OF_REASONING: _Members = {_SUMMARY: _is_flag, "summaryRef": _is_reference}
_OF_RESULT: _Members = {"isError": _is_flag}
_REASONING = (
    ReasoningStart,
    ReasoningMessageStart,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningEnd,
    ReasoningMessage,
)
_KEPT: dict[type[Any], _Members] = {
    # The server writes all of a RUN_STARTED; those of agents are absorbed.
    RunStarted: {"traceId": _is_text, "parentSpanId": _is_text},
    RunFinished: {"checkpointId": _is_checkpoint_id},
    ToolCallResult: _OF_RESULT,
    ToolMessage: _OF_RESULT,
    **dict.fromkeys(_REASONING, _OF_REASONING),
}
"""Members that are kept, with the test of their values, by the type of what has the metadata."""


def safe_metadata(owner: BaseEvent | Message | ToolCall, rules: ExposureRules) -> Metadata | None:
    """Return the metadata that the audience `safe` gets of an event, a message or a call; None if there is none.

    If what has no name is exposed, that is all of it, except for reasoning, whose metadata has signatures.
    """
    metadata = owner.metadata
    if metadata is None or (rules.shows_unnamed and not isinstance(owner, _REASONING)):
        return metadata
    kept = _KEPT.get(type(owner), {})
    return {name: value for name, value in metadata.items() if name in kept and kept[name](value)} or None


def is_summary(owner: BaseEvent | Message) -> bool:
    """Return True if the framework marked this reasoning as a summary for people."""
    return (owner.metadata or {}).get(_SUMMARY) is True


def without_summary_mark(message: Message) -> Message:
    """Return reasoning that is not marked as a summary."""
    if not isinstance(message, ReasoningMessage) or not is_summary(message):
        return message
    rest = {name: value for name, value in (message.metadata or {}).items() if name != _SUMMARY}
    return replace(message, metadata=rest or None)
