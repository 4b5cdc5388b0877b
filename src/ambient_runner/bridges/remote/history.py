"""Compare the other server's MESSAGES_SNAPSHOT with the messages that were sent to it and streamed by it. Pure.

The snapshot is authoritative for both. Usually it repeats what was streamed, and nothing has to be stored. `docs/agents/remote.md` has the
rules.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.projections.private_entries import correct_history
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    ReasoningMessage,
    ToolMessage,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from ambient_runner.protocol.events import Custom, Event, Message, ToolCall

__all__ = ["HistoryMerge"]


class HistoryMerge:
    """The messages that were sent to the other server and streamed by it. `added_ids` are those of the messages this run added."""

    def __init__(self, messages: Iterable[Message], added_ids: Iterable[str] = ()) -> None:
        self._transcript = Transcript(messages)
        self._initial_ids = frozenset(message.id for message in self._transcript.messages())
        self._added_ids = frozenset(added_ids)

    def apply_event(self, event: Event) -> None:
        self._transcript.apply(event)

    def merge_snapshot(self, snapshot: Sequence[Message]) -> Custom | None:
        """Return the correction that makes the stored messages match the snapshot; None if they match already."""
        ours = self._transcript.messages()
        if not snapshot or list(snapshot) == ours:
            return None
        matched = _match_messages(snapshot, ours)
        removed = _removed_ids(matched, ours) if self._is_complete(matched, ours) else []
        after = Transcript(ours)
        after.apply_correction(matched, removed)
        if after.messages() == ours:
            return None
        self._transcript = after
        return correct_history(matched, removed)

    def _is_complete(self, matched: Sequence[Message], ours: Sequence[Message]) -> bool:
        """Return True if the snapshot is the whole conversation: it has the messages this run added and all its calls without a result."""
        results = {message.tool_call_id for message in ours if isinstance(message, ToolMessage)}
        streamed = [message for message in ours if message.id not in self._initial_ids]
        waiting = {call.id for message in streamed for call in _tool_calls(message)} - results
        snapshot_calls = {call.id for message in matched for call in _tool_calls(message)}
        return waiting <= snapshot_calls and self._added_ids <= {message.id for message in matched}


def _match_messages(snapshot: Sequence[Message], ours: Sequence[Message]) -> list[Message]:
    """Return the messages of a snapshot under the ids we know them by.

    A server may list a message under another id than it streamed, or without one: then it is the message with the same content. A new
    message without an id gets one from its position.
    """
    known = {message.id: message for message in ours if message.id}
    matched_ids = {message.id for message in snapshot if message.id in known}
    unmatched: dict[Hashable, list[Message]] = {}
    for message in known.values():
        if message.id not in matched_ids:
            unmatched.setdefault(_content_key(message), []).append(message)
    taken = {*known, *(message.id for message in snapshot)}
    matched: dict[str, Message] = {}
    for position, message in enumerate(snapshot, 1):
        old = known.get(message.id)
        if old is None or message.id in matched or type(old) is not type(message):
            alike = unmatched.get(_content_key(message))
            old = alike.pop(0) if alike else None
        if old is not None:
            matched[old.id] = _merge_message(old, message)
        elif not message.id:
            candidates = (f"snapshot-{number}" for number in count(position))
            new_id = next(candidate for candidate in candidates if candidate not in taken)
            matched[new_id] = replace(message, id=new_id)
            taken.add(new_id)
        elif message.id not in matched and message.id not in known:
            matched[message.id] = message
    return list(matched.values())


def _content_key(message: Message) -> Hashable:
    """Return a key that is equal for two messages with the same content, whatever their ids."""
    match message:
        case ToolMessage():
            return "tool", message.tool_call_id
        case AssistantMessage() if message.tool_calls:
            return "calls", tuple(call.id for call in message.tool_calls)
        case _:
            return type(message).__name__, repr(message.content or "")


def _merge_message(old: Message, update: Message) -> Message:
    """Return the message with the fields the snapshot has; the others stay unchanged."""
    fields = {name: getattr(update, name) for name in update.__struct_fields__ if name != "id"}
    stated = {name: value for name, value in fields.items() if value is not None and (value or getattr(old, name))}
    if isinstance(old, AssistantMessage) and isinstance(update, AssistantMessage) and _has_same_calls(old, update):
        stated.pop("tool_calls", None)
    return replace(old, **stated)


def _has_same_calls(old: AssistantMessage, new: AssistantMessage) -> bool:
    return [(call.id, call.function) for call in _tool_calls(old)] == [
        (call.id, call.function) for call in _tool_calls(new)
    ]


def _tool_calls(message: Message) -> Sequence[ToolCall]:
    return (message.tool_calls or ()) if isinstance(message, AssistantMessage) else ()


def _removed_ids(matched: Sequence[Message], ours: Sequence[Message]) -> list[str]:
    """Return the ids that a complete snapshot lacks. Reasoning and activities stay if it has none of their kind, as with every client."""
    snapshot_ids = {message.id for message in matched}
    kinds = {type(message) for message in matched}
    return [
        message.id
        for message in ours
        if message.id not in snapshot_ids
        and (type(message) in kinds or not isinstance(message, ReasoningMessage | ActivityMessage))
    ]
