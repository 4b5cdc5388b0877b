"""What a Composer says for an adapter."""

from __future__ import annotations

from hypothesis import given

from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.protocol import events as e
from ambient_runner.protocol.verify import Verifier
from tests.hypothesis_profiles import examples
from tests.protocol.strategies import REMARKS, RUN, TERMINALS, THREAD, Remark, compose, numbered

STARTED = e.RunStarted(thread_id=THREAD, run_id=RUN)
quick = examples(150)


def verify(events: list[e.Event]) -> None:
    verifier = Verifier(THREAD, RUN)
    for event in events:
        verifier.check(event)
    verifier.finish()


def text(message_id: str, *deltas: str, subagent_id: str | None = None) -> list[e.Event]:
    return [
        e.TextMessageStart(message_id=message_id, role="assistant", subagent_run_id=subagent_id),
        *(e.TextMessageContent(message_id=message_id, delta=delta, subagent_run_id=subagent_id) for delta in deltas),
        e.TextMessageEnd(message_id=message_id, subagent_run_id=subagent_id),
    ]


def thought(message_id: str, *deltas: str) -> list[e.Event]:
    return [
        e.ReasoningStart(message_id=message_id),
        e.ReasoningMessageStart(message_id=message_id),
        *(e.ReasoningMessageContent(message_id=message_id, delta=delta) for delta in deltas),
        e.ReasoningMessageEnd(message_id=message_id),
        e.ReasoningEnd(message_id=message_id),
    ]


def call(tool_call_id: str, parent: str, *args: str) -> list[e.Event]:
    return [
        e.ToolCallStart(tool_call_id=tool_call_id, tool_call_name="look", parent_message_id=parent),
        *(e.ToolCallArgs(tool_call_id=tool_call_id, delta=delta) for delta in args),
        e.ToolCallEnd(tool_call_id=tool_call_id),
    ]


def result(tool_call_id: str, message_id: str, content: str = "done") -> e.ToolCallResult:
    return e.ToolCallResult(message_id=message_id, tool_call_id=tool_call_id, content=content, role="tool")


@quick
@given(REMARKS, TERMINALS)
def test_any_sequence_of_calls_yields_a_legal_stream_that_may_end_at_any_moment(
    remarks: list[Remark], terminal: e.RunFinished | e.RunError
) -> None:
    composer = Composer(numbered())
    events: list[e.Event] = [STARTED, *compose(composer, remarks)]
    verify([*events, *composer.close(terminal), terminal])
    assert composer.close(terminal) == []


@quick
@given(REMARKS)
def test_text_and_reasoning_never_overlap_and_calls_follow_them(remarks: list[Remark]) -> None:
    speaking: dict[str | None, str] = {}
    for event in compose(Composer(numbered()), remarks):
        match event:
            case e.TextMessageStart() | e.ReasoningMessageStart():
                assert event.subagent_run_id not in speaking
                speaking[event.subagent_run_id] = event.message_id
            case e.TextMessageEnd() | e.ReasoningMessageEnd():
                assert speaking.pop(event.subagent_run_id) == event.message_id
            case e.ToolCallStart():
                assert event.subagent_run_id not in speaking
                assert event.parent_message_id is not None
            case _:
                pass


@quick
@given(REMARKS)
def test_every_result_has_a_call_that_ended_and_ids_are_used_once(remarks: list[Remark]) -> None:
    ended: set[str] = set()
    messages: list[str] = []
    for event in compose(Composer(numbered()), remarks):
        match event:
            case e.TextMessageStart() | e.ReasoningMessageStart():
                messages.append(event.message_id)
            case e.ToolCallEnd():
                ended.add(event.tool_call_id)
            case e.ToolCallResult():
                messages.append(event.message_id)
                ended.remove(event.tool_call_id)
            case _:
                pass
    assert len(messages) == len(set(messages))


def test_a_turn_with_reasoning_text_parallel_calls_and_an_answer() -> None:
    c = Composer(numbered())
    assert [
        *c.reasoning("let me "),
        *c.reasoning("see"),
        *c.text("I will look"),
        *c.text(""),
        *c.tool_start("c1", "look"),
        *c.tool_args("c1", '{"a":'),
        *c.tool_args_full("c1", '{"a":1}'),
        *c.tool_end("c1"),
        *c.tool_start("c2", "look"),
        *c.tool_end("c2"),
        *c.tool_result("c2", "done"),
        *c.tool_result("c1", "done"),
        *c.text("there"),
        *c.close(),
    ] == [
        *thought("reasoning-1", "let me ", "see"),
        *text("message-1", "I will look"),
        *call("c1", "message-1", '{"a":', "1}"),
        *call("c2", "message-1"),
        result("c2", "result-1"),
        result("c1", "result-2"),
        *text("message-2", "there"),
    ]


