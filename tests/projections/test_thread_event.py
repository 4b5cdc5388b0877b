"""`ambient:thread` and the status of a thread, folded from its entries."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.projections.annotations import with_feedback
from ambient_runner.projections.thread_event import ThreadIdentity, thread_event
from ambient_runner.projections.thread_status import thread_status
from ambient_runner.projections.thread_view import (
    APPROVALS_OWNER,
    INPUT,
    INTERRUPTS_CANCELLED,
    LABELLED,
    REWOUND,
    RUN_OWNER,
    THREAD_OWNER,
    ThreadView,
)
from ambient_runner.protocol.events import (
    AssistantMessage,
    Cancelled,
    Event,
    Interrupted,
    MessagesSnapshot,
    RunError,
    RunFinished,
    Success,
    TokenUsage,
    ToolMessage,
    UserMessage,
)
from tests.projections.test_thread_view import ABOUT_CALL, HELLO, Thread, called, ended, started, text_events

THREAD = ThreadIdentity(id="t", agent="demo", created=1)
BYE = UserMessage(id="u2", content="bye")


def value_of(view: ThreadView) -> dict[str, Any]:
    event = thread_event(THREAD, view, 7)
    assert (event.name, event.timestamp) == ("ambient:thread", 7)
    return event.value


def stamped(thread: Thread) -> ThreadView:
    """The thread as of batches that were committed at 10, 20, …"""
    view = ThreadView()
    for at, batch in enumerate(thread.batches, 1):
        batch.ts = at * 10
        view.apply(batch)
    return view


def feedback(message: str | None, kind: str = "thumbs_up") -> dict[str, Any]:
    return {"metaType": kind, "recorded": False, **({"messageId": message} if message else {})}


def test_a_thread_is_described_with_its_last_run() -> None:
    usage = [TokenUsage(model="m", input_tokens=3)]
    end = RunFinished(thread_id="t", run_id="r2", usage=usage)
    thread = (
        Thread().events("k1", started(HELLO), *ended()).events("k2", started(BYE, run_id="r2"), *text_events("a", "x"))
    )
    assert value_of(stamped(thread.events("k2", end))) == {
        "threadId": "t",
        "agent": "demo",
        "title": "hi",
        "archived": False,
        "status": "finished",
        "createdAt": 10,
        "updatedAt": 30,
        "pendingCalls": [],
        "feedback": {},
        "lastRun": {
            "run": "k2",
            "runId": "r2",
            "status": "finished",
            "traceId": "",
            "startedAt": 20,
            "endedAt": 30,
            "usage": [{"model": "m", "inputTokens": 3}],
        },
    }


def test_a_thread_of_an_earlier_version_has_what_is_known_of_it() -> None:
    value = value_of(Thread().events("k1", started(HELLO), *ended()).view())
    assert value["updatedAt"] == value["createdAt"] == 1
    assert value["lastRun"] == {"run": "k1", "runId": "r", "status": "finished", "traceId": ""}
    assert "lastRun" not in value_of(ThreadView())


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ([], "running"),
        ([RunFinished(thread_id="t", run_id="r")], "finished"),
        ([RunError(message="x")], "failed"),
        ([RunFinished(thread_id="t", run_id="r", outcome=Cancelled())], "stopped"),
        ([RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[ABOUT_CALL]))], "waiting"),
        ([RunFinished(thread_id="t", run_id="r", outcome=Success(pending_tool_call_ids=["c1"]))], "waiting"),
    ],
)
def test_the_status_is_that_of_the_last_run_unless_someone_has_to_answer(ends: list[Event], status: str) -> None:
    thread = Thread().fact(RUN_OWNER, INPUT, {"clientTools": ["tool"]}, "k1")
    assert thread_status(thread.events("k1", started(HELLO), *called("c1", "{}"), *ends).view()) == status


def test_a_run_that_fails_before_it_acts_on_an_answer_leaves_the_thread_waiting() -> None:
    asked = Thread().interrupted("k1", ABOUT_CALL)
    answering = asked.answering("k2", "i1")
    assert thread_status(answering.view()) == "running"
    assert thread_status(answering.events("k2", RunError(message="x")).view()) == "waiting"


def test_a_thread_whose_question_was_cancelled_waits_no_more() -> None:
    asked = Thread().interrupted("k1", ABOUT_CALL)
    view = asked.fact(APPROVALS_OWNER, INTERRUPTS_CANCELLED, {"interruptIds": ["i1"]}).view()
    value = value_of(view)
    assert (value["status"], value["lastRun"]["status"]) == ("finished", "interrupted")


def test_calls_that_wait_for_the_page_are_named_until_they_are_answered() -> None:
    waiting = Success(pending_tool_call_ids=["c1"])
    thread = Thread().events("k1", started(HELLO), *called("c1", "{}"), *ended(waiting))
    assert value_of(thread.view())["pendingCalls"] == [{"id": "c1", "name": "tool"}]
    result = ToolMessage(id="t1", tool_call_id="c1", content="done")
    assert value_of(thread.events("k2", started(result)).view())["pendingCalls"] == []


def test_the_chosen_title_replaces_the_first_text_and_members_change_alone() -> None:
    thread = Thread().events("k1", started(HELLO), *ended())
    labels = [{"title": "Trip"}, {"archived": True}, {"title": "Journey", "archived": False}]
    found = [("hi", False)]
    for label in labels:
        value = value_of(thread.fact(THREAD_OWNER, LABELLED, label).view())
        found.append((value["title"], value["archived"]))
    assert found == [("hi", False), ("Trip", False), ("Trip", True), ("Journey", False)]
    assert value_of(thread.events("k2", started(BYE), *ended()).view())["title"] == "Journey"


def test_the_newest_feedback_on_a_message_counts_as_long_as_the_thread_has_it() -> None:
    thread = Thread().events("k1", started(HELLO), *text_events("a", "x"), *ended())
    for body in (feedback("a", "thumbs_down"), feedback("u1"), feedback(None), feedback("gone"), feedback("a")):
        thread.fact("ambient.feedback", "feedback", body)
    assert value_of(thread.view())["feedback"] == {"a": "thumbs_up", "u1": "thumbs_up"}
    rewound = thread.fact(THREAD_OWNER, REWOUND, {"to": "u1"}, "k2").events("k2", started(), *ended())
    assert value_of(rewound.view())["feedback"] == {"u1": "thumbs_up"}


def test_facts_of_a_run_are_part_of_its_start_and_other_facts_have_a_time_of_their_own() -> None:
    thread = Thread().fact(RUN_OWNER, INPUT, {}, "k1").events("k1", started(HELLO)).events("k1", *ended())
    assert stamped(thread).updated == 30
    assert stamped(thread.fact("ambient.repos", "repo_added", {"name": "docs"})).updated == 40


def test_a_checkpoint_keeps_all_of_it() -> None:
    thread = Thread().events("k1", started(HELLO), *text_events("a", "x"), *ended())
    thread.fact("ambient.feedback", "feedback", feedback("a")).fact(THREAD_OWNER, LABELLED, {"archived": True})
    view = stamped(thread)
    loaded = ThreadView.from_checkpoint(view.seq, view.to_checkpoint())
    assert value_of(loaded) == value_of(view) == value_of(view.copy())
    loaded.annotations.feedback["u1"] = "thumbs_down"
    assert value_of(view)["feedback"] == {"a": "thumbs_up"}


def test_a_view_and_its_copy_change_independently() -> None:
    thread = Thread().events("k1", started(HELLO), *ended())
    view = thread.view()
    copied = view.copy()
    copied.apply(thread.fact("ambient.feedback", "feedback", feedback("u1")).batches[-1])
    copied.apply(thread.fact(THREAD_OWNER, LABELLED, {"title": "Trip"}).batches[-1])
    assert (value_of(view)["title"], value_of(view)["feedback"]) == ("hi", {})
    assert (value_of(copied)["title"], value_of(copied)["feedback"]) == ("Trip", {"u1": "thumbs_up"})


def test_feedback_is_added_to_the_metadata_that_a_message_has() -> None:
    message = AssistantMessage(id="a", content="x", metadata={"model": "m"})
    snapshot = MessagesSnapshot(messages=[HELLO, message])
    rated = AssistantMessage(id="a", content="x", metadata={"model": "m", "ambient": {"feedback": "thumbs_up"}})
    assert with_feedback(snapshot, {"a": "thumbs_up"}) == MessagesSnapshot(messages=[HELLO, rated])
    assert with_feedback(snapshot, {}) is snapshot
    assert message.metadata == {"model": "m"}
