"""Frames for clients, derived from stored entries and never written back.

Most entries are sent as the bytes that are stored. A snapshot marker is replaced by the folded snapshot, the audience `safe` gets its
projection (`safe.py`), older clients get their profile, and facts of other owners are sent only through the projector of their owner, those
that change `ambient:thread` with that event after them. Facts without a projector and private entries (`private_entries.py`) are not sent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import compress, repeat
from typing import TYPE_CHECKING, Literal

from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.annotations import with_feedback
from ambient_runner.projections.known_calls import (
    UNKNOWN_CALL,
    FrameContext,
    KnownCall,
    ReaderCalls,
    call_ids_in,
    find_call_in,
    message_call_ids,
)
from ambient_runner.projections.private_entries import PRIVATE_LINE_PREFIXES, is_private_line, may_contain_private
from ambient_runner.projections.projectors import project_facts
from ambient_runner.projections.safe import needs_projection, project_safe
from ambient_runner.projections.thread_event import changes_thread, thread_event
from ambient_runner.projections.thread_fork import FORK_MARKER
from ambient_runner.protocol.encode import encode_ndjson, encode_sse, encode_sse_without_id
from ambient_runner.protocol.events import (
    Custom,
    MessagesSnapshot,
    decode_event,
    encode_event,
)
from ambient_runner.protocol.profiles import Downgrader, Profile, depends_on_reader, needs_downgrade

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.known_calls import FindCall
    from ambient_runner.projections.replay_snapshots import ReplaySnapshots
    from ambient_runner.projections.thread_event import ThreadIdentity
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.projections.withdrawn import WithdrawnContent
    from ambient_runner.protocol.events import Event

__all__ = [
    "MAX_SNAPSHOT_BYTES",
    "Framer",
    "WireFormat",
    "is_fork_marker",
    "snapshot_seqs",
]

WireFormat = Literal["sse", "ndjson"]

MAX_SNAPSHOT_BYTES = 8 << 20
"""Size above which a run's MESSAGES_SNAPSHOT is left out: its readers have the messages."""
_SNAPSHOT_MARKER = encode_event(MessagesSnapshot(messages=[]))
_FORK_MARKER = encode_event(FORK_MARKER)
_SNAPSHOT_PREFIX = b'{"type":"MESSAGES_SNAPSHOT"'
_LEFT_OUT_PREFIXES = (_SNAPSHOT_PREFIX, *PRIVATE_LINE_PREFIXES)
"""The beginnings of all lines that may be left out."""
_PLAIN_TEXT = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":'
"""The beginning of a text delta without metadata and subagent, which every reader gets as it is stored."""


