"""The first entries of a run: the stored input has only new messages, and no secrets, whichever way they were searched for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import InvalidInput
from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.projections.thread_view import INPUT, RUN_OWNER, ThreadView
from ambient_runner.protocol.events import (
    AssistantMessage,
    FunctionCall,
    RunAgentInput,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ambient_runner.runs.input_acceptance import accept_input
from ambient_runner.runs.lowering import lower_messages
from ambient_runner.runs.run import Actor, StartRequest
from ambient_runner.runs.start import NewRun, accept_run
from tests.scripts import hello
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, user

if TYPE_CHECKING:
    from ambient_runner.config import History
    from ambient_runner.protocol.events import Message
    from ambient_runner.runs.input_acceptance import AcceptedInput
    from ambient_runner.runs.runner import Runner

VALUES = [
    "s3cr3t-value-0001",
    'quo"te\\slash-secret',
    "ключ-секрет-очень",
    "new\nline-secret-42",
    "sk-live-0123456789abcdef",
]
SECRETS = Secrets(VALUES)

_texts = st.one_of(
    st.text(max_size=30),
    st.tuples(st.text(max_size=5), st.sampled_from(VALUES), st.text(max_size=5)).map("".join),
    st.sampled_from(["4111111111111111", "AKIAIOSFODNN7EXAMPLE", "hunter2"]),
)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=12,
)


async def stored_inputs(runner: Runner) -> list[list[str]]:
    """The ids of the messages in each run's stored input."""
    batches = [
        batch for batch in await runner.ledger.read_batches(KEY, 0) if (batch.owner, batch.kind) == (RUN_OWNER, INPUT)
    ]
    bodies: list[Any] = [msgspec.json.decode(line) for batch in batches for line in batch.lines]
    return [[message["id"] for message in body["input"].get("messages", [])] for body in bodies]


@pytest.mark.parametrize("history", ["server", "client"])
async def test_the_stored_input_has_the_messages_that_the_thread_did_not_have(history: History) -> None:
    """A client that sends its whole conversation with every run made the store grow with the square of its length."""
    async with runner_of(ScriptedAgent(hello), dataclasses.replace(SETTINGS, history=history)) as runner:
        posted: list[Message] = []
        for turn in range(4):
            posted.append(user(f"u{turn}"))
            await run_once(runner, *posted)
            posted = (await runner.view_thread(KEY)).transcript.messages()
        forged = [AssistantMessage(id="forged", content="x"), ToolMessage(id="t", tool_call_id="c", content="x")]
        await run_once(runner, *posted, *forged, user("last"))
        assert await stored_inputs(runner) == [["u0"], ["u1"], ["u2"], ["u3"], ["forged", "t", "last"]]


@given(_values)
def test_an_input_that_is_not_searched_string_by_string_has_no_secret(value: Any) -> None:
    if not SECRETS.may_contain_secret(msgspec.json.encode(value)):
        assert Redactor(SECRETS.copy_for_run()).redact_value(value) == value


_posted_messages = st.lists(
    st.sampled_from(["u0", "a0", "call", "result", "u1", "removed", "new", "other"]).flatmap(
        lambda name: st.sampled_from(
            [
                user(name),
                UserMessage(id=name, content="hi", name="x", metadata={"hidden": True, "mine": 1}),
                AssistantMessage(id=name, content="forged"),
                ToolMessage(id=name, tool_call_id="call", content="forged"),
            ]
        )
    ),
    unique_by=lambda message: message.id,
)


@given(_posted_messages)
def test_messages_that_the_thread_has_change_nothing_but_where_to_retry(posted: list[Message]) -> None:
    view = ThreadView()
    call = ToolCall(id="call", function=FunctionCall(name="look", arguments="{}"))
    result = ToolMessage(id="result", tool_call_id="call", content="seen")
    view.transcript.add_messages([user("u0"), AssistantMessage(id="a0", tool_calls=[call]), result, user("u1")])
    view.transcript.removed_ids.add("removed")
    lowered, _ = lower_messages(posted, view.transcript.find_message)
    assert _accept(view, posted) == _accept_all(view, lowered)


def _accept(view: ThreadView, posted: list[Message]) -> AcceptedInput | str:
    request = StartRequest(
        agent="agent", actor=Actor(), input=RunAgentInput(thread_id="t", run_id="r", messages=posted)
    )
    try:
        run = accept_run(request, NewRun(KEY, "epoch", "run"), view, ScriptedAgent(hello), "server", SECRETS)
    except InvalidInput as error:
        return error.message
    return run.accepted_input


def _accept_all(view: ThreadView, lowered: list[Message]) -> AcceptedInput | str:
    try:
        return accept_input(view, RunAgentInput(thread_id="t", run_id="r", messages=lowered), "server")
    except InvalidInput as error:
        return error.message
