"""Secrets out of everything, before anything is written: exact values, also when they are split over deltas.

Rules. A value under 8 characters is no secret; nor is one that is part of the replacement. A long one is looked for in pieces: a key
file of ten thousand characters must not cost its square. Each is also found in its JSON-escaped spellings, for tool arguments and results
are JSON source. Occurrences that overlap become one replacement, so no rest of a longer secret stays behind. Text is replaced in every
JSON string, names of members and JSON pointers included, but not in words of the grammar (types, roles). Ids are strings like others: the
replacement is always the same, so references stay equal. Only `threadId` and `runId` stay as they are: they are the client's own words and
the address of the thread.

Streams. Of a message or call that is open, only the longest end that is a proper prefix of a secret (or of a piece) is held back: less
than 512 characters, or what they become when they are escaped. It is released before END of that message or call, a MESSAGES_SNAPSHOT
that holds messages, and the terminal. It is *not* released before a tool call starts, nor at the place of a snapshot that is folded when
it is read: text that goes on after that could complete a secret whose head is already out.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.config import SHORTEST_SECRET
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
_PIECE = 512
_TEXT, _REASONING, _CALL = "text", "reasoning", "call"

_Delta = TextMessageContent | ReasoningMessageContent | ToolCallArgs
_Span = tuple[int, int]
_Prefix = tuple[int, str]
"""Its length, and the needle it is a prefix of."""
_E = TypeVar("_E", bound=BaseEvent)
_S = TypeVar("_S", bound=msgspec.Struct)


class Secrets:
    """The values to look for, prepared once for many runs. Each run has a child of its own, which may learn more."""

    __slots__ = ("_ends", "_first", "_on_learn", "_values", "_wire", "needles", "shortest")

    def __init__(self, values: Iterable[str], on_learn: Callable[[Iterable[str]], None] = lambda values: None) -> None:
        """`on_learn` hears what any child learns: the log is everybody's."""
        self._on_learn = on_learn
        self._values = frozenset(values)
        self._prepare()

    def child(self) -> Secrets:
        """The same values, for one run: what it learns, other runs need not look for."""
        return copy(self)

    def learn(self, values: Iterable[str]) -> None:
        """Look for these too, from now on and in what is held back."""
        fresh = frozenset(values) - self._values
        if fresh:
            self._values |= fresh
            self._prepare()
            self._on_learn(fresh)

    def _prepare(self) -> None:
        given = {form for value in self._values for form in (value, value.strip())}
        known = {value for value in given if len(value) >= SHORTEST_SECRET and value not in REDACTED}
        secrets = {piece for value in known for piece in _pieces(value)}
        self.needles = tuple(sorted({form for secret in secrets for form in _spellings(secret)}))
        self.shortest = min(map(len, self.needles), default=0)
        self._wire = _on_the_wire(self.needles)
        self._first = frozenset(needle[0] for needle in self.needles)
        self._ends = _ends(self.needles)

    def harmless(self, text: str) -> bool:
        """Whether the text clearly neither holds a secret nor ends in the beginning of one."""
        return (
            text[-2:] not in self._ends
            and text[-1:] not in self._first
            and (len(text) < self.shortest or not self.in_text(text))
        )

    def in_text(self, text: str) -> bool:
        if len(text) < self.shortest:
            return False
        for needle in self.needles:  # noqa: SIM110  a generator costs more than the search
            if needle in text:
                return True
        return False

    def in_line(self, line: bytes) -> bool:
        """Whether an encoded event may hold one. Sometimes yes by accident, never no by accident."""
        for needle in self._wire:  # noqa: SIM110
            if needle in line:
                return True
        return False

    def held_from(self, text: str) -> int:
        """Where the longest end of the text begins that is a proper prefix of a secret; its length when there is none."""
        for length, needle in self._ends.get(text[-2:], ()):
            if length <= len(text) and text.endswith(needle[:length]):
                return len(text) - length
        return len(text) - 1 if text and text[-1] in self._first else len(text)

    def spans(self, text: str) -> list[_Span]:
        """Every occurrence, overlapping ones too, in order."""
        found: list[_Span] = []
        for needle in self.needles:
            at = text.find(needle)
            while at >= 0:
                found.append((at, at + len(needle)))
                at = text.find(needle, at + 1)
        return sorted(found)


