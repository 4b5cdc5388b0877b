"""The queue of a commit thread, and how its work is grouped and failed."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, cast

from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.buffered_writer import Append
from ambient_runner.ledger.commit_jobs import CommitJob, fail_work
from ambient_runner.ledger.commit_thread import CommitQueue, group_work

if TYPE_CHECKING:
    from ambient_runner.ledger.buffered_writer import BufferedWriter
    from ambient_runner.ledger.commit_jobs import CommitWork


class _Writer:
    def __init__(self, token: int) -> None:
        self.token = token


_WRITERS = [cast("BufferedWriter", _Writer(token)) for token in range(1, 4)]


def _append(writer: int, line: bytes) -> Append:
    return Append(_WRITERS[writer], [line], len(line), None, [line], None)


def _job(*, must_succeed: bool = False) -> CommitJob:
    return CommitJob(lambda _: None, cast("asyncio.Future[None]", None), must_succeed)


@given(st.lists(st.integers(0, 3), max_size=20))
def test_groups_keep_the_order_of_each_writer_and_of_the_jobs_between(kinds: list[int]) -> None:
    work: list[CommitWork] = [
        _append(kind, b"%d" % number) if kind < len(_WRITERS) else _job() for number, kind in enumerate(kinds)
    ]
    expected: list[object] = []
    for is_job, items in groupby(work, lambda item: isinstance(item, CommitJob)):
        if is_job:
            expected += items
            continue
        lines: dict[int, list[bytes]] = {}
        for item in cast("list[Append]", list(items)):
            lines.setdefault(item.writer.token, []).extend(item.lines)
        expected.append({token: (found, found) for token, found in lines.items()})
    found = [
        group if isinstance(group, CommitJob) else {each.writer.token: (each.lines, each.events) for each in group}
        for group in group_work(work)
    ]
    assert found == expected


def test_a_queue_gives_everything_that_was_submitted_in_order() -> None:
    queue = CommitQueue()
    first, job, last = _append(0, b"a"), _job(), _append(1, b"b")
    queue.submit([first])
    queue.wake()
    queue.submit(job)
    queue.submit([last])
    assert queue.wait_for_work(0) == [first, job, last]
    assert queue.is_empty()
    assert queue.wait_for_work(0) == []


def test_a_failed_transaction_answers_every_caller_and_keeps_what_must_succeed() -> None:
    error = LedgerError()
    append, job, release = _append(0, b"a"), _job(), _job(must_succeed=True)
    outcome, held = fail_work([append, job, release], error, None, keep_appends=False)
    assert outcome.refused == [(append, error)]
    assert outcome.answers == [(job, None, error), (release, None, None)]
    assert held == [release]


def test_a_failed_transaction_keeps_its_appends_while_the_store_may_recover() -> None:
    append, release = _append(0, b"a"), _job(must_succeed=True)
    outcome, held = fail_work([append, release], LedgerError(), None, keep_appends=True)
    assert outcome.refused == []
    assert held == [append, release]
