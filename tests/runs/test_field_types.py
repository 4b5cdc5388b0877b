"""An agent's structs are not validated when they are made. One with a field of a wrong type ends its own run, and harms nothing else."""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ambient_runner.errors import BridgeError, RunInterrupted
from ambient_runner.ledger import SqliteLedger
from ambient_runner.protocol import events as e
from ambient_runner.protocol.field_types import allowed_values
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import load_view
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, said, user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ambient_runner.runs.run import Middleware, Run, RunHandler

SECRET = "zq7Rk2pVx9LmT4wB8nYc3HdF"


class Text(str):
    """A subclass of `str`, as texts of some SDKs are. The encoder refuses them."""


class Name(enum.StrEnum):
    M = "m"


def call(**result: Any) -> list[e.Event]:
    return [
        e.ToolCallStart(tool_call_id="c", tool_call_name="look"),
        e.ToolCallEnd(tool_call_id="c"),
        e.ToolCallResult(**{"message_id": "r", "tool_call_id": "c", "content": "x", **result}),
    ]


def wrong(make: Any, **fields: Any) -> e.Event:
    """An event of which the type checker would refuse a field."""
    return make(**fields)


FINISHED: dict[str, Any] = {"thread_id": "t", "run_id": "r"}
EVENTS: dict[str, list[e.Event]] = {
    "a timestamp with a fraction": [wrong(e.TextMessageStart, message_id="m", timestamp=time.time())],
    "a timestamp of a delta": [wrong(e.TextMessageContent, message_id="m", delta="x", timestamp=1.5)],
    "metadata that is a text": [wrong(e.TextMessageStart, message_id="m", metadata="x")],
    "metadata of a delta that is a list": [
        *said("m", "x")[:1],
        wrong(e.TextMessageContent, message_id="m", delta="y", metadata=[]),
    ],
    "a number as id": [wrong(e.TextMessageStart, message_id=7)],
    "no name of a tool": [wrong(e.ToolCallStart, tool_call_id="c", tool_call_name=None)],
    "a number as step": [wrong(e.StepStarted, step_name=1)],
    "another role of a result": call(role="assistant"),
    "a secret as role of a result": call(role=SECRET),
    "a result that is an object": call(content={"a": 1}),
    "a result of a part of no type": call(content=[{"type": "text", "text": "x"}, 5]),
    "a part whose text is a number": call(content=[wrong(e.TextPart, text=5)]),
    "another role of reasoning": [wrong(e.ReasoningMessageStart, message_id="m", role=SECRET)],
    "another subtype": [wrong(e.ReasoningEncryptedValue, subtype=SECRET, entity_id="m", encrypted_value="x")],
    "an activity that is a text": [wrong(e.ActivitySnapshot, message_id="a", activity_type="plan", content="x")],
    "a patch that is an object": [wrong(e.ActivityDelta, message_id="a", activity_type="plan", patch={})],
    "a number as name": [wrong(e.Custom, name=5, value=1)],
    "a subagent without a name": [wrong(e.SubagentStarted, subagent_run_id="s", name=None)],
    "a number as owner": [wrong(e.TextMessageStart, message_id="m", subagent_run_id=1)],
    "no message of an error": [wrong(e.RunError, message=None, code="x")],
    "a number as code": [wrong(e.RunError, message="x", code=429)],
    "an outcome that is a text": [wrong(e.RunFinished, **FINISHED, outcome="success")],
    "usage that is an object": [wrong(e.RunFinished, **FINISHED, usage={"input_tokens": 5})],
    "usage that is no number": [wrong(e.RunFinished, **FINISHED, usage=[{"inputTokens": "5"}])],
    "an interrupt without a reason": [
        wrong(e.RunFinished, **FINISHED, outcome=e.Interrupted(interrupts=[wrong(e.Interrupt, id="i", reason=None)]))
    ],
    "a message of a snapshot": [
        e.MessagesSnapshot(
            messages=[e.UserMessage(id="u1", content="hi"), wrong(e.AssistantMessage, id="m", content=5)]
        )
    ],
    "a call in a snapshot": [
        e.MessagesSnapshot(
            messages=[
                e.UserMessage(id="u1", content="hi"),
                e.AssistantMessage(
                    id="m",
                    tool_calls=[wrong(e.ToolCall, id="c", function=wrong(e.FunctionCall, name="n", arguments={}))],
                ),
            ]
        )
    ],
}


