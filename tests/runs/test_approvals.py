"""An approval holds for what was shown: the digest of a question's arguments, edits of them, and answers to something else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from ambient_runner.config import Settings
from ambient_runner.errors import (
    ArgumentsChanged,
    ArgumentsWithheld,
    InterruptNotOpen,
    Refused,
    RunInterrupted,
    ThreadBusy,
)
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Checkpoint, Fact
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.projections.safe_interrupts import HIDDEN_TEXT
from ambient_runner.projections.summaries import summarize_value, summary_as_text
from ambient_runner.projections.thread_view import INPUT, RUN_OWNER
from ambient_runner.protocol import events as e
from ambient_runner.runs.approvals import has_same_arguments, record_arguments
from ambient_runner.runs.run import Run, current_run
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import load_view
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, request, run_once, runner_of, said, user

ARGUMENTS = {"to": "ann", "amount": 3}
CALL = e.ToolCall(id="c1", function=e.FunctionCall(name="pay", arguments=json.dumps(ARGUMENTS)))
SECRET = "s3cret-value-of-the-server"
CLIENT_HISTORY = dataclasses.replace(SETTINGS, history="client")


def tool_call(arguments: str = CALL.function.arguments) -> list[e.Event]:
    return [
        e.ToolCallStart(tool_call_id="c1", tool_call_name="pay", parent_message_id="a1"),
        *(e.ToolCallArgs(tool_call_id="c1", delta=piece) for piece in (arguments[:5], arguments[5:])),
        e.ToolCallEnd(tool_call_id="c1"),
    ]


def payer(arguments: str = CALL.function.arguments, **interrupt: Any) -> ScriptedAgent:
    """An agent that asks before it pays, and says `done` after the answer."""

    async def script(run: Run) -> AsyncIterator[e.Event]:
        if run.input.resume:
            for event in said("a2", "done"):
                yield event
            return
        for event in tool_call(arguments):
            yield event
        raise RunInterrupted([e.Interrupt(id=f"i-{run.key}", reason="tool_call", tool_call_id="c1", **interrupt)])

    return ScriptedAgent(script)


async def ask(runner: Runner, *messages: e.Message) -> e.Interrupt:
    """Run the agent until it asks. Return the question as clients get it."""
    end = (await run_once(runner, *(messages or (user("u1"),))))[-1]
    assert isinstance(end, e.RunFinished)
    assert isinstance(end.outcome, e.Interrupted)
    return end.outcome.interrupts[0]


def digest_of(question: e.Interrupt) -> str:
    return (question.metadata or {})["argumentsDigest"]


def answer(question: e.Interrupt, payload: Any = None, **metadata: Any) -> e.ResumeEntry:
    approved = {"approved": True} if payload is None else payload
    return e.ResumeEntry(interrupt_id=question.id, status="resolved", payload=approved, metadata=metadata or None)


def shown_call(arguments: str) -> e.AssistantMessage:
    call = e.ToolCall(id="c1", function=e.FunctionCall(name="pay", arguments=arguments))
    return e.AssistantMessage(id="a1", tool_calls=[call])


async def test_a_question_about_a_call_shows_a_keyed_digest_of_its_arguments() -> None:
    async with runner_of(payer()) as runner:
        first, second = await ask(runner), None
        async with runner_of(payer()) as other:
            second = await ask(other)
    guesses = [CALL.function.arguments, json.dumps(ARGUMENTS, separators=(",", ":"), sort_keys=True)]
    assert digest_of(first) not in {hashlib.sha256(guess.encode()).hexdigest() for guess in guesses}
    assert digest_of(first) != digest_of(second)


async def test_no_client_receives_the_key_of_a_digest() -> None:
    keys: list[str] = []

    async def script(run: Run) -> AsyncIterator[e.Event]:
        keys.append(run.digest_key)
        for event in tool_call():
            yield event
        raise RunInterrupted([e.Interrupt(id="i1", reason="tool_call", tool_call_id="c1")])

    async with runner_of(ScriptedAgent(script)) as runner:
        events = await run_once(runner, user("u1"))
    assert len(keys[0]) >= 32
    assert keys[0].encode() not in b"".join(e.encode_event(event) for event in events)


async def test_an_answer_in_a_conversation_with_other_arguments_than_those_shown_is_refused() -> None:
    async with runner_of(payer(), CLIENT_HISTORY) as runner:
        question = await ask(runner)
        changed = shown_call('{"to": "ann", "amount": 3000}')
        with pytest.raises(ArgumentsChanged):
            await runner.start(request(user("u1"), changed, resume=[answer(question)]))
        assert list((await runner.view_thread(KEY)).open_interrupts) == [question.id]
        spelled = shown_call('{"amount":3,"to":"ann"}')
        events = await run_once(runner, user("u1"), spelled, resume=[answer(question)])
    assert isinstance(events[-1], e.RunFinished)


async def test_an_answer_with_the_digest_of_another_question_is_refused_and_the_question_stays_open() -> None:
    async with runner_of(payer()) as runner:
        question = await ask(runner)
        with pytest.raises(ArgumentsChanged):
            await runner.start(request(resume=[answer(question, argumentsDigest="0" * 64)]))
        assert list((await runner.view_thread(KEY)).open_interrupts) == [question.id]
        events = await run_once(runner, resume=[answer(question, argumentsDigest=digest_of(question))])
    assert isinstance(events[-1], e.RunFinished)


async def test_a_question_whose_arguments_have_changed_can_be_cancelled() -> None:
    cancelled = {"status": "cancelled", "metadata": {"argumentsDigest": "0" * 64}}
    async with runner_of(payer(), CLIENT_HISTORY) as runner:
        question = await ask(runner)
        entry = e.ResumeEntry(interrupt_id=question.id, **cancelled)  # type: ignore[arg-type]
        events = await run_once(runner, user("u1"), shown_call("{}"), resume=[entry])
    assert isinstance(events[-1], e.RunFinished)


EDITS = [
    {"approved": True, "editedArgs": {"to": "bob"}},
    {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "bob"}}},
    {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": {"to": "bob"}}}]},
    [{"type": "edit", "args": {"to": "bob"}}],
    '{"approved": true, "editedArgs": {"to": "bob"}}',
]


@pytest.mark.parametrize("payload", EDITS, ids=repr)
async def test_edited_arguments_are_stored_as_a_new_digest_with_who_edited_them(payload: Any) -> None:
    async with runner_of(payer()) as runner:
        question = await ask(runner)
        events = await run_once(runner, resume=[answer(question, payload)])
    (edited,) = [event for event in events if isinstance(event, e.Custom)]
    assert isinstance(events[0], e.RunStarted)
    assert (edited.name, edited.value) == (
        "ambient:arguments_edited",
        {
            "interruptId": question.id,
            "toolCallId": "c1",
            "argumentsDigest": edited.value["argumentsDigest"],
            "previousDigest": digest_of(question),
            "editedBy": {"tenant": "default", "owner": "local"},
        },
    )
    assert edited.value["argumentsDigest"] != digest_of(question)


async def test_edited_arguments_that_equal_those_shown_are_no_edit() -> None:
    async with runner_of(payer()) as runner:
        question = await ask(runner)
        events = await run_once(runner, resume=[answer(question, {"approved": True, "editedArgs": ARGUMENTS})])
    assert not [event for event in events if isinstance(event, e.Custom)]


async def test_a_declined_answer_edits_nothing() -> None:
    async with runner_of(payer()) as runner:
        question = await ask(runner)
        events = await run_once(runner, resume=[answer(question, {"approved": False, "editedArgs": {"to": "bob"}})])
    assert not [event for event in events if isinstance(event, e.Custom)]


async def test_edited_arguments_with_the_placeholder_of_a_redacted_value_are_refused() -> None:
    settings = dataclasses.replace(SETTINGS, secrets=(SECRET,))
    async with runner_of(payer(json.dumps({"to": "ann", "token": SECRET})), settings) as runner:
        question = await ask(runner)
        returned = {"approved": True, "editedArgs": {"to": "bob", "token": REDACTED}}
        with pytest.raises(ArgumentsWithheld):
            await runner.start(request(resume=[answer(question, returned)]))
        given = {"approved": True, "editedArgs": {"to": "bob", "token": "new"}}
        events = await run_once(runner, resume=[answer(question, given)])
    assert isinstance(events[-1], e.RunFinished)


@pytest.mark.parametrize(
    "placeholder",
    [
        summarize_value(ARGUMENTS, "tool_arguments"),
        {"to": summary_as_text(summarize_value(ARGUMENTS, "tool_arguments"))},
        {"to": HIDDEN_TEXT},
    ],
    ids=["summary", "summary in a text", "sentence"],
)
async def test_what_the_audience_safe_sees_of_arguments_is_no_edit_of_them(placeholder: dict[str, Any]) -> None:
    """A form that was filled in with what was shown made the agent execute the summary."""
    async with runner_of(payer()) as runner:
        question = await ask(runner)
        with pytest.raises(ArgumentsWithheld):
            await runner.start(request(resume=[answer(question, {"approved": True, "editedArgs": placeholder})]))


async def test_the_digest_covers_what_the_redactor_removes() -> None:
    settings = dataclasses.replace(SETTINGS, secrets=(SECRET, f"{SECRET}-2"))
    same: list[list[bool]] = []

    async def script(run: Run) -> AsyncIterator[e.Event]:
        if run.input.resume:
            (name,) = run.answered_interrupts
            same.append([has_same_arguments(name, [("pay", {"token": token})]) for token in (SECRET, f"{SECRET}-2")])
            for event in said("a2", "done"):
                yield event
            return
        for event in tool_call(json.dumps({"token": SECRET})):
            yield event
        record_arguments("i1", [("pay", {"token": SECRET})])
        raise RunInterrupted([e.Interrupt(id="i1", reason="tool_call", tool_call_id="c1")])

    async with runner_of(ScriptedAgent(script), settings) as runner:
        question = await ask(runner)
        await run_once(runner, resume=[answer(question)])
    assert same == [[True, False]]


async def test_the_digest_covers_the_state_that_the_call_reads() -> None:
    same: list[list[bool]] = []
    calls = [("pay", {"amount": 3.0})]

    async def script(run: Run) -> AsyncIterator[e.Event]:
        if run.input.resume:
            states = ({"account": 1}, {"account": 2}, None)
            same.append([has_same_arguments("i1", [("pay", {"amount": 3})], state=state) for state in states])
            for event in said("a2", "done"):
                yield event
            return
        record_arguments("i1", calls, state={"account": 1})
        raise RunInterrupted([e.Interrupt(id="i1", reason="confirmation")])

    async with runner_of(ScriptedAgent(script)) as runner:
        question = await ask(runner)
        await run_once(runner, resume=[answer(question)])
    assert same == [[True, False, False]]


async def test_the_digest_is_the_servers_whatever_an_agent_writes() -> None:
    async with runner_of(payer(metadata={"argumentsDigest": "theirs", "a": 1})) as runner:
        question = await ask(runner)
    assert question.metadata == {"argumentsDigest": digest_of(question), "a": 1}
    assert len(digest_of(question)) == 64


async def test_an_agent_cannot_write_a_digest_where_no_arguments_are_known() -> None:
    async def script(run: Run) -> AsyncIterator[e.Event]:
        asked = e.Interrupt(id="i1", reason="confirmation", metadata={"argumentsDigest": "theirs"})
        yield e.RunFinished(thread_id="t", run_id="r", outcome=e.Interrupted(interrupts=[asked]))

    async with runner_of(ScriptedAgent(script)) as runner:
        assert (await ask(runner)).metadata is None


async def test_the_digest_of_another_server_is_relayed() -> None:
    """That server compares it with the answer."""

    async def script(run: Run) -> AsyncIterator[e.Event]:
        asked = e.Interrupt(id="i1", reason="confirmation", metadata={"argumentsDigest": "theirs"})
        yield e.RunFinished(thread_id="t", run_id="r", outcome=e.Interrupted(interrupts=[asked]))

    async with runner_of(ScriptedAgent(script, relays_developer_messages=True)) as runner:
        assert (await ask(runner)).metadata == {"argumentsDigest": "theirs"}


async def test_an_interrupt_without_a_call_has_no_digest() -> None:
    async def script(run: Run) -> AsyncIterator[e.Event]:
        for event in said("a1", "hm"):
            yield event
        raise RunInterrupted([e.Interrupt(id="i1", reason="confirmation")])

    async with runner_of(ScriptedAgent(script)) as runner:
        question = await ask(runner)
    assert question.metadata is None


async def test_of_two_answers_at_once_one_is_acted_on() -> None:
    outcomes: list[str] = []

    async def respond(runner: Runner, question: e.Interrupt) -> None:
        try:
            await run_once(runner, resume=[answer(question)])
            outcomes.append("done")
        except (ThreadBusy, InterruptNotOpen) as error:
            outcomes.append(error.code)

    async with runner_of(payer()) as runner:
        question = await ask(runner)
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(respond, runner, question)
                tasks.start_soon(respond, runner, question)
        messages = (await runner.view_thread(KEY)).transcript.messages()
    assert outcomes.count("done") == 1
    assert [message.id for message in messages] == ["u1", "a1", "a2"]


async def store_old_thread(ledger: MemoryLedger) -> None:
    """Store a thread as it was before digests were shown: its last run ended with a question."""
    events: list[e.Event] = [
        e.RunStarted(
            thread_id="t", run_id="r", input=e.RunAgentInput(thread_id="t", run_id="r", messages=[user("u1")])
        ),
        *tool_call(),
        e.RunFinished(
            thread_id="t",
            run_id="r",
            outcome=e.Interrupted(interrupts=[e.Interrupt(id="i1", reason="tool_call", tool_call_id="c1")]),
        ),
    ]
    body = msgspec.json.encode({"input": {}, "answers": [], "imported": []})
    async with await ledger.acquire_lease(KEY, "k" * 32) as writer:
        first = [Fact(owner=RUN_OWNER, kind=INPUT, body=body)]
        first += [Fact(owner=RUNTIME, kind="", body=e.encode_event(event)) for event in events[:-1]]
        await writer.begin_run(first, run_id="r", agent="agent", claim=None)
        writer.append(e.encode_event(events[-1]))
        await writer.finish_run()


async def replace_by_old_checkpoint(ledger: MemoryLedger) -> None:
    """Replace the entries of that thread by a checkpoint of that time."""
    view = await load_view(ledger, KEY)
    saved = msgspec.json.decode(view.to_checkpoint())
    (pending,) = saved["interrupts"]
    digest = hashlib.sha256(CALL.function.arguments.encode()).hexdigest()
    old = {"interrupt": pending["interrupt"], "run": pending["run"], "digest": digest}
    del saved["digest_key"]
    body = msgspec.json.encode({**saved, "interrupts": [old]})
    await ledger.trim_thread(KEY, Checkpoint(seq=view.seq, body=body))


@pytest.mark.parametrize("is_trimmed", [False, True], ids=["entries", "checkpoint"])
@pytest.mark.parametrize("settings", [SETTINGS, CLIENT_HISTORY], ids=["server", "client"])
async def test_a_question_that_was_stored_before_digests_were_shown_is_answered(
    settings: Settings, is_trimmed: bool
) -> None:
    same: list[bool] = []

    async def script(run: Run) -> AsyncIterator[e.Event]:
        same.append(has_same_arguments("i1", [("pay", ARGUMENTS)]))
        for event in said("a2", "done"):
            yield event

    agent = ScriptedAgent(script)
    async with MemoryLedger() as ledger, Runner(ledger, {"agent": agent}, settings) as runner:
        await store_old_thread(ledger)
        if is_trimmed:
            await replace_by_old_checkpoint(ledger)
        entry = e.ResumeEntry(interrupt_id="i1", status="resolved", payload={"approved": True})
        history = [user("u1"), shown_call(CALL.function.arguments)] if settings is CLIENT_HISTORY else []
        events = await run_once(runner, *history, resume=[entry])
    assert isinstance(events[-1], e.RunFinished)
    assert same == [True]


async def test_both_refusals_start_nothing() -> None:
    settings = dataclasses.replace(SETTINGS, secrets=(SECRET,))
    refusals: list[tuple[str, int]] = []
    async with runner_of(payer(json.dumps({"token": SECRET})), settings) as runner:
        question = await ask(runner)
        before = await runner.ledger.get_thread(KEY)
        changed = answer(question, argumentsDigest="0" * 64)
        withheld = answer(question, {"approved": True, "editedArgs": {"token": REDACTED}})
        for entry in (changed, withheld):
            with pytest.raises(Refused) as refused:
                await runner.start(request(resume=[entry]))
            refusals.append((refused.value.code, refused.value.status))
        assert await runner.ledger.get_thread(KEY) == before
    assert refusals == [("arguments_changed", 409), ("arguments_withheld", 409)]


async def test_without_a_server_nothing_is_recorded_and_nothing_refused() -> None:
    with pytest.raises(LookupError):
        current_run()
    record_arguments("i1", [("pay", ARGUMENTS)])
    assert has_same_arguments("i1", [("pay", {})])
