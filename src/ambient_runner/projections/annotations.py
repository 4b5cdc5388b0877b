"""The annotations of a thread: what people say about it beside the conversation. Its title, its archive flag, and feedback on messages.

Part of the ThreadView. `ambient:thread` has all of them (`thread_event.py`), and snapshots have the feedback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ambient_runner.protocol.events import MessagesSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import Event, Message

__all__ = ["Annotations", "snapshot_with_feedback", "with_feedback", "without_server_metadata"]

_SERVER_METADATA = "ambient"
"""Member of a message's metadata that only the server writes."""
_FEEDBACK = "feedback"
_FEEDBACK_TYPES = frozenset({"thumbs_up", "thumbs_down"})


class _LabelledFact(msgspec.Struct):
    title: str | None = None
    archived: bool | None = None


class _FeedbackFact(msgspec.Struct, rename="camel"):
    message_id: str | None = None
    meta_type: str = ""


class Annotations(msgspec.Struct, kw_only=True):
    """The title, the archive flag and the feedback of a thread as of one moment."""

    title: str = ""
    """The title that someone chose, or the beginning of the first user text."""
    archived: bool = False
    feedback: dict[str, str] = {}
    """The newest feedback, `thumbs_up` or `thumbs_down`, by message id; also on messages that the thread no longer has."""

    def apply_labelled(self, body: bytes) -> None:
        """Apply a fact `labelled`. Members that it does not have stay."""
        fact = msgspec.json.decode(body, type=_LabelledFact)
        self.title = self.title if fact.title is None else fact.title
        self.archived = self.archived if fact.archived is None else fact.archived

    def apply_feedback(self, body: bytes) -> None:
        """Apply a fact `feedback`. One that names no message is about a run, and changes nothing here."""
        fact = msgspec.json.decode(body, type=_FeedbackFact)
        if fact.message_id and fact.meta_type in _FEEDBACK_TYPES:
            self.feedback[fact.message_id] = fact.meta_type

    def copy(self) -> Annotations:
        return Annotations(title=self.title, archived=self.archived, feedback=dict(self.feedback))


def with_feedback(event: Event, feedback: Mapping[str, str]) -> Event:
    """Return a MESSAGES_SNAPSHOT whose messages have their feedback in `metadata.ambient.feedback`; any other event as it is."""
    return snapshot_with_feedback(event, feedback) if isinstance(event, MessagesSnapshot) else event


def snapshot_with_feedback(snapshot: MessagesSnapshot, feedback: Mapping[str, str]) -> MessagesSnapshot:
    """Return the snapshot with the feedback of its messages in `metadata.ambient.feedback`."""
    if not feedback:
        return snapshot
    return replace(snapshot, messages=[_add_feedback(message, feedback) for message in snapshot.messages])


def _add_feedback(message: Message, feedback: Mapping[str, str]) -> Message:
    value = feedback.get(message.id)
    if value is None:
        return message
    # Only the server writes this member, and nothing else into it.
    return replace(message, metadata={**(message.metadata or {}), _SERVER_METADATA: {_FEEDBACK: value}})


def without_server_metadata(message: Message) -> Message:
    """Return the message without the metadata that snapshots add to it."""
    if not message.metadata or _SERVER_METADATA not in message.metadata:
        return message
    rest = {name: value for name, value in message.metadata.items() if name != _SERVER_METADATA}
    return replace(message, metadata=rest or None)