class RateLimited(BridgeError):
    """Too many requests."""

    code: Any = 429


RAISED: dict[str, Exception] = {
    "a number as code": RateLimited(),
    "a message of an interrupt": RunInterrupted([wrong(e.Interrupt, id="i", reason="x", message=5)]),
    "a schema and an expiry": RunInterrupted(
        [wrong(e.Interrupt, id="i", reason="x", response_schema="x", expires_at=time.time())]
    ),
}


class Poisoner:
    """An agent that yields or raises what is wrong in its first run, and answers in all others."""

    def __init__(self, events: list[e.Event], error: Exception | None = None) -> None:
        self._events = events
        self._error = error
        self.may_end = anyio.Event()

    async def __call__(self, run: Run) -> AsyncIterator[Any]:
        if run.thread.id == "neighbour":
            yield said("n", "x")[0]
            await self.may_end.wait()
        elif run.input.messages[-1].id == "u1":
            for event in self._events:
                yield event
            if self._error is not None:
                raise self._error
        for event in said(f"m-{run.key}", "hello"):
            yield event


async def check_contained(runner: Runner, poisoner: Poisoner, codes: set[str]) -> None:
    """Run what is wrong beside another run, and check that only its own run ends with an error, and that its thread goes on."""
    with unless_hung():
        neighbour = await runner.start(request(user("n1"), thread="neighbour"))
        first = await run_once(runner, user("u1"))
        second = await run_once(runner, user("u2"))
        poisoner.may_end.set()
        beside = await events_of(runner, neighbour)
        third = await run_once(runner, user("u3"))
    assert isinstance(first[-1], e.RunError), first[-1]
    assert first[-1].code in codes
    for events in (second, beside, third):
        assert isinstance(events[-1], e.RunFinished), events[-1]


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("is_last", [True, False])
async def test_an_event_with_a_field_of_a_wrong_type_ends_its_run_alone(name: str, is_last: bool) -> None:
    """It was stored, and its thread could not be read again; or all runs of the process ended with it."""
    events = EVENTS[name] if is_last else [*EVENTS[name], *said("after", "x")]
    poisoner = Poisoner(events)
    async with runner_of(ScriptedAgent(poisoner)) as runner:
        await check_contained(runner, poisoner, {"protocol_violation"})


@pytest.mark.parametrize("name", RAISED)
async def test_an_error_with_a_field_of_a_wrong_type_ends_its_run_alone(name: str) -> None:
    poisoner = Poisoner(said("m", "x"), RAISED[name])
    async with runner_of(ScriptedAgent(poisoner)) as runner:
        await check_contained(runner, poisoner, {"agent_error", "protocol_violation"})


