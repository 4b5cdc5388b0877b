"""Compare an agent's own MESSAGES_SNAPSHOT with the messages of its input and those it streamed.

The snapshot is authoritative for both. Usually it repeats what was streamed, and nothing has to be stored. `docs/agents/remote.md` and
`docs/agents/agui.md` have the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from itertools import count
from operator import ne
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from ambient_runner.projections.private_entries import correct_history
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    DeveloperMessage,
    ReasoningMessage,
    SystemMessage,
    TextMessageEnd,
    TextMessageStart,
    ToolMessage,
    UserMessage,
)
from ambient_runner.protocol.ids import original_id

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from ambient_runner.protocol.events import Custom, Event, Message, ToolCall

__all__ = ["HistoryMerge", "Slices", "finish"]


_T = TypeVar("_T")
Slices = Generator[None, None, _T]
"""Work that yields wherever other tasks may run, and returns its result."""

_MATCHED_AT_ONCE = 512
"""Messages of a snapshot that are compared before other tasks may run: about 3 milliseconds."""
_INPUT_TYPES = (UserMessage, SystemMessage, DeveloperMessage)
"""Messages that no agent produces."""


class HistoryMerge:
    """The messages of an agent's input, and those it has streamed. `added_ids` are those of the messages this run added.

    A snapshot adds no messages of users, systems and developers. It may remove them, and changes them only if `is_other_server`: another
    server may mask what a user wrote.

    Attributes:
        repairs: Number of messages that snapshots were not allowed to add or to change, by rule.
    """

    def __init__(
        self, messages: Iterable[Message], added_ids: Iterable[str] = (), *, is_other_server: bool = False
    ) -> None:
        self.repairs: Counter[str] = Counter()
        self._transcript = Transcript(messages)
        self._initial_ids = frozenset(message.id for message in self._transcript.messages())
        self._added_ids = frozenset(added_ids)
        self._is_other_server = is_other_server
        self._open_ids: set[str] = set()
        """Messages that are being streamed: the next delta needs them."""

    def apply_event(self, event: Event) -> None:
        match event:
            case TextMessageStart():
                self._open_ids.add(event.message_id)
            case TextMessageEnd():
                self._open_ids.discard(event.message_id)
            case _:
                pass
        self._transcript.apply(event)

    def merge_snapshot(self, snapshot: Sequence[Message]) -> Custom | None:
        """Return the correction that makes the stored messages match the snapshot; None if they match already."""
        return finish(self.merge_in_slices(snapshot))

    def merge_in_slices(self, snapshot: Sequence[Message]) -> Slices[Custom | None]:
        """Do what `merge_snapshot` does, and stop wherever other tasks may run. The messages must not change meanwhile."""
        ours = self._transcript.messages()
        if not snapshot or list(snapshot) == ours:
            return None
        matched, listed_calls = yield from _match_messages(snapshot, ours)
        removed = _removed_ids(matched, ours) if self._is_complete(matched, ours) else []
        known = {message.id: message for message in ours}
        yield
        new_input = self._new_input(matched, known)
        matched = self._with_known_input(matched, known)
        # What another server replaces by a summary that is not accepted stays: otherwise the next run would have neither.
        summarized = self._initial_ids if new_input and self._is_other_server else ()
        removed = [each for each in removed if each not in self._open_ids and each not in summarized]
        matched = _without_calls(matched, _removed_calls(removed, ours) - listed_calls)
        yield
        after = Transcript(ours)
        yield
        after.apply_correction(matched, removed)
        yield
        if after.messages() == ours:
            return None
        self._transcript = after
        changed = _changed_messages(matched, ours)
        yield
        return correct_history(changed, removed)

    def _new_input(self, matched: Sequence[Message], known: Mapping[str, Message]) -> list[Message]:
        """Return the new messages of users, systems and developers, and count them.

        Agents do not get the developer messages of earlier runs, so those of another server are not known here; they are not counted.
        """
        kinds = (UserMessage, SystemMessage) if self._is_other_server else _INPUT_TYPES
        new: list[Message] = [each for each in matched if isinstance(each, kinds) and each.id not in known]
        self.repairs["snapshot-new-input"] += len(new)
        return new

    def _with_known_input(self, matched: Sequence[Message], known: Mapping[str, Message]) -> list[Message]:
        """Return the messages without new ones of users, systems and developers. Changes of these are undone, unless it may make them."""
        accepted = [message for message in matched if not isinstance(message, _INPUT_TYPES) or message.id in known]
        if self._is_other_server:
            return accepted
        restored = [known[message.id] if isinstance(message, _INPUT_TYPES) else message for message in accepted]
        self.repairs["snapshot-changed-input"] += sum(map(ne, accepted, restored))
        return restored

    def _is_complete(self, matched: Sequence[Message], ours: Sequence[Message]) -> bool:
        """Return True if the snapshot is the whole conversation: it has the messages this run added and all its calls without a result."""
        results = {message.tool_call_id for message in ours if isinstance(message, ToolMessage)}
        streamed = [message for message in ours if message.id not in self._initial_ids]
        waiting = {call.id for message in streamed for call in _tool_calls(message)} - results
        snapshot_calls = {call.id for message in matched for call in _tool_calls(message)}
        return waiting <= snapshot_calls and self._added_ids <= {message.id for message in matched}


def finish(slices: Slices[_T]) -> _T:
    """Return the result of work in slices, without letting other tasks run."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value