def test_calls_without_text_share_a_message_that_the_next_text_does_not_take() -> None:
    c = Composer(numbered())
    events = [
        *c.tool_start("c1", "look"),
        *c.tool_start("c2", "look"),
        *c.tool_result("c1", "done"),
        *c.tool_result("c2", "done"),
        *c.tool_start("c3", "look"),
        *c.text("x"),
    ]
    assert [one.parent_message_id for one in events if isinstance(one, e.ToolCallStart)] == [
        "message-1",
        "message-1",
        "message-2",
    ]
    assert [one.message_id for one in events if isinstance(one, e.TextMessageStart)] == ["message-3"]


def test_a_result_without_a_call_brings_its_call() -> None:
    c = Composer(numbered())
    assert c.tool_result("c1", "done", name="look", args='{"a":1}') == [
        *call("c1", "message-1", '{"a":1}'),
        result("c1", "result-1"),
    ]


def test_a_result_ends_an_open_call_with_the_arguments_it_lacks() -> None:
    c = Composer(numbered())
    assert [*c.tool_start("c1", "look"), *c.tool_args("c1", "{"), *c.tool_result("c1", "done", args="{}")] == [
        *call("c1", "message-1", "{", "}"),
        result("c1", "result-1"),
    ]


def test_a_replay_adds_no_events() -> None:
    c = Composer(numbered())
    c.tool_result("c1", "done", name="look", args="{}")
    assert [
        *c.tool_start("c1", "look"),
        *c.tool_args_full("c1", "{}"),
        *c.tool_end("c1"),
        *c.tool_result("c1", "again"),
    ] == []


def test_a_complete_text_adds_only_what_its_deltas_lacked() -> None:
    c = Composer(numbered())
    assert [
        *c.text("ha", key="k"),
        *c.text("ha", key="k"),
        *c.text("haha", key="k", complete=True),
        *c.text("haha!", key="k", complete=True),
        *c.end_text(),
        *c.text("haha!", key="k", complete=True),
    ] == text("message-1", "ha", "ha", "!")


def test_another_native_message_is_another_message() -> None:
    c = Composer(numbered())
    assert [*c.text("a", key="k1"), *c.text("b", key="k2"), *c.end_text()] == [
        *text("message-1", "a"),
        *text("message-2", "b"),
    ]


def test_subagents_stream_at_the_same_time() -> None:
    c = Composer(numbered())
    mine, theirs = text("message-1", "a", "b"), text("message-2", "x", subagent_id="s1")
    assert [*c.text("a"), *c.text("x", subagent_id="s1"), *c.text("b"), *c.end_text("s1"), *c.end_text()] == [
        *mine[:2],
        *theirs[:2],
        mine[2],
        theirs[2],
        mine[3],
    ]


def test_an_encrypted_value_goes_with_the_latest_reasoning_or_opens_one() -> None:
    c = Composer(numbered())
    c.reasoning("hm")
    c.text("x")
    kept = e.ReasoningEncryptedValue(subtype="message", entity_id="reasoning-1", encrypted_value="🔒")
    assert c.reasoning_encrypted("🔒") == [kept]
    assert [*Composer(numbered()).reasoning_encrypted("🔒")] == [*thought("reasoning-1")[:2], kept]


def test_an_encrypted_value_of_a_call_belongs_to_the_subagent_of_the_call() -> None:
    c = Composer(numbered())
    c.tool_start("c1", "look", "s1")
    assert c.reasoning_encrypted("🔒", subtype="tool-call", entity_id="c1") == [
        e.ReasoningEncryptedValue(subtype="tool-call", entity_id="c1", encrypted_value="🔒", subagent_run_id="s1")
    ]


def test_the_end_of_a_subagent_closes_its_open_items() -> None:
    c = Composer(numbered())
    assert [
        *c.start_subagent("s1", "helper", description="helps", parent="ghost", parent_tool_call_id="c1"),
        *c.start_subagent("s1", "helper"),
        *c.start_step("plan", "s1"),
        *c.text("x", subagent_id="s1"),
        *c.end_subagent("s1", result={"n": 1}),
        *c.end_subagent("s1"),
        *c.start_subagent("s1", "helper"),
    ] == [
        e.SubagentStarted(subagent_run_id="s1", name="helper", description="helps", parent_tool_call_id="c1"),
        e.StepStarted(step_name="plan", subagent_run_id="s1"),
        *text("message-1", "x", subagent_id="s1"),
        e.StepFinished(step_name="plan", subagent_run_id="s1"),
        e.SubagentFinished(subagent_run_id="s1", result={"n": 1}),
    ]


def test_a_subagent_that_sends_after_its_end_starts_again() -> None:
    c = Composer(numbered())
    c.start_subagent("s1", "helper")
    c.text("x", subagent_id="s1")
    c.end_subagent("s1", error="lost")
    assert [*c.text("y", subagent_id="s1"), *c.end_text("s1")] == text("message-2", "y", subagent_id="s1")