class Framer:
    """Renders batches as bytes for one reader. Frames that do not depend on the reader are cached on the batch and shared."""

    def __init__(
        self,
        epoch: str,
        profile: Profile = Profile.V1,
        *,
        wire_format: WireFormat = "sse",
        event_lines: bool = False,
        strict: bool = False,
        start_events: Sequence[Event] = (),
        withdrawn: WithdrawnContent | None = None,
        exposure: ExposureRules | None = None,
        thread: ThreadIdentity | None = None,
        snapshots: bool = True,
        replay: ReplaySnapshots | None = None,
    ) -> None:
        """`start_events` are rendered after the first event of a run, which is RUN_STARTED: clients refuse any other at the beginning.

        `withdrawn` content is not rendered. `exposure` are the rules of the audience `safe`; None for the audience `open`. Without
        `thread` there is no `ambient:thread`, without `snapshots` no MESSAGES_SNAPSHOT of a run but those that a fork begins with.
        `replay` selects those of stored runs; without it all of them are rendered.
        """
        self._epoch = epoch
        self._profile = profile
        self._wire_format: WireFormat = wire_format
        self._event_lines = event_lines
        self._strict = strict
        self._start_events = start_events
        self._withdrawn = withdrawn
        self._exposure = exposure
        self._thread = thread
        self._snapshots = snapshots
        self._replay = replay
        self._calls = ReaderCalls()
        self._downgrader = Downgrader(profile)
        audience = "open" if exposure is None else f"safe {exposure.cache_key}"
        self._cache_keys = _cache_keys(f"{profile.value} {wire_format} {event_lines} {thread is not None} {audience}")

    def view_seqs(self, batch: Batch) -> list[int]:
        """Return the seqs at which `render` needs the folded thread, in their order. Nothing if the batch is rendered already."""
        if self.is_rendered(batch) or self._is_withheld(batch):
            return []
        if batch.owner != RUNTIME:
            is_needed = self._thread is not None and changes_thread(batch)
            return list(range(batch.first, batch.last + 1)) if is_needed else []
        seqs = snapshot_seqs(batch) if self._sends_snapshots(batch) else _marker_seqs(batch, _FORK_MARKER)
        if self._exposure is None or batch.text is not None:
            return seqs
        return sorted({*seqs, *self._calls.view_seqs(batch, self._exposure)})

    def read_view(self, batch: Batch, seq: int, view: ThreadView) -> FrameContext:
        """Return what `render` needs of the folded thread as it is at this seq. The view may change afterwards."""
        if batch.owner != RUNTIME:
            changed = thread_event(self._thread, view, batch.ts or None) if self._thread else None
            return FrameContext(thread=changed)
        line = batch.lines[seq - batch.first]
        is_fork = line == _FORK_MARKER
        is_snapshot = is_fork or (line == _SNAPSHOT_MARKER and self._sends_snapshots(batch))
        messages = view.transcript.messages() if is_snapshot else []
        context = FrameContext(messages=messages, feedback=view.feedback if is_snapshot else {}, ts=batch.ts)
        if is_fork and view.fork is not None:
            thread = thread_event(self._thread, view, batch.ts or None) if self._thread else None
            added = frozenset(message.id for message in messages[view.fork.copied_count :])
            context = replace(context, thread=thread, added_ids=added)
        if self._exposure is None:
            return context
        return context.with_calls(view, call_ids_in(batch.lines) | message_call_ids(messages))

    def render(self, batch: Batch, contexts: Mapping[int, FrameContext]) -> bytes:
        """Return the frames of the next batch. `contexts` has what `read_view` returned for every seq of `view_seqs(batch)`."""
        if batch.text is not None and self._replay is None and self._withdrawn is None and not self._start_events:
            return self._render_text(batch)
        frames = self._render_next(batch, contexts)
        if self._replay is not None:
            self._replay.advance(batch, has_snapshot=_SNAPSHOT_MARKER in batch.lines)
        return frames

    def _render_text(self, batch: Batch) -> bytes:
        """Return the frames of text deltas, as `_render_next` does.

        Such a batch belongs to a run, so `strict` withholds nothing of it, and has no snapshot and no private entry. Profile and audience
        do not change it.
        """
        cache_key = self._cache_keys[self._snapshots]
        frames = batch.derived.get(cache_key)
        if frames is None:
            frames = batch.derived[cache_key] = self._encode_lines(batch.lines, batch.first)
        return frames

    def _render_next(self, batch: Batch, contexts: Mapping[int, FrameContext]) -> bytes:
        if self._is_withheld(batch):
            return b""
        withdrawn = self._withdrawn_from(batch)
        if withdrawn is not None:
            return self._render_without_withdrawn(batch, contexts, withdrawn)
        if self._start_events and batch.owner == RUNTIME:
            return self._render_first_batch(batch, contexts)
        cache_key = self._cache_key(batch)
        if cache_key in batch.derived:
            return batch.derived[cache_key]
        frames = self._render_batch(batch, contexts)
        if self._is_shared(batch):
            batch.derived[cache_key] = frames
        return frames

    def prepare(self, batch: Batch) -> None:
        """Render the frames that do not depend on the reader in advance. `render` makes the others."""
        if self._start_events or self._withdrawn_from(batch):
            return
        if not self.view_seqs(batch) and self._is_shared(batch):
            self._render_next(batch, {})

    @property
    def wire_format(self) -> WireFormat:
        return self._wire_format

    def is_rendered(self, batch: Batch) -> bool:
        """Return True if another reader has already rendered this batch, and this one needs nothing else."""
        return not self._start_events and self._cache_key(batch) in batch.derived and not self._withdrawn_from(batch)

    def render_without_ids(self, events: Iterable[Event], view: ThreadView | None = None) -> bytes:
        """Return frames made for this reader alone. They carry no `id`. `view` has the tool calls and feedback they refer to."""
        lines = self._encode_for_reader(events, view)
        if self._wire_format == "ndjson":
            return encode_ndjson(lines)
        return b"".join([encode_sse_without_id(line, self._event_lines) for line in lines])

    def render_at(self, events: Iterable[Event], seq: int, view: ThreadView) -> bytes:
        """Return frames made for this reader alone that stand for the thread up to `seq`, as in `view`: the last one carries its `id`."""
        return self._encode_entry(self._encode_for_reader(events, view), seq)

    def _encode_for_reader(self, events: Iterable[Event], view: ThreadView | None) -> list[bytes]:
        find_call = find_call_in(view) if view else _find_nothing
        feedback = view.feedback if view else {}
        shown = (event if self._withdrawn is None else self._withdrawn.strip_event(event) for event in events)
        projected = (safe for event in shown if event is not None for safe in self._project(event, find_call))
        rated = (with_feedback(event, feedback) for event in projected)
        # Whole, however large: a reader that connects, or is told of a gap, has these messages from nowhere else.
        return [encode_event(out) for event in rated for out in self._downgrader.feed(event)]

    def _sends_snapshots(self, batch: Batch) -> bool:
        return self._snapshots and (self._replay is None or self._replay.includes(batch))

    def _cache_key(self, batch: Batch) -> str:
        return self._cache_keys[self._sends_snapshots(batch)]

    def _is_withheld(self, batch: Batch) -> bool:
        """Return True if this reader gets nothing of the batch: it accepts events of runs only."""
        return self._strict and not batch.run

    def _withdrawn_from(self, batch: Batch) -> WithdrawnContent | None:
        """Return the content to leave out if some of it may be in this batch. Batches after it are live."""
        if self._withdrawn is None or batch.owner != RUNTIME or batch.first > self._withdrawn.until:
            return None
        return self._withdrawn

    def _render_without_withdrawn(
        self, batch: Batch, contexts: Mapping[int, FrameContext], withdrawn: WithdrawnContent
    ) -> bytes:
        """Return the batch's frames without the withdrawn content, for this reader alone."""
        corrected = {seq: context.corrected_by(withdrawn) for seq, context in contexts.items()}
        calls = self._read_calls(batch, corrected, withdrawn.ids)
        frames: list[bytes] = []
        for seq, line in enumerate(batch.lines, batch.first):
            rest = withdrawn.strip_line(line)
            frames.append(b"" if rest is None else self._render_entry(batch, rest, seq, corrected, calls))
            if self._start_events:
                events, self._start_events = self._start_events, ()
                frames.append(self.render_without_ids(events))
        return b"".join(frames)

    def _render_first_batch(self, batch: Batch, contexts: Mapping[int, FrameContext]) -> bytes:
        """Return the batch's frames with the start events after its first one. These frames are for this reader alone."""
        events, self._start_events = self._start_events, ()
        start, rest = (
            Batch(first=first, owner=batch.owner, kind=batch.kind, run=batch.run, ts=batch.ts, lines=lines)
            for first, lines in ((batch.first, batch.lines[:1]), (batch.first + 1, batch.lines[1:]))
        )
        return b"".join(
            [
                self._render_batch(start, contexts),
                self.render_without_ids(events),
                self._render_batch(rest, contexts),
            ]
        )

    def _render_batch(self, batch: Batch, contexts: Mapping[int, FrameContext]) -> bytes:
        if batch.owner != RUNTIME:
            return self._render_fact(batch, contexts)
        if self._sends_stored_lines(batch):
            return self._render_stored(batch, contexts)
        calls = self._read_calls(batch, contexts)
        own_indexes = [
            at for at, line in enumerate(batch.lines) if self._is_changed(line) or self._is_left_out(batch, line)
        ]
        return self._render_lines(batch, contexts, own_indexes, calls)

    def _sends_stored_lines(self, batch: Batch) -> bool:
        """Return True if no line of the batch changes for this reader, except snapshot markers."""
        if batch.text is not None or (self._profile is Profile.V1 and self._exposure is None):
            return True
        return not any(self._is_changed(line) for line in batch.lines)

    def _is_changed(self, line: bytes) -> bool:
        if line.startswith(_PLAIN_TEXT):
            return False
        is_projected = self._exposure is not None and needs_projection(line, self._exposure)
        return is_projected or needs_downgrade(line, self._profile)

    def _is_left_out(self, batch: Batch, line: bytes) -> bool:
        if line.startswith(_SNAPSHOT_PREFIX):
            return line != _FORK_MARKER and not self._sends_snapshots(batch)
        return is_private_line(line)

    def _read_calls(
        self, batch: Batch, contexts: Mapping[int, FrameContext], withdrawn_ids: Collection[str] = ()
    ) -> FindCall:
        return _find_nothing if self._exposure is None else self._calls.read_batch(batch, contexts, withdrawn_ids)

    def _project(self, event: Event, find_call: FindCall) -> list[Event]:
        return [event] if self._exposure is None else project_safe(event, self._exposure, find_call)

    def _render_stored(self, batch: Batch, contexts: Mapping[int, FrameContext]) -> bytes:
        """Return the stored lines in as few chunks as possible. Only snapshots and private entries are handled one by one."""
        # Nearly every batch has none, which one search in its frames shows; the end of a run has a snapshot, which is found before.
        if not contexts and _SNAPSHOT_MARKER not in batch.lines:
            frames = self._encode_lines(batch.lines, batch.first)
            if not may_contain_private(frames) and _SNAPSHOT_PREFIX not in frames:
                return frames
        # Without a call for each line: a replay leaves out the snapshot of every run, which is in a batch with many deltas.
        are_candidates = map(bytes.startswith, batch.lines, repeat(_LEFT_OUT_PREFIXES))
        candidates = compress(range(len(batch.lines)), are_candidates)
        left_out = {at for at in candidates if self._is_left_out(batch, batch.lines[at])}
        own_indexes = sorted(left_out.union(seq - batch.first for seq in contexts))
        return self._render_lines(batch, contexts, own_indexes, _find_nothing)

    def _render_lines(
        self, batch: Batch, contexts: Mapping[int, FrameContext], own_indexes: Sequence[int], find_call: FindCall
    ) -> bytes:
        """Return the lines at these indexes rendered one by one, and those between them as they are stored."""
        chunks: list[bytes] = []
        done = 0
        for at in own_indexes:
            chunks.append(self._encode_lines(batch.lines[done:at], batch.first + done))
            chunks.append(self._render_entry(batch, batch.lines[at], batch.first + at, contexts, find_call))
            done = at + 1
        chunks.append(self._encode_lines(batch.lines[done:], batch.first + done))
        return b"".join(chunks)

    def _encode_lines(self, lines: Sequence[bytes], first: int) -> bytes:
        if self._wire_format == "ndjson":
            return encode_ndjson(lines)
        return encode_sse(lines, first, self._epoch, self._event_lines)

    def _render_entry(
        self, batch: Batch, line: bytes, seq: int, contexts: Mapping[int, FrameContext], find_call: FindCall
    ) -> bytes:
        if self._is_left_out(batch, line):
            return b""
        if line in {_SNAPSHOT_MARKER, _FORK_MARKER} and seq in contexts:
            context = contexts[seq]
            projected = [
                event for snapshot in _snapshots_of(context) for event in self._project(snapshot, context.find_call)
            ]
            return self._encode_events([with_feedback(event, context.feedback) for event in projected], seq)
        if self._is_changed(line):
            return self._encode_events(self._project(decode_event(line), find_call), seq)
        return self._encode_lines([line], seq)

    def _is_shared(self, batch: Batch) -> bool:
        """Return True if every reader of this kind gets the same frames for this batch."""
        if self._profile is Profile.V1 or batch.owner != RUNTIME or batch.text is not None:
            return True
        return not any(depends_on_reader(line, self._profile) for line in batch.lines)

    def _render_fact(self, batch: Batch, contexts: Mapping[int, FrameContext]) -> bytes:
        frames: list[bytes] = []
        for seq, events in enumerate(project_facts(batch), batch.first):
            changed = contexts[seq].thread if seq in contexts else None
            frames.append(self._encode_events([*events, changed] if changed else events, seq))
        return b"".join(frames)

    def _encode_events(self, events: Iterable[Event], seq: int) -> bytes:
        return self._encode_entry(
            [_encode_bounded(out) for event in events for out in self._downgrader.feed(event)], seq
        )

    def _encode_entry(self, lines: Sequence[bytes], seq: int) -> bytes:
        """Return the frames of one entry. Only the last one has the `id`: a reader cut off before it gets the whole entry again."""
        if not lines or self._wire_format == "ndjson":
            return encode_ndjson(lines)
        return b"".join([encode_sse_without_id(line, self._event_lines) for line in lines[:-1]]) + self._encode_lines(
            lines[-1:], seq
        )