def _match_messages(snapshot: Sequence[Message], ours: Sequence[Message]) -> Slices[tuple[list[Message], set[str]]]:
    """Return the messages of a snapshot under the ids we know them by, and the ids of the calls that it lists.

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
    call_ids: dict[str, str] = {}
    listed_calls: set[str] = set()
    matched: dict[str, Message] = {}
    yield
    for position, message in enumerate(snapshot, 1):
        if not position % _MATCHED_AT_ONCE:
            yield
        old = known.get(message.id)
        if old is None or message.id in matched or type(old) is not type(message):
            alike = unmatched.get(_content_key(message))
            old = alike.pop(0) if alike else None
        message = _with_known_call_ids(message, old, call_ids)
        listed_calls |= {call.id for call in _tool_calls(message)}
        if old is not None:
            matched[old.id] = _merge_message(old, message)
        elif not message.id:
            candidates = (f"snapshot-{number}" for number in count(position))
            new_id = next(candidate for candidate in candidates if candidate not in taken)
            matched[new_id] = replace(message, id=new_id)
            taken.add(new_id)
        elif message.id not in matched and message.id not in known:
            matched[message.id] = message
    return list(matched.values()), listed_calls


def _removed_calls(removed_ids: Iterable[str], ours: Sequence[Message]) -> set[str]:
    """Return the ids of the calls whose results are removed."""
    results = {message.id: message.tool_call_id for message in ours if isinstance(message, ToolMessage)}
    return {results[message_id] for message_id in removed_ids if message_id in results}


def _without_calls(messages: list[Message], call_ids: Collection[str]) -> list[Message]:
    """Return the messages without these calls: nothing would ever answer them."""
    if not call_ids:
        return messages
    return [
        replace(message, tool_calls=[call for call in message.tool_calls if call.id not in call_ids] or None)
        if isinstance(message, AssistantMessage) and message.tool_calls
        else message
        for message in messages
    ]


def _with_known_call_ids(message: Message, old: Message | None, call_ids: dict[str, str]) -> Message:
    """Return a message of a snapshot with the ids that its calls have here: an id that an agent uses again is `id~2` here.

    `call_ids` are those of the calls before it, by the snapshot's id; this message's calls are added.
    """
    if isinstance(message, ToolMessage):
        own = old.tool_call_id if isinstance(old, ToolMessage) else ""
        is_same = original_id(own) == message.tool_call_id
        return replace(
            message, tool_call_id=own if is_same else call_ids.get(message.tool_call_id, message.tool_call_id)
        )
    calls = _tool_calls(message)
    ours = [call.id for call in _tool_calls(old)] if old else []
    own_ids = {original_id(call_id): call_id for call_id in ours} | {call_id: call_id for call_id in ours}
    call_ids |= own_ids | {call.id: own_ids.get(call.id, call.id) for call in calls}
    if all(call_ids[call.id] == call.id for call in calls):
        return message
    return replace(message, tool_calls=[replace(call, id=call_ids[call.id]) for call in calls])


def _changed_messages(matched: Sequence[Message], ours: Sequence[Message]) -> Sequence[Message]:
    """Return the part of a correction that has to be stored: what differs, and the neighbours of what is new, for its position."""
    known = {message.id: message for message in ours}
    kept = {message.id for message in matched}
    if [message.id for message in matched if message.id in known] != [
        message.id for message in ours if message.id in kept
    ]:
        return matched
    new = [message.id not in known for message in matched]
    return [
        message
        for at, message in enumerate(matched)
        if any(new[max(at - 1, 0) : at + 2]) or known[message.id] != message
    ]


def _content_key(message: Message) -> Hashable:
    """Return a key that is equal for two messages with the same content, whatever their ids. Of a call id, the agent's form counts."""
    match message:
        case ToolMessage():
            return "tool", original_id(message.tool_call_id)
        case AssistantMessage() if message.tool_calls:
            return "calls", tuple(original_id(call.id) for call in message.tool_calls)
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