def test_state_and_custom_events_are_emitted_unchanged() -> None:
    c = Composer()
    patch = [{"op": "remove", "path": "/a"}]
    assert [*c.state({"a": 1}), *c.state_delta(patch), *c.state_delta([]), *c.custom("x:y", None)] == [
        e.StateSnapshot(snapshot={"a": 1}),
        e.StateDelta(delta=patch),
        e.Custom(name="x:y", value=None),
    ]


def test_ids_are_unique_by_default() -> None:
    c = Composer()
    starts = [*c.text("a"), *c.end_text(), *c.text("b")]
    ids = [event.message_id for event in starts if isinstance(event, e.TextMessageStart)]
    assert len(set(ids)) == 2


def test_a_message_may_have_the_id_its_framework_gave_it_but_only_once() -> None:
    c = Composer(numbered())
    assert [
        *c.text("a", key="e1", message_id="e1"),
        *c.tool_start("c1", "look", message_id="e1"),
        *c.tool_result("c1", "done"),
        *c.text("b", key="e1", message_id="e1"),
        *c.end_text(),
        *c.tool_start("c2", "look"),
        *c.tool_result("c2", "done"),
        *c.tool_start("c3", "look", message_id="e2"),
        *c.close(),
    ] == [
        *text("e1", "a"),
        *call("c1", "e1"),
        result("c1", "result-1"),
        *text("e1~2", "b"),
        *call("c2", "e1~2"),
        result("c2", "result-2"),
        *call("c3", "e2"),
    ]


def test_a_failed_call_is_marked_in_the_metadata_of_its_result() -> None:
    c = Composer(numbered())
    failed = c.tool_result("c1", "no such city", name="look", is_error=True)[-1]
    assert failed == e.ToolCallResult(
        message_id="result-1", tool_call_id="c1", content="no such city", role="tool", metadata={"isError": True}
    )


def test_a_call_of_an_earlier_run_is_answered_without_beginning_again() -> None:
    c = Composer(numbered())
    c.continue_tool_call("c1")
    events = [*c.tool_start("c1", "look"), *c.tool_result("c1", "done", name="look", args="{}"), *c.text("there")]
    events += c.close()
    assert events == [result("c1", "result-1"), *text("message-1", "there")]
    verify([STARTED, *events, e.RunFinished(thread_id=THREAD, run_id=RUN)])


def test_a_provisional_result_is_replaced_by_the_next_one() -> None:
    c = Composer(numbered())
    assert c.tool_result("c1", "needs approval", name="look", provisional=True) == call("c1", "message-1")
    assert c.tool_result("c1", "done") == [result("c1", "result-2")]
    assert c.close() == []


def test_a_provisional_result_is_emitted_at_the_end_unless_the_run_is_interrupted() -> None:
    question = e.Interrupt(id="i", reason="confirmation")
    asked = e.RunFinished(thread_id=THREAD, run_id=RUN, outcome=e.Interrupted(interrupts=[question]))
    waiting, over = Composer(numbered()), Composer(numbered())
    for c in (waiting, over):
        c.tool_result("c1", "needs approval", name="look", provisional=True)
    assert waiting.close(asked) == []
    assert over.close(e.RunFinished(thread_id=THREAD, run_id=RUN)) == [result("c1", "result-1", "needs approval")]


def test_a_subagent_takes_its_provisional_results_with_it() -> None:
    c = Composer(numbered())
    events = c.start_subagent("s1", "helper") + c.tool_result(
        "c1", "first", name="look", subagent_id="s1", provisional=True
    )
    events += c.end_subagent("s1")
    assert [type(event) for event in events[-2:]] == [e.ToolCallResult, e.SubagentFinished]
    verify([STARTED, *events, e.RunFinished(thread_id=THREAD, run_id=RUN)])


def test_a_summary_is_a_reasoning_message_of_its_own_and_marked_as_one() -> None:
    c, marked = Composer(numbered()), {"summary": True}
    events = [*c.reasoning("hm"), *c.reasoning("In ", is_summary=True), *c.reasoning("short.", is_summary=True)]
    assert [*events, *c.reasoning("hm"), *c.close()] == [
        *thought("reasoning-1", "hm"),
        e.ReasoningStart(message_id="reasoning-2"),
        e.ReasoningMessageStart(message_id="reasoning-2"),
        e.ReasoningMessageContent(message_id="reasoning-2", delta="In ", metadata=marked),
        e.ReasoningMessageContent(message_id="reasoning-2", delta="short.", metadata=marked),
        e.ReasoningMessageEnd(message_id="reasoning-2", metadata=marked),
        e.ReasoningEnd(message_id="reasoning-2"),
        *thought("reasoning-3", "hm"),
    ]
