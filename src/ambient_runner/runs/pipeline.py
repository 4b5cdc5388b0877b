"""From an agent's event to the ledger: repair, redact, encode, append. Every run goes through here, after all middleware.

This is the hot path, and nothing here awaits. Nearly all events are pieces of one text: those are put aside until the agent pauses, and
then go the whole way together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.ledger.base import Encoded, Text
from ambient_runner.projections.private_entries import MESSAGES, is_kept, is_kept_line
from ambient_runner.projections.state import SharedState
from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivitySnapshot,
    BaseEvent,
    Custom,
    Interrupted,
    MessagesSnapshot,
    Raw,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    decode_event,
    encode_event,
    type_of,
)
from ambient_runner.protocol.limits import MAX_DEPTH, MAX_EVENT, MAX_MESSAGE_DEPTH, dropped, levels
from ambient_runner.runs.framing import SNAPSHOT_HERE

if TYPE_CHECKING:
    from collections import Counter

    from ambient_runner.ledger.base import Writer
    from ambient_runner.projections.redaction import Redactor
    from ambient_runner.protocol.events import Event, Terminal
    from ambient_runner.protocol.repair import Repairer

# Deltas are not stamped: there are many, and their START has a time. Nor is the snapshot's place: it is compared by its bytes.
_BARE = frozenset({TextMessageContent, ToolCallArgs, ReasoningMessageContent, MessagesSnapshot})

LOOKED_AT = frozenset({RunStarted, MessagesSnapshot, Raw, Custom})
"""Types of which not every event of an agent's stream is written: ask `is_written`."""

_FRAMES = frozenset(
    {
        TextMessageStart,
        TextMessageEnd,
        ToolCallStart,
        ToolCallEnd,
        ReasoningStart,
        ReasoningEnd,
        ReasoningMessageStart,
        ReasoningMessageEnd,
        StepStarted,
        StepFinished,
        SubagentStarted,
        SubagentFinished,
        SubagentError,
    }
)
_OF_STATE = frozenset({StateSnapshot, StateDelta})
_OF_MESSAGES = frozenset(
    {
        TextMessageStart,
        TextMessageContent,
        TextMessageEnd,
        ToolCallStart,
        ToolCallArgs,
        ToolCallEnd,
        ToolCallResult,
        ReasoningMessageStart,
        ReasoningMessageContent,
        ReasoningMessageEnd,
        ActivitySnapshot,
        ActivityDelta,
    }
)
"""Types whose metadata or content becomes part of a message."""
_UNENCODABLE = (UnicodeEncodeError, TypeError, ValueError, RecursionError, OverflowError)
_FEW = 1000
_SHORT = 4096
"""Characters of a piece of text that may wait for others."""


def is_written(event: Event) -> bool:
    """Whether an event of the stream is written from there.

    The Runner writes its own frame; RAW is not stored; what an adapter remembers has been written when it was said.
    """
    match event:
        case MessagesSnapshot():
            return event is SNAPSHOT_HERE
        case Custom():
            return not is_kept(event)
        case _:
            return type(event) not in LOOKED_AT


