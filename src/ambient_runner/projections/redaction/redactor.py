"""Redaction of secrets before anything is written: exact values, also if they are split over deltas.

Rules. A value under 8 characters is not a secret; nor is one that is part of the replacement. A long value is searched in pieces, because a
key file of ten thousand characters must not cost quadratic time. Each value is also found in its JSON-escaped spellings, because tool
arguments and results are JSON source, and as Python's `repr` spells it, because agents print and log values. Overlapping occurrences become
one replacement, so no rest of a longer secret remains. Text is replaced in every JSON string, member names and JSON pointers included, but
not in enumerated values (types, roles). Ids are strings like others: the replacement is always the same, so references stay equal. Only
`threadId` and `runId` stay: the client chose them, and they address the thread.

Streams. Of an open message or call, only the longest suffix that is a proper prefix of a secret (or of a piece) is held back: less
than 512 characters, or their escaped form. It is released before END of that message or call, a MESSAGES_SNAPSHOT
that holds messages, and the terminal event. It is *not* released before a tool call starts, nor at the marker of a snapshot that is folded
on read: later text could complete a secret whose beginning was already sent.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.config import MIN_SECRET_LENGTH
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
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.protocol.events import Event

__all__ = ["REDACTED", "Redactor", "Secrets"]

REDACTED = "[redacted]"
_GRAMMAR = frozenset({"role", "type", "status", "subtype", "thread_id", "run_id", "parent_run_id"})
_PIECE_LENGTH = 512
_TEXT, _REASONING, _CALL = "text", "reasoning", "call"

_Delta = TextMessageContent | ReasoningMessageContent | ToolCallArgs
_Span = tuple[int, int]
_Prefix = tuple[int, str]
"""Length of a prefix, and the needle it belongs to."""
_E = TypeVar("_E", bound=BaseEvent)
_S = TypeVar("_S", bound=msgspec.Struct)


class Secrets:
    """The values to search for, prepared once for many runs. Each run has its own copy, to which values can be added."""

    __slots__ = (
        "_encoded_needles",
        "_first_chars",
        "_on_add",
        "_prefixes_by_end",
        "_values",
        "needles",
        "shortest_needle",
    )

    def __init__(self, values: Iterable[str], on_add: Callable[[Iterable[str]], None] = lambda values: None) -> None:
        """`on_add` is called with values added to this object or to a copy of it: all runs share the log."""
        self._on_add = on_add
        self._values = frozenset(values)
        self._build_needles()

    def copy_for_run(self) -> Secrets:
        """Return a copy for one run. Values added to it are not searched for in other runs."""
        return copy(self)

    def add(self, values: Iterable[str]) -> None:
        """Search for these values too, from now on and in text that is held back."""
        fresh = frozenset(values) - self._values
        if fresh:
            self._values |= fresh
            self._build_needles()
            self._on_add(fresh)

    def _build_needles(self) -> None:
        candidates = {form for value in self._values for form in (value, value.strip())}
        known = {value for value in candidates if len(value) >= MIN_SECRET_LENGTH and value not in REDACTED}
        secrets = {piece for value in known for piece in _split_long_value(value)}
        self.needles = tuple(sorted({form for secret in secrets for form in _spellings(secret)}))
        self.shortest_needle = min(map(len, self.needles), default=0)
        self._encoded_needles = _encode_needles(self.needles)
        self._first_chars = frozenset(needle[0] for needle in self.needles)
        self._prefixes_by_end = _index_prefixes(self.needles)

    def is_clean(self, text: str) -> bool:
        """Return True if the text contains no secret and no prefix of one at its end. May return False for a clean text."""
        return (
            text[-2:] not in self._prefixes_by_end
            and text[-1:] not in self._first_chars
            and (len(text) < self.shortest_needle or not self.contains_secret(text))
        )

    def contains_secret(self, text: str) -> bool:
        if len(text) < self.shortest_needle:
            return False
        for needle in self.needles:  # noqa: SIM110  a generator costs more than the search
            if needle in text:
                return True
        return False

    def may_contain_secret(self, line: bytes) -> bool:
        """Return True if an encoded event may contain a secret. May return True for a clean line, never False for one with a secret."""
        for needle in self._encoded_needles:  # noqa: SIM110
            if needle in line:
                return True
        return False

    def safe_length(self, text: str) -> int:
        """Return the length of the text without its longest suffix that is a proper prefix of a secret."""
        for length, needle in self._prefixes_by_end.get(text[-2:], ()):
            if length <= len(text) and text.endswith(needle[:length]):
                return len(text) - length
        return len(text) - 1 if text and text[-1] in self._first_chars else len(text)

    def find_spans(self, text: str) -> list[_Span]:
        """Return every occurrence of a secret, overlapping ones included, in order."""
        found: list[_Span] = []
        for needle in self.needles:
            at = text.find(needle)
            while at >= 0:
                found.append((at, at + len(needle)))
                at = text.find(needle, at + 1)
        return sorted(found)


def _split_long_value(value: str) -> list[str]:
    """Return the value itself, or pieces that together cover a long value; the last two overlap."""
    starts = [*range(0, max(1, len(value) - _PIECE_LENGTH), _PIECE_LENGTH), max(0, len(value) - _PIECE_LENGTH)]
    return [value[start : start + _PIECE_LENGTH] for start in starts]


def _spellings(secret: str) -> set[str]:
    """Return the value, its spellings by `repr` and by JSON encoders, and these inside JSON.

    The JSON encoders are those of Python and JavaScript, PHP's with its slashes, and Go's with its angle brackets.
    """
    once = {secret, *_repr_variants(secret), *_escaped_variants(secret)}
    return {*once, *(twice for form in once for twice in _escaped_variants(form))}


def _escaped_variants(text: str) -> set[str]:
    ascii_only, plain = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    go = plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    forms = {ascii_only, plain, go, _escape_upper_hex(text)}
    return forms | {form.replace("/", "\\/") for form in forms}


def _repr_variants(text: str) -> set[str]:
    """Return the value as it appears in the `repr` and `ascii` of a string, and in the `repr` of UTF-8 bytes.

    Quotes are escaped or not, depending on the text around the value.
    """
    # With both quotes in front, `repr` always escapes the single quotes, and only those.
    escaped = {
        repr("'\"" + text)[4:-1],
        ascii("'\"" + text)[4:-1],
        repr(b"'\"" + text.encode("utf-8", "surrogatepass"))[5:-1],
    }
    return escaped | {form.replace("\\'", "'") for form in escaped}


def _escape_upper_hex(text: str) -> str:
    """Return the JSON escape of the text with `\\u00E9` where Python writes `\\u00e9`."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    return "".join(char if char.isascii() else json.dumps(char)[1:-1].upper().replace("\\U", "\\u") for char in plain)


