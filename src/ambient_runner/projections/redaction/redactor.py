"""Redaction of the events of one run, in order, before anything is written."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.config import MIN_SECRET_LENGTH
from ambient_runner.projections.redaction.held_deltas import MAX_HELD_CHARS, HeldDeltas, divide_deltas
from ambient_runner.projections.redaction.secrets import Secrets
from ambient_runner.projections.redaction.spans import REDACTED, merge_spans, replace_spans
from ambient_runner.protocol.events import (
    DELTA_TYPES,
    BaseEvent,
    Delta,
    MessagesSnapshot,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunError,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    encode_event,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ambient_runner.protocol.events import Event

__all__ = ["Redactor"]

_UNREDACTED_FIELDS = frozenset({"role", "type", "status", "subtype", "thread_id", "run_id", "parent_run_id"})
_MAX_INT_BITS = 64
"""Bits of the largest number that can be encoded."""
_SLICE_ITEMS = 256
"""Members or items of a value that are searched at once."""
_REASONING = "reasoning"
_STREAM_KINDS: dict[type[Any], str] = {
    TextMessageContent: "text",
    ReasoningMessageContent: _REASONING,
    ToolCallArgs: "call",
}
_ENDED_KINDS: dict[type[Any], str] = {TextMessageEnd: "text", ReasoningMessageEnd: _REASONING, ToolCallEnd: "call"}
_STARTING_TYPES = frozenset({TextMessageStart, ReasoningMessageStart, ToolCallStart})
_ENDING_TYPES = frozenset({RunFinished, RunError, MessagesSnapshot})
"""Types of events before which everything held back may have to be written: `_ends_all` decides."""
_StreamKey = tuple[str, str]
"""Kind and id of a message or call."""
_PositionedGroups = list[tuple[int, "Sequence[Delta]"]]
"""Groups of deltas of one message or call, each with its position in a batch."""


class _WholeItem(NamedTuple):
    """A message or call of which a batch has all deltas."""

    positioned: _PositionedGroups
    text: str


_E = TypeVar("_E", bound=BaseEvent)
_D = TypeVar("_D", bound=Delta)
_S = TypeVar("_S", bound=msgspec.Struct)


class Redactor:
    """Redacts one run. Its events pass through `feed`, `feed_groups` or `feed_deltas` in order, everything else through `redact_text` and
    `redact_value`.
    """

    __slots__ = ("_clean_ids", "_ended", "_restated", "_searches", "_secrets", "_streams", "counts")

    def __init__(self, secrets: Iterable[str] | Secrets) -> None:
        self._secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self._streams: dict[_StreamKey, HeldDeltas[Any]] = {}
        """The open messages and calls, by kind and id."""
        self._ended: dict[_StreamKey, HeldDeltas[Any]] = {}
        """Reasoning messages that ended: clients append to one what starts again under its id. Text gets another id then."""
        self._restated: dict[_StreamKey, str] = {}
        """Texts of the agent's snapshots: clients append to those too. A text is removed once its message goes on."""
        self._clean_ids: set[tuple[str, str | None]] = set()
        """Ids of messages and calls with their owners that contain no secret, so that they are not searched in every delta."""
        self._searches = self._secrets.searches
        self.counts: Counter[str] = Counter()
        """Number of replacements by event type; "text" and "value" for what was not an event."""

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events that may be written now in place of this one."""
        if self._secrets.is_empty:
            return (event,)
        self._forget_clean_ids()
        if type(event) in DELTA_TYPES:
            return self._feed_stream(_stream_of(event), (cast("Delta", event),))
        return self._feed_other(event)

    def feed_batch(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events that may be written now in place of these: `feed_groups` for events that are not grouped."""
        return [event for group in self.feed_groups([(event,) for event in events]) for event in group]

    def feed_groups(self, groups: Sequence[Sequence[Event]]) -> Sequence[Sequence[Event]]:
        """Return what may be written now in place of each group: `feed` for many events at once.

        A group is one event, or consecutive deltas of one message or call, which cost less together than each alone. The
        deltas of one message or call are searched together, and all other events together. Deltas must have no metadata and no raw event,
        and those of one message one owner. No event passes another of the same message.
        """
        if self._secrets.is_empty:
            return groups
        self._forget_clean_ids()
        return self._feed_mixed(groups)

    def feed_deltas(self, deltas: Sequence[_D]) -> Sequence[_D]:
        """Return the deltas that may be written now in place of these, all of one message or call. Same rules as `feed_groups`."""
        if self._secrets.is_empty:
            return deltas
        self._forget_clean_ids()
        return self._feed_stream(_stream_of(deltas[0]), deltas, are_alike=True)

    def are_lines_clean(self, lines: Sequence[bytes]) -> bool:
        """Return True if none of these encoded events contains a secret: `feed` would return events that are no deltas as they are."""
        return self._secrets.is_empty or not self._secrets.may_contain_secret(b" ".join(lines))

    def is_plain(self, delta: Delta) -> bool:
        """Return True if the deltas of this message or call have nothing but an id and a text.

        Call it with a delta without metadata: without secrets, only its owner is examined.
        """
        stream = self._streams.get(_stream_of(delta))
        return delta.subagent_run_id is None if stream is None else stream.is_plain

    def _feed_mixed(self, groups: Sequence[Sequence[Event]]) -> Sequence[Sequence[Event]]:
        """Feed deltas of several messages and other events. What is released has the position of its group."""
        are_clean = self._are_clean([group[0] for group in groups if type(group[0]) not in DELTA_TYPES])
        released: list[Sequence[Event]] = [()] * len(groups)
        open_items: dict[_StreamKey, _PositionedGroups] = {}
        # Messages that begin and end in this batch: none of their deltas has to be held back.
        whole: dict[_StreamKey, _WholeItem] = {}
        for at, group in enumerate(groups):
            event = group[0]
            kind = type(event)
            if kind in DELTA_TYPES:
                open_items.setdefault(_stream_of(event), []).append((at, cast("Sequence[Delta]", group)))
                continue
            ended = _ended_stream(event)
            ends_all = kind in _ENDING_TYPES and _ends_all(event)
            if ended is not None:
                positioned = open_items.pop(ended, None)
                if positioned and ended in whole:
                    self._release_whole(whole, released)  # The same reasoning for the second time.
                if positioned and (text := self._whole_text(ended, positioned)) is not None:
                    whole[ended] = _WholeItem(positioned, text)
                elif positioned:
                    self._feed_positioned(ended, positioned, released)
            elif ends_all:
                self._release_whole(whole, released)
                for key, positioned in open_items.items():
                    self._feed_positioned(key, positioned, released)
                open_items.clear()
            is_unchanged = are_clean and not ends_all and ended not in self._streams
            released[at] = group if is_unchanged else self._feed_other(event, is_clean=are_clean)
        self._release_whole(whole, released)
        for key, positioned in open_items.items():
            self._feed_positioned(key, positioned, released)
        return released

    def _whole_text(self, key: _StreamKey, positioned: _PositionedGroups) -> str | None:
        """Return the text of a message that ends in the batch, if its ids are clean and it is shorter than a window; else None."""
        if (
            key in self._streams
            or key in self._ended
            or key in self._restated
            or (key[1], positioned[0][1][0].subagent_run_id) not in self._clean_ids
        ):
            return None
        text = "".join([delta.delta for _, group in positioned for delta in group])
        return text if len(text) < MAX_HELD_CHARS else None

    def _release_whole(self, items: dict[_StreamKey, _WholeItem], released: list[Sequence[Event]]) -> None:
        """Release the deltas of whole messages, divided as `feed` does, and forget them.

        All are searched together, each alone only if there is a secret.
        """
        has_secret = bool(items) and self._secrets.contains_secret(*[item.text for item in items.values()])
        for key, (positioned, text) in items.items():
            parts = divide_deltas(_flatten_groups(positioned))
            if has_secret:
                parts = self._redact_whole(key, parts)
            elif key[0] == _REASONING:
                self._ended[key] = HeldDeltas.after_clean_text(text)
            _put_at_positions(parts, positioned, released)
        items.clear()

    def _redact_whole(self, key: _StreamKey, deltas: list[Delta]) -> list[Delta]:
        stream = HeldDeltas[Any]()
        stream.is_plain = deltas[0].subagent_run_id is None
        redacted = self._release(key, stream, stream.redact_whole(deltas, self._secrets))
        self._keep_ended(key, stream)
        return redacted

    def _keep_ended(self, key: _StreamKey, stream: HeldDeltas[Any]) -> None:
        if key[0] == _REASONING:
            self._ended[key] = stream

    def _feed_positioned(self, key: _StreamKey, positioned: _PositionedGroups, released: list[Sequence[Event]]) -> None:
        """Feed the deltas of one message or call, and put what is released at their positions.

        Counted from the end: what is still held are the last deltas, and what was held before the batch comes first.
        """
        deltas = _flatten_groups(positioned)
        events = self._feed_stream(key, deltas, are_alike=True)
        _put_at_positions(events, positioned, released, shift=len(deltas) - self._streams[key].held_count - len(events))

    def _forget_clean_ids(self) -> None:
        """Search all ids again after secrets were added."""
        if self._searches != (current := self._secrets.searches):
            self._searches = current
            self._clean_ids.clear()

    def flush(self) -> list[Event]:
        """Return everything held back, as deltas of its messages and calls. They stay open."""
        return [event for key, stream in self._streams.items() for event in self._flush(key, stream)]

    def restate_texts(self, texts: Mapping[_StreamKey, str]) -> None:
        """Search what follows in these messages and calls as a continuation of their texts: a snapshot of the agent has told clients these.

        There may be many, of which few go on. Call `flush` before.
        """
        if self._secrets.is_empty:
            return
        self._restated.update(texts)
        for key in self._restated.keys() & self._ended.keys():
            del self._ended[key]
        for key in self._restated.keys() & self._streams.keys():
            self._streams[key].continue_text(self._restated.pop(key), self._secrets)

    def _start_stream(self, key: _StreamKey) -> HeldDeltas[Any]:
        """Return the stream of a message or call that begins, or goes on where clients have its beginning."""
        stream = self._streams[key] = self._ended.pop(key, None) or HeldDeltas[Any]()
        if (text := self._restated.pop(key, None)) is not None:
            stream.continue_text(text, self._secrets)
        return stream

    def drop_unfinished(self) -> None:
        """Drop the word that each open message or call ends in, unless it is short. For a run that was stopped or has failed."""
        for stream in self._streams.values():
            stream.drop_unfinished()

    def redact_text(self, text: str) -> str:
        return self._redact_string(text, "text")

    def redact_value(self, value: Any) -> Any:
        """Return a copy of a JSON value or Struct with secrets replaced in every string, member names included."""
        return value if self._secrets.is_empty else self._redact_any(value, "value")

    def _feed_other(self, event: Event, *, is_clean: bool = False) -> Sequence[Event]:
        """Return an event that is no delta, after what was held back of the message that it ends. One that is clean is not searched."""
        written = event if is_clean else self._redact_event(event)
        if (ended := _ended_stream(event)) is not None:
            return (*self._flush_stream(ended), written)
        return (*self.flush(), written) if _ends_all(event) else (written,)

    def _are_clean(self, events: Sequence[Event]) -> bool:
        """Return True if none of the events contains a secret. Remember the ids of those that start a message or call."""
        try:
            if not self.are_lines_clean([encode_event(event) for event in events]):
                return False
        except (TypeError, ValueError):
            return False
        for event in events:
            kind: type[Any] = type(event)
            if kind in _STARTING_TYPES:
                started: Any = event
                name = started.tool_call_id if kind is ToolCallStart else started.message_id
                self._clean_ids.add((name, started.subagent_run_id))
        return True

    def _feed_stream(self, key: _StreamKey, deltas: Sequence[_D], *, are_alike: bool = False) -> list[_D]:
        """Feed deltas of one stream. Of those that are alike, only the first is looked at for other fields."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._start_stream(key)
        if _has_other_fields(deltas[0]) if are_alike else any(map(_has_other_fields, deltas)):
            stream.is_plain = False
        return self._release(key, stream, stream.feed(deltas, self._secrets))

    def _release(self, key: _StreamKey, stream: HeldDeltas[_D], released: list[_D]) -> list[_D]:
        """Return released deltas with their other fields redacted, and without those that have nothing left."""
        if not released:
            return released
        if stream.replacement_count:
            self._add_count(type_of(released[0]), stream.replacement_count)
            stream.replacement_count = 0
            released = [delta for delta in released if delta.delta or delta.metadata is not None]
        name = key[1]
        if stream.is_plain and (name, None) in self._clean_ids:
            return released
        return [self._redact_extras(delta, name) for delta in released]

    def _redact_extras(self, delta: _D, name: str) -> _D:
        """Redact the ids, metadata and raw event of a delta whose text is already redacted."""
        ids = (name, delta.subagent_run_id)
        if delta.metadata is None and delta.raw_event is None and ids in self._clean_ids:
            return delta
        empty = replace(delta, delta="")
        searched = self._redact_event(empty)
        if searched is not empty:
            return replace(searched, delta=delta.delta)
        self._clean_ids.add(ids)
        return delta

    def _flush_stream(self, key: _StreamKey) -> list[Event]:
        stream = self._streams.pop(key, None)
        if stream is None:
            return []
        released = self._flush(key, stream)
        self._keep_ended(key, stream)
        return released

    def _flush(self, key: _StreamKey, stream: HeldDeltas[Any]) -> list[Event]:
        return self._release(key, stream, stream.flush(self._secrets))

    def _redact_event(self, event: _E) -> _E:
        try:
            if not self._secrets.may_contain_secret(encode_event(event)):
                return event
        except (TypeError, ValueError):
            pass  # Search it although it cannot be encoded: the ledger refuses it later.
        return self._redact_struct(event, type_of(event))

    def _redact_string(self, text: str, counted: str) -> str:
        if len(text) < MIN_SECRET_LENGTH:
            return text
        spans = merge_spans(self._secrets.find_spans(text))
        if not spans:
            return text
        self._add_count(counted, len(spans))
        return replace_spans(text, spans)

    def _redact_any(self, value: Any, counted: str) -> Any:
        match value:
            case str():
                return self._redact_string(value, counted)
            case dict():
                members = cast("dict[Any, Any]", value)
                if len(members) > _SLICE_ITEMS:
                    return self._redact_large_object(members, counted)
                return self._redact_members(members, counted)
            case list() | tuple():
                items = cast("Sequence[Any]", value)
                if len(items) > _SLICE_ITEMS:
                    slices = [items[at : at + _SLICE_ITEMS] for at in range(0, len(items), _SLICE_ITEMS)]
                    return [item for part in slices for item in self._redact_slice(part, counted)]
                return [self._redact_any(item, counted) for item in items]
            case msgspec.Struct():
                return self._redact_struct(value, counted)
            case None | bool() | float():
                return value
            case int() if value.bit_length() > _MAX_INT_BITS:
                return value
            case int():
                digits = str(value)
                return value if self._redact_string(digits, counted) == digits else REDACTED
            case _:
                plain = _to_json_value(value)
                return value if plain is value else self._redact_any(plain, counted)

    def _redact_members(self, members: dict[Any, Any], counted: str) -> dict[Any, Any]:
        return {self._redact_any(key, counted): self._redact_any(item, counted) for key, item in members.items()}

    def _redact_large_object(self, members: dict[Any, Any], counted: str) -> dict[Any, Any]:
        """Redact an object of many members, in slices: most of them have no secret, and are not searched member by member."""
        pairs, redacted = iter(members.items()), dict[Any, Any]()
        while part := dict(islice(pairs, _SLICE_ITEMS)):
            redacted.update(self._redact_members(part, counted) if self._may_have_secret(part) else part)
        return redacted

    def _redact_slice(self, items: Sequence[Any], counted: str) -> Sequence[Any]:
        return [self._redact_any(item, counted) for item in items] if self._may_have_secret(items) else items

    def _may_have_secret(self, value: Any) -> bool:
        try:
            return self._secrets.may_contain_secret(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError):
            return True

    def _redact_struct(self, value: _S, counted: str) -> _S:
        changed = {
            name: self._redact_any(getattr(value, name), counted)
            for name in value.__struct_fields__
            if name not in _UNREDACTED_FIELDS
        }
        return replace(value, **changed)

    def _add_count(self, counted: str, count: int) -> None:
        if count:
            self.counts[counted] += count


def _stream_of(delta: Any) -> _StreamKey:
    kind = _STREAM_KINDS[type(delta)]
    return kind, delta.tool_call_id if kind == "call" else delta.message_id


def _flatten_groups(positioned: _PositionedGroups) -> Sequence[Delta]:
    return positioned[0][1] if len(positioned) == 1 else [delta for _, group in positioned for delta in group]


def _put_at_positions(
    events: Sequence[Event], positioned: _PositionedGroups, released: list[Sequence[Event]], shift: int = 0
) -> None:
    """Put released deltas at the positions of their groups: each belongs to the fed delta at its own index plus `shift`."""
    if len(positioned) == 1:
        released[positioned[0][0]] = events
        return
    positions = [at for at, group in positioned for _ in group]
    last = len(positions) - 1
    for index, event in enumerate(events):
        at = positions[min(max(index + shift, 0), last)]
        released[at] = (*released[at], event)


def _ended_stream(event: Any) -> _StreamKey | None:
    """Return the message or call that the event ends; None if it ends none."""
    kind = _ENDED_KINDS.get(cast("type[Any]", type(event)))
    if kind is None:
        return None
    return kind, event.tool_call_id if kind == "call" else event.message_id


def _ends_all(event: Event) -> bool:
    """Return True for an event before which everything held back must be written."""
    kind = type(event)
    return kind is RunFinished or kind is RunError or (isinstance(event, MessagesSnapshot) and bool(event.messages))


def _has_other_fields(delta: Delta) -> bool:
    return delta.metadata is not None or delta.raw_event is not None or delta.subagent_run_id is not None


def _to_json_value(value: Any) -> Any:
    """Return the JSON value that the encoder writes for a set, an enum or a dataclass; the value itself if it cannot be encoded."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return value