class Pipeline:
    """Turns what one run says into what is stored. `ended` holds the terminal event once it is written."""

    def __init__(self, writer: Writer, repairer: Repairer, redactor: Redactor, state: Any = msgspec.UNSET) -> None:
        """`state` is the one the run begins with."""
        self._repairer = repairer
        self._redactor = redactor
        # Bound once: these are called for every event.
        self._write = writer.append
        self._later = writer.later
        self._repair = repairer.feed
        self._redact = redactor.feed
        self._state = SharedState(state)
        self._going_on: str | None = None
        """The message whose text goes on, if nothing about it needs a look."""
        self._pieces: list[TextMessageContent] = []
        self.heard = 0.0
        """When pieces of text last came, on the monotonic clock."""
        self.ended: Terminal | None = None

    @property
    def repairs(self) -> Counter[str]:
        return self._repairer.repairs

    @property
    def redactions(self) -> Counter[str]:
        return self._redactor.counts

    def push(self, event: Event) -> bool:
        """Accept one event. Whether it was written at once: then ask the writer if it is full."""
        if (
            type(event) is TextMessageContent
            and event.message_id == self._going_on
            and type(event.message_id) is str
            and type(event.delta) is str
            and 0 < len(event.delta) <= _SHORT
            and event.subagent_run_id is None
            and event.metadata is None
            and event.raw_event is None
            and event.timestamp is None
        ):
            # One more piece of the text that goes on, and no more than that: nearly all events are.
            if not self._pieces:
                self._later(self._made)
            self._pieces.append(event)
            return False
        self._write_pieces()
        self._going_on = None
        if event.raw_event is not None:
            event = msgspec.structs.replace(event, raw_event=None)
        for legal in self._repair(event):
            if type(legal) not in _BARE or legal.metadata is not None:
                self._pass_on(legal)
                continue
            for clean in self._redact(legal):
                self._write(_bare(clean))
            if legal is event and type(legal) is TextMessageContent and legal.subagent_run_id is None:
                self._going_on = legal.message_id
        return True

    def _write_pieces(self) -> None:
        """Before anything else is looked at: the redactor must meet everything in order."""
        for line in self._made().lines:
            self._write(line)

    def _made(self) -> Encoded:
        """The lines of the pieces that were put aside. What may hold a secret, or could be the beginning of one, is looked at.

        They are too short for one of them to be too large an event.
        """
        pieces, self._pieces = self._pieces, []
        if not pieces:
            return Encoded([])
        self.heard = time.monotonic()
        text = "".join([piece.delta for piece in pieces])
        safe = self._redactor.passes(pieces[0].message_id, text)
        plain, size = len(pieces), len(text)
        while size > safe:
            plain -= 1
            size -= len(pieces[plain].delta)
        looked_at = [_bare(clean) for piece in pieces[plain:] for clean in self._redact(piece)]
        try:
            lines = [encode_event(piece) for piece in pieces[:plain]]
        except ValueError:
            return Encoded([*map(storable, pieces[:plain]), *looked_at])
        if looked_at:
            return Encoded(lines + looked_at)
        return Encoded(lines, Text(pieces[0].message_id, text[:size]))

    def keep(self, said: Custom) -> None:
        """Store what the adapter keeps with the thread (`projections.kept`)."""
        self._write_pieces()
        if self.ended is None:
            self._write(self._kept(Custom(name=said.name, value=said.value)))

    def _kept(self, event: Custom) -> bytes:
        line = storable(event)
        if not is_kept_line(line):
            return line
        try:
            # From its bytes, so that the redactor meets nothing but plain JSON.
            plain = msgspec.json.decode(line)["value"]
            if event.name == MESSAGES and levels(plain) > MAX_DEPTH:
                return _dropped(event, "too_deep")
            return storable(msgspec.structs.replace(event, value=self._redactor.redact_value(plain)))
        except RecursionError:
            return _dropped(event, "too_deep")

    def end(self, terminal: Terminal) -> None:
        """Close everything that is open, put the snapshot's place, and write the one terminal event."""
        if self.ended is not None:
            return
        self._write_pieces()
        for closing in self._repairer.close():
            self._pass_on(closing)
        self.push(SNAPSHOT_HERE)
        self.push(terminal)
        self.ended = terminal

    def _pass_on(self, event: Event) -> None:
        """Redact a legal event and write it."""
        try:
            clean = self._redact(event)
        except RecursionError:
            clean = self._redact(_shallow(event))
        for one in clean:
            self._write(self._told(one) if type(one) in _OF_STATE else _sent_back(one))

    def _told(self, event: Event) -> bytes:
        """The line of an event about the state, unless the state would leave its bounds."""
        try:
            line = encode_event(stamped(event))
        except _UNENCODABLE:
            line = _mended(event)
            event = decode_event(line)
        reason = "too_large" if len(line) > MAX_EVENT else self._state.apply(event)
        return _dropped(event, reason) if reason else line


