"""Parts of batches keep their seqs and respect the bytes that are asked for."""

from __future__ import annotations

from ambient_runner.ledger.batches import BATCH_OVERHEAD, slice_batch, split_batch, take_batches
from ambient_runner.ledger.records import RUNTIME, Batch, JoinedText


def batch(first: int, *lines: bytes) -> Batch:
    return Batch(first=first, owner=RUNTIME, kind="", run="run-1", ts=0, lines=list(lines))


def test_a_sliced_batch_keeps_its_seqs() -> None:
    whole = batch(5, b"a", b"bb", b"c")
    whole.text, whole.events = JoinedText("m", "abbc"), ["abbc"]
    part = slice_batch(whole, 6, 6)
    assert (part.first, part.last, part.lines, part.size, part.text, part.events) == (6, 6, [b"bb"], 2, None, ())
    assert slice_batch(whole, 1) is whole


def test_a_batch_is_split_into_parts_of_the_limit_or_one_entry() -> None:
    first, rest = split_batch(batch(5, b"a", b"b", b"long", b"c"), 2)
    assert [(part.first, part.lines) for part in (first, *rest)] == [(5, [b"a", b"b"]), (7, [b"long"]), (8, [b"c"])]


def test_whole_batches_are_taken_up_to_the_limit_and_the_first_one_is_sliced_to_fit() -> None:
    small, large = batch(1, b"a"), batch(2, b"b" * BATCH_OVERHEAD, b"c" * BATCH_OVERHEAD)
    assert take_batches([small, large], 2 * BATCH_OVERHEAD) == [small]
    (part,) = take_batches([large], BATCH_OVERHEAD)
    assert (part.first, part.last) == (2, 2)
