"""The path of an agent's event to the ledger: repair, redact, encode, append. Every event of every run passes here, after all middleware.

This is the hot path, and nothing here awaits. Nearly all events are deltas, start or end a message or a tool call, or set one key of the
state: those are deferred until the agent pauses, and then redacted and encoded together (`deferred_events.py`, `deferred_patch.py`).
`storable.py` makes the other events encodable.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.errors import RedactionFailed
from ambient_runner.ledger.records import Encoded
from ambient_runner.projections.private_entries import HISTORY_EVENT, is_private, is_private_line, restated_texts
from ambient_runner.projections.state import SharedState
from ambient_runner.protocol.dropped_events import drop_long_text, drop_oversized_event
from ambient_runner.protocol.events import (
    DELTA_TYPES,
    ActivityDelta,
    ActivitySnapshot,
    BaseEvent,
    Cancelled,
    Custom,
    MessagesSnapshot,
    Raw,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    ToolCallArgs,
    ToolCallResult,
    ToolCallStart,
    decode_event,
    encode_event,
)
from ambient_runner.protocol.limits import MAX_DEPTH, MAX_EVENT_BYTES, nesting_depth
from ambient_runner.runs.agent_events import validate_event
from ambient_runner.runs.deferred_events import (
    DEFERRED_TYPES,
    LONG_TEXT_FLUSH_CHARS,
    MAX_DEFERRED_DELTA_CHARS,
    MAX_SHORT_DELTA_CHARS,
    encode_deltas,
    encode_groups,
    encode_stamped,
    encode_together,
    is_deferrable,
    split_groups,
)
from ambient_runner.runs.deferred_patch import (
    read_deferrable_change,
    read_key_changes,
    stamp_lines,
)
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.large_work import BusyTime
from ambient_runner.runs.redaction_guard import RedactionGuard
from ambient_runner.runs.storable import (
    UNENCODABLE_ERRORS,
    UNSTAMPED_TYPES,
    drop_deep_values,
    encode_dropped,
    encode_storable,
    encode_unstamped,
    encode_within_message_depth,
    stamp_event,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping, Sequence

    from ambient_runner.ledger.base import Writer
    from ambient_runner.projections.redaction import Redactor
    from ambient_runner.projections.state_patch import KeyChange
    from ambient_runner.protocol.events import Delta, Event, Terminal
    from ambient_runner.protocol.repair import Repairer

CONDITIONALLY_WRITTEN = frozenset({RunStarted, MessagesSnapshot, Raw, Custom})
"""Types of which not every event of an agent's stream is written: `is_written` decides."""

CLOSED_AT_ONCE = 256
"""Messages, calls and steps that the end of a run closes before other tasks may run: about 3 milliseconds."""

_STATE_TYPES = frozenset({StateSnapshot, StateDelta})
_UNBOUNDED_TYPES = frozenset({StateSnapshot, StateDelta, ActivitySnapshot, ActivityDelta, Custom})
"""Types of events that can have any number of values."""
_CALL_TYPES = frozenset({ToolCallStart, ToolCallArgs, ToolCallResult})


def _is_cut_off(terminal: Terminal) -> bool:
    """Return True for the end of a run that was stopped or has failed."""
    match terminal:
        case RunFinished():
            return isinstance(terminal.outcome, Cancelled)
        case _:
            return True


def is_written(event: Event) -> bool:
    """Return True if this event of an agent's stream must be pushed to the pipeline.

    The Runner writes the run's frame itself; RAW is not stored; an adapter's private entries are stored as it yielded them.
    """
    match event:
        case MessagesSnapshot():
            return event is SNAPSHOT_MARKER
        case Custom():
            return not is_private(event)
        case _:
            return type(event) not in CONDITIONALLY_WRITTEN


