"""Frames: what a client gets, derived from stored entries and never written back.

Most entries go out as the bytes that are stored. The snapshot's place is filled in, older clients get their profile, and facts of other
owners pass only through the projector of their owner: an owner without one is invisible. So is what an adapter keeps (`kept.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ambient_runner.ledger.base import RUNTIME
from ambient_runner.projections.private_entries import is_kept_line, may_hold_kept
from ambient_runner.projections.thread_view import PATCHED, STATE_OWNER
from ambient_runner.protocol.encode import ndjson, sse, sse_bare
from ambient_runner.protocol.events import (
    OURS,
    Custom,
    MessagesSnapshot,
    StateDelta,
    decode_event,
    encode_event,
    kind_of,
)
from ambient_runner.protocol.profiles import Downgrader, Profile, needs_downgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ambient_runner.ledger.base import Batch
    from ambient_runner.protocol.events import Event

__all__ = [
    "FEEDBACK_OWNER",
    "MAX_SNAPSHOT",
    "REPOS_OWNER",
    "WORKFLOW_OWNER",
    "Form",
    "Framer",
    "custom_of",
    "snapshot_places",
]

Form = Literal["sse", "ndjson"]

REPOS_OWNER, WORKFLOW_OWNER, FEEDBACK_OWNER = "ambient.repos", "ambient.workflow", "ambient.feedback"
"""What happens around the runs. Clients see it as `custom_of` says; the conversation does not depend on it."""

MAX_SNAPSHOT = 8 << 20
_MARKER = encode_event(MessagesSnapshot(messages=[]))


class Framer:
    """Turns batches into bytes for one reader. What does not depend on the reader is kept on the batch and shared."""

    def __init__(
        self,
        epoch: str,
        profile: Profile = Profile.V1,
        *,
        form: Form = "sse",
        event_lines: bool = False,
        strict: bool = False,
    ) -> None:
        self._epoch = epoch
        self._profile = profile
        self._form: Form = form
        self._event_lines = event_lines
        self._strict = strict
        self._downgrader = Downgrader(profile)
        self._shared = "" if profile is Profile.V0_OLD else f"{profile.value} {form} {event_lines}"

    def render(self, batch: Batch, snapshots: Mapping[int, MessagesSnapshot]) -> bytes:
        """The batch's frames. `snapshots` holds the folded messages for every seq of `snapshot_places(batch)`."""
        if self._strict and not batch.run:
            return b""
        if self._shared and self._shared in batch.derived:
            return batch.derived[self._shared]
        frames = self._frames(batch, snapshots)
        if self._shared:
            batch.derived[self._shared] = frames
        return frames

    def prepare(self, batch: Batch) -> None:
        """Have the frames ready that do not depend on the reader. Others are made once, in their turn."""
        if self._shared and not snapshot_places(batch):
            self.render(batch, {})

    @property
    def form(self) -> Form:
        return self._form

    def is_shared(self, batch: Batch) -> bool:
        """Whether another reader has already rendered this batch."""
        return self._shared in batch.derived

    def bare(self, events: Iterable[Event]) -> bytes:
        """Frames made for this reader alone: they carry no `id`."""
        lines = [encode_event(out) for event in events for out in self._downgrader.feed(event)]
        if self._form == "ndjson":
            return ndjson(lines)
        return b"".join([sse_bare(line, self._event_lines) for line in lines])

    def _frames(self, batch: Batch, snapshots: Mapping[int, MessagesSnapshot]) -> bytes:
        if batch.owner != RUNTIME:
            return self._projected(batch)
        if self._profile is Profile.V1:
            return self._mostly_plain(batch, snapshots)
        return b"".join([self._entry(line, seq, snapshots) for seq, line in enumerate(batch.lines, batch.first)])

    def _mostly_plain(self, batch: Batch, snapshots: Mapping[int, MessagesSnapshot]) -> bytes:
        """Everything as it is stored, in as few pieces as possible: only snapshots and what is kept are rendered one by one."""
        if not snapshots:
            frames = self._plain(batch.lines, batch.first)
            if not may_hold_kept(frames):
                return frames
        pieces: list[bytes] = []
        done = 0
        for at, line in enumerate(batch.lines):
            if batch.first + at in snapshots or is_kept_line(line):
                pieces.append(self._plain(batch.lines[done:at], batch.first + done))
                pieces.append(self._entry(line, batch.first + at, snapshots))
                done = at + 1
        pieces.append(self._plain(batch.lines[done:], batch.first + done))
        return b"".join(pieces)

    def _plain(self, lines: Sequence[bytes], first: int) -> bytes:
        if self._form == "ndjson":
            return ndjson(lines)
        return sse(lines, first, self._epoch, self._event_lines)

    def _entry(self, line: bytes, seq: int, snapshots: Mapping[int, MessagesSnapshot]) -> bytes:
        if is_kept_line(line):
            return b""
        if seq in snapshots:
            return self._events([snapshots[seq]], seq)
        if needs_downgrade(kind_of(line), self._profile):
            return self._events([decode_event(line)], seq)
        return self._plain([line], seq)

    def _projected(self, batch: Batch) -> bytes:
        project = _PROJECTORS.get(batch.owner)
        if project is None:
            return b""
        return b"".join(
            [self._events(project(batch.kind, line), seq) for seq, line in enumerate(batch.lines, batch.first)]
        )

    def _events(self, events: Iterable[Event], seq: int) -> bytes:
        """Only the last frame of an entry carries its `id`: a reader cut before it gets the whole entry again."""
        lines = [_bounded(out) for event in events for out in self._downgrader.feed(event)]
        if not lines or self._form == "ndjson":
            return ndjson(lines)
        return b"".join([sse_bare(line, self._event_lines) for line in lines[:-1]]) + self._plain(lines[-1:], seq)


def snapshot_places(batch: Batch) -> list[int]:
    """The entries that stand for a MESSAGES_SNAPSHOT to be folded."""
    if _MARKER not in batch.lines or batch.owner != RUNTIME:
        return []
    return [seq for seq, line in enumerate(batch.lines, batch.first) if line == _MARKER]


def _bounded(event: Event) -> bytes:
    line = encode_event(event)
    if isinstance(event, MessagesSnapshot) and len(line) > MAX_SNAPSHOT:
        return encode_event(Custom(name="ambient:snapshot_skipped", value={"bytes": len(line), "limit": MAX_SNAPSHOT}))
    return line


def _project_state(kind: str, body: bytes) -> list[Event]:
    fact = msgspec.json.decode(body)
    return [StateDelta(delta=fact["patch"])] if kind == PATCHED else []


def custom_of(kind: str, value: Any) -> Custom:
    """A fact of the platform as clients see it: a CUSTOM event of the same name."""
    return Custom(name=f"{OURS}{kind}", value=value)


def _project_platform(kind: str, body: bytes) -> list[Event]:
    return [custom_of(kind, msgspec.json.decode(body))]


_PROJECTORS: dict[str, Callable[[str, bytes], list[Event]]] = {
    STATE_OWNER: _project_state,
    REPOS_OWNER: _project_platform,
    WORKFLOW_OWNER: _project_platform,
    FEEDBACK_OWNER: _project_platform,
}
