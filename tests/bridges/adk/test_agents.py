"""Several agents: transfers, sequences, parallel branches, loops, workflows, tasks (D8)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool, ToolContext, exit_loop
from google.adk.workflow import START, JoinNode, Workflow
from pydantic import BaseModel

from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from tests.bridges.adk.scripted import Scripted, call
from tests.bridges.adk.world import agent, by_subagent, questions, short, talking, yes
from tests.world import user


def speaker(name: str, *turns: Any, **options: Any) -> tuple[LlmAgent, Scripted]:
    model = Scripted.of(*turns)
    return LlmAgent(name=name, description=name, model=model, **options), model


async def test_a_transfer_is_a_call_and_the_other_agents_messages_have_its_name() -> None:
    helper, helper_model = speaker("helper", ["I can ", "help."], ["Still me."])
    root, model = agent([call("transfer_to_agent", "t1", agent_name="helper")], sub_agents=[helper])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS t1 transfer_to_agent",
            'CA t1 {"agent_name":"helper"}',
            "CE t1",
            "CR t1 null",
            "TS m1 helper",
            "TC I can ",
            "TC help.",
            "TE",
            "RF",
        ]
        assert await talk.say("u2", "go on") == ["RS", "TS m1 helper", "TC Still ", "TC me.", "TE", "RF"]
    handed_over = [
        ("user", "hi"),
        ("user", ("quoted", "[root] called tool `transfer_to_agent` with parameters", "{'agent_name': 'helper'}")),
        ("user", ("quoted", "[root] `transfer_to_agent` tool returned result", "{'result': None}")),
    ]
    assert model.saw == [[("user", "hi")]]
    assert helper_model.saw == [handed_over, [*handed_over, ("model", "I can help."), ("user", "go on")]]


async def test_two_agents_with_the_same_text_send_two_messages() -> None:
    one, first = speaker("one", ["ok"])
    two, second = speaker("two", ["ok"])
    async with talking(SequentialAgent(name="line", sub_agents=[one, two])) as talk:
        assert await talk.say("u1") == ["RS", "TS m1 one", "TC ok", "TE", "TS m2 two", "TC ok", "TE", "RF"]
    assert first.saw == [[("user", "hi")]]
    assert second.saw == [[("user", "hi"), ("user", ("quoted", "[one] said", "ok"))]]


async def test_parallel_agents_are_separate_subagents() -> None:
    one, first = speaker("one", ["on", "e"], ["more"])
    two, second = speaker("two", ["tw", "o"], ["more"])
    async with talking(ParallelAgent(name="both", sub_agents=[one, two])) as talk:
        events = await talk.run(user("u1"))
        again = await talk.run(user("u2", "and?"))
        shown = [(m.name, m.content) for m in await talk.messages() if isinstance(m, e.AssistantMessage)]
    assert by_subagent(events) == {
        "": ["RS", "RF"],
        "one": ["AS * one", "TS * one", "TC on", "TC e", "TE", "AF"],
        "two": ["AS * two", "TS * two", "TC tw", "TC o", "TE", "AF"],
    }
    assert by_subagent(again) == {
        "": ["RS", "RF"],
        "one": ["AS * one", "TS * one", "TC more", "TE", "AF"],
        "two": ["AS * two", "TS * two", "TC more", "TE", "AF"],
    }
    assert sorted(shown[:2]) == [("one", "one"), ("two", "two")]
    assert first.saw == [[("user", "hi")], [("user", "hi"), ("model", "one"), ("user", "and?")]]
    assert second.saw == [[("user", "hi")], [("user", "hi"), ("model", "two"), ("user", "and?")]]


async def test_a_sequence_continues_after_its_parallel_part() -> None:
    one, first = speaker("one", ["A"])
    two, second = speaker("two", ["B"])
    last, model = speaker("last", ["C"])
    both = ParallelAgent(name="both", sub_agents=[one, two])
    async with talking(SequentialAgent(name="line", sub_agents=[both, last])) as talk:
        events = await talk.run(user("u1"))
    assert by_subagent(events) == {
        "": ["RS", "TS * last", "TC C", "TE", "RF"],
        "one": ["AS * one", "TS * one", "TC A", "TE", "AF"],
        "two": ["AS * two", "TS * two", "TC B", "TE", "AF"],
    }
    assert [word.split()[0] for word in short(events)][-6:] == ["AF", "AF", "TS", "TC", "TE", "RF"]
    assert first.saw == second.saw == [[("user", "hi")]]
    [expected] = model.saw
    assert expected[0] == ("user", "hi")
    assert sorted(expected[1:]) == [("user", ("quoted", "[one] said", "A")), ("user", ("quoted", "[two] said", "B"))]


async def test_a_loop_ends_when_an_agent_calls_exit_loop() -> None:
    one, model = speaker("one", ["Again."], [call("exit_loop", "x1")], tools=[exit_loop])
    async with talking(LoopAgent(name="loop", max_iterations=5, sub_agents=[one])) as talk:
        assert await talk.say("u1") == [
            "RS",
            "TS m1 one",
            "TC Again.",
            "TE",
            "CS x1 exit_loop",
            "CA x1 {}",
            "CE x1",
            "CR x1 null",
            "RF",
        ]
    assert model.saw == [[("user", "hi")], [("user", "hi"), ("model", "Again.")]]


async def test_a_branch_that_waits_does_not_hold_up_the_other_one() -> None:
    def ask(question: str) -> None:
        """Ask a person."""

    def look(city: str) -> dict[str, Any]:
        """Look."""
        return {"sky": "clear"}

    one, first = speaker("one", [call("ask", "l1", question="?")], ["Thanks."], tools=[LongRunningFunctionTool(ask)])
    two, second = speaker("two", [call("look", "b1", city="Rome")], ["Clear."], tools=[look])
    async with talking(ParallelAgent(name="both", sub_agents=[one, two])) as talk:
        events = await talk.run(user("u1"))
        answered = await talk.answer(("l1", "yes"))
    assert by_subagent(events) == {
        "": ["RS", "RF waits for l1"],
        "one": ["AS * one", "CS l1 ask", 'CA l1 {"question":"?"}', "CE l1", "AF"],
        "two": [
            *("AS * two", "CS b1 look", 'CA b1 {"city":"Rome"}', "CE b1", 'CR b1 {"sky":"clear"}'),
            *("TS * two", "TC Clear.", "TE", "AF"),
        ],
    }
    assert answered == ["RS", "AS a1 one", "TS m1 one @a1", "TC Thanks. @a1", "TE @a1", "AF @a1", "RF"]
    assert first.saw == [
        [("user", "hi")],
        [("user", "hi"), ("model", ("call", "ask", {"question": "?"})), ("user", ("result", "ask", {"result": "yes"}))],
    ]
    assert second.saw == [
        [("user", "hi")],
        [
            ("user", "hi"),
            ("model", ("call", "look", {"city": "Rome"})),
            ("user", ("result", "look", {"sky": "clear"})),
        ],
    ]


async def test_parallel_workflow_nodes_are_subagents_and_later_nodes_are_not() -> None:
    one, _ = speaker("one", ["A"])
    two, _ = speaker("two", ["B"])
    last, model = speaker("last", ["C"])
    join = JoinNode(name="join")
    async with talking(Workflow(name="flow", edges=[(START, one, join), (START, two, join), (join, last)])) as talk:
        events = await talk.run(user("u1"))
    assert by_subagent(events) == {
        "": ["RS", "TS * last", "TC C", "TE", "RF"],
        "one": ["AS * one", "TS * one", "TC A", "TE", "AF"],
        "two": ["AS * two", "TS * two", "TC B", "TE", "AF"],
    }
    [[(role, expected)]] = model.saw
    assert (role, json.loads(expected)) == ("user", {"one": "A", "two": "B"})


async def test_an_agent_used_as_a_tool_is_a_call() -> None:
    inner, inner_model = speaker("inner", ["Inside."])
    root, model = agent([call("inner", "c1", request="Look")], ["Done."], tools=[AgentTool(inner)])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS c1 inner",
            'CA c1 {"request":"Look"}',
            "CE c1",
            "CR c1 Inside.",
            "TS m1",
            "TC Done.",
            "TE",
            "RF",
        ]
    assert inner_model.saw == [[("user", "Look")]]
    assert model.saw == [
        [("user", "hi")],
        [
            ("user", "hi"),
            ("model", ("call", "inner", {"request": "Look"})),
            ("user", ("result", "inner", {"result": "Inside."})),
        ],
    ]


async def test_an_agent_with_a_task_is_a_subagent_of_its_call_and_may_raise_an_interrupt() -> None:
    tasker, task_model = speaker("tasker", ["What size?"], [call("finish_task", "f1", result="L")], mode="task")
    root, model = agent([call("tasker", "c1", request="Order")], ["Ordered."], sub_agents=[tasker])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "CS c1 tasker",
            'CA c1 {"request":"Order"}',
            "CE c1",
            "AS a1 tasker of c1",
            "TS m1 tasker @a1",
            "TC What  @a1",
            "TC size? @a1",
            "TE @a1",
            "AF @a1",
            "RF",
        ]
        second = await talk.say("u2", "large")
    assert second == ["RS", "AS a1 tasker of c1", "AF @a1", "CR c1 L", "TS m1", "TC Ordered.", "TE", "RF"]
    conversation = [("user", '{"request": "Order"}')]
    assert task_model.saw == [conversation, [*conversation, ("model", "What size?"), ("user", "large")]]
    assert model.saw == [
        [("user", "hi")],
        [
            ("user", "hi"),
            ("model", ("call", "tasker", {"request": "Order"})),
            ("user", ("result", "tasker", {"result": "L"})),
        ],
    ]


async def test_state_of_parallel_agents_is_one_state() -> None:
    def note(key: str, tool_context: ToolContext) -> dict[str, Any]:
        """Note."""
        tool_context.state[key] = True
        return {}

    one, _ = speaker("one", [call("note", "n1", key="a")], ["A"], tools=[note])
    two, _ = speaker("two", [call("note", "n2", key="b")], ["B"], tools=[note])
    async with talking(ParallelAgent(name="both", sub_agents=[one, two])) as talk:
        words = await talk.say("u1")
    assert words[-2] in {"SS {'a': True, 'b': True}", "SS {'b': True, 'a': True}"}


async def test_a_workflow_node_with_an_output_schema_gives_data() -> None:
    class City(BaseModel):
        name: str

    first, _ = speaker("first", ['{"name": "Rome"}'], output_schema=City)
    last, model = speaker("last", ["Rome it is."])
    async with talking(Workflow(name="flow", edges=[(START, first, last)])) as talk:
        assert await talk.say("u1") == [
            "RS",
            "X adk:output {'agent': 'first', 'value': {'name': 'Rome'}}",
            "TS m1 last",
            "TC Rome it ",
            "TC is.",
            "TE",
            "RF",
        ]
    assert model.saw == [[("user", '{"name": "Rome"}')]]


def result_of(events: list[e.Event]) -> Any:
    finished = events[-1]
    assert isinstance(finished, e.RunFinished)
    return finished.result


@pytest.mark.parametrize(
    ("output", "shown"), [("Done.", "Done."), ({"sum": 3}, '{"sum":3}'), ([1, 2], "[1,2]"), (0, "0")]
)
async def test_the_output_of_a_workflow_is_the_result_of_the_run_and_text(output: Any, shown: str) -> None:
    """The output was neither sent as text nor set as the result. The value of an inner node is not the output."""

    def first(node_input: Any) -> str:
        return "inside"

    def last(node_input: str) -> Any:
        return output

    async with talking(Workflow(name="flow", edges=[(START, first, last)])) as talk:
        events = await talk.run(user("u1"))
        again = await talk.run(user("u2"))
    assert short(events) == short(again) == ["RS", "TS m1", f"TC {shown}", "TE", "RF"]
    assert result_of(events) == output


async def test_a_workflow_that_ends_with_an_agent_has_its_text_once_and_as_the_result() -> None:
    flow = Workflow(name="flow", edges=[(START, speaker("one", ["A"])[0], speaker("two", ["B", "C"])[0])])
    async with talking(flow) as talk:
        events = await talk.run(user("u1"))
    assert short(events)[-4:] == ["TC B", "TC C", "TE", "RF"]
    assert result_of(events) == "BC"


async def test_a_workflow_that_ends_with_data_has_it_as_the_result() -> None:
    class City(BaseModel):
        name: str

    agent_node, _ = speaker("only", ['{"name": "Rome"}'], output_schema=City)
    inner = Workflow(name="inner", edges=[(START, agent_node)])
    async with talking(Workflow(name="flow", edges=[(START, inner)])) as talk:
        events = await talk.run(user("u1"))
    assert short(events) == ["RS", "X adk:output {'agent': 'only', 'value': {'name': 'Rome'}}", "RF"]
    assert result_of(events) == {"name": "Rome"}


async def test_a_confirmation_in_a_branch_is_raised_and_answered() -> None:
    def pay(amount: int) -> dict[str, Any]:
        """Pay."""
        return {"paid": amount}

    tools = [FunctionTool(pay, require_confirmation=True)]
    one, first = speaker("one", [call("pay", "p1", amount=3)], ["Paid."], tools=tools)
    two, second = speaker("two", ["Clear."])
    both = ParallelAgent(name="both", sub_agents=[one, two])
    async with MemoryLedger() as ledger:
        async with talking(both, ledger) as talk:
            events = await talk.run(user("u1"))
        async with talking(both, ledger) as talk:
            answered = await talk.resume(yes(questions(events)[0]))
    assert by_subagent(events) == {
        "": ["RS", "RF asks confirmation:p1"],
        "one": ["AS * one", "CS p1 pay", 'CA p1 {"amount":3}', "CE p1", "AF"],
        "two": ["AS * two", "TS * two", "TC Clear.", "TE", "AF"],
    }
    assert answered == [
        *("RS", "AS a1 one", 'CR p1 {"paid":3}', "TS m1 one @a1", "TC Paid. @a1", "TE @a1", "AF @a1", "RF")
    ]
    assert first.saw == [
        [("user", "hi")],
        [("user", "hi"), ("model", ("call", "pay", {"amount": 3})), ("user", ("result", "pay", {"paid": 3}))],
    ]
    assert second.saw == [[("user", "hi")]]