def _pieces(value: str) -> list[str]:
    """The value itself, or, when it is long, pieces that overlap in the end: together they cover all of it."""
    starts = [*range(0, max(1, len(value) - _PIECE), _PIECE), max(0, len(value) - _PIECE)]
    return [value[start : start + _PIECE] for start in starts]


def _spellings(secret: str) -> set[str]:
    """The value itself and as JSON writers spell it: Python, JavaScript, PHP's slashes, Go's angle brackets, and JSON inside JSON."""
    once = {secret, *_escaped(secret)}
    return {*once, *(twice for form in once for twice in _escaped(form))}


def _escaped(text: str) -> set[str]:
    ascii_only, plain = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    go = plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    forms = {ascii_only, plain, go, _upper_hex(text)}
    return forms | {form.replace("/", "\\/") for form in forms}


def _upper_hex(text: str) -> str:
    """With `\\u00E9` where Python writes `\\u00e9`."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    return "".join(one if one.isascii() else json.dumps(one)[1:-1].upper().replace("\\U", "\\u") for one in plain)


def _on_the_wire(needles: Iterable[str]) -> tuple[bytes, ...]:
    """The needles as they stand in an encoded event; a lone surrogate cannot stand in one."""
    writable = [needle for needle in needles if not any("\ud800" <= one <= "\udfff" for one in needle)]
    return tuple({msgspec.json.encode(needle)[1:-1] for needle in writable})


def _ends(needles: Sequence[str]) -> dict[str, tuple[_Prefix, ...]]:
    """All proper prefixes of two characters or more by their last two, longest first."""
    by_end: dict[str, list[_Prefix]] = {}
    for needle in needles:
        for length in range(2, len(needle)):
            by_end.setdefault(needle[length - 2 : length], []).append((length, needle))
    return {end: tuple(sorted(prefixes, reverse=True)) for end, prefixes in by_end.items()}


class _Stream:
    """The text of one open message or call: `tail` is held back, and its first `covered` characters are already replaced."""

    __slots__ = ("covered", "last", "tail")

    def __init__(self, last: _Delta) -> None:
        self.last = last
        self.tail = ""
        self.covered = 0

    def release(self, secrets: Secrets, delta: str, *, final: bool = False) -> tuple[str, int]:
        """What may go out now that `delta` has come, and how many replacements are in it."""
        text = self.tail + delta
        cut = len(text) if final else secrets.held_from(text)
        spans = secrets.spans(text) if len(text) >= secrets.shortest else []
        released, end, count = _replace(text, spans, self.covered, cut)
        self.tail, self.covered = text[cut:], max(0, end - cut)
        return released, count


def _replace(text: str, spans: list[_Span], covered: int, cut: int) -> tuple[str, int, int]:
    """The text up to `cut` with its spans replaced, where the last of them ends, and how many there were.

    The first `covered` characters belong to a replacement that went out before. A span that begins after the cut waits, unless
    it continues one that begins before.
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


