"""The whole thread folded from batches: runs, interrupts, frontend tool calls, state, and checkpoints of all of it."""

from __future__ import annotations

import hashlib
import json
import random
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.records import RUNTIME, Batch, CheckpointPart, CheckpointUpdate
from ambient_runner.projections.open_interrupts import OpenInterrupt
from ambient_runner.projections.thread_view import (
    INPUT,
    PATCHED,
    REWOUND,
    RUN_OWNER,
    STATE_OWNER,
    THREAD_OWNER,
    RunSummary,
    ThreadView,
)
from ambient_runner.projections.view_checkpoint import decode_part
from ambient_runner.protocol.events import (
    AssistantMessage,
    Cancelled,
    Custom,
    FunctionCall,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    ReasoningMessageStart,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepStarted,
    Success,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    UserMessage,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Event, Message


def fold(view: ThreadView, batches: list[Batch]) -> ThreadView:
    for batch in batches:
        view.apply(batch)
    return view


class Thread:
    """Writes batches with the right numbers."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.last = 0

    def events(self, run: str, *events: Event) -> Thread:
        return self._add(RUNTIME, "", run, [encode_event(event) for event in events])

    def fact(self, owner: str, kind: str, body: Any, run: str = "") -> Thread:
        return self._add(owner, kind, run, [msgspec.json.encode(body)])

    def interrupted(self, run: str, *interrupts: Interrupt) -> Thread:
        return self.events(run, *called("c1", '{"rm": 1}'), *ended(Interrupted(interrupts=list(interrupts))))

    def answering(self, run: str, *ids: str) -> Thread:
        self.fact(RUN_OWNER, INPUT, {"input": {}, "answers": ids, "clientTools": ["tool"]}, run)
        return self.events(run, started())

    def view(self, **more: Any) -> ThreadView:
        return fold(ThreadView(**more), self.batches)

    def _add(self, owner: str, kind: str, run: str, lines: Sequence[bytes]) -> Thread:
        self.batches.append(Batch(first=self.last + 1, owner=owner, kind=kind, run=run, ts=0, lines=lines))
        self.last += len(lines)
        return self


def started(*messages: Message, run_id: str = "r") -> RunStarted:
    run_input = RunAgentInput(thread_id="t", run_id=run_id, messages=list(messages))
    return RunStarted(thread_id="t", run_id=run_id, input=run_input)


def ended(outcome: Any = None) -> tuple[MessagesSnapshot, RunFinished]:
    return MessagesSnapshot(messages=[]), RunFinished(thread_id="t", run_id="r", outcome=outcome)


def text_events(message_id: str, *deltas: str) -> list[Event]:
    contents = [TextMessageContent(message_id=message_id, delta=delta) for delta in deltas]
    return [TextMessageStart(message_id=message_id), *contents, TextMessageEnd(message_id=message_id)]


def called(call_id: str, arguments: str) -> list[Event]:
    return [
        ToolCallStart(tool_call_id=call_id, tool_call_name="tool"),
        ToolCallArgs(tool_call_id=call_id, delta=arguments),
        ToolCallEnd(tool_call_id=call_id),
    ]


ABOUT_CALL = Interrupt(id="i1", reason="tool_call", tool_call_id="c1")
WITHOUT_CALL = Interrupt(id="i2", reason="input_required")
HELLO = UserMessage(id="u1", content="hi")


def test_a_finished_run_is_summarized_with_its_messages_and_state() -> None:
    state = StateSnapshot(snapshot={"a": 1, "messages": []})
    view = Thread().events("k1", started(HELLO, run_id="r"), *text_events("a", "Hel", "lo"), state, *ended()).view()
    assert view.seq == 8
    assert view.transcript.messages() == [HELLO, AssistantMessage(id="a", content="Hello")]
    assert (view.state.value, view.client_state) == ({"a": 1, "messages": []}, {"a": 1})
    end = RunFinished(thread_id="t", run_id="r")
    assert view.last_run == RunSummary(key="k1", run_id="r", terminal=end, end=8)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (RunError(message="x"), "failed"),
        (RunFinished(thread_id="t", run_id="r", outcome=Cancelled()), "stopped"),
        (RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[WITHOUT_CALL])), "interrupted"),
        (RunFinished(thread_id="t", run_id="r", outcome=Success()), "finished"),
    ],
)
def test_the_status_of_the_last_run_is_that_of_its_terminal(end: Any, status: Any) -> None:
    view = Thread().events("k1", started(), end).view()
    assert view.last_run == RunSummary(key="k1", run_id="r", terminal=end, end=2)
    assert view.last_run is not None
    assert view.last_run.status == status


def test_a_run_without_a_terminal_is_running() -> None:
    view = Thread().events("k1", started(HELLO)).view()
    assert view.last_run == RunSummary(key="k1", run_id="r")
    assert view.last_run is not None
    assert view.last_run.status == "running"


@pytest.mark.parametrize(
    ("last_run", "status"),
    [
        ({"status": "error", "terminal": {"type": "RUN_ERROR", "message": "x"}}, "failed"),
        (
            {
                "status": "cancelled",
                "terminal": {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "cancelled"}},
            },
            "stopped",
        ),
        ({"status": "running", "terminal": None}, "running"),
    ],
)
def test_a_checkpoint_with_the_former_words_for_the_status_of_a_run_is_read(
    last_run: dict[str, Any], status: str
) -> None:
    saved = msgspec.json.decode(Thread().events("k1", started(HELLO), *ended()).view().to_checkpoint())
    saved["last_run"] = {"key": "k1", "run_id": "r", "trace_id": "", "end": 2, "started": 0, "ended": 0, **last_run}
    view = ThreadView.from_checkpoint(9, msgspec.json.encode(saved))
    assert view.last_run is not None
    assert (view.last_run.key, view.last_run.status) == ("k1", status)


def test_entries_that_were_folded_already_are_skipped() -> None:
    thread = Thread().events("k1", started(HELLO), *text_events("a", "Hel", "lo"))
    view = thread.view()
    (batch,) = thread.batches
    whole = Batch(first=3, owner=RUNTIME, kind="", run="k1", ts=0, lines=[*batch.lines[2:], encode_event(ended()[1])])
    fold(view, [batch, whole])
    assert (view.seq, view.transcript.messages()) == (6, [HELLO, AssistantMessage(id="a", content="Hello")])
    assert view.last_run is not None
    assert view.last_run.status == "finished"


def test_facts_of_unknown_owners_and_kinds_are_ignored() -> None:
    thread = Thread().fact("ambient.feedback", "thumbs", {"up": True}).fact(THREAD_OWNER, "renamed", {"to": "x"})
    view = thread.view()
    assert (view.seq, view.transcript.messages(), view.last_run) == (2, [], None)


def test_an_interrupted_run_opens_its_interrupts_bound_to_the_arguments_shown() -> None:
    view = Thread().events("k1", started(HELLO)).interrupted("k1", ABOUT_CALL, WITHOUT_CALL).view()
    digest = hashlib.sha256(b'{"rm":1}').hexdigest()
    assert view.open_interrupts == {
        "i1": OpenInterrupt(interrupt=ABOUT_CALL, run="k1", digest=digest),
        "i2": OpenInterrupt(interrupt=WITHOUT_CALL, run="k1", digest=""),
    }


@pytest.mark.parametrize(
    ("arguments", "is_shown"),
    [('{"rm": 1}', True), ('{"rm":1}', True), ('{"rm": 1.0}', True), ('{"rm": 2}', False), ('{"rm": 1', False)],
)
def test_an_interrupt_knows_the_arguments_it_has_shown_in_any_spelling(arguments: str, is_shown: bool) -> None:
    opened = Thread().events("k1", started(HELLO)).interrupted("k1", ABOUT_CALL, WITHOUT_CALL).view().open_interrupts
    assert opened["i1"].has_shown(arguments) is is_shown
    assert opened["i2"].has_shown(arguments)


def test_an_interrupt_of_a_checkpoint_from_before_spellings_were_unified_knows_what_it_has_shown() -> None:
    digest = hashlib.sha256(b'{"rm": 1}').hexdigest()
    pending = OpenInterrupt(interrupt=ABOUT_CALL, run="k1", digest=digest)
    assert (pending.has_shown('{"rm": 1}'), pending.has_shown('{"rm": 2}')) == (True, False)


BEFORE_ACTING: list[Event] = [
    StateSnapshot(snapshot={}),
    MessagesSnapshot(messages=[]),
    StepStarted(step_name="s"),
    Custom(name="ambient:trace", value=1),
]


@pytest.mark.parametrize("end", [RunError(message="x"), ended(Cancelled())[1]])
def test_a_resumed_run_that_fails_before_it_acted_leaves_the_interrupts_open(end: Event) -> None:
    thread = Thread().interrupted("k1", ABOUT_CALL, WITHOUT_CALL).answering("k2", "i1", "i2")
    opened = thread.view().open_interrupts
    assert [pending.answered for pending in opened.values()] == [True, True]
    after = thread.events("k2", *BEFORE_ACTING, end).view().open_interrupts
    assert {name: (one.run, one.answered) for name, one in after.items()} == {"i1": ("k1", False), "i2": ("k1", False)}


@pytest.mark.parametrize("first", [TextMessageStart(message_id="x"), Custom(name="mine", value=1)])
def test_the_first_event_after_the_action_consumes_the_answer_even_if_the_run_fails_later(first: Event) -> None:
    thread = Thread().interrupted("k1", WITHOUT_CALL).answering("k2", "i2").events("k2", *BEFORE_ACTING, first)
    assert thread.view().open_interrupts == {}
    assert thread.events("k2", RunError(message="x")).view().open_interrupts == {}


def test_an_answer_about_a_call_is_consumed_by_the_result_of_that_call_only() -> None:
    thread = (
        Thread()
        .interrupted("k1", ABOUT_CALL)
        .answering("k2", "i1")
        .events("k2", *text_events("a", "wait", " a", " moment"))
    )
    assert list(thread.view().open_interrupts) == ["i1"]
    thread.events("k2", ToolCallResult(message_id="t", tool_call_id="other", content=""))
    assert list(thread.view().open_interrupts) == ["i1"]
    thread.events("k2", ToolCallResult(message_id="t1", tool_call_id="c1", content="ok"))
    assert thread.view().open_interrupts == {}


def test_a_text_delta_consumes_an_answer_as_any_other_event_does() -> None:
    thread = Thread().interrupted("k1", WITHOUT_CALL).answering("k2", "i2")
    thread.events("k2", TextMessageContent(message_id="a", delta="x"), RunError(message="x"))
    assert thread.view().open_interrupts == {}


def test_success_consumes_every_answer_and_a_new_interrupt_replaces_the_old_ones() -> None:
    done = Thread().interrupted("k1", ABOUT_CALL).answering("k2", "i1").events("k2", *ended()).view()
    assert done.open_interrupts == {}
    again = Interrupt(id="i3", reason="confirmation")
    thread = Thread().interrupted("k1", ABOUT_CALL).answering("k2", "i1")
    view = thread.events("k2", *ended(Interrupted(interrupts=[again]))).view()
    assert view.open_interrupts == {"i3": OpenInterrupt(interrupt=again, run="k2", digest="")}


def test_an_interrupt_that_a_later_run_left_unanswered_is_dropped_as_expired() -> None:
    view = (
        Thread().interrupted("k1", WITHOUT_CALL).answering("k2").events("k2", *text_events("a", "x"), *ended()).view()
    )
    assert view.open_interrupts == {}


def pending() -> Thread:
    calls = [*called("c1", "{}"), *called("c2", "{}")]
    return Thread().events("k1", started(HELLO), *calls, *ended(Success(pending_tool_call_ids=["c1", "c2"])))


def test_frontend_calls_wait_until_their_tool_messages_come() -> None:
    assert pending().view().pending_calls == {"c1": "tool", "c2": "tool"}
    answer = ToolMessage(id="t1", tool_call_id="c1", content="x")
    assert pending().events("k2", started(answer)).view().pending_calls == {"c2": "tool"}


def test_a_user_message_or_a_rewind_drops_all_pending_frontend_calls() -> None:
    assert pending().events("k2", started(UserMessage(id="u2", content="never mind"))).view().pending_calls == {}
    rewound = pending().fact(THREAD_OWNER, REWOUND, {"to": "u1"}).view()
    assert (rewound.pending_calls, rewound.transcript.messages()) == ({}, [HELLO])


def test_state_is_patched_between_runs_and_hidden_keys_stay() -> None:
    thread = Thread().events("k1", started(), StateSnapshot(snapshot={"_x": 1, "a": 1}), *ended())
    thread.fact(STATE_OWNER, PATCHED, {"patch": [{"op": "replace", "path": "", "value": {"b": 2}}]})
    view = thread.view(hidden=("_*",))
    assert (view.state.value, view.client_state) == ({"_x": 1, "b": 2}, {"a": 1})


def test_a_stored_patch_that_does_not_apply_is_counted() -> None:
    view = Thread().fact(STATE_OWNER, PATCHED, {"patch": [{"op": "remove", "path": "/no"}]}).view()
    assert (view.state.value, view.state.failed_count) == ({}, 1)


def test_a_checkpoint_with_a_state_too_deep_for_any_agent_is_read_without_it() -> None:
    saved = msgspec.json.decode(Thread().events("k1", started(HELLO), *ended()).view().to_checkpoint())
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    saved["state"] = saved["seen"] = {"ok": 1, "deep": deep}
    view = ThreadView.from_checkpoint(9, msgspec.json.encode(saved))
    assert (view.state.value, view.client_state) == ({"ok": 1}, {"ok": 1})


def facts_of(view: ThreadView) -> Any:
    return (
        view.transcript.messages(),
        view.state.value,
        view.state.failed_count,
        view.client_state,
        view.last_run,
        view.open_interrupts,
        view.pending_calls,
        view.client_tools,
        view.client_call_ids,
    )


def eventful() -> list[Batch]:
    thread = Thread().events(
        "k1", started(AssistantMessage(id="old", content="x"), HELLO), *text_events("a", "Hel", "lo")
    )
    thread.events("k1", StateSnapshot(snapshot={"a": [1]}), StateDelta(delta=[{"op": "remove", "path": "/no"}]))
    thread.interrupted("k1", ABOUT_CALL, WITHOUT_CALL)
    thread.answering("k2", "i1", "i2").events("k2", StateSnapshot(snapshot=None), TextMessageStart(message_id="b"))
    thread.events("k2", *(TextMessageContent(message_id="b", delta=f"{n}\n") for n in range(5)))
    thread.events("k2", ReasoningMessageStart(message_id="th"), ToolCallStart(tool_call_id="c9", tool_call_name="tool"))
    thread.events("k2", ToolCallArgs(tool_call_id="c9", delta='{"x"'), ToolCallArgs(tool_call_id="c9", delta=":1}"))
    thread.events("k2", ToolCallResult(message_id="t1", tool_call_id="c1", content="ok"))
    thread.events("k2", *ended(Success(pending_tool_call_ids=["c9"])))
    thread.fact(STATE_OWNER, PATCHED, {"patch": [{"op": "replace", "path": "", "value": {"b": 1}}]})
    thread.fact(THREAD_OWNER, REWOUND, {"to": "b"})
    return thread.batches


def singles(batches: list[Batch]) -> list[Batch]:
    return [
        Batch(first=batch.first + at, owner=batch.owner, kind=batch.kind, run=batch.run, ts=0, lines=[line])
        for batch in batches
        for at, line in enumerate(batch.lines)
    ]


def test_a_thread_saved_and_restored_at_any_entry_continues_the_same() -> None:
    entries = singles(eventful())
    whole = fold(ThreadView(hidden=("_*",)), entries)
    for cut in range(len(entries) + 1):
        before = fold(ThreadView(hidden=("_*",)), entries[:cut])
        restored = ThreadView.from_checkpoint(before.seq, before.to_checkpoint(), hidden=("_*",))
        assert (restored.seq, facts_of(restored)) == (before.seq, facts_of(before))
        assert facts_of(fold(restored, entries[cut:])) == facts_of(whole)


class StoredParts:
    """The newest checkpoint of a thread as a store has it."""

    def __init__(self) -> None:
        self.head: CheckpointUpdate | None = None
        self.parts: list[CheckpointPart] = []
        self.written = 0

    def store(self, view: ThreadView) -> None:
        self.head = view.update_checkpoint([part.seq for part in self.parts])
        assert [part.seq for part in self.parts[: len(self.head.kept_parts)]] == list(self.head.kept_parts)
        self.parts = self.parts[: len(self.head.kept_parts)]
        if self.head.new_part:
            self.parts.append(CheckpointPart(self.head.seq, self.head.new_part))
        self.written += len(self.head.new_part)

    def read(self) -> ThreadView:
        assert self.head is not None
        view = ThreadView.from_checkpoint(self.head.seq, self.head.body)
        assert view.checkpoint is not None
        view.checkpoint = view.checkpoint._replace(parts=tuple(map(decode_part, self.parts)))
        for part in view.checkpoint.parts:
            view.transcript.add_messages(part.messages)
        return view


@given(cuts=st.lists(st.integers(0, 40), max_size=6), restores=st.sets(st.integers(0, 5)))
def test_a_thread_read_from_a_checkpoint_in_parts_is_the_thread_folded_from_its_entries(
    cuts: list[int], restores: set[int]
) -> None:
    entries, stored, view = singles(eventful()), StoredParts(), ThreadView()
    for number, cut in enumerate(sorted(cuts)):
        fold(view, entries[:cut])
        stored.store(view)
        read = stored.read()
        assert (read.seq, read.to_checkpoint()) == (view.seq, view.to_checkpoint())
        assert read.accepted_after == view.accepted_after
        view = read if number in restores else view.copy()
    assert fold(view, entries).to_checkpoint() == fold(ThreadView(), entries).to_checkpoint()


def test_a_checkpoint_writes_the_messages_since_the_last_one() -> None:
    thread, stored, view = Thread(), StoredParts(), ThreadView()
    for number in range(20):
        thread.events(f"k{number}", started(UserMessage(id=f"u{number}", content="x" * 1000)), *ended())
        stored.store(fold(view, thread.batches))
    assert len(stored.parts) == 20
    assert stored.written < 20 * 1200
    assert stored.read().transcript.messages() == view.transcript.messages()


def test_many_small_parts_are_written_again_as_one() -> None:
    thread, stored, view = Thread(), StoredParts(), ThreadView()
    counts = list[int]()
    for number in range(200):
        thread.events(f"k{number}", started(UserMessage(id=f"u{number}", content="x" * 1000)), *ended())
        stored.store(fold(view, thread.batches[-1:]))
        counts.append(len(stored.parts))
        view = stored.read() if number % 7 == 0 else view
        assert stored.read().transcript.messages() == view.transcript.messages()
    assert max(counts) <= 40
    assert stored.written < 4 * 200 * 1200


def test_a_large_part_is_not_written_again() -> None:
    thread, stored, view = Thread(), StoredParts(), ThreadView()
    for number in range(40):
        thread.events(f"k{number}", started(UserMessage(id=f"u{number}", content="x" * 40_000)), *ended())
        stored.store(fold(view, thread.batches[-1:]))
    assert len(stored.parts) == 40
    assert stored.written < 40 * 41_000


def test_parts_that_another_process_has_replaced_are_written_anew() -> None:
    thread, stored, view = Thread().events("k1", started(HELLO), *ended()), StoredParts(), ThreadView()
    stored.store(fold(view, thread.batches))
    other = stored.read()
    thread.fact(THREAD_OWNER, REWOUND, {"to": ""}).events("k2", started(UserMessage(id="v", content="new")), *ended())
    stored.store(fold(other, thread.batches))
    stored.store(fold(view, thread.batches))
    assert stored.read().transcript.messages() == fold(ThreadView(), thread.batches).transcript.messages()


def test_batches_fold_the_same_however_they_are_cut() -> None:
    entries, rng = singles(eventful()), random.Random(5)
    whole = facts_of(fold(ThreadView(), eventful()))
    assert facts_of(fold(ThreadView(), entries)) == whole
    for _ in range(20):
        cut = rng.randint(0, len(entries))
        assert facts_of(fold(fold(ThreadView(), entries[:cut]), eventful())) == whole


def test_a_copy_is_independent() -> None:
    entries = singles(eventful())
    for cut in range(0, len(entries), 3):
        view = fold(ThreadView(), entries[:cut])
        copied, before = view.copy(), facts_of(view.copy())
        fold(view, entries[cut:])
        assert facts_of(copied) == before
        assert facts_of(fold(copied, entries[cut:])) == facts_of(view)


def test_a_checkpoint_of_another_version_is_refused() -> None:
    saved = json.loads(ThreadView().to_checkpoint())
    for body in ({**saved, "version": 2}, {"version": 2}):
        with pytest.raises(LedgerError):
            ThreadView.from_checkpoint(1, json.dumps(body).encode())


def test_deltas_that_carry_more_than_text_are_folded_too() -> None:
    odd: list[Event] = [
        TextMessageContent(message_id="a", delta="1"),
        TextMessageContent(message_id="a", delta='2"', metadata={"k": "v", "delta": "x"}),
        TextMessageContent(message_id="a", delta="3", metadata={"k": "v", "delta": "x"}),
        TextMessageContent(message_id="a", delta="4\\", timestamp=5),
        TextMessageContent(message_id="a", delta="5\u2028é😀"),
        TextMessageContent(message_id="a", delta="6"),
        TextMessageContent(message_id='a","delta":"x', delta="other"),
        TextMessageContent(message_id='a","delta":"x', delta="s"),
        TextMessageContent(message_id="a", delta=""),
        TextMessageContent(message_id="a", delta="7"),
    ]
    starts: list[Event] = [TextMessageStart(message_id="a"), TextMessageStart(message_id='a","delta":"x')]
    view = Thread().events("k", *starts, *odd).view()
    assert view.transcript.messages() == [
        AssistantMessage(id="a", content='12"34\\5\u2028é😀67', metadata={"k": "v", "delta": "x"}),
        AssistantMessage(id='a","delta":"x', content="others"),
    ]


def test_a_long_answer_is_folded_quickly() -> None:
    batches = (
        Thread()
        .events("k1", started(HELLO), *text_events("a", *(f"word {n} " for n in range(20_000))), *ended())
        .batches
    )
    took = min(_seconds_to_fold(batches) for _ in range(5))
    assert took < 0.1  # about 0.008 on a quiet machine: this only catches what is slower by its nature


def _seconds_to_fold(batches: list[Batch]) -> float:
    began = time.process_time()
    fold(ThreadView(), batches)
    return time.process_time() - began


def test_a_call_shown_is_kept_with_its_arguments() -> None:
    view = Thread().interrupted("k1", ABOUT_CALL).view()
    expected = ToolCall(id="c1", function=FunctionCall(name="tool", arguments='{"rm": 1}'))
    assert view.transcript.messages() == [AssistantMessage(id="c1", tool_calls=[expected])]


def test_calls_of_the_tools_that_a_client_brought_are_the_clients() -> None:
    thread = Thread().fact(RUN_OWNER, INPUT, {"clientTools": ["tool", "search"]}, "k1")
    thread.events("k1", started(HELLO), *called("c1", "{}"), *ended())
    thread.fact(RUN_OWNER, INPUT, {"clientTools": []}, "k2").events("k2", started(), *called("c2", "{}"))
    assert thread.view().client_call_ids == {"c1"}


def test_a_tool_that_the_agent_has_itself_is_not_the_clients() -> None:
    dropped = Custom(name="ambient:dropped", value={"type": "TOOLS", "reason": "name_taken", "names": ["tool"]})
    thread = Thread().fact(RUN_OWNER, INPUT, {"clientTools": ["tool"]}, "k1")
    assert thread.events("k1", started(HELLO), dropped, *called("c1", "{}")).view().client_call_ids == set()


def test_a_call_that_the_agent_answers_itself_is_not_the_clients_whatever_the_client_declared() -> None:
    thread = Thread().fact(RUN_OWNER, INPUT, {"clientTools": ["tool"]}, "k1")
    thread.events("k1", started(HELLO), *called("c1", "{}"), *called("c2", "{}"))
    thread.events("k1", ToolCallResult(message_id="t1", tool_call_id="c1", content="rows"), *ended())
    assert thread.view().client_call_ids == {"c2"}
    thread.events("k2", started(ToolMessage(id="t2", tool_call_id="c2", content="drawn")))
    thread.events("k2", ToolCallResult(message_id="t3", tool_call_id="c2", content="drawn"))
    assert thread.view().client_call_ids == {"c2"}
