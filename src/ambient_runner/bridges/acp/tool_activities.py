"""Activities that show a tool call while it works: its status, its files, the end of its output, and the changes of files it makes. Pure.

A call has at most two: `acp.tool`, and `acp.diff` if it changes files. The first event about an activity in a run is a snapshot, the others
are patches. Output is shown in whole lines, since a secret that is cut in two is not redacted, and removed when the call has its result.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.protocol.events import ActivityDelta, ActivitySnapshot
from ambient_runner.protocol.json_pointer import format_pointer

if TYPE_CHECKING:
    from ambient_runner.bridges.acp.tool_records import ToolCallRecord
    from ambient_runner.protocol.events import Event, JsonPatch

__all__ = ["DIFF_ACTIVITY", "TOOL_ACTIVITY", "ShownActivity", "StreamedOutput", "ToolActivities"]

TOOL_ACTIVITY = "acp.tool"
DIFF_ACTIVITY = "acp.diff"
_OUTPUT = "output"

_MAX_SHOWN_CHARS = 16 << 10
_MAX_SHOWN_CHUNKS = 100
_MAX_LINE_CHARS = 4 << 10
"""Characters of an unfinished line that are held back."""
_HEAD_CHARS = 96 << 10
_TAIL_CHARS = 32 << 10


class StreamedOutput:
    """The output of a running call. `chunks` are its last whole lines, for the activity; `text` is its beginning and its end."""

    def __init__(self) -> None:
        self.chunks: deque[str] = deque()
        self.added_count = 0
        """Number of chunks that were added so far. The oldest ones are removed again."""
        self._shown_chars = 0
        self._unfinished_line = ""
        self._whole_text = ""
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_chars = self._tail_chars = self._left_out_chars = 0

    @property
    def text(self) -> str:
        gap = [f"\n[{self._left_out_chars} characters are left out here]\n"] if self._left_out_chars else []
        return "".join([*self._head, *gap, *self._tail])

    def append(self, text: str) -> None:
        """Add what a terminal has printed."""
        room = max(_HEAD_CHARS - self._head_chars, 0)
        head, tail = text[:room], text[room:]
        self._head_chars += len(head)
        self._head.append(head)
        self._append_tail(tail)
        self._show(text)

    def update_whole(self, text: str) -> None:
        """Replace the whole output by a newer one, which usually continues it. It is only shown: the result has it anyway."""
        if text.startswith(self._whole_text):
            self._show(text[len(self._whole_text) :])
        else:
            self.added_count += len(self.chunks) + 1  # More than are kept, so the activity begins again.
            self.chunks.clear()
            self._shown_chars, self._unfinished_line = 0, ""
            self._show(text)
        self._whole_text = text

    def _append_tail(self, text: str) -> None:
        if not text:
            return
        self._tail.append(text)
        self._tail_chars += len(text)
        while self._tail_chars - len(self._tail[0]) >= _TAIL_CHARS:
            self._drop_from_tail(len(self._tail.popleft()))
        excess = self._tail_chars - _TAIL_CHARS
        if excess > _TAIL_CHARS:
            self._tail[0] = self._tail[0][excess:]
            self._drop_from_tail(excess)

    def _drop_from_tail(self, chars: int) -> None:
        self._tail_chars -= chars
        self._left_out_chars += chars

    def _show(self, text: str) -> None:
        """Add the whole lines to the shown chunks, and remove the oldest ones."""
        pending = self._unfinished_line + text
        end = max(pending.rfind("\n"), pending.rfind("\r")) + 1
        if len(pending) - end > _MAX_LINE_CHARS:
            end = len(pending)
        chunk, self._unfinished_line = pending[:end][-_MAX_SHOWN_CHARS:], pending[end:]
        if not chunk:
            return
        self.chunks.append(chunk)
        self.added_count += 1
        self._shown_chars += len(chunk)
        while self._shown_chars > _MAX_SHOWN_CHARS or len(self.chunks) > _MAX_SHOWN_CHUNKS:
            self._shown_chars -= len(self.chunks.popleft())


@dataclass(frozen=True, slots=True)
class ShownActivity:
    """The part of a call's activity that clients have: its members, and the chunks of output by their numbers."""

    members: dict[str, Any] = field(default_factory=dict[str, Any])
    first_chunk: int = 0
    next_chunk: int = 0

    @property
    def has_output(self) -> bool:
        return self.next_chunk > self.first_chunk