@lru_cache(maxsize=64)
def _cache_keys(kind: str) -> tuple[str, str]:
    """Return the keys of frames without and with snapshots. Shared: a server may have thousands of readers of one kind."""
    return f"{kind} False", f"{kind} True"


def snapshot_seqs(batch: Batch) -> list[int]:
    """Return the seqs of the entries that mark a MESSAGES_SNAPSHOT to be folded."""
    if batch.owner != RUNTIME:
        return []
    return sorted([*_marker_seqs(batch, _SNAPSHOT_MARKER), *_marker_seqs(batch, _FORK_MARKER)])


def is_fork_marker(line: bytes) -> bool:
    """Return True if a stored line is the marker of the snapshots that a fork begins with."""
    return line == _FORK_MARKER


def _marker_seqs(batch: Batch, marker: bytes) -> list[int]:
    if marker not in batch.lines:
        return []
    return [seq for seq, line in enumerate(batch.lines, batch.first) if line == marker]


def _snapshots_of(context: FrameContext) -> list[Event]:
    """Return the snapshot of a marker. That of a fork follows one of the copied messages (`FORK_MARKER`), and has `ambient:thread`."""
    timestamp = context.ts or None
    snapshot = MessagesSnapshot(messages=context.messages, timestamp=timestamp)
    if not context.added_ids:
        return [snapshot]
    copied = [message for message in context.messages if message.id not in context.added_ids]
    events: list[Event] = [MessagesSnapshot(messages=copied, timestamp=timestamp), snapshot]
    return [*events, context.thread] if context.thread else events


def _find_nothing(call_id: str) -> KnownCall:
    return UNKNOWN_CALL


def _encode_bounded(event: Event) -> bytes:
    line = encode_event(event)
    if isinstance(event, MessagesSnapshot) and len(line) > MAX_SNAPSHOT_BYTES:
        value = {"bytes": len(line), "limit": MAX_SNAPSHOT_BYTES}
        return encode_event(Custom(name="ambient:snapshot_skipped", value=value, timestamp=event.timestamp))
    return line
