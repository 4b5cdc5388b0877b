"""The soak counts what is wrong: each kind of loss that it should find, in a thread made by hand."""

from __future__ import annotations

import pytest

from tests.e2e.sse import Frame

from .records import Receipt, ThreadRecord
from .report import describe_recoveries, measure_growth
from .servers import Sample

STARTED = '{"type":"RUN_STARTED"}'
FINISHED = '{"type":"RUN_FINISHED"}'
GAP = '{"type":"CUSTOM","name":"ambient:gap","value":{"after":1,"before":4}}'


def frame(seq: int, data: str) -> Frame:
    cursor = f"epoch.{seq}" if seq else ""
    raw = f"id: {cursor}\ndata: {data}\n\n" if cursor else f"data: {data}\n\n"
    return Frame(cursor, data.encode(), raw.encode())


def number(seq: int, value: int) -> Frame:
    return frame(seq, f'{{"type":"TEXT_MESSAGE_CONTENT","delta":"{value} "}}')


RUN = [frame(1, STARTED), number(2, 1), number(3, 2), number(4, 3), frame(5, FINISHED)]


def record_of(*lists: list[Frame], sent: int = 1) -> ThreadRecord:
    """A thread that followers read to its end, each with one of the lists."""
    record = ThreadRecord("thread", sent=sent)
    for frames in lists:
        receipt = Receipt(is_follower=True, has_finished=True)
        record.receipts.append(receipt)
        for received_frame in frames:
            record.add(receipt, received_frame)
    return record


@pytest.mark.parametrize(
    ("received", "wrong"),
    [
        (RUN, {}),
        ([*RUN[:2], *RUN[3:]], {"lost": 1}),
        (RUN[:4], {"lost": 1}),
        (RUN[1:], {"lost": 1}),
        ([*RUN[:3], *RUN[2:]], {"twice": 1}),
        ([*RUN[:2], RUN[3], RUN[2], RUN[4]], {"out of order": 1, "lost": 1}),
        ([*RUN[:2], number(3, 9), *RUN[3:]], {"altered": 1}),
        ([frame(0, GAP), RUN[0], RUN[4]], {}),
        ([frame(0, GAP), RUN[0]], {"lost": 1}),
    ],
)
def test_what_a_client_did_not_get_as_others_did_is_counted(received: list[Frame], wrong: dict[str, int]) -> None:
    assert record_of(RUN, received).count_faults() == wrong


@pytest.mark.parametrize(
    ("frames", "sent", "wrong"),
    [
        ([*RUN[:2], *RUN[3:]], 1, {"lost": 1}),
        (RUN[:4], 1, {"without a terminal event": 1}),
        ([*RUN, frame(6, FINISHED)], 1, {"second terminal event": 1}),
        ([*RUN, frame(6, STARTED), frame(7, FINISHED)], 1, {"runs twice": 1}),
        (RUN, 2, {"runs missing": 1}),
        ([frame(0, GAP), RUN[0], RUN[4]], 1, {}),
    ],
)
def test_what_no_client_got_is_counted_too(frames: list[Frame], sent: int, wrong: dict[str, int]) -> None:
    """A number that is missing in every list, a run without an end or with two, a message that ran twice."""
    assert record_of(frames, frames, sent=sent).count_faults() == wrong


def test_a_client_that_read_a_part_lost_nothing_after_it() -> None:
    record = record_of(RUN)
    part = Receipt()
    record.receipts.append(part)
    for received_frame in RUN[1:3]:
        record.add(part, received_frame)
    assert not record.count_faults()


@pytest.mark.parametrize(("is_erased", "wrong"), [(True, {}), (False, {"altered": 1, "twice": 1})])
def test_a_thread_that_begins_again_after_its_deletion_is_another_thread(
    is_erased: bool, wrong: dict[str, int]
) -> None:
    """A server whose event loop was blocked answered a request after another server had deleted the thread."""
    record = record_of(RUN)
    record.is_erased = is_erased
    record.add(record.receipts[0], Frame("other.1", STARTED.encode(), f"id: other.1\ndata: {STARTED}\n\n".encode()))
    assert record.count_faults() == wrong


def test_growth_is_that_of_the_process_that_lived_longest() -> None:
    samples = [Sample(1, float(at), (100 << 20) + at * (1 << 20), 20) for at in range(60)]
    growth = measure_growth([*samples, Sample(2, 99.0, 1, 1)])
    assert growth is not None
    assert (round(growth.rss_per_minute), growth.descriptors_per_minute) == (60, 0.0)
    assert measure_growth(samples[:5]) is None


def test_recovery_times_are_reported_as_percentiles() -> None:
    assert describe_recoveries([1.0, 2.0, 3.0]) == "p50 2.00 s, p99 2.98 s (3 runs)"
    assert describe_recoveries([]) == "0 runs"
