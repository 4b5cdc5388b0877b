"""Plans: what it takes to make a session say what a thread says."""

from __future__ import annotations

from google.adk.events import Event, EventActions
from google.genai import types

from ambient_runner.bridges.adk.memory import PausedInvocation, SessionMemory
from ambient_runner.bridges.adk.session_sync import SyncPlan, live_events, pending_results, plan_sync
from ambient_runner.bridges.toolkit.turns import (
    AssistantTurn,
    ResultsTurn,
    Turn,
    TurnToolCall,
    TurnToolResult,
    UserTurn,
)
from tests.bridges.adk.scripted import call, text


def agent_event(name: str, invocation: str, *parts: types.Part, author: str = "root", waits: str = "") -> Event:
    return Event(
        id=name,
        author=author,
        invocation_id=invocation,
        content=types.Content(role="model", parts=list(parts) or [text(name)]),
        long_running_tool_ids={waits} if waits else None,
    )


def user_event(name: str, invocation: str) -> Event:
    return agent_event(name, invocation, author="user")


def rewound(invocation: str) -> Event:
    return Event(author="user", actions=EventActions(rewind_before_invocation_id=invocation))


U1, A1 = UserTurn(id="u1", content="one"), AssistantTurn(ids=("a1",), text="1")
U2, A2 = UserTurn(id="u2", content="two"), AssistantTurn(ids=("a2",), text="2")
ONE = [user_event("x1", "i1"), agent_event("a1", "i1")]
TWO = [*ONE, user_event("x2", "i2"), agent_event("a2", "i2")]
AFTER_ONE = SessionMemory(last="a1", since="u1")
AFTER_TWO = SessionMemory(last="a2", since="u2")


def planned(
    events: list[Event], history: list[Turn], memory: SessionMemory | None, *, continues: bool = True
) -> SyncPlan:
    return plan_sync(events, history, memory, is_continuation=continues)


def test_a_session_in_step_is_left_alone() -> None:
    assert planned(TWO, [U1, A1, U2, A2], AFTER_TWO) == SyncPlan(retained_events=TWO)


def test_a_lost_session_is_rebuilt() -> None:
    assert planned([], [U1, A1, U2, A2], AFTER_TWO) == SyncPlan(retained_events=[], turns_before=[U1, A1, U2, A2])


def test_messages_of_another_replica_are_added() -> None:
    assert planned(ONE, [U1, A1, U2, A2], AFTER_TWO) == SyncPlan(retained_events=ONE, turns_before=[U2, A2])


def test_a_rewound_thread_cuts_the_session() -> None:
    assert planned(TWO, [U1, A1], AFTER_ONE) == SyncPlan(retained_events=ONE, rewind_invocation="i2")


def test_a_thread_rewound_to_its_beginning_cuts_all_of_it() -> None:
    assert planned(TWO, [], None) == SyncPlan(retained_events=[], rewind_invocation="i1")


def test_a_run_that_was_cut_short_is_said_again_as_far_as_it_came() -> None:
    half = AssistantTurn(ids=("half",), text="ha")
    cut = [*ONE, user_event("x2", "i2")]
    assert planned(cut, [U1, A1, U2, half], AFTER_ONE) == SyncPlan(
        retained_events=ONE, rewind_invocation="i2", turns_before=[U2, half]
    )


def test_what_a_cut_run_had_finished_is_kept() -> None:
    half = AssistantTurn(ids=("half",), text="ha")
    assert planned(TWO, [U1, A1, U2, A2, half], AFTER_ONE) == SyncPlan(retained_events=TWO, turns_before=[half])


def test_what_clients_never_saw_is_kept_too() -> None:
    """An agent that answers with data leaves no message: the memory alone says that its turn is known."""
    assert planned(TWO, [U1, U2], AFTER_TWO) == SyncPlan(retained_events=TWO)


def test_a_session_that_was_there_first_is_adopted() -> None:
    assert planned(TWO, [], None, continues=False) == SyncPlan(retained_events=TWO)


def test_notes_of_others_in_the_session_are_not_cut() -> None:
    note = Event(author="system", invocation_id="n1", actions=EventActions(state_delta={"a": 1}))
    assert planned([*ONE, note], [U1, A1], AFTER_ONE) == SyncPlan(retained_events=[*ONE, note])


def test_a_paused_invocation_of_a_lost_session_is_restored_in_its_place() -> None:
    memory = SessionMemory(last="a2", since="u2", paused=PausedInvocation(since="u2", events=[{"id": "a2"}]))
    assert planned([], [U1, A1, U2, A2], memory) == SyncPlan(
        retained_events=[], turns_before=[U1, A1], paused_events=[{"id": "a2"}]
    )


def test_a_paused_invocation_that_went_wrong_is_restored_whole() -> None:
    memory = SessionMemory(last="a2", since="u2", paused=PausedInvocation(since="u2", events=[{"id": "a2"}]))
    wrong = [*TWO, agent_event("answer", "i2", author="user")]
    assert planned(wrong, [U1, A1, U2, A2], memory) == SyncPlan(
        retained_events=ONE, rewind_invocation="i2", paused_events=[{"id": "a2"}]
    )


def test_live_events_are_those_no_rewind_has_cut() -> None:
    again = user_event("x3", "i3")
    assert live_events([*TWO, rewound("i2"), again]) == [*ONE, again]
    assert live_events([*TWO, rewound("i1"), again]) == [again]
    assert live_events([*TWO, rewound("i2"), again, rewound("i1")]) == []


def test_calls_that_wait_in_the_session_get_the_threads_results() -> None:
    waits = [user_event("x1", "i1"), agent_event("a1", "i1", call("ask", "l1"), call("look", "c1"), waits="l1")]
    results = (
        TurnToolResult(call_id="l1", name="ask", content="no", is_answered=False, is_error=True),
        TurnToolResult(call_id="c1", name="look", content="no", is_answered=False, is_error=True),
    )
    calls = (TurnToolCall(id="l1", name="ask", arguments="{}"), TurnToolCall(id="c1", name="look", arguments="{}"))
    history: list[Turn] = [U1, AssistantTurn(ids=("a1",), calls=calls), ResultsTurn(results=results)]
    assert pending_results(waits, history) == [results[0]]


def test_an_unreadable_memory_is_none() -> None:
    assert SessionMemory.from_stored({"last": 3}) is None
    assert SessionMemory.from_stored(None) is None
    assert SessionMemory.from_stored({"last": "a", "since": "u", "more": 1}) == SessionMemory(last="a", since="u")