class Pipeline:
    """Turns the events of one run into stored lines. `terminal_event` is set once it is written."""

    def __init__(self, writer: Writer, repairer: Repairer, redactor: Redactor, state: Any = msgspec.UNSET) -> None:
        """`state` is the one the run begins with."""
        self._repairer = repairer
        self._redactor = redactor
        # Bound once: these are called for every event.
        self._write = writer.append
        self._append_lazily = writer.append_lazily  # The writer calls `_encode_deferred_events` back.
        self._repair = repairer.feed
        self.redaction_guard = RedactionGuard()
        self._state = SharedState(state)
        self._open_deltas = repairer.open_deltas
        self._deferred_events: list[Event] = []
        self._deferred_changes: list[KeyChange] = []
        """The changes that the patches among them make."""
        self._last_type: type[BaseEvent] | None = None
        """Type of the last event if it is a delta whose message or call is surely open; else None."""
        self._deferred_long_chars = 0
        """Characters of the long texts among the deferred events."""
        self._group_starts: list[int] = []
        """The index at which each group of the deferred events begins: one event, or consecutive deltas of one message or call."""
        self._last_id = ""
        self._last_subagent: str | None = None
        self.last_event_at = 0.0
        """Time of the agent's last event, on the monotonic clock: the idle timeout counts from it. Deferred ones count once encoded."""
        self.busy = BusyTime()
        """Work on the run's events, here and before they come here, without deferred ones."""
        self.terminal_event: Terminal | None = None
        self._held_corrections: list[Custom] = []
        """Corrections of the history that have not passed the middleware."""
        self._open_calls: dict[str, tuple[str, list[str]]] = {}
        """Names and arguments, before redaction, of the run's tool calls that have no result."""

    @property
    def repair_counts(self) -> Counter[str]:
        return self._repairer.repairs

    def count_repair(self, rule: str, event_type: str, times: int) -> None:
        """Count repairs of the agent's events that were made before they came here."""
        self._repairer.count_repair(rule, event_type, times)

    @property
    def first_repaired_types(self) -> Mapping[str, str]:
        """The type of the first event that was repaired, by rule."""
        return self._repairer.first_repaired_types

    @property
    def redaction_counts(self) -> Counter[str]:
        return self._redactor.counts

    def push(self, event: Event) -> bool:
        """Accept one event. Return True if it was appended at once: then check if the writer is full."""
        kind = type(event)
        if kind is self._last_type:
            # One more delta of the same message or call, with no other fields: nearly all events are. The repairer would return it.
            delta: Any = event
            name = delta.tool_call_id if kind is ToolCallArgs else delta.message_id
            if (
                name == self._last_id
                and type(name) is str
                and delta.subagent_run_id is self._last_subagent
                and type(delta.delta) is str
                and 0 < len(delta.delta) <= MAX_SHORT_DELTA_CHARS
                and delta.metadata is None
                and delta.raw_event is None
                and delta.timestamp is None
                and (self._deferred_events or self.redaction_guard.error is None)
            ):
                if not self._deferred_events:
                    # The first since the last pause, as each delta of a slow stream is.
                    self._append_lazily(self._encode_deferred_events, self._deferred_events)
                    self._group_starts.append(0)
                self._deferred_events.append(delta)
                if kind is ToolCallArgs and (call := self._open_calls.get(name)) is not None:
                    call[1].append(delta.delta)
                return False
        if self.redaction_guard.error is None and self._try_defer(event):
            if self._deferred_long_chars < LONG_TEXT_FLUSH_CHARS:
                return False
            self._flush_deferred_events()
            return True
        self._push_now(event)
        return True

    def _try_defer(self, event: Event) -> bool:
        """Defer an event that may wait. Return False for any other."""
        kind: type[BaseEvent] = type(event)
        last_type, self._last_type = self._last_type, None
        if kind not in DELTA_TYPES:
            if type(event) is StateDelta:
                return self._try_defer_patch(event)
            if kind not in DEFERRED_TYPES or not is_deferrable(event):
                return False
            self._defer(self._repair(event))
            if type(event) is ToolCallResult:
                self._count_long_text(event.content)
            return True
        delta: Any = event
        name, owner = delta.tool_call_id if kind is ToolCallArgs else delta.message_id, delta.subagent_run_id
        opened, owners = self._open_deltas[kind]
        if (
            type(name) is not str
            or name not in opened
            or owners[name] != owner
            or not (owner is None or type(owner) is str)
            or type(delta.delta) is not str
            or not 0 < len(delta.delta) <= MAX_DEFERRED_DELTA_CHARS
            or not (delta.metadata is None and delta.raw_event is None and delta.timestamp is None)
        ):
            return False
        is_next = last_type is kind and name == self._last_id and owner == self._last_subagent
        continues_group = is_next and bool(self._deferred_events)
        self._defer((delta,))
        if continues_group:
            self._group_starts.pop()  # `_defer` began a group for it.
        self._count_long_text(delta.delta)
        self._last_type, self._last_id, self._last_subagent = kind, name, owner
        return True

    def _try_defer_patch(self, event: StateDelta) -> bool:
        """Defer a copy of a patch that may wait, as the agent may change its values. The repairer would return it as it is."""
        change = read_deferrable_change(event)
        if change is None or not self._repairer.is_running:
            return False
        self._defer((StateDelta(delta=[event.delta[0].copy()]),))
        self._deferred_changes.append(change)
        self._count_long_text(change[2])
        return True

    def _count_long_text(self, value: Any) -> None:
        if type(value) is str and len(value) > MAX_SHORT_DELTA_CHARS:
            self._deferred_long_chars += len(value)

    def _defer(self, events: Sequence[Event]) -> None:
        """Defer legal events until the agent pauses, or one comes that cannot wait."""
        if events and not self._deferred_events:
            self._append_lazily(self._encode_deferred_events, self._deferred_events)
        for event in events:
            if type(event) in _CALL_TYPES:
                self._record_call(event)
            self._group_starts.append(len(self._deferred_events))
            self._deferred_events.append(event)

    def _push_now(self, event: Event) -> None:
        """Repair, redact and append the event, after the deferred events."""
        started_at = time.monotonic()
        self._write_deferred_events()
        self.redaction_guard.check()
        event = validate_event(event)
        if type(event) in _UNBOUNDED_TYPES:
            event = drop_oversized_event(event)
        if event.raw_event is not None:
            event = msgspec.structs.replace(event, raw_event=None)
        for legal in self._repair(event):
            if type(legal) in _CALL_TYPES:
                self._record_call(legal)
            self._write_redacted(drop_long_text(legal))
        self.last_event_at = time.monotonic()
        self.busy.seconds += self.last_event_at - started_at

    def find_call(self, tool_call_id: str) -> tuple[str, str] | None:
        """Return name and arguments, before redaction, of a tool call of this run; None if it has a result, or is of another run."""
        found = self._open_calls.get(tool_call_id)
        return None if found is None else (found[0], "".join(found[1]))

    def _record_call(self, event: Event) -> None:
        match event:
            case ToolCallStart():
                self._open_calls[event.tool_call_id] = (event.tool_call_name, [])
            case ToolCallArgs() if event.tool_call_id in self._open_calls:
                self._open_calls[event.tool_call_id][1].append(event.delta)
            case ToolCallResult():
                self._open_calls.pop(event.tool_call_id, None)
            case _:
                pass

    def _redact(self, event: Event) -> Sequence[Event]:
        with self.redaction_guard:
            return self._redactor.feed(event)

    def touch(self) -> None:
        """Count an event that is not written as activity of the agent."""
        self.last_event_at = time.monotonic()

    def _write_deferred_events(self) -> None:
        """Encode the deferred events before any other event is handled: the redactor must see everything in order.

        The writer still calls the encoder back, and gets nothing; it gets the lines before its next append.
        """
        encoded = self._encode_deferred_events()
        if encoded.lines:
            self._append_lazily(lambda: encoded, encoded.lines)

    def _flush_deferred_events(self) -> None:
        """Write the deferred events at once: to search more of them takes milliseconds."""
        with self.busy:
            self._write_deferred_events()

    def _encode_deferred_events(self) -> Encoded:
        """Encode the deferred events: the `DeferredEncoder` that the writer calls back, before its next append or when the agent pauses.

        The redactor holds back the last deltas, and releases those it held before.
        """
        events, self._deferred_events = self._deferred_events, []
        changes, self._deferred_changes = self._deferred_changes, []
        starts, self._group_starts = self._group_starts, []
        self._deferred_long_chars = 0
        if not events:
            return Encoded([])
        self.last_event_at = time.monotonic()
        deltas = cast("list[Delta]", events) if len(starts) == 1 and type(events[0]) in DELTA_TYPES else None
        redactor = self._redactor
        try:
            if len(changes) == len(events) and (lines := self._encode_patches(events, changes)):
                return Encoded(lines)
            with self.redaction_guard:
                released = (
                    [redactor.feed_deltas(deltas)] if deltas else redactor.feed_groups(split_groups(events, starts))
                )
        except RedactionFailed:  # The writer calls this for many runs at once: the guard ends this one.
            self._last_type = None  # The next event is refused.
            return Encoded([])
        if deltas and released[0] and redactor.is_plain(deltas[0]):
            return encode_deltas(cast("Sequence[Delta]", released[0]))
        if changes:
            return Encoded(self._encode_with_patches([event for group in released for event in group]))
        return encode_groups(released)

    def _encode_patches(self, patches: Sequence[Event], changes: Sequence[KeyChange]) -> list[bytes] | None:
        """Apply deferred patches to the state, and encode them. Return None, and do nothing, if one of them has to be handled alone."""
        lines = encode_together(patches)
        if lines is None:
            return None
        with self.redaction_guard:
            is_clean = self._redactor.are_lines_clean(lines)
        return stamp_lines(lines) if is_clean and self._state.try_set_keys(changes, sum(map(len, lines))) else None

    def _encode_with_patches(self, events: Sequence[Event]) -> list[bytes]:
        """Encode redacted events that were deferred, patches among them, which are applied to the state."""
        lines, changes = encode_stamped(events), read_key_changes(events)
        if lines is None or changes is None or not self._state.try_set_keys(changes, sum(map(len, lines))):
            return [self._encode(event) for event in events]
        return lines

    def store_private(self, event: Custom) -> None:
        """Store a private entry of the adapter (`projections.private_entries`).

        A correction of the history is held until it has passed the middleware, at most until the run ends: it belongs after the messages
        it corrects, and middleware may hold those back.
        """
        self.redaction_guard.check()
        if event.name == HISTORY_EVENT:
            self._held_corrections.append(event)
        else:
            with self.busy:
                self._write_private(event)

    def release_correction(self, event: Event) -> None:
        """Store a correction that has passed the middleware. Middleware cannot create or change one: it must be the adapter's own."""
        if any(event is held for held in self._held_corrections):
            self._held_corrections = [held for held in self._held_corrections if held is not event]
            self._write_private(cast("Custom", event))

    def _write_private(self, event: Custom) -> None:
        self._write_deferred_events()
        if event.name == HISTORY_EVENT:
            # A correction states the text until now, what is held back of it included.
            with self.redaction_guard:
                held = self._redactor.flush()
            for delta in held:
                self._write(self._encode(delta))
        if self.terminal_event is None:
            with self.redaction_guard:
                line = self._encode_private(Custom(name=event.name, value=event.value))
                if event.name == HISTORY_EVENT:
                    self._redactor.restate_texts(restated_texts(event))
            self._write(line)

    def _encode_private(self, event: Custom) -> bytes:
        line = encode_storable(event)
        if not is_private_line(line):
            return line
        # Decoded from its line, so that the redactor sees plain JSON only.
        plain = msgspec.json.decode(line)["value"]
        if event.name == HISTORY_EVENT and nesting_depth(plain) > MAX_DEPTH:
            return encode_dropped(event, "too_deep")
        return encode_storable(msgspec.structs.replace(event, value=self._redactor.redact_value(plain)))

    def end_run(self, terminal: Terminal) -> None:
        """Close everything that is open, and append the snapshot marker and the one terminal event.

        If redaction has failed, or fails here, the terminal event is RUN_ERROR with the code `redaction_failed`.
        """
        for _ in self.end_in_slices(terminal):
            pass

    def end_in_slices(self, terminal: Terminal) -> Iterator[None]:
        """Do what `end_run` does, and stop wherever other tasks may run: an agent may leave thousands of messages open."""
        if self.terminal_event is not None:
            return
        self._write_deferred_events()
        if _is_cut_off(terminal):
            self._redactor.drop_unfinished()
        for _ in range(self._repairer.open_count // CLOSED_AT_ONCE):
            self._close(CLOSED_AT_ONCE)
            yield
        self._close()  # What is left, and what an agent that cannot be cancelled has opened meanwhile.
        self._append_end(terminal)

    def _close(self, limit: int | None = None) -> None:
        for closing in self._repairer.close(limit):
            with suppress(RedactionFailed):
                self._write_redacted(closing)

    def _append_end(self, terminal: Terminal) -> None:
        with suppress(RedactionFailed):
            for correction in self._held_corrections:
                self._write_private(correction)
            self.push(SNAPSHOT_MARKER)
            self.push(terminal)
            self.terminal_event = terminal
            return
        self.terminal_event = RunError(message=RedactionFailed().message, code=RedactionFailed.code)
        for event in (SNAPSHOT_MARKER, self.terminal_event):  # They are ours, and have nothing to redact.
            self._write(encode_unstamped(event) if event is SNAPSHOT_MARKER else encode_within_message_depth(event))

    def _write_redacted(self, event: Event) -> None:
        """Redact a legal event and append it."""
        try:
            clean = self._redact(event)
        except RecursionError:
            clean = self._redact(drop_deep_values(event))
        for item in clean:
            self._write(self._encode(item))

    def _encode(self, event: Event) -> bytes:
        if type(event) in UNSTAMPED_TYPES and event.metadata is None:
            return encode_unstamped(event)
        return self._encode_state_event(event) if type(event) in _STATE_TYPES else encode_within_message_depth(event)

    def _encode_state_event(self, event: Event) -> bytes:
        """Encode a state event; encode `ambient:dropped` if the state would exceed its limits."""
        try:
            line = encode_event(stamp_event(event))
        except RecursionError:
            return encode_dropped(event, "too_deep")
        except UNENCODABLE_ERRORS:
            line = encode_storable(event)
            event = decode_event(line)
        reason = "too_large" if len(line) > MAX_EVENT_BYTES else self._state.apply(event)
        return encode_dropped(event, reason) if reason else line