def _plain(value: Any) -> Any:
    """What the encoder makes of a set, an enum, a dataclass and the like; itself if that is nothing, for then it is never written."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return value


class Redactor:
    """One run's redaction. Events go through `feed` in order; `redact_text` and `redact_value` are for everything else."""

    __slots__ = ("_clean", "_known", "_secrets", "_streams", "counts")

    def __init__(self, secrets: Iterable[str] | Secrets) -> None:
        self._secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._clean: set[str] = set()
        """Ids of messages and calls that hold no secret, so that not every delta has to be searched for one."""
        self._known = self._secrets.needles
        self.counts: Counter[str] = Counter()
        """Replacements so far by event type; "text" and "value" for what was not an event."""

    def feed(self, event: Event) -> Sequence[Event]:
        """What may be written now in place of this event."""
        if self._known is not self._secrets.needles:
            self._known = self._secrets.needles
            self._clean.clear()
        if not self._known or (type(event) is TextMessageContent and self._is_plain(event)):
            return (event,)
        match event:
            case TextMessageContent():
                return self._delta(event, _TEXT, event.message_id)
            case ToolCallArgs():
                return self._delta(event, _CALL, event.tool_call_id)
            case ReasoningMessageContent():
                return self._delta(event, _REASONING, event.message_id)
            case TextMessageEnd():
                return (*self._flush((_TEXT, event.message_id)), self._whole(event))
            case ToolCallEnd():
                return (*self._flush((_CALL, event.tool_call_id)), self._whole(event))
            case ReasoningMessageEnd():
                return (*self._flush((_REASONING, event.message_id)), self._whole(event))
            case RunFinished() | RunError() | MessagesSnapshot(messages=[_, *_]):
                return (*self.flush(), self._whole(event))
            case _:
                return (self._whole(event),)

    def passes(self, message_id: str, text: str) -> int:
        """How much of this text of a message may go out as it is, at once; nothing when that takes a closer look."""
        secrets = self._secrets
        if not secrets.needles:
            return len(text)
        if (
            self._known is not secrets.needles
            or self._streams
            or message_id not in self._clean
            or secrets.in_text(text)
        ):
            return 0
        return secrets.held_from(text)

    def _is_plain(self, event: TextMessageContent) -> bool:
        """Whether nothing is held and nothing has to be: the short way out for a piece that comes alone. Those that wait go by `passes`."""
        return (
            not self._streams
            and self._secrets.harmless(event.delta)
            and event.message_id in self._clean
            and event.metadata is None
            and event.raw_event is None
            and event.subagent_run_id is None
        )

    def flush(self) -> list[Event]:
        """Everything held back, as deltas of the messages and calls it belongs to."""
        return [event for key in list(self._streams) for event in self._flush(key)]

    def redact_text(self, text: str) -> str:
        return self._text(text, "text")

    def redact_value(self, value: Any) -> Any:
        """A copy with secrets replaced in every string that is not a key; plain JSON values and Structs of ours."""
        return self._value(value, "value") if self._secrets.needles else value

    def _delta(self, event: _Delta, kind: str, name: str) -> Sequence[Event]:
        secrets, text, key = self._secrets, event.delta, (kind, name)
        stream = self._streams.get(key)
        if stream is None:
            if secrets.held_from(text) == len(text) and not secrets.in_text(text):
                return (self._rest(event, name),)
            stream = self._streams[key] = _Stream(event)
        stream.last = event
        released, count = stream.release(secrets, text)
        self._count(type_of(event), count)
        if not stream.tail:
            del self._streams[key]
        if not released and event.metadata is None and event.raw_event is None:
            return ()
        return (self._rest(replace(event, delta=released), name),)

    def _rest(self, event: _Delta, name: str) -> Event:
        """A delta whose text is done: look at its ids and extras."""
        plain = event.metadata is None and event.raw_event is None and event.subagent_run_id is None
        if plain and name in self._clean:
            return event
        empty = replace(event, delta="")
        searched = self._whole(empty)
        if searched is not empty:
            return replace(searched, delta=event.delta)
        self._clean.add(name)
        return event

    def _flush(self, key: tuple[str, str]) -> list[Event]:
        stream = self._streams.pop(key, None)
        if stream is None:
            return []
        released, count = stream.release(self._secrets, "", final=True)
        self._count(type_of(stream.last), count)
        bare = replace(stream.last, delta=released, metadata=None, raw_event=None)
        return [self._rest(bare, key[1])] if released else []

    def _whole(self, event: _E) -> _E:
        try:
            if not self._secrets.in_line(encode_event(event)):
                return event
        except (TypeError, ValueError):
            pass  # what cannot be encoded is searched all the same; whoever writes it will refuse it
        return self._struct(event, type_of(event))

    def _text(self, text: str, counted: str) -> str:
        if not self._secrets.in_text(text):
            return text
        released, _, count = _replace(text, self._secrets.spans(text), 0, len(text))
        self._count(counted, count)
        return released

    def _value(self, value: Any, counted: str) -> Any:
        match value:
            case str():
                return self._text(value, counted)
            case dict():
                members = cast("dict[Any, Any]", value)
                return {self._value(key, counted): self._value(item, counted) for key, item in members.items()}
            case list() | tuple():
                return [self._value(item, counted) for item in cast("Sequence[Any]", value)]
            case msgspec.Struct():
                return self._struct(value, counted)
            case None | bool() | int() | float():
                return value
            case _:
                plain = _plain(value)
                return value if plain is value else self._value(plain, counted)

    def _struct(self, value: _S, counted: str) -> _S:
        changed = {
            name: self._value(getattr(value, name), counted) for name in value.__struct_fields__ if name not in _GRAMMAR
        }
        return replace(value, **changed)

    def _count(self, counted: str, count: int) -> None:
        if count:
            self.counts[counted] += count
