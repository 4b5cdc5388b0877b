"""Each rule of the grammar, broken once; and what looks wrong but is legal."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.protocol import events as e
from ambient_runner.protocol.verify import Verifier, Violation, is_json_patch

STARTED = e.RunStarted(thread_id="t", run_id="r")
FINISHED = e.RunFinished(thread_id="t", run_id="r")
FAILED = e.RunError(message="it broke")


def verify(*events: e.Event, verifier: Verifier | None = None) -> None:
    verifier = verifier or Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()


def text(i: str = "m", tag: str | None = None) -> tuple[e.Event, e.Event, e.Event]:
    return (
        e.TextMessageStart(message_id=i, subagent_run_id=tag),
        e.TextMessageContent(message_id=i, delta="x", subagent_run_id=tag),
        e.TextMessageEnd(message_id=i, subagent_run_id=tag),
    )


def call(i: str = "c", tag: str | None = None, parent: str | None = None) -> tuple[e.Event, e.Event, e.Event]:
    return (
        e.ToolCallStart(tool_call_id=i, tool_call_name="look", parent_message_id=parent, subagent_run_id=tag),
        e.ToolCallArgs(tool_call_id=i, delta="{}", subagent_run_id=tag),
        e.ToolCallEnd(tool_call_id=i, subagent_run_id=tag),
    )


def reasoning(i: str = "m", tag: str | None = None) -> tuple[e.Event, e.Event, e.Event]:
    return (
        e.ReasoningMessageStart(message_id=i, subagent_run_id=tag),
        e.ReasoningMessageContent(message_id=i, delta="x", subagent_run_id=tag),
        e.ReasoningMessageEnd(message_id=i, subagent_run_id=tag),
    )


def subagent(i: str = "s", parent: str | None = None) -> e.SubagentStarted:
    return e.SubagentStarted(subagent_run_id=i, name="helper", parent_subagent_run_id=parent)


def step(tag: str | None = None) -> tuple[e.Event, e.Event]:
    return e.StepStarted(step_name="p", subagent_run_id=tag), e.StepFinished(step_name="p", subagent_run_id=tag)


def interrupted(*ids: str) -> e.RunFinished:
    interrupts = [e.Interrupt(id=i, reason="confirmation") for i in ids]
    return e.RunFinished(thread_id="t", run_id="r", outcome=e.Interrupted(interrupts=interrupts))


def encrypted(subtype: Any, i: str, tag: str) -> e.Event:
    return e.ReasoningEncryptedValue(subtype=subtype, entity_id=i, encrypted_value="🔒", subagent_run_id=tag)


def activity(tag: str | None, *, replace: bool | None = None) -> e.Event:
    return e.ActivitySnapshot(message_id="a", activity_type="PLAN", content={}, replace=replace, subagent_run_id=tag)


def activity_delta(tag: str | None) -> e.Event:
    return e.ActivityDelta(message_id="a", activity_type="PLAN", patch=[], subagent_run_id=tag)


SNAPSHOT = e.MessagesSnapshot(
    messages=[
        e.AssistantMessage(
            id="m",
            subagent_run_id="s",
            tool_calls=[e.ToolCall(id="c", function=e.FunctionCall(name="look", arguments="{}"))],
        ),
        e.ReasoningMessage(id="q", content="hm", subagent_run_id="s"),
        e.ActivityMessage(id="a", activity_type="PLAN", content={}, subagent_run_id="s"),
    ]
)
ECHO = e.RunStarted(
    thread_id="t", run_id="r", input=e.RunAgentInput(thread_id="t", run_id="r", messages=SNAPSHOT.messages)
)


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        ("run-not-started", [e.Custom(name="n", value=1)]),
        ("run-not-started", [FINISHED]),
        ("run-already-started", [STARTED, STARTED]),
        ("after-terminal", [STARTED, FINISHED, FINISHED]),
        ("after-terminal", [STARTED, FINISHED, *text()]),
        ("after-terminal", [STARTED, FAILED, *text()]),
        ("after-terminal", [STARTED, FAILED, FAILED]),
        ("text-already-open", [STARTED, text()[0], text()[0]]),
        ("text-not-open", [STARTED, text()[1]]),
        ("text-not-open", [STARTED, *text(), text()[2]]),
        ("tool-already-open", [STARTED, call()[0], call()[0]]),
        ("tool-not-open", [STARTED, call()[1]]),
        ("tool-not-open", [STARTED, call()[2]]),
        ("reasoning-already-open", [STARTED, reasoning()[0], reasoning()[0]]),
        ("reasoning-not-open", [STARTED, reasoning()[1]]),
        ("reasoning-not-open", [STARTED, reasoning()[2]]),
        ("reasoning-span-already-open", [STARTED, *[e.ReasoningStart(message_id="m")] * 2]),
        ("reasoning-span-not-open", [STARTED, reasoning()[0], e.ReasoningEnd(message_id="m")]),
        ("step-already-open", [STARTED, step()[0], step()[0]]),
        ("step-not-open", [STARTED, step()[1]]),
        ("step-not-open", [STARTED, step("s")[0], step()[1]]),
        ("owner", [STARTED, text()[0], text(tag="s")[1]]),
        ("owner", [STARTED, text(tag="s")[0], text(tag="z")[2]]),
        ("owner", [STARTED, *text(tag="s"), text(tag="z")[0]]),
        ("owner", [STARTED, call()[0], call(tag="s")[1]]),
        ("owner", [STARTED, reasoning()[0], reasoning(tag="s")[1]]),
        ("owner", [STARTED, e.ReasoningStart(message_id="m"), reasoning(tag="s")[0]]),
        ("owner", [STARTED, *call(tag="s"), encrypted("tool-call", "c", "z")]),
        ("owner", [STARTED, *text(tag="s"), encrypted("message", "m", "z")]),
        ("owner", [STARTED, *reasoning("q", tag="s"), encrypted("message", "q", "z")]),
        ("owner", [STARTED, activity("s"), activity_delta("z")]),
        ("owner", [STARTED, activity("s"), activity("z", replace=False), activity_delta("z")]),
        ("owner", [STARTED, SNAPSHOT, text(tag="z")[0]]),
        ("owner", [STARTED, SNAPSHOT, call(tag="z")[0]]),
        ("owner", [STARTED, SNAPSHOT, reasoning("q", tag="z")[0]]),
        ("owner", [STARTED, SNAPSHOT, activity_delta("z")]),
        ("owner", [ECHO, text(tag="z")[0]]),
        ("owner", [STARTED, text()[0], SNAPSHOT, text(tag="z")[1]]),
        ("tool-parent", [STARTED, *text(tag="s"), call(tag="z", parent="m")[0]]),
        ("tool-parent", [STARTED, SNAPSHOT, *text("n"), call(parent="n")[0]]),
        ("owner", [STARTED, *text(tag="s"), call(parent="m")[0], call(tag="z")[1]]),
        ("subagent-already-open", [STARTED, subagent(), subagent()]),
        ("subagent-reused", [STARTED, subagent(), e.SubagentFinished(subagent_run_id="s"), subagent()]),
        ("subagent-parent", [STARTED, subagent(parent="ghost")]),
        ("subagent-not-open", [STARTED, e.SubagentFinished(subagent_run_id="s")]),
        ("subagent-not-open", [STARTED, e.SubagentError(subagent_run_id="s", message="lost")]),
        ("left-open", [STARTED, text()[0], FINISHED]),
        ("left-open", [STARTED, call()[0], FINISHED]),
        ("left-open", [STARTED, reasoning()[0], FINISHED]),
        ("left-open", [STARTED, e.ReasoningStart(message_id="m"), FINISHED]),
        ("left-open", [STARTED, step()[0], FINISHED]),
        ("left-open", [STARTED, subagent(), FINISHED]),
        ("thread-id", [STARTED, e.RunFinished(thread_id="x", run_id="r")]),
        ("run-id", [STARTED, e.RunFinished(thread_id="t", run_id="x")]),
        ("thread-id", [STARTED, FINISHED, e.RunStarted(thread_id="x", run_id="r")]),
        ("interrupts", [STARTED, interrupted()]),
        ("interrupts", [STARTED, interrupted("i", "i")]),
        ("patch", [STARTED, e.StateDelta(delta=[{"op": "add", "path": "a", "value": 1}])]),
        ("chunk", [STARTED, e.TextMessageChunk(message_id="m", delta="x")]),
        ("truncated", []),
        ("truncated", [STARTED, *text()]),
    ],
)
def test_a_broken_rule_is_named(rule: str, events: list[e.Event]) -> None:
    with pytest.raises(Violation) as violation:
        verify(*events)
    assert violation.value.rule == rule


@pytest.mark.parametrize(
    "events",
    [
        [FAILED],
        [FAILED, STARTED, FINISHED],
        [STARTED, FINISHED, FAILED],
        [STARTED, text()[0], call()[0], reasoning()[0], subagent(), FAILED],
        [STARTED, FINISHED, e.RunStarted(thread_id="t", run_id="r2"), e.RunFinished(thread_id="t", run_id="r2")],
        [STARTED, text()[0], FAILED, STARTED, *text(), FINISHED],
        [STARTED, *text(), *text(), FINISHED],
        [STARTED, text()[0], *call(), *text()[1:], FINISHED],
        [STARTED, text(tag="s")[0], *text()[1:], FINISHED],
        [STARTED, *text(tag="never-started"), FINISHED],
        [STARTED, step()[0], *step("s"), step()[1], FINISHED],
        [STARTED, e.ReasoningStart(message_id="m"), *reasoning(), e.ReasoningEnd(message_id="m"), FINISHED],
        [STARTED, *text(tag="s"), *call(parent="m")[:1], *call(tag="s")[1:], FINISHED],
        [STARTED, SNAPSHOT, *call(tag="s"), encrypted("message", "q", "s"), activity_delta("s"), FINISHED],
        [STARTED, activity("s"), activity("z"), activity_delta("z"), FINISHED],
        [
            STARTED,
            subagent(),
            e.SubagentFinished(subagent_run_id="s"),
            subagent("s2", parent="s"),
            e.SubagentError(subagent_run_id="s2", message="lost"),
            FINISHED,
        ],
        [STARTED, e.ToolCallResult(message_id="x", tool_call_id="unknown", content="done"), interrupted("i", "j")],
    ],
)
def test_unusual_sequences_may_be_legal(events: list[e.Event]) -> None:
    verify(*events)


def test_the_stream_answers_the_input() -> None:
    for wrong, rule in [(Verifier("x", "r"), "thread-id"), (Verifier("t", "x"), "run-id")]:
        with pytest.raises(Violation) as violation:
            verify(STARTED, FINISHED, verifier=wrong)
        assert violation.value.rule == rule
    history = e.RunStarted(thread_id="t", run_id="earlier"), e.RunFinished(thread_id="t", run_id="earlier")
    verify(*history, STARTED, FINISHED, verifier=Verifier("t", "r"))


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "", "value": None},
        {"op": "replace", "path": "/a~1b/~0/0", "value": 1},
        {"op": "test", "path": "/a//b", "value": 1},
        {"op": "remove", "path": "/a"},
        {"op": "move", "path": "/a", "from": "/b"},
        {"op": "copy", "path": "/a", "from": ""},
    ],
)
def test_a_well_formed_operation(operation: dict[str, Any]) -> None:
    assert is_json_patch([operation])
    assert not is_json_patch([operation, {**operation, "path": "a"}])
    assert not is_json_patch([operation, {**operation, "op": "jump"}])
