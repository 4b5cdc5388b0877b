"""The entries of a thread as the audience `safe` sees them, for `ambient threads export`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.frames import Framer, snapshot_seqs
from ambient_runner.projections.withdrawn import WithdrawnContent
from ambient_runner.protocol.events import type_of_line
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo
    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.thread_view import ThreadView

__all__ = ["safe_entry_lines"]


async def safe_entry_lines(
    ledger: Ledger, info: ThreadInfo, rules: ExposureRules
) -> AsyncGenerator[tuple[int, str], None]:
    """Yield one JSON object per event that clients of the audience `safe` receive, with its seq, all in ASCII. Snapshots stay folded."""
    withdrawn = WithdrawnContent.of_view(await load_view(ledger, info.key))
    framer = Framer(info.epoch, wire_format="ndjson", exposure=rules, withdrawn=withdrawn)
    view = await load_view(ledger, info.key, until=info.first - 1)
    position = info.first - 1
    while batches := await ledger.read_batches(info.key, position):
        for batch in batches:
            for entry in _split_entries(batch):
                for line in _render_entry(framer, view, entry).splitlines():
                    yield entry.first, _format_entry(entry, line)
        position = batches[-1].last


def _split_entries(batch: Batch) -> Iterator[Batch]:
    for seq, line in enumerate(batch.lines, batch.first):
        yield Batch(first=seq, owner=batch.owner, kind=batch.kind, run=batch.run, ts=batch.ts, lines=[line])


def _render_entry(framer: Framer, view: ThreadView, entry: Batch) -> bytes:
    view.apply(entry)
    if snapshot_seqs(entry):
        return entry.lines[0]
    return framer.render(entry, {seq: framer.read_view(entry, seq, view) for seq in framer.view_seqs(entry)})


def _format_entry(entry: Batch, line: bytes) -> str:
    kind = type_of_line(line) if entry.owner == RUNTIME else entry.kind
    body: dict[str, Any] = {"seq": entry.first, "ts": entry.ts, "owner": entry.owner, "kind": kind}
    return json.dumps({**body, "body": json.loads(line)})
