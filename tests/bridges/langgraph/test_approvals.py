"""LangChain's HumanInTheLoopMiddleware as approvals, with its real `create_agent`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from ambient_runner.bridges.langgraph.approvals import parse_approval
from ambient_runner.bridges.langgraph.errors import InvalidAnswer
from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.projections.known_calls import UNKNOWN_CALL
from ambient_runner.projections.safe import project_safe
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import Thread, get_weather, langgraph, no, yes

SENT: list[str] = []
MAIL = '{"to": "ann"}'
ALL = ["approve", "edit", "reject"]


@tool
def send_mail(to: str) -> str:
    """Sends a mail."""
    SENT.append(to)
    return f"sent to {to}"


def mailer(*turns: Any, allowed: Any = True, **options: Any) -> tuple[Any, ScriptedModel]:
    SENT.clear()
    model = ScriptedModel(*turns)
    review = HumanInTheLoopMiddleware(interrupt_on={"send_mail": allowed}, **options)
    return create_agent(model, [send_mail, get_weather], middleware=[review], checkpointer=InMemorySaver()), model


async def ask(thread: Thread) -> e.Interrupt:
    assert (await thread.say("go"))[-1] == "RF asks tool_call"
    (raised,) = thread.interrupts
    return raised


def one_call() -> list[Any]:
    return [calls(call("c1", "send_mail", MAIL)), says("Done.")]


async def test_a_reviewed_call_is_an_approval_with_its_call_arguments_and_schema() -> None:
    graph, _ = mailer(*one_call(), allowed={"allowed_decisions": ALL, "description": "Send it?"})
    async with langgraph(graph) as thread:
        raised = await ask(thread)
    value = {
        "action_requests": [{"name": "send_mail", "args": {"to": "ann"}, "description": "Send it?"}],
        "review_configs": [{"action_name": "send_mail", "allowed_decisions": ALL}],
    }
    reviewed = {"toolCallId": "c1", "name": "send_mail", "arguments": {"to": "ann"}, "allowedDecisions": ALL}
    assert raised == e.Interrupt(
        id=raised.id,
        reason="tool_call",
        message="Send it?",
        tool_call_id="c1",
        response_schema={
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"},
                "editedArgs": {"type": "object"},
                "message": {"type": "string"},
            },
            "required": ["approved"],
        },
        metadata={"value": value, "toolCalls": [reviewed]},
    )
    assert SENT == []


@pytest.mark.parametrize(
    "answer",
    [
        {"approved": True},
        True,
        "approve",
        {"type": "approve"},
        {"approved": True, "editedArgs": None, "message": "go ahead", "type": None},
        {"approved": True, "editedArgs": {"to": "ann"}},
        {"decisions": [{"type": "approve"}]},
        [{"type": "approve"}],
    ],
    ids=repr,
)
async def test_every_form_of_approval_runs_the_call(answer: Any) -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        assert 'CR c1 "sent to ann"' in await thread.resume(yes(await ask(thread), answer))
        assert thread.text() == "Done."
    assert SENT == ["ann"]


@pytest.mark.parametrize(
    "answer",
    [
        {"approved": True, "editedArgs": {"to": "bob"}},
        {"type": "edit", "edited_action": {"name": "send_mail", "args": {"to": "bob"}}},
        {"decisions": [{"type": "edit", "edited_action": {"name": "send_mail", "args": {"to": "bob"}}}]},
    ],
    ids=repr,
)
async def test_every_form_of_an_edit_runs_the_edited_call(answer: Any) -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        await thread.resume(yes(await ask(thread), answer))
        assert thread.error is None
    assert SENT == ["bob"]


@pytest.mark.parametrize(
    "answer",
    [
        {"approved": False, "message": "too late"},
        {"approved": False, "message": "too late", "editedArgs": {"to": "bob"}},
        {"type": "reject", "message": "too late"},
        {"decisions": [{"type": "reject", "message": "too late"}]},
    ],
    ids=repr,
)
async def test_every_form_of_a_rejection_tells_the_model_why(answer: Any) -> None:
    graph, model = mailer(*one_call())
    async with langgraph(graph) as thread:
        await thread.resume(yes(await ask(thread), answer))
    assert SENT == []
    assert "too late" in model.saw[1][-1]


async def test_a_cancelled_approval_is_a_rejection() -> None:
    graph, model = mailer(*one_call())
    async with langgraph(graph) as thread:
        await thread.resume(no(await ask(thread)))
        assert thread.text() == "Done."
    assert SENT == []
    assert "declined" in model.saw[1][-1]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "maybe",
        {"sure": True},
        {"decisions": []},
        {"type": "respond", "message": "hi"},
        {"type": "edit"},
        {"type": "edit", "edited_action": {"to": "bob"}},
        {"approved": True, "editedArgs": '{"to": "bob"}'},
        {"approved": True, "editedArgs": ["bob"]},
        {"approved": True, "editedArgs": {"to": "bob"}, "args": {"to": "eve"}},
        {"approved": True, "edited_action": {"name": "send_mail", "args": {"to": "bob"}}},
        {"approved": True, "type": "reject"},
        {"approved": True, "response": "sent by hand"},
        {"approved": "no", "type": "approve"},
        {"approved": False, "message": {"why": "late"}},
        {"approved": False, "decisions": [{"type": "approve"}]},
        {"type": "approve", "editedArgs": {"to": "bob"}},
        {"type": "approve", "edited_action": {"name": "send_mail", "args": {"to": "bob"}}},
        {"type": "reject", "message": 5},
        {"type": "reject", "decisions": [{"type": "approve"}]},
        {"decisions": [{"type": "approve"}], "editedArgs": {"to": "bob"}},
        {"decisions": [{"type": "approve", "approved": False}]},
        {"decisions": {"type": "approve"}},
    ],
    ids=repr,
)
async def test_an_answer_that_does_not_fit_says_what_was_expected_and_leaves_the_interrupt_open(answer: Any) -> None:
    graph, _ = mailer(*one_call(), allowed={"allowed_decisions": ALL})
    async with langgraph(graph) as thread:
        raised = await ask(thread)
        await thread.resume(yes(raised, answer))
        assert thread.error == "invalid_answer"
        failure = thread.seen[-1]
        assert isinstance(failure, e.RunError)
        assert '{"approved":true}' in failure.message
        [shown] = project_safe(failure, ExposureRules(), lambda call_id: UNKNOWN_CALL)
        assert isinstance(shown, e.RunError)
        assert '{"approved": true}' in shown.message
        assert "ann" not in failure.message + shown.message
        assert SENT == []
        await thread.resume(yes(raised, {"approved": True}))
        assert SENT == ["ann"]


def edit_to(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": arguments}}


async def test_an_edit_may_name_another_tool_of_the_agent_but_no_unknown_one() -> None:
    graph, _ = mailer(*one_call())
    async with langgraph(graph) as thread:
        raised = await ask(thread)
        await thread.resume(yes(raised, {"decisions": [edit_to("post_letter", to="ann")]}))
        assert thread.error == "invalid_answer"
        stream = await thread.resume(yes(raised, edit_to("get_weather", city="Rome")))
        assert (thread.error, any("sunny in Rome" in event for event in stream)) == (None, True)
    assert SENT == []


def test_an_edit_may_name_any_tool_if_those_of_the_graph_are_not_known() -> None:
    request = parse_approval({"action_requests": [{"name": "send_mail", "args": {}}]})
    assert request is not None
    assert request.to_answer(edit_to("other")) == {"decisions": [edit_to("other")]}


async def test_several_calls_are_one_approval_with_a_decision_for_each() -> None:
    turn = calls(call("c1", "send_mail", MAIL), call("c2", "get_weather", '{"city": "Rome"}', index=1))
    turn += calls(call("c3", "send_mail", '{"to": "eve"}', index=2))
    graph, _ = mailer(turn, says("Done."))
    async with langgraph(graph) as thread:
        raised = await ask(thread)
        assert [item["toolCallId"] for item in (raised.metadata or {})["toolCalls"]] == ["c1", "c3"]
        edit = {"type": "edit", "edited_action": {"name": "send_mail", "args": {"to": "bob"}}}
        for answer in (edit, {"approved": True, "editedArgs": {"to": "ann"}}):
            await thread.resume(yes(raised, answer))
            assert thread.error == "invalid_answer"
        await thread.resume(yes(raised, {"decisions": [edit, {"approved": False}]}))
        assert thread.error is None
    assert SENT == ["bob"]


async def test_an_approval_of_several_calls_counts_for_all() -> None:
    turn = calls(call("c1", "send_mail", MAIL), call("c2", "send_mail", '{"to": "eve"}', index=1))
    graph, _ = mailer(turn, says("Done."))
    async with langgraph(graph) as thread:
        await thread.resume(yes(await ask(thread), {"approved": True}))
    assert sorted(SENT) == ["ann", "eve"]


async def test_a_person_can_respond_in_place_of_the_tool() -> None:
    graph, model = mailer(*one_call(), allowed={"allowed_decisions": ["respond"]})
    async with langgraph(graph) as thread:
        raised = await ask(thread)
        assert raised.response_schema == {
            "type": "object",
            "properties": {"response": {"type": "string"}},
            "required": ["response"],
        }
        await thread.resume(yes(raised, {"response": "done by hand"}))
    assert SENT == []
    assert model.saw[1][-1] == "tool c1: done by hand"


DECIDED = {"decisions": {"type": "array", "items": {"type": "object"}, "minItems": 2, "maxItems": 2}}


@pytest.mark.parametrize(
    ("allowed", "schema", "examples"),
    [
        (
            ["approve", "reject", "edit", "respond"],
            {
                "properties": {"approved": {"type": "boolean"}, "message": {"type": "string"}},
                "required": ["approved"],
            },
            [
                {"approved": True},
                {"approved": False, "message": "why"},
                {"decisions": [{"type": "approve"}, {"type": "approve"}]},
            ],
        ),
        (
            ["respond"],
            {"properties": DECIDED, "required": ["decisions"]},
            [{"decisions": [{"type": "respond", "message": "text"}, {"type": "respond", "message": "text"}]}],
        ),
        (
            ["edit"],
            {"properties": DECIDED, "required": ["decisions"]},
            [{"decisions": [edit_to("send_mail", to="…"), edit_to("send_mail", to="…")]}],
        ),
    ],
    ids=["all", "respond", "edit"],
)
def test_what_an_approval_of_several_calls_offers_is_what_it_accepts(allowed: Any, schema: Any, examples: Any) -> None:
    request = parse_approval(
        {
            "action_requests": [{"name": "send_mail", "args": {"to": name}} for name in ("ann", "eve")],
            "review_configs": [{"action_name": "send_mail", "allowed_decisions": allowed}],
        }
    )
    assert request is not None
    assert request.response_schema == {"type": "object", **schema}
    with pytest.raises(InvalidAnswer) as refused:
        request.to_answer({"response": "text"})
    offered = [json.loads(text) for text in refused.value.message.split("`")[1:] if text.startswith("{")]
    assert offered == examples
    for answer in offered:
        assert len(request.to_answer(answer)["decisions"]) == 2


def test_an_answer_either_approves_or_responds() -> None:
    config = {"action_name": "send_mail", "allowed_decisions": ["approve", "respond"]}
    request = parse_approval({"action_requests": [{"name": "send_mail", "args": {}}], "review_configs": [config]})
    assert request is not None
    assert request.response_schema == {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "response": {"type": "string"}},
        "required": [],
        "oneOf": [{"required": ["approved"]}, {"required": ["response"]}],
    }


@pytest.mark.parametrize("allowed", [["edit"], ["respond"], ["edit", "respond"], ["reject"], ["approve"]], ids=repr)
def test_what_an_approval_of_one_call_offers_is_what_it_accepts(allowed: Any) -> None:
    request = parse_approval(
        {
            "action_requests": [{"name": "send_mail", "args": {"to": "ann"}}],
            "review_configs": [{"action_name": "send_mail", "allowed_decisions": allowed}],
        }
    )
    assert request is not None
    with pytest.raises(InvalidAnswer) as refused:
        request.to_answer({})
    offered = [json.loads(text) for text in refused.value.message.split("`")[1:] if text.startswith("{")]
    assert {request.to_answer(answer)["decisions"][0]["type"] for answer in offered} == set(allowed)


LONG = "x" * 200_000


@pytest.mark.parametrize("answer", [{"type": LONG}, edit_to(LONG), {"decisions": [{"type": LONG}]}], ids=len)
@pytest.mark.parametrize("argument", ["short", LONG], ids=len)
def test_the_error_of_an_answer_repeats_little_of_it_and_of_the_call(answer: Any, argument: str) -> None:
    action = {"name": "send_mail", "args": {"to": argument}}
    request = parse_approval({"action_requests": [action]}, tool_names={"send_mail"})
    assert request is not None
    with pytest.raises(InvalidAnswer) as refused:
        request.to_answer(answer)
    assert len(refused.value.message) < 1000
    assert "xxx" in refused.value.message


def test_the_error_of_an_approval_of_many_calls_is_short() -> None:
    request = parse_approval({"action_requests": [{"name": "send_mail", "args": {}}] * 500})
    assert request is not None
    with pytest.raises(InvalidAnswer) as refused:
        request.to_answer({})
    assert len(refused.value.message) < 1000


def test_an_approval_per_call_is_answered_with_one_decision() -> None:
    branch = {"properties": {"type": {"const": "approve"}}}, {"properties": {"type": {"const": "reject"}}}
    schema = {"$defs": {"A": branch[0], "R": branch[1]}, "oneOf": []}
    value = {"type": "tool_approval", "tool_call_id": "c1", "name": "f", "args": {"a": 1}, "description": "Sure?"}
    request = parse_approval(value, schema)
    assert request is not None
    assert request.message == "Sure?"
    assert request.to_answer({"approved": True}) == {"type": "approve"}
    assert request.to_answer({"approved": False}) == {"type": "reject"}
    with pytest.raises(InvalidAnswer):
        request.to_answer({"approved": True, "editedArgs": {"a": 2}})


@pytest.mark.parametrize(
    "value", [None, "Sure?", {}, {"action_requests": []}, {"action_requests": [{"args": {}}]}], ids=repr
)
def test_any_other_interrupt_is_not_an_approval(value: Any) -> None:
    assert parse_approval(value) is None