class ToolActivities:
    """The activities of one run. `update` is called after every change of a call."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        """Client ids of the calls whose activity has had a snapshot in this run."""

    def update(self, record: ToolCallRecord) -> list[Event]:
        """Return the events that show what has changed; nothing while the call has only begun."""
        if record.is_client_tool:
            return []
        return [*self._update_tool(record), *self._update_diffs(record)]

    def _update_tool(self, record: ToolCallRecord) -> list[Event]:
        chunks = [] if record.is_answered else list(record.output.chunks)
        next_chunk = record.output.added_count
        old, new = record.shown, ShownActivity(_members(record), next_chunk - len(chunks), next_chunk)
        if (
            old.members == new.members
            and (not chunks or old.next_chunk == next_chunk)
            and old.has_output == bool(chunks)
        ):
            return []
        if not old.members and not chunks and not _is_worth_showing(record):
            return []
        record.shown = new
        if record.client_id in self._ids:
            patch = [*_member_patch(old.members, new.members), *_chunk_patch(old, new, chunks)]
            return [_delta(record, patch)] if patch else []
        self._ids.add(record.client_id)
        return [_snapshot(record, TOOL_ACTIVITY, {**new.members, **({_OUTPUT: chunks} if chunks else {})})]

    def _update_diffs(self, record: ToolCallRecord) -> list[Event]:
        if record.diffs == record.shown_diffs:
            return []
        record.shown_diffs = record.diffs
        return [_snapshot(record, DIFF_ACTIVITY, {"toolCallId": record.client_id, "diffs": record.diffs})]


def _members(record: ToolCallRecord) -> dict[str, Any]:
    """Return the content of the activity without the output. `label` is the agent's title of the call, which may be a whole command."""
    members = {
        "toolCallId": record.client_id,
        "name": record.name,
        "label": record.title,
        "kind": record.kind,
        "status": record.status,
        "locations": record.locations,
        "exitCode": record.exit_code,
        "progress": record.progress,
    }
    return {name: value for name, value in members.items() if value not in (None, "", [])}


def _is_worth_showing(record: ToolCallRecord) -> bool:
    """Return True if there is more to show than the start of the call has."""
    return bool(record.status != "pending" or record.locations or record.progress) or record.title != record.start_title


def _member_patch(old: dict[str, Any], new: dict[str, Any]) -> JsonPatch:
    removed = [{"op": "remove", "path": format_pointer(name)} for name in old if name not in new]
    changed = {name: value for name, value in new.items() if name not in old or old[name] != value}
    return [*removed, *({"op": "add", "path": format_pointer(name), "value": item} for name, item in changed.items())]


def _chunk_patch(old: ShownActivity, new: ShownActivity, chunks: list[str]) -> JsonPatch:
    """Return the change from the shown chunks of output to these."""
    if not chunks:
        return [{"op": "remove", "path": f"/{_OUTPUT}"}] if old.has_output else []
    if not old.has_output or new.first_chunk > old.next_chunk:
        return [{"op": "add", "path": f"/{_OUTPUT}", "value": chunks}]
    added = chunks[old.next_chunk - new.first_chunk :]
    return [
        *({"op": "remove", "path": f"/{_OUTPUT}/0"} for _ in range(new.first_chunk - old.first_chunk)),
        *({"op": "add", "path": f"/{_OUTPUT}/-", "value": chunk} for chunk in added),
    ]


def _snapshot(record: ToolCallRecord, activity_type: str, content: dict[str, Any]) -> Event:
    return ActivitySnapshot(
        message_id=f"{activity_type.replace('.', '-')}-{record.client_id}",
        activity_type=activity_type,
        content=content,
        subagent_run_id=record.subagent_id,
    )


def _delta(record: ToolCallRecord, patch: JsonPatch) -> Event:
    return ActivityDelta(
        message_id=f"{TOOL_ACTIVITY.replace('.', '-')}-{record.client_id}",
        activity_type=TOOL_ACTIVITY,
        patch=patch,
        subagent_run_id=record.subagent_id,
    )
