"""When the writer submits what it has: at once if nothing of it is being committed, otherwise once the producer pauses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from ambient_runner.ledger import buffered_writer
from ambient_runner.ledger.buffered_writer import BufferedWriter
from ambient_runner.ledger.flush_scheduler import FlushScheduler
from ambient_runner.ledger.records import Encoded, ThreadKey

if TYPE_CHECKING:
    from ambient_runner.ledger.buffered_writer import Append, WriterBackend


def writer_of(submitted: list[list[bytes]], appends: list[Append] | None = None) -> BufferedWriter:
    def submit(submitted_now: list[Append]) -> None:
        submitted.extend(append.lines for append in submitted_now)
        if appends is not None:
            appends.extend(submitted_now)

    return writer_with(FlushScheduler(submit))


def writer_with(scheduler: FlushScheduler) -> BufferedWriter:
    return BufferedWriter(
        cast("WriterBackend", None),
        scheduler,
        thread=ThreadKey("", "local", "t"),
        run="r",
        epoch="epoch",
        token=1,
        last=0,
        has_begun=True,
        has_ended=False,
    )


async def test_the_entries_of_a_producer_that_awaits_after_each_collect_while_a_batch_is_committed() -> None:
    submitted: list[list[bytes]] = []
    writer = writer_of(submitted)
    for number in range(12):
        writer.append(b"%d" % number)
        await asyncio.sleep(0)
    assert submitted == [[b"0"]]
    writer.mark_committed(1, 1, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert submitted == [[b"0"], [b"%d" % number for number in range(1, 12)]]


async def test_what_is_submitted_has_the_known_events_in_place_of_their_lines() -> None:
    appends: list[Append] = []
    writer = writer_of([], appends)
    writer.append(b"1")
    writer.append_lazily(lambda: Encoded([b"2", b"3"], events=["two and three"]))
    writer.append_lazily(lambda: Encoded([b"4", b"5"]))
    writer.append(b"6")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [append.events for append in appends] == [[b"1", "two and three", b"4", b"5", b"6"]]


async def test_deferred_events_are_not_encoded_to_see_if_the_producer_goes_on() -> None:
    submitted: list[list[bytes]] = []
    writer = writer_of(submitted)
    pending: list[bytes] = []
    encoded: list[int] = []

    def encode() -> Encoded:
        encoded.append(len(pending))
        return Encoded(list(pending))

    writer.append(b"first")
    await asyncio.sleep(0)
    for number in range(10):
        pending.append(b"%d" % number)
        if number == 0:
            writer.append_lazily(encode, pending)
        await asyncio.sleep(0)
    assert encoded == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert encoded == [10]
    assert submitted == [[b"first"], pending]


@pytest.mark.parametrize(("producers", "largest"), [(1, 1024), (2, 512), (4, 256), (9, 256)])
async def test_the_batches_of_producers_that_do_not_pause_grow_and_share_a_limit(producers: int, largest: int) -> None:
    sizes: list[int] = []
    scheduler = FlushScheduler(lambda appends: sizes.extend(len(append.lines) for append in appends))
    writers = [writer_with(scheduler) for _ in range(producers)]
    for _ in range(20):
        for writer in writers:
            for _ in range(256):
                writer.append(b"line")
        await asyncio.sleep(0)
    assert sizes[: 3 * producers] == [256] * 3 * producers
    assert set(sizes[3 * producers :]) == {largest}


async def test_an_old_entry_is_submitted_although_its_producer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that works for long between its entries, and never pauses, kept its readers waiting until a batch was full."""
    monkeypatch.setattr(buffered_writer, "_MAX_BUFFERED_SECONDS", 0.0)
    submitted: list[list[bytes]] = []
    writer = writer_of(submitted)
    for number in range(3):
        writer.append(b"%d" % number)
        await asyncio.sleep(0)
    assert submitted == [[b"0"], [b"1"], [b"2"]]
