from __future__ import annotations

from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.replay_snapshots import first_of_newest_ended_run

STARTED = b'{"type":"RUN_STARTED"}'
FINISHED = b'{"type":"RUN_FINISHED"}'


def fact(first: int, run: str) -> Batch:
    return Batch(first=first, owner="ambient.run", kind="input", run=run, ts=0, lines=[b"{}"])


def events(first: int, run: str, *lines: bytes) -> Batch:
    return Batch(first=first, owner=RUNTIME, kind="", run=run, ts=0, lines=lines)


def test_the_newest_run_that_has_ended_begins_with_its_input() -> None:
    ended = [fact(1, "a"), events(2, "a", STARTED, FINISHED), fact(4, ""), fact(5, "b"), events(6, "b", STARTED)]
    assert first_of_newest_ended_run([*ended, events(7, "b", FINISHED), fact(8, "")]) == 5
    assert first_of_newest_ended_run([*ended, events(7, "b", FINISHED), fact(8, "c"), events(9, "c", STARTED)]) == 5
    assert first_of_newest_ended_run(ended) == 1


def test_batches_without_the_end_of_a_run_have_none() -> None:
    assert first_of_newest_ended_run([fact(1, "a"), events(2, "a", STARTED)]) == 0
    assert first_of_newest_ended_run([fact(1, "")]) == 0