def _sent_back(event: Event) -> bytes:
    """The line of an event, without what would make its message one that cannot be sent back."""
    line = storable(event)
    if type(event) not in _OF_MESSAGES or line.count(b"[") + line.count(b"{") <= MAX_MESSAGE_DEPTH:
        return line
    return storable(_shallow(event)) if levels(msgspec.json.decode(line)) > MAX_MESSAGE_DEPTH else line


def _bare(event: Event) -> bytes:
    try:
        line = encode_event(event)
    except UnicodeEncodeError:
        line = storable(event)
    return line if len(line) <= MAX_EVENT else storable(event)


def stamped(event: Event) -> Event:
    """The event with the time it was said."""
    if event.timestamp is not None:
        return event
    return msgspec.structs.replace(event, timestamp=time.time_ns() // 1_000_000)


def _is_bare(event: Event) -> bool:
    return type(event) in _BARE or is_kept(event)


def storable(event: Event) -> bytes:
    """One line of JSON for the event, or for CUSTOM `ambient:dropped` when it cannot be stored as it is."""
    try:
        line = encode_event(event) if _is_bare(event) else encode_event(stamped(event))
    except _UNENCODABLE:
        line = _mended(event)
    return line if len(line) <= MAX_EVENT else _dropped(event, "too_large")


def _mended(event: Event) -> bytes:
    """The event without lone surrogates, then without metadata; dropped when that does not help."""
    for attempt in (_without_surrogates, _without_metadata):
        try:
            return encode_event(attempt(event))
        except _UNENCODABLE:
            continue
    return _dropped(event, "not_encodable")


def _dropped(event: Event, reason: str) -> bytes:
    match event:
        case RunFinished():
            line = encode_event(_plain_end(event))
            too_long = RunError(message="What the agent asked is too large to be kept.", code=reason)
            return line if len(line) <= MAX_EVENT else encode_event(too_long)
        case RunError():
            return encode_event(RunError(message="The agent failed.", code=event.code))
        case _ if type(event) in _FRAMES:
            return encode_event(_cut(event))
        case _:
            return encode_event(dropped(type_of(event), reason))


def _cut(event: Event) -> Event:
    """An event that opens or closes something, with its words cut short: without it, what follows would be illegal."""
    words = {
        name: getattr(event, name, None) for name in ("name", "tool_call_name", "step_name", "description", "message")
    }
    short = {name: value[:_FEW] for name, value in words.items() if isinstance(value, str)}
    bulk = {name: None for name in ("metadata", "result") if name in event.__struct_fields__}
    return msgspec.structs.replace(event, **short, **bulk)


def _shallow(event: Event) -> Event:
    """The event without what may be nested too deep to be read. The grammar of the stream does not depend on it."""
    match event:
        case RunFinished():
            return _plain_end(event)
        case StateSnapshot() | StateDelta() | Custom() | ActivitySnapshot() | ActivityDelta() | SubagentFinished():
            return dropped(type_of(event), "too_deep")
        case ToolCallResult(content=list(parts)):
            plain = [msgspec.structs.replace(part, metadata=None) for part in parts]
            return msgspec.structs.replace(event, metadata=None, content=plain)
        case _:
            return msgspec.structs.replace(event, metadata=None)


def _plain_end(event: RunFinished) -> RunFinished:
    """The end of a run in words alone: what else an agent put there may be of any kind. Its questions can still be answered."""
    outcome = event.outcome
    if isinstance(outcome, Interrupted):
        plain = [msgspec.structs.replace(one, metadata=None, response_schema=None) for one in outcome.interrupts]
        outcome = Interrupted(interrupts=plain)
    return msgspec.structs.replace(event, result=None, metadata=None, outcome=outcome)


def _without_metadata(event: Event) -> Event:
    return _without_surrogates(msgspec.structs.replace(event, metadata=None))


def _without_surrogates(event: Event) -> Event:
    fields = {name: _clean(getattr(event, name)) for name in event.__struct_fields__}
    return type(event)(**fields)


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8") if _has_surrogate(value) else value
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [_clean(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case BaseEvent() | msgspec.Struct():
            return type(value)(**{name: _clean(getattr(value, name)) for name in value.__struct_fields__})
        case _:
            return value


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
