from __future__ import annotations

from ambient_runner.ledger.records import ThreadInfo
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import Custom, MessagesSnapshot, StateSnapshot
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.reattach import gap_events
from tests.world import KEY, user


def test_a_gap_is_a_small_run_that_contains_what_was_missed() -> None:
    view = ThreadView()
    view.apply_event("k", StateSnapshot(snapshot={"a": 1, "secret": 2}))
    view.apply_event("k", MessagesSnapshot(messages=[user("u1")]))
    info = ThreadInfo(key=KEY, agent="agent", epoch="e", created=0, updated=0, first=9, last=20)
    events = gap_events(info, 3, view, frozenset({"secret"}))
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    assert events[1:-1] == [
        Custom(name="ambient:gap", value={"after": 3, "before": 9}),
        MessagesSnapshot(messages=[user("u1")]),
        StateSnapshot(snapshot={"a": 1}),
    ]
