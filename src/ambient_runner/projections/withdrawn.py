"""Content that a thread's agent has taken back: a guard replaced an answer, a filter masked a user's message. Pure.

Readers that follow a run receive its events before that. Those who read them later do not receive the content; the order and the ids of the
events stay the same, and the next MESSAGES_SNAPSHOT has the corrected messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.protocol.events import (
    AssistantMessage,
    MessagesSnapshot,
    ReasoningEncryptedValue,
    ReasoningMessageContent,
    RunStarted,
    TextMessageContent,
    ToolCallArgs,
    ToolCallResult,
    decode_event,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event, Message

__all__ = ["WithdrawnContent"]

_CONTENT_PREFIXES = tuple(
    b'{"type":"%b"' % name
    for name in (
        b"TEXT_MESSAGE_CONTENT",
        b"REASONING_MESSAGE_CONTENT",
        b"REASONING_ENCRYPTED_VALUE",
        b"TOOL_CALL_ARGS",
        b"TOOL_CALL_RESULT",
        b"RUN_STARTED",
    )
)
"""The beginnings of stored lines that have content of messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawnContent:
    """The withdrawn content of a thread up to the entry `until`."""

    ids: frozenset[str]
    """Ids of messages and of tool calls."""
    messages: Mapping[str, Message]
    """The messages of the thread by their ids, as they are after all corrections."""
    until: int

    @classmethod
    def of_view(cls, view: ThreadView) -> WithdrawnContent | None:
        """Return the withdrawn content of a thread; None if there is none."""
        if not view.transcript.withdrawn_ids:
            return None
        messages = {message.id: message for message in view.transcript.messages()}
        return cls(ids=frozenset(view.transcript.withdrawn_ids), messages=messages, until=view.seq)

    def strip_line(self, line: bytes) -> bytes | None:
        """Return a stored line without withdrawn content; None if nothing is left of it."""
        if not line.startswith(_CONTENT_PREFIXES):
            return line
        event = decode_event(line)
        rest = self.strip_event(event)
        return line if rest is event else None if rest is None else encode_event(rest)

    def correct_snapshot(self, snapshot: MessagesSnapshot) -> MessagesSnapshot:
        """Return a snapshot of an earlier moment with the corrected messages, and without removed ones."""
        return replace(snapshot, messages=self._correct_messages(snapshot.messages))

    def strip_event(self, event: Event) -> Event | None:
        """Return the event without withdrawn content; None if nothing is left of it."""
        match event:
            case MessagesSnapshot():
                return self.correct_snapshot(event)
            case TextMessageContent(message_id=entity_id) | ReasoningMessageContent(message_id=entity_id):
                return None if entity_id in self.ids else event
            case ToolCallArgs(tool_call_id=entity_id) | ReasoningEncryptedValue(entity_id=entity_id):
                return None if entity_id in self.ids else event
            case ToolCallResult(message_id=entity_id) if entity_id in self.ids:
                return replace(event, content="")
            case RunStarted(input=run_input) if run_input is not None:
                messages = self._correct_messages(run_input.messages)
                if messages == run_input.messages:
                    return event
                return replace(event, input=replace(run_input, messages=messages))
            case _:
                return event

    def _correct_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with withdrawn ones as they are now. One that has been removed is left out."""
        corrected = [self.messages.get(message.id) if self._is_withdrawn(message) else message for message in messages]
        return [message for message in corrected if message is not None]

    def _is_withdrawn(self, message: Message) -> bool:
        calls = message.tool_calls or () if isinstance(message, AssistantMessage) else ()
        return message.id in self.ids or any(call.id in self.ids for call in calls)
