"""Repair of arbitrary adapter events into a legal stream."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given
from msgspec.structs import replace

from ambient_runner.errors import ProtocolViolation
from ambient_runner.protocol import events as e
from ambient_runner.protocol.ids import client_safe_id
from ambient_runner.protocol.lenient import check_id
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier
from tests.hypothesis_profiles import examples

from .strategies import CONVERSATION, GARBAGE, KNOWN_IDS, RUN, TERMINALS, THREAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STARTED = e.RunStarted(thread_id=THREAD, run_id=RUN)
FINISHED = e.RunFinished(thread_id=THREAD, run_id=RUN)
quick = examples(100)


def repair(*events: e.Event, known: Iterable[str] = ()) -> tuple[list[e.Event], dict[str, int]]:
    """Return the events between RUN_STARTED and the end, and the repairs."""
    repairer = Repairer(THREAD, RUN, tuple(known))
    repairer.feed(STARTED)
    return feed_all(repairer, events), dict(repairer.repairs)


def feed_all(repairer: Repairer, events: Iterable[e.Event]) -> list[e.Event]:
    return [emitted for event in events for emitted in repairer.feed(event)]


def verify(events: Sequence[e.Event]) -> None:
    verifier = Verifier(THREAD, RUN)
    for event in events:
        verifier.check(event)
    verifier.finish()


def text(message_id: str, *deltas: str, owner: str | None = None) -> list[e.Event]:
    return [
        e.TextMessageStart(message_id=message_id, role="assistant", subagent_run_id=owner),
        *(e.TextMessageContent(message_id=message_id, delta=delta, subagent_run_id=owner) for delta in deltas),
        e.TextMessageEnd(message_id=message_id, subagent_run_id=owner),
    ]


def call(tool_call_id: str, args: str = "{}", parent: str | None = None, owner: str | None = None) -> list[e.Event]:
    return [
        e.ToolCallStart(
            tool_call_id=tool_call_id, tool_call_name="look", parent_message_id=parent, subagent_run_id=owner
        ),
        e.ToolCallArgs(tool_call_id=tool_call_id, delta=args, subagent_run_id=owner),
        e.ToolCallEnd(tool_call_id=tool_call_id, subagent_run_id=owner),
    ]


def result(tool_call_id: str, message_id: str = "r") -> e.ToolCallResult:
    return e.ToolCallResult(message_id=message_id, tool_call_id=tool_call_id, content="done")


@quick
@given(GARBAGE, KNOWN_IDS, TERMINALS)
def test_any_input_results_in_a_legal_stream(garbage: list[e.Event], known: set[str], terminal: e.Event) -> None:
    repairer = Repairer(THREAD, RUN, known)
    verify(feed_all(repairer, [*garbage, terminal]))


@quick
@given(CONVERSATION, KNOWN_IDS, TERMINALS)
def test_a_run_may_be_closed_after_any_event(garbage: list[e.Event], known: set[str], terminal: e.Event) -> None:
    repairer = Repairer(THREAD, RUN, known)
    emitted = feed_all(repairer, [STARTED, *garbage])
    emitted += repairer.close()
    assert repairer.reopening_events() == []
    emitted += repairer.feed(terminal)
    verify(emitted)


@quick
@given(CONVERSATION, KNOWN_IDS)
def test_a_repaired_stream_needs_no_repair(garbage: list[e.Event], known: set[str]) -> None:
    legal = feed_all(Repairer(THREAD, RUN, known), [STARTED, *garbage, FINISHED])
    again = Repairer(THREAD, RUN, known)
    assert feed_all(again, legal) == legal
    assert again.repairs == Counter()


@quick
@given(CONVERSATION, KNOWN_IDS)
@example(
    [
        e.ReasoningStart(message_id="b"),
        e.MessagesSnapshot(messages=[e.AssistantMessage(id="b", content="hello", subagent_run_id="s1")]),
        e.ReasoningEncryptedValue(subtype="message", entity_id="b", encrypted_value="🔒", subagent_run_id="s1"),
    ],
    set(),
)
def test_a_reader_who_joins_after_any_event_reads_a_legal_stream(garbage: list[e.Event], known: set[str]) -> None:
    stored = feed_all(Repairer(THREAD, RUN, known), [STARTED, *garbage, FINISHED])
    reader = Repairer(THREAD, RUN)
    for at, event in enumerate(stored[:-1], start=1):
        reader.feed(event)
        verify([stored[0], *reader.reopening_events(), *stored[at:]])


def test_a_legal_stream_passes_unchanged() -> None:
    events = [*text("m1", "a", "b"), *call("c1", parent="m1"), result("c1"), *text("m2", "c"), FINISHED]
    assert repair(*events) == (events, {})


def test_an_event_before_the_run_starts_it() -> None:
    repairer = Repairer(THREAD, RUN)
    assert feed_all(repairer, [e.Custom(name="n", value=1), STARTED]) == [
        e.RunStarted(thread_id=THREAD, run_id=RUN, protocol_version="1.0"),
        e.Custom(name="n", value=1),
    ]
    assert repairer.repairs == Counter({"run-not-started": 1, "run-already-started": 1})


def test_foreign_ids_become_the_runs_own() -> None:
    repairer = Repairer(THREAD, RUN)
    foreign = [e.RunStarted(thread_id="x", run_id="y"), e.RunFinished(thread_id=THREAD, run_id="y", result=1)]
    assert feed_all(repairer, foreign) == [STARTED, e.RunFinished(thread_id=THREAD, run_id=RUN, result=1)]
    assert repairer.repairs == Counter({"thread-id": 1, "run-id": 2})


def test_nothing_comes_after_the_end() -> None:
    repairer = Repairer(THREAD, RUN)
    feed_all(repairer, [STARTED, FINISHED])
    assert repairer.has_ended
    assert feed_all(repairer, [*text("m", "late"), e.RunError(message="late"), STARTED]) == []
    assert repairer.repairs == Counter({"after-terminal": 5})


def test_content_without_a_start_opens_a_message() -> None:
    assert repair(e.TextMessageContent(message_id="m", delta="x"), e.TextMessageEnd(message_id="m")) == (
        text("m", "x"),
        {"text-not-open": 1},
    )
    assert repair(e.ReasoningMessageContent(message_id="m", delta="x"))[0] == [
        e.ReasoningMessageStart(message_id="m"),
        e.ReasoningMessageContent(message_id="m", delta="x"),
    ]


def test_an_end_without_a_start_opens_a_message_and_a_second_end_is_dropped() -> None:
    end = e.TextMessageEnd(message_id="m")
    assert repair(end, end) == (text("m"), {"text-not-open": 2})


def test_arguments_and_ends_of_unknown_calls_are_dropped() -> None:
    assert repair(*call("c")[1:], e.ReasoningEnd(message_id="s"), e.StepFinished(step_name="p")) == (
        [],
        {"tool-not-open": 2, "reasoning-span-not-open": 1, "step-not-open": 1},
    )


def test_a_start_while_open_and_an_empty_delta_are_dropped() -> None:
    start, content, end = text("m", "x")
    empty = e.TextMessageContent(message_id="m", delta="")
    assert repair(start, start, empty, content, end) == (
        [start, content, end],
        {"text-already-open": 1, "empty-delta": 1},
    )


def test_everything_open_is_closed_before_the_run_ends() -> None:
    opened: list[e.Event] = [
        e.SubagentStarted(subagent_run_id="s1", name="outer"),
        e.SubagentStarted(subagent_run_id="s2", name="inner", parent_subagent_run_id="s1"),
        e.StepStarted(step_name="plan", subagent_run_id="s2"),
        e.ReasoningStart(message_id="q"),
        e.ReasoningMessageStart(message_id="q"),
        e.TextMessageStart(message_id="m", subagent_run_id="s1"),
        e.ToolCallStart(tool_call_id="c", tool_call_name="look"),
    ]
    envelopes: list[e.Event] = [
        e.ToolCallEnd(tool_call_id="c"),
        e.TextMessageEnd(message_id="m", subagent_run_id="s1"),
        e.ReasoningMessageEnd(message_id="q"),
        e.ReasoningEnd(message_id="q"),
        e.StepFinished(step_name="plan", subagent_run_id="s2"),
    ]
    finished: list[e.Event] = [e.SubagentFinished(subagent_run_id="s2"), e.SubagentFinished(subagent_run_id="s1")]
    assert repair(*opened, FINISHED) == ([*opened, *envelopes, *finished, FINISHED], {"left-open": 7})

    broken = e.RunError(message="it broke")
    lost = [
        e.SubagentError(
            subagent_run_id=subagent_id, message="The run ended before this subagent did.", code="run_ended"
        )
        for subagent_id in ("s2", "s1")
    ]
    assert repair(*opened, broken) == ([*opened, *envelopes, *lost, broken], {"left-open": 7})


def test_a_subagent_that_waits_for_an_answer_is_suspended() -> None:
    started = e.SubagentStarted(subagent_run_id="s1", name="helper")
    interrupted = e.Interrupted(interrupts=[e.Interrupt(id="i", reason="confirmation", subagent_run_id="s1")])
    finished = e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=interrupted)
    suspended = e.SubagentFinished(subagent_run_id="s1", outcome=e.Suspended(interrupt_ids=["i"]))
    assert repair(started, finished)[0] == [started, suspended, finished]


def test_the_end_of_a_subagent_closes_its_open_items() -> None:
    started = e.SubagentStarted(subagent_run_id="s1", name="helper")
    finished = e.SubagentFinished(subagent_run_id="s1")
    start, content, end = text("m", "x", owner="s1")
    mine = e.TextMessageStart(message_id="mine")
    assert repair(started, mine, start, content, finished) == (
        [started, mine, start, content, end, finished],
        {"left-open": 1},
    )


def test_a_subagent_starts_once_and_ends_once() -> None:
    started = e.SubagentStarted(subagent_run_id="s1", name="helper")
    finished = e.SubagentFinished(subagent_run_id="s1")
    assert repair(started, started, finished, finished, started) == (
        [started, finished],
        {"subagent-already-open": 1, "subagent-not-open": 1, "subagent-reused": 1},
    )


def test_a_call_whose_parent_is_no_assistant_message_gets_a_message_of_its_own() -> None:
    """Clients made a second message with the id of the reasoning."""
    thought = [e.ReasoningMessageStart(message_id="m"), e.ReasoningMessageEnd(message_id="m")]
    assert repair(*thought, *call("c", parent="m"), FINISHED) == (
        [*thought, *call("c"), FINISHED],
        {"tool-parent": 1},
    )


def test_an_unknown_parent_subagent_is_left_out() -> None:
    orphan = e.SubagentStarted(subagent_run_id="s1", name="helper", parent_subagent_run_id="ghost")
    assert repair(orphan) == ([e.SubagentStarted(subagent_run_id="s1", name="helper")], {"subagent-parent": 1})


def test_a_tag_of_a_subagent_that_was_never_started_is_kept() -> None:
    assert repair(*text("m", "x", owner="ghost")) == (text("m", "x", owner="ghost"), {})


def test_a_continuation_belongs_to_its_opener() -> None:
    start, _, end = text("m", "x", owner="s1")
    stray = e.TextMessageContent(message_id="m", delta="x", subagent_run_id="s2")
    untagged = e.TextMessageContent(message_id="m", delta="y")
    assert repair(start, stray, untagged, end) == (
        [start, e.TextMessageContent(message_id="m", delta="x", subagent_run_id="s1"), untagged, end],
        {"owner": 1},
    )


def test_a_step_is_finished_by_its_owner() -> None:
    started = e.StepStarted(step_name="plan", subagent_run_id="s1")
    finished = e.StepFinished(step_name="plan", subagent_run_id="s1")
    assert repair(started, started, e.StepFinished(step_name="plan")) == (
        [started, finished],
        {"step-already-open": 1, "owner": 1},
    )


def test_a_call_takes_the_owner_of_the_message_that_carries_it() -> None:
    opened = e.TextMessageStart(message_id="m", subagent_run_id="s1")
    untagged = e.ToolCallStart(tool_call_id="c1", tool_call_name="look", parent_message_id="m")
    foreign = e.ToolCallStart(tool_call_id="c2", tool_call_name="look", parent_message_id="m", subagent_run_id="s2")
    assert repair(opened, untagged, foreign) == (
        [
            opened,
            e.ToolCallStart(tool_call_id="c1", tool_call_name="look", parent_message_id="m", subagent_run_id="s1"),
            e.ToolCallStart(tool_call_id="c2", tool_call_name="look", subagent_run_id="s2"),
        ],
        {"tool-parent": 1},
    )


def test_ids_of_earlier_runs_are_renamed_with_every_reference() -> None:
    encrypted = e.ReasoningEncryptedValue(subtype="tool-call", entity_id="c", encrypted_value="🔒")
    interrupted = e.Interrupted(interrupts=[e.Interrupt(id="i", reason="tool_call", tool_call_id="c")])
    emitted, repairs = repair(
        *text("m", "x"),
        *call("c", parent="m"),
        encrypted,
        result("c"),
        e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=interrupted),
        known=["m", "c", "c~2"],
    )
    assert emitted == [
        *text("m~2", "x"),
        *call("c~3", parent="m~2"),
        e.ReasoningEncryptedValue(subtype="tool-call", entity_id="c~3", encrypted_value="🔒"),
        result("c~3"),
        e.RunFinished(
            thread_id=THREAD,
            run_id=RUN,
            outcome=e.Interrupted(interrupts=[e.Interrupt(id="i", reason="tool_call", tool_call_id="c~3")]),
        ),
    ]
    assert repairs == {"id-reused": 2}


@pytest.mark.parametrize("odd", ["", "y" * 300, "y\nz", "\x9b"])
def test_an_id_that_no_client_could_send_back_is_replaced_with_every_reference(odd: str) -> None:
    good = client_safe_id(odd)
    check_id(good, "id")
    emitted, _ = repair(
        *text(odd, "x"),
        *call(odd, parent=odd),
        result(odd),
        e.ActivityDelta(message_id=odd, activity_type="a", patch=[]),
    )
    assert emitted == [
        *text(good, "x"),
        *call(good, parent=good),
        result(good),
        e.ActivityDelta(message_id=good, activity_type="a", patch=[]),
    ]


@pytest.mark.parametrize("odd", ["sekret-" * 50, "sekret\nsekret"])
def test_nothing_is_kept_of_an_id_that_is_replaced_because_half_a_secret_is_not_found(odd: str) -> None:
    emitted, _ = repair(*text(odd, "x"), *call(odd, parent=odd), result(odd))
    assert not any(b"sekret" in e.encode_event(event) for event in emitted)


def test_a_long_id_that_is_taken_stays_one_that_clients_may_send() -> None:
    taken = "m" * 256
    start, *_ = repair(*text(taken, "x"), known=[taken])[0]
    assert isinstance(start, e.TextMessageStart)
    assert start.message_id != taken
    check_id(start.message_id, "id")


def test_a_result_for_an_earlier_runs_call_keeps_its_id() -> None:
    assert repair(result("c"), known=["c"]) == ([result("c")], {})


def test_a_message_of_the_runs_input_is_not_streamed_again_under_its_id() -> None:
    run_input = e.RunAgentInput(thread_id=THREAD, run_id=RUN, messages=[e.UserMessage(id="u", content="hi")])
    repairer = Repairer(THREAD, RUN)
    repairer.feed(e.RunStarted(thread_id=THREAD, run_id=RUN, input=run_input))
    assert feed_all(repairer, text("u", "x")) == text("u~2", "x")


def test_text_and_reasoning_do_not_share_an_id() -> None:
    start, content = e.ReasoningMessageStart(message_id="m"), e.ReasoningMessageContent(message_id="m", delta="hm")
    end = e.ReasoningMessageEnd(message_id="m")
    assert repair(start, content, end, *text("m", "x")) == ([start, content, end, *text("m~2", "x")], {"id-reused": 1})


def test_a_message_that_has_ended_is_over_and_a_closed_call_is_a_replay() -> None:
    assert repair(*text("m", "a"), *text("m", "b")) == ([*text("m", "a"), *text("m~2", "b")], {"id-reused": 1})
    assert repair(*call("c"), *call("c")) == (call("c"), {"tool-replayed": 1, "tool-not-open": 2})


def test_a_call_has_one_result_after_its_end_under_an_id_of_its_own() -> None:
    start, args, end = call("c", parent="m")
    assert repair(*text("m", "x"), start, args, result("c", "m"), end, result("c", "other")) == (
        [*text("m", "x"), start, args, end, result("c", "m~2")],
        {"result-before-end": 1, "id-reused": 1, "tool-not-open": 1, "result-repeated": 1},
    )


def test_interrupts_are_unique_and_never_none_at_all() -> None:
    one = e.Interrupt(id="i", reason="confirmation")
    twice = e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=e.Interrupted(interrupts=[one, one]))
    once = e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=e.Interrupted(interrupts=[one]))
    without_interrupts = e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=e.Interrupted(interrupts=[]))
    assert repair(twice) == ([once], {"interrupts": 1})
    assert repair(without_interrupts) == ([FINISHED], {"interrupts": 1})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "jump", "path": "/a"},
        {"op": "add", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "remove", "path": "/~2"},
        {"op": "move", "path": "/a"},
        {"op": "copy", "path": "/a", "from": "b"},
        {"path": "/a"},
        "add",
    ],
)
def test_a_malformed_patch_is_dropped(operation: Any) -> None:
    activity = e.ActivityDelta(message_id="a", activity_type="PLAN", patch=[operation])
    assert repair(e.StateDelta(delta=[operation]), activity) == ([], {"patch": 2})


def test_chunks_become_explicit_events() -> None:
    assert repair(
        e.TextMessageChunk(message_id="m", role="assistant", delta="a"),
        e.TextMessageChunk(delta="b"),
        e.ToolCallChunk(tool_call_id="c1", tool_call_name="look", parent_message_id="m", delta="{"),
        e.ToolCallChunk(tool_call_id="c2", tool_call_name="look", parent_message_id="m", delta="{}"),
        e.ToolCallChunk(tool_call_id="c1", delta="}"),
        e.ReasoningMessageChunk(message_id="q", delta="hm"),
        e.ReasoningMessageChunk(delta="!"),
        *text("n", "x"),
    ) == (
        [
            *text("m", "a", "b"),
            e.ToolCallStart(tool_call_id="c1", tool_call_name="look", parent_message_id="m"),
            e.ToolCallArgs(tool_call_id="c1", delta="{"),
            *call("c2", parent="m")[:2],
            e.ToolCallArgs(tool_call_id="c1", delta="}"),
            e.ToolCallEnd(tool_call_id="c2"),
            e.ToolCallEnd(tool_call_id="c1"),
            e.ReasoningMessageStart(message_id="q"),
            e.ReasoningMessageContent(message_id="q", delta="hm"),
            e.ReasoningMessageContent(message_id="q", delta="!"),
            e.ReasoningMessageEnd(message_id="q"),
            *text("n", "x"),
        ],
        {},
    )


def test_chunks_of_two_owners_do_not_mix() -> None:
    assert repair(
        e.TextMessageChunk(message_id="m", role="assistant", delta="a"),
        e.TextMessageChunk(message_id="n", role="assistant", delta="x", subagent_run_id="s1"),
        e.TextMessageChunk(message_id="m", delta="b"),
        e.TextMessageChunk(delta="y", subagent_run_id="s1"),
    )[0] == [
        *text("m", "a")[:2],
        *text("n", "x", owner="s1")[:2],
        e.TextMessageContent(message_id="m", delta="b"),
        e.TextMessageContent(message_id="n", delta="y", subagent_run_id="s1"),
    ]


def test_a_chunk_that_names_nothing_is_dropped() -> None:
    assert repair(
        e.TextMessageChunk(delta="a"),
        e.ToolCallChunk(tool_call_name="look", delta="{}"),
        e.ToolCallChunk(tool_call_id="c", delta="{}"),
    ) == ([], {"chunk": 2, "tool-not-open": 1})


def test_reopening_repeats_everything_open_outermost_first() -> None:
    outer = e.SubagentStarted(subagent_run_id="s1", name="outer", description="d")
    inner = e.SubagentStarted(subagent_run_id="s2", name="inner", parent_subagent_run_id="s1")
    step = e.StepStarted(step_name="plan", subagent_run_id="s2")
    span, reasoning = e.ReasoningStart(message_id="q"), e.ReasoningMessageStart(message_id="q")
    message = e.TextMessageStart(message_id="m", role="developer", name="n", subagent_run_id="s1")
    tool = e.ToolCallStart(tool_call_id="c", tool_call_name="look", parent_message_id="m", subagent_run_id="s1")
    repairer = Repairer(THREAD, RUN)
    feed_all(repairer, [STARTED, message, tool, outer, span, reasoning, step, *text("gone", "x"), inner])
    assert repairer.reopening_events() == [outer, inner, step, span, reasoning, message, tool]


def test_a_subagent_that_outlives_its_parent_is_reopened_without_it() -> None:
    outer = e.SubagentStarted(subagent_run_id="s1", name="outer")
    inner = e.SubagentStarted(subagent_run_id="s2", name="inner", parent_subagent_run_id="s1")
    repairer = Repairer(THREAD, RUN)
    feed_all(repairer, [STARTED, outer, inner, e.SubagentFinished(subagent_run_id="s1")])
    assert repairer.reopening_events() == [e.SubagentStarted(subagent_run_id="s2", name="inner")]


def test_an_activity_that_is_not_replaced_keeps_its_owner() -> None:
    def snapshot(owner: str | None, *, replace: bool) -> e.ActivitySnapshot:
        return e.ActivitySnapshot(
            message_id="a", activity_type="PLAN", content={}, replace=replace, subagent_run_id=owner
        )

    assert repair(snapshot("s1", replace=True), snapshot(None, replace=False), snapshot("s2", replace=True)) == (
        [snapshot("s1", replace=True), snapshot("s1", replace=False), snapshot("s2", replace=True)],
        {},
    )


def test_what_was_called_and_answered_is_known_for_the_runner() -> None:
    repairer = Repairer(THREAD, RUN)
    feed_all(repairer, [STARTED, *call("c1"), result("c1"), *call("c2"), call("c3")[0]])
    assert (repairer.call_names, repairer.answered_call_ids) == ({"c1": "look", "c2": "look", "c3": "look"}, {"c1"})


def test_an_invalid_event_cannot_be_repaired() -> None:
    with pytest.raises(ProtocolViolation):
        Repairer(THREAD, RUN).feed(cast("e.Event", object()))


MANY = 20_000


def seconds_for(*events: e.Event) -> float:
    """Return the cost of repairing these events and ending the run."""
    repairer, begun = Repairer(THREAD, RUN), time.process_time()
    repairer.feed(STARTED)
    feed_all(repairer, [*events, FINISHED])
    return time.process_time() - begun


@pytest.mark.parametrize("known", [(), ("m",)], ids=["new", "of an earlier run"])
def test_one_id_used_again_and_again_is_a_new_one_each_time(known: tuple[str, ...]) -> None:
    emitted, repairs = repair(*(event for _ in range(3) for event in text("m")), known=known)
    first = 2 if known else 1
    names = [f"m~{n}" if n > 1 else "m" for n in range(first, first + 3)]
    assert emitted == [event for name in names for event in text(name)]
    assert repairs == {"id-reused": 3 if known else 2}


@pytest.mark.parametrize(
    "events",
    [
        [event for _ in range(MANY) for event in text("m")],
        [e.ToolCallResult(message_id="m", tool_call_id=f"c{n}", content="") for n in range(MANY)],
        [
            *(e.StepStarted(step_name=f"s{n}") for n in range(MANY)),
            *(e.StepFinished(step_name=f"s{n}") for n in range(MANY)),
        ],
        [
            *(e.StepStarted(step_name="s", subagent_run_id=f"a{n}") for n in range(MANY)),
            *(e.StepFinished(step_name="s", subagent_run_id=f"a{n}") for n in range(MANY)),
        ],
    ],
    ids=["one id", "one id for results", "open steps", "a step of many"],
)
def test_what_an_agent_repeats_or_leaves_open_costs_the_same_each_time(events: list[e.Event]) -> None:
    assert seconds_for(*events) < 3


def plan(message_id: str, *, replace: bool | None = None) -> e.ActivitySnapshot:
    return e.ActivitySnapshot(message_id=message_id, activity_type="PLAN", content={}, replace=replace)


def progress(message_id: str) -> e.ActivityDelta:
    return e.ActivityDelta(message_id=message_id, activity_type="PLAN", patch=[])


def test_an_agent_cannot_change_user_messages() -> None:
    run_input = e.RunAgentInput(thread_id=THREAD, run_id=RUN, messages=[e.UserMessage(id="new", content="hi")])
    repairer = Repairer(THREAD, RUN, ("old", "answer"), user_message_ids=("old",))
    repairer.feed(replace(STARTED, input=run_input))
    emitted = feed_all(
        repairer,
        [
            progress("old"),
            plan("old"),
            progress("old"),
            plan("old", replace=False),
            plan("new"),
            plan("answer"),
            *(
                e.ReasoningEncryptedValue(subtype="message", entity_id=entity_id, encrypted_value="x")
                for entity_id in ("old", "new", "answer")
            ),
        ],
    )
    assert emitted == [
        plan("old~2"),
        progress("old~2"),
        plan("old~2", replace=False),
        plan("new~2"),
        plan("answer"),
        e.ReasoningEncryptedValue(subtype="message", entity_id="answer", encrypted_value="x"),
    ]
    assert repairer.repairs == {"of-a-user": 5}