def _encode_needles(needles: Iterable[str]) -> tuple[bytes, ...]:
    """Return the needles as they appear in an encoded event, where a lone surrogate cannot appear."""
    writable = [needle for needle in needles if not any("\ud800" <= char <= "\udfff" for char in needle)]
    return tuple({msgspec.json.encode(needle)[1:-1] for needle in writable})


def _index_prefixes(needles: Sequence[str]) -> dict[str, tuple[_Prefix, ...]]:
    """Return all proper prefixes of two or more characters by their last two characters, longest first."""
    by_end: dict[str, list[_Prefix]] = {}
    for needle in needles:
        for length in range(2, len(needle)):
            by_end.setdefault(needle[length - 2 : length], []).append((length, needle))
    return {end: tuple(sorted(prefixes, reverse=True)) for end, prefixes in by_end.items()}


class _HeldStream:
    """The text of one open message or call. `tail` is held back; its first `covered` characters are already replaced."""

    __slots__ = ("covered", "last_delta", "tail")

    def __init__(self, last: _Delta) -> None:
        self.last_delta = last
        self.tail = ""
        self.covered = 0

    def release(self, secrets: Secrets, delta: str, *, final: bool = False) -> tuple[str, int]:
        """Return the text that may be sent after `delta`, and the number of replacements in it."""
        text = self.tail + delta
        cut = len(text) if final else secrets.safe_length(text)
        spans = secrets.find_spans(text) if len(text) >= secrets.shortest_needle else []
        released, end, count = _replace_spans(text, spans, self.covered, cut)
        self.tail, self.covered = text[cut:], max(0, end - cut)
        return released, count


def _replace_spans(text: str, spans: list[_Span], covered: int, cut: int) -> tuple[str, int, int]:
    """Return the text up to `cut` with its spans replaced, the end of the last span, and the number of spans.

    The first `covered` characters belong to a replacement that was sent before. A span that starts after the cut is left for later,
    unless it continues one that starts before it.
    """
    out: list[str] = []
    end, count = covered, 0
    for start, stop in spans:
        if start < end:
            end = max(end, stop)
        elif start < cut:
            out += (text[end:start], REDACTED)
            end, count = stop, count + 1
    out.append(text[end:cut])
    return "".join(out), end, count


