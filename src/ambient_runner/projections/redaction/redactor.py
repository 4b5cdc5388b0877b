"""Redaction of the events of one run, in order, before anything is written."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.config import MIN_SECRET_LENGTH
from ambient_runner.projections.redaction.held_deltas import Delta, HeldDeltas
from ambient_runner.projections.redaction.secrets import Secrets
from ambient_runner.projections.redaction.spans import REDACTED, merge_spans, replace_spans
from ambient_runner.protocol.events import (
    BaseEvent,
    MessagesSnapshot,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    RunError,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
    ToolCallArgs,
    ToolCallEnd,
    encode_event,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.protocol.events import Event

__all__ = ["Redactor"]

_UNREDACTED_FIELDS = frozenset({"role", "type", "status", "subtype", "thread_id", "run_id", "parent_run_id"})
_SLICE_ITEMS = 256
"""Members or items of a value that are searched at once."""
_TEXT, _REASONING, _CALL = "text", "reasoning", "call"

_E = TypeVar("_E", bound=BaseEvent)
_D = TypeVar("_D", bound=Delta)
_S = TypeVar("_S", bound=msgspec.Struct)


class Redactor:
    """Redacts one run. Events pass through `feed` in order; `redact_text` and `redact_value` are for everything else."""

    __slots__ = ("_clean_ids", "_searches", "_secrets", "_streams", "counts")

    def __init__(self, secrets: Iterable[str] | Secrets) -> None:
        self._secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self._streams: dict[tuple[str, str], HeldDeltas[Any]] = {}
        """The open messages and calls, by kind and id."""
        self._clean_ids: set[str] = set()
        """Ids of messages and calls that contain no secret, so that they are not searched in every delta."""
        self._searches = self._secrets.searches
        self.counts: Counter[str] = Counter()
        """Number of replacements by event type; "text" and "value" for what was not an event."""

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events that may be written now in place of this one."""
        if self._secrets.is_empty:
            return (event,)
        self._forget_clean_ids()
        match event:
            case TextMessageContent() | ToolCallArgs() | ReasoningMessageContent():
                return self._feed_delta(event)
            case TextMessageEnd():
                return (*self._flush_stream((_TEXT, event.message_id)), self._redact_event(event))
            case ToolCallEnd():
                return (*self._flush_stream((_CALL, event.tool_call_id)), self._redact_event(event))
            case ReasoningMessageEnd():
                return (*self._flush_stream((_REASONING, event.message_id)), self._redact_event(event))
            case RunFinished() | RunError() | MessagesSnapshot(messages=[_, *_]):
                return (*self.flush(), self._redact_event(event))
            case _:
                return (self._redact_event(event),)

    def _forget_clean_ids(self) -> None:
        """Search all ids again after secrets were added."""
        if self._searches != (current := self._secrets.searches):
            self._searches = current
            self._clean_ids.clear()

    def feed_deltas(self, deltas: Sequence[TextMessageContent]) -> list[TextMessageContent]:
        """Return the deltas that may be written now, after these of one message with no other fields: `feed` for many at once."""
        if self._secrets.is_empty:
            return list(deltas)
        self._forget_clean_ids()
        return self._feed_stream((_TEXT, deltas[0].message_id), deltas, are_plain=True)

    def flush(self) -> list[Event]:
        """Return everything held back, as deltas of its messages and calls. They stay open."""
        return [event for key, stream in self._streams.items() for event in self._flush(key, stream)]

    def drop_unfinished(self) -> None:
        """Drop the word that each open message or call ends in, unless it is short. For a run that was stopped or has failed."""
        for stream in self._streams.values():
            stream.drop_unfinished()

    def redact_text(self, text: str) -> str:
        return self._redact_string(text, "text")

    def redact_value(self, value: Any) -> Any:
        """Return a copy of a JSON value or Struct with secrets replaced in every string, member names included."""
        return value if self._secrets.is_empty else self._redact_any(value, "value")

    def _feed_delta(self, event: Delta) -> Sequence[Event]:
        match event:
            case ToolCallArgs():
                key = (_CALL, event.tool_call_id)
            case ReasoningMessageContent():
                key = (_REASONING, event.message_id)
            case _:
                key = (_TEXT, event.message_id)
        return self._feed_stream(key, (event,))

    def _feed_stream(self, key: tuple[str, str], deltas: Sequence[_D], *, are_plain: bool = False) -> list[_D]:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = HeldDeltas[Any]()
        if not are_plain and any(map(_has_other_fields, deltas)):
            stream.is_plain = False
        return self._release(key, stream, stream.feed(deltas, self._secrets))

    def _release(self, key: tuple[str, str], stream: HeldDeltas[_D], released: list[_D]) -> list[_D]:
        """Return released deltas with their other fields redacted, and without those that have nothing left."""
        if not released:
            return released
        if stream.replacement_count:
            self._add_count(type_of(released[0]), stream.replacement_count)
            stream.replacement_count = 0
            released = [delta for delta in released if delta.delta or delta.metadata is not None]
        name = key[1]
        if stream.is_plain and name in self._clean_ids:
            return released
        return [self._redact_extras(delta, name) for delta in released]

    def _redact_extras(self, delta: _D, name: str) -> _D:
        """Redact the ids, metadata and raw event of a delta whose text is already redacted."""
        if not _has_other_fields(delta) and name in self._clean_ids:
            return delta
        empty = replace(delta, delta="")
        searched = self._redact_event(empty)
        if searched is not empty:
            return replace(searched, delta=delta.delta)
        self._clean_ids.add(name)
        return delta

    def _flush_stream(self, key: tuple[str, str]) -> list[Event]:
        stream = self._streams.pop(key, None)
        return self._flush(key, stream) if stream else []

    def _flush(self, key: tuple[str, str], stream: HeldDeltas[Any]) -> list[Event]:
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


def _has_other_fields(delta: Delta) -> bool:
    return delta.metadata is not None or delta.raw_event is not None or delta.subagent_run_id is not None


def _to_json_value(value: Any) -> Any:
    """Return the JSON value that the encoder writes for a set, an enum or a dataclass; the value itself if it cannot be encoded."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return value
