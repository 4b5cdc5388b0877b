"""The entries of a thread as an audience sees them, one JSON object each: `ambient threads export`."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.cli.text_format import escape_json_source
from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.frames import Framer, is_fork_marker, snapshot_seqs
from ambient_runner.projections.private_entries import is_private_line
from ambient_runner.projections.projectors import project_facts
from ambient_runner.projections.thread_view import FORKED, THREAD_OWNER
from ambient_runner.projections.withdrawn import WithdrawnContent
from ambient_runner.protocol.events import type_of_line
from ambient_runner.runs.event_reader import read_stored_batches
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo
    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.thread_view import ThreadView

__all__ = ["entry_kind", "open_entry_lines", "public_entries", "safe_entry_lines"]


async def open_entry_lines(ledger: Ledger, info: ThreadInfo) -> AsyncGenerator[tuple[int, str], None]:
    """Yield one JSON object per entry that clients may receive, as it is stored, with its seq; also the copy that a fork begins with.

    Raises: as `read_stored_batches`.
    """
    async with aclosing(read_stored_batches(ledger, info.key, info.first - 1, epoch=info.epoch)) as batches:
        async for batch in batches:
            is_copy = (batch.owner, batch.kind) == (THREAD_OWNER, FORKED)
            for seq, line in enumerate(batch.lines, batch.first) if is_copy else public_entries(batch):
                yield seq, _format_entry(batch, seq, line)


async def safe_entry_lines(
    ledger: Ledger, info: ThreadInfo, rules: ExposureRules
) -> AsyncGenerator[tuple[int, str], None]:
    """Yield one JSON object per event that clients of the audience `safe` receive, with its seq.

    Snapshots stay folded, except those that a fork begins with: no other event has their messages. Raises: as `read_stored_batches`.
    """
    withdrawn = WithdrawnContent.of_view(await load_view(ledger, info.key))
    framer = Framer(info.epoch, wire_format="ndjson", exposure=rules, withdrawn=withdrawn)
    view = await load_view(ledger, info.key, until=info.first - 1)
    async with aclosing(read_stored_batches(ledger, info.key, info.first - 1, epoch=info.epoch)) as batches:
        async for batch in batches:
            for entry in _split_entries(batch):
                for line in _render_entry(framer, view, entry).splitlines():
                    yield entry.first, _format_entry(entry, entry.first, line)


def _split_entries(batch: Batch) -> Iterator[Batch]:
    for seq, line in enumerate(batch.lines, batch.first):
        yield Batch(first=seq, owner=batch.owner, kind=batch.kind, run=batch.run, ts=batch.ts, lines=[line])


def _render_entry(framer: Framer, view: ThreadView, entry: Batch) -> bytes:
    view.apply(entry)
    if snapshot_seqs(entry) and not is_fork_marker(entry.lines[0]):
        return entry.lines[0]
    return framer.render(entry, {seq: framer.read_view(entry, seq, view) for seq in framer.view_seqs(entry)})


def public_entries(batch: Batch) -> Iterator[tuple[int, bytes]]:
    """Return the entries with their seqs, without private entries of adapters and facts that clients never receive."""
    entries = enumerate(batch.lines, batch.first)
    if batch.owner == RUNTIME:
        return ((seq, line) for seq, line in entries if not is_private_line(line))
    return (entry for entry, events in zip(entries, project_facts(batch), strict=False) if events)


def entry_kind(batch: Batch, line: bytes) -> str:
    """Return the type of an event, or the kind of a fact."""
    return type_of_line(line) if batch.owner == RUNTIME else batch.kind


def _format_entry(batch: Batch, seq: int, line: bytes) -> str:
    """Return an entry as one JSON object. The body is the given line."""
    head: dict[str, Any] = {"seq": seq, "ts": batch.ts, "owner": batch.owner, "kind": entry_kind(batch, line)}
    return f'{json.dumps(head)[:-1]}, "body": {escape_json_source(line.decode())}}}'