def _to_json_value(value: Any) -> Any:
    """Return the JSON value that the encoder writes for a set, an enum or a dataclass; the value itself if it cannot be encoded."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return value


class Redactor:
    """Redacts one run. Events pass through `feed` in order; `redact_text` and `redact_value` are for everything else."""

    __slots__ = ("_clean_ids", "_known_needles", "_secrets", "_streams", "counts")

    def __init__(self, secrets: Iterable[str] | Secrets) -> None:
        self._secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self._streams: dict[tuple[str, str], _HeldStream] = {}
        self._clean_ids: set[str] = set()
        """Ids of messages and calls that contain no secret, so that they are not searched in every delta."""
        self._known_needles = self._secrets.needles
        self.counts: Counter[str] = Counter()
        """Number of replacements by event type; "text" and "value" for what was not an event."""

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events that may be written now in place of this one."""
        if self._known_needles is not self._secrets.needles:
            self._known_needles = self._secrets.needles
            self._clean_ids.clear()
        if not self._known_needles or (type(event) is TextMessageContent and self._passes_unchanged(event)):
            return (event,)
        match event:
            case TextMessageContent():
                return self._redact_delta(event, _TEXT, event.message_id)
            case ToolCallArgs():
                return self._redact_delta(event, _CALL, event.tool_call_id)
            case ReasoningMessageContent():
                return self._redact_delta(event, _REASONING, event.message_id)
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

    def safe_prefix_length(self, message_id: str, text: str) -> int:
        """Return how many characters of a message's text may be sent unchanged now; 0 if the text needs `feed`."""
        secrets = self._secrets
        if not secrets.needles:
            return len(text)
        if (
            self._known_needles is not secrets.needles
            or self._streams
            or message_id not in self._clean_ids
            or secrets.contains_secret(text)
        ):
            return 0
        return secrets.safe_length(text)

    def _passes_unchanged(self, event: TextMessageContent) -> bool:
        """Return True if nothing is held back and nothing has to be: the fast path of one delta (of several: `safe_prefix_length`)."""
        return (
            not self._streams
            and self._secrets.is_clean(event.delta)
            and event.message_id in self._clean_ids
            and event.metadata is None
            and event.raw_event is None
            and event.subagent_run_id is None
        )

    def flush(self) -> list[Event]:
        """Return everything held back, as deltas of its messages and calls."""
        return [event for key in list(self._streams) for event in self._flush_stream(key)]

    def redact_text(self, text: str) -> str:
        return self._redact_string(text, "text")

    def redact_value(self, value: Any) -> Any:
        """Return a copy of a JSON value or Struct with secrets replaced in every string, member names included."""
        return self._redact_any(value, "value") if self._secrets.needles else value

    def _redact_delta(self, event: _Delta, kind: str, name: str) -> Sequence[Event]:
        secrets, text, key = self._secrets, event.delta, (kind, name)
        stream = self._streams.get(key)
        if stream is None:
            if secrets.safe_length(text) == len(text) and not secrets.contains_secret(text):
                return (self._redact_extras(event, name),)
            stream = self._streams[key] = _HeldStream(event)
        stream.last_delta = event
        released, count = stream.release(secrets, text)
        self._add_count(type_of(event), count)
        if not stream.tail:
            del self._streams[key]
        if not released and event.metadata is None and event.raw_event is None:
            return ()
        return (self._redact_extras(replace(event, delta=released), name),)

    def _redact_extras(self, event: _Delta, name: str) -> Event:
        """Redact the ids, metadata and raw event of a delta whose text is already redacted."""
        plain = event.metadata is None and event.raw_event is None and event.subagent_run_id is None
        if plain and name in self._clean_ids:
            return event
        empty = replace(event, delta="")
        searched = self._redact_event(empty)
        if searched is not empty:
            return replace(searched, delta=event.delta)
        self._clean_ids.add(name)
        return event

    def _flush_stream(self, key: tuple[str, str]) -> list[Event]:
        stream = self._streams.pop(key, None)
        if stream is None:
            return []
        released, count = stream.release(self._secrets, "", final=True)
        self._add_count(type_of(stream.last_delta), count)
        bare = replace(stream.last_delta, delta=released, metadata=None, raw_event=None)
        return [self._redact_extras(bare, key[1])] if released else []

    def _redact_event(self, event: _E) -> _E:
        try:
            if not self._secrets.may_contain_secret(encode_event(event)):
                return event
        except (TypeError, ValueError):
            pass  # Search it although it cannot be encoded: the ledger refuses it later.
        return self._redact_struct(event, type_of(event))

    def _redact_string(self, text: str, counted: str) -> str:
        if not self._secrets.contains_secret(text):
            return text
        released, _, count = _replace_spans(text, self._secrets.find_spans(text), 0, len(text))
        self._add_count(counted, count)
        return released

    def _redact_any(self, value: Any, counted: str) -> Any:
        match value:
            case str():
                return self._redact_string(value, counted)
            case dict():
                members = cast("dict[Any, Any]", value)
                return {
                    self._redact_any(key, counted): self._redact_any(item, counted) for key, item in members.items()
                }
            case list() | tuple():
                return [self._redact_any(item, counted) for item in cast("Sequence[Any]", value)]
            case msgspec.Struct():
                return self._redact_struct(value, counted)
            case None | bool() | int() | float():
                return value
            case _:
                plain = _to_json_value(value)
                return value if plain is value else self._redact_any(plain, counted)

    def _redact_struct(self, value: _S, counted: str) -> _S:
        changed = {
            name: self._redact_any(getattr(value, name), counted)
            for name in value.__struct_fields__
            if name not in _GRAMMAR
        }
        return replace(value, **changed)

    def _add_count(self, counted: str, count: int) -> None:
        if count:
            self.counts[counted] += count
