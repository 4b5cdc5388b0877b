from __future__ import annotations

import pytest

from ambient_runner.ledger.records import RunInfo, ThreadInfo
from ambient_runner.projections.thread_event import ThreadIdentity, thread_event
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    RunFinished,
    RunStarted,
    StateSnapshot,
    Success,
)
from ambient_runner.runs.connect import connect_events, is_run_active, seq_before_active_run
from tests.projections.test_thread_view import HELLO, Thread, called, ended, started
from tests.world import KEY

INFO = ThreadInfo(key=KEY, agent="demo", epoch="epoch", created=1, updated=9, first=1, last=20)
THREAD = ThreadIdentity.of_info(INFO)


def run(first: int, last: int) -> RunInfo:
    return RunInfo(key="k", thread=KEY, run_id="r", first=first, last=last)


@pytest.mark.parametrize(
    ("newest", "is_active", "seq"),
    [
        (None, False, 20),
        (run(11, 20), False, 20),
        (run(11, 18), False, 20),
        (run(11, 0), True, 10),
        (run(1, 0), True, 0),
        (run(11, 25), True, 10),
    ],
    ids=["no run", "ended", "facts after it", "active", "first run", "ended after the thread was read"],
)
def test_a_connect_stands_for_the_newest_entry_or_the_one_before_the_active_run(
    newest: RunInfo | None, is_active: bool, seq: int
) -> None:
    assert (is_run_active(INFO, newest), seq_before_active_run(INFO, newest)) == (is_active, seq)


def test_a_thread_without_entries_is_an_empty_run() -> None:
    view = ThreadView()
    assert connect_events(THREAD, "epoch", view, ()) == [
        RunStarted(thread_id="t", run_id="connect-epoch.0", protocol_version="1.0"),
        MessagesSnapshot(messages=[]),
        StateSnapshot(snapshot={}),
        thread_event(THREAD, view),
        RunFinished(thread_id="t", run_id="connect-epoch.0"),
    ]


def test_hidden_state_is_not_part_of_it() -> None:
    state = StateSnapshot(snapshot={"shown": 1, "secret": 2})
    view = Thread().events("k", started(HELLO), state, *ended()).view()
    assert connect_events(THREAD, "epoch", view, {"secret"})[2] == StateSnapshot(snapshot={"shown": 1})


def test_everything_that_waits_for_an_answer_is_the_outcome() -> None:
    questions = [Interrupt(id="i1", reason="confirmation"), Interrupt(id="i2", reason="input_required")]
    asked = Thread().events("k", started(HELLO), *ended(Interrupted(interrupts=questions))).view()
    waiting = Success(pending_tool_call_ids=["c1"])
    called_page = Thread().events("k", started(HELLO), *called("c1", "{}"), *ended(waiting)).view()
    ends = [connect_events(THREAD, "epoch", view, ())[-1] for view in (asked, called_page)]
    assert [end.outcome for end in ends if isinstance(end, RunFinished)] == [Interrupted(interrupts=questions), waiting]