@pytest.mark.parametrize("name", ["a timestamp with a fraction", "a number as code", "usage that is an object"])
async def test_middleware_with_a_field_of_a_wrong_type_ends_the_run_alone(name: str) -> None:
    poisoner = Poisoner(said("m", "x"))

    def poison(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> Any:
            async for event in handler(run):
                if isinstance(event, e.RunFinished) and run.input.messages[-1].id == "u1":
                    for each in EVENTS[name]:
                        yield each
                yield event

        return handle

    middleware: Middleware = poison
    async with runner_of(ScriptedAgent(poisoner), middleware=[middleware]) as runner:
        await check_contained(runner, poisoner, {"protocol_violation"})


@pytest.mark.parametrize("name", ["a secret as role of a result", "another role of reasoning", "another subtype"])
async def test_a_secret_where_none_is_searched_for_is_not_stored(tmp_path: Path, name: str) -> None:
    """Roles and subtypes are enumerated values, which redaction does not change."""
    store = tmp_path / "ambient.db"
    agent = ScriptedAgent(Poisoner(EVENTS[name]))
    async with SqliteLedger(store) as ledger, Runner(ledger, {"agent": agent}, SETTINGS) as runner:
        with unless_hung():
            await run_once(runner, user("u1"))
    for path in tmp_path.iterdir():
        assert SECRET.encode() not in path.read_bytes()


def test_enumerated_fields_have_the_values_of_their_declaration() -> None:
    assert allowed_values(e.ToolCallResult, "role") == {None, "tool"}
    assert allowed_values(e.ReasoningMessageStart, "role") == {"reasoning"}
    assert allowed_values(e.TextMessageStart, "role") == {None, "developer", "system", "assistant", "user"}
    assert allowed_values(e.TextMessageEnd, "role") is None


TEXTS: dict[str, list[e.Event]] = {
    "members of an enum": said(Name.M, "hello"),
    "ids and deltas": said(Text("m"), Text("hello")),
    "deltas": [said("m")[0], *(e.TextMessageContent(message_id="m", delta=Text(part)) for part in ("hel", "lo"))],
    "a snapshot": [
        e.MessagesSnapshot(
            messages=[e.UserMessage(id="u1", content="hi"), e.AssistantMessage(id=Text("m"), content=Text("hello"))]
        )
    ],
}


@pytest.mark.parametrize("name", TEXTS)
async def test_texts_of_other_classes_are_stored_as_texts(name: str) -> None:
    """A run with such an id did not end before its lease, and one with such a delta failed."""
    async with runner_of(ScriptedAgent(Poisoner(TEXTS[name]))) as runner:
        with unless_hung():
            assert isinstance((await run_once(runner, user("u1")))[-1], e.RunFinished)
            messages = (await load_view(runner.ledger, KEY)).transcript.messages()
    (first, *_) = [message for message in messages if isinstance(message, e.AssistantMessage)]
    assert (first.id, first.content) == ("m", "hello")
    assert type(first.id) is type(first.content) is str


async def test_mappings_in_place_of_structs_are_these() -> None:
    part = {"type": "text", "text": "x"}
    events = [*call(content=[part]), wrong(e.RunFinished, **FINISHED, usage=[{"inputTokens": 5}])]
    async with runner_of(ScriptedAgent(Poisoner(events))) as runner:
        with unless_hung():
            stored = await run_once(runner, user("u1"))
    assert [event.content for event in stored if isinstance(event, e.ToolCallResult)] == [[e.TextPart(text="x")]]
    assert isinstance(stored[-1], e.RunFinished)
    assert stored[-1].usage == [e.TokenUsage(input_tokens=5)]


@pytest.mark.parametrize("text", [Text, enum.StrEnum("Code", {"slow_down": "slow_down"})])
async def test_an_error_may_have_a_code_of_another_class_of_texts(text: Any) -> None:
    class SlowDown(BridgeError):
        """Too many requests."""

        code: Any = text("slow_down")

    async with runner_of(ScriptedAgent(Poisoner([], SlowDown()))) as runner:
        with unless_hung():
            ended = (await run_once(runner, user("u1")))[-1]
            assert isinstance((await run_once(runner, user("u2")))[-1], e.RunFinished)
    assert isinstance(ended, e.RunError)
    assert (ended.code, ended.message) == ("slow_down", "Too many requests.")


async def test_a_run_whose_cached_entries_cannot_be_folded_ends_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of a run is in one group with those of all others, and with the maintenance."""
    poisoner = Poisoner(said("m", "x"))
    async with runner_of(ScriptedAgent(poisoner)) as runner:
        with unless_hung():
            neighbour = await runner.start(request(user("n1"), thread="neighbour"))

            def fail(thread: object) -> None:
                raise ValueError("an entry that cannot be decoded")

            with monkeypatch.context() as patched:
                patched.setattr(runner.views, "untrack", fail)
                assert isinstance((await run_once(runner, user("u1")))[-1], e.RunFinished)
                second = await runner.start(request(user("u2")))
            assert isinstance((await events_of(runner, second))[-1], e.RunFinished)
            poisoner.may_end.set()
            assert isinstance((await events_of(runner, neighbour))[-1], e.RunFinished)
