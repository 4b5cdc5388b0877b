"""Parts of batches, by seq and by size, and short ones joined: what stores and streams read, fold, retain and send at once. Pure."""

from __future__ import annotations

from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.ledger.records import join_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.ledger.records import Batch

__all__ = ["BATCH_OVERHEAD", "join_text_batches", "slice_batch", "split_batch", "take_batches"]

BATCH_OVERHEAD = 512
"""Bytes that a batch takes in memory besides its lines."""


def slice_batch(batch: Batch, first: int, last: int | None = None) -> Batch:
    """Return the part of a batch from `first` to `last`; the batch itself if that is all of it."""
    end = batch.last if last is None else min(last, batch.last)
    if first <= batch.first and end == batch.last:
        return batch
    start = max(first, batch.first)
    lines = batch.lines[start - batch.first : end - batch.first + 1]
    return replace(batch, first=start, lines=lines, text=None, events=(), derived={}, size=0)


def join_text_batches(batches: Sequence[Batch]) -> Batch | None:
    """Return consecutive batches of text as one, with the commit time of the last; None if they differ in message or run."""
    newest = batches[-1]
    texts = [batch.text for batch in batches if batch.text is not None and batch.run == newest.run]
    if len(texts) < len(batches) or len({text.message_id for text in texts}) > 1:
        return None
    lines = [line for batch in batches for line in batch.lines]
    return replace(newest, first=batches[0].first, lines=lines, text=join_texts(texts), events=(), derived={}, size=0)


def take_batches(batches: Iterable[Batch], limit: int) -> list[Batch]:
    """Return the first batches, `limit` bytes at most or one entry. Only the first one is sliced to fit: others would be read twice.

    What a batch itself takes counts too: a thread of single events has little else.
    """
    found: list[Batch] = []
    for batch in batches:
        size = batch.size + BATCH_OVERHEAD
        if size > limit:
            return found or [_first_entries(batch, limit)]
        found.append(batch)
        limit -= size
    return found


def split_batch(batch: Batch, limit: int) -> tuple[Batch, list[Batch]]:
    """Return the first part of a batch, of up to `limit` bytes or one entry, and the other ones."""
    parts: list[Batch] = []
    first, size = batch.first, 0
    for seq, line in enumerate(batch.lines, batch.first):
        if size and size + len(line) > limit:
            parts.append(slice_batch(batch, first, seq - 1))
            first, size = seq, 0
        size += len(line)
    parts.append(slice_batch(batch, first))
    return parts[0], parts[1:]


def _first_entries(batch: Batch, limit: int) -> Batch:
    sizes = accumulate(map(len, batch.lines))
    count = sum(1 for _ in takewhile(lambda size: size <= limit, sizes))
    return slice_batch(batch, batch.first, batch.first + max(count, 1) - 1)
