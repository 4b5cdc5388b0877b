"""Several agents: transfers, sequences, parallel branches, loops, workflows, tasks (D8)."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool, ToolContext, exit_loop
from google.adk.workflow import START, JoinNode, Workflow
from pydantic import BaseModel

from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from tests.bridges.adk.scripted import Scripted, call
from tests.bridges.adk.world import agent, questions, short, talking, yes
from tests.world import user


def speaker(name: str, *turns: Any, **options: Any) -> tuple[LlmAgent, Scripted]:
    model = Scripted.of(*turns)
    return LlmAgent(name=name, description=name, model=model, **options), model


async def test_d8_a_transfer_is_a_call_and_the_other_agent_speaks_under_its_name() -> None:
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
        assert await talk.say("u2", "go on") == ["RS", "TS m1 helper", "TC Still me.", "TE", "RF"]
    assert (model.calls, helper_model.calls) == (1, 2)
    assert helper_model.saw[1][-2:] == [("model", "I can help."), ("user", "go on")]


async def test_d8_two_agents_that_say_the_same_are_both_heard() -> None:
    one, first = speaker("one", ["ok"])
    two, second = speaker("two", ["ok"])
    async with talking(SequentialAgent(name="line", sub_agents=[one, two])) as talk:
        assert await talk.say("u1") == ["RS", "TS m1 one", "TC ok", "TE", "TS m2 two", "TC ok", "TE", "RF"]
    assert first.saw == [[("user", "hi")]]
    assert [role for role, _ in second.saw[0]] == ["user", "user", "user"]
    assert second.saw[0][-1][1].startswith("[one] said:")


async def test_d8_parallel_agents_have_a_lane_each() -> None:
    one, _ = speaker("one", ["on", "e"], ["more"])
    two, second = speaker("two", ["tw", "o"], ["more"])
    async with talking(ParallelAgent(name="both", sub_agents=[one, two])) as talk:
        events = await talk.run(user("u1"))
        await talk.say("u2", "and?")
    lanes: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, e.TextMessageContent) and event.subagent_run_id:
            lanes.setdefault(event.subagent_run_id, []).append(event.delta)
    assert sorted(lanes.values()) == [["on", "e"], ["tw", "o"]]
    assert sorted(event.name for event in events if isinstance(event, e.SubagentStarted)) == ["one", "two"]
    assert short(events)[-3:] == ["AF @a2", "AF @a1", "RF"]
    assert ("user", "and?") in second.saw[1]
    assert ("model", "two") in second.saw[1]


async def test_d8_a_sequence_goes_on_after_its_parallel_part() -> None:
    one, _ = speaker("one", ["A"])
    two, _ = speaker("two", ["B"])
    last, model = speaker("last", ["C"])
    both = ParallelAgent(name="both", sub_agents=[one, two])
    async with talking(SequentialAgent(name="line", sub_agents=[both, last])) as talk:
        said = await talk.say("u1")
    assert said[-6:] == ["AF @a1", "AF @a2", "TS m3 last", "TC C", "TE", "RF"]
    told = "".join(seen for _, seen in model.saw[0])
    assert "[one] said:" in told
    assert "[two] said:" in told


async def test_d8_a_loop_ends_where_it_is_told_to() -> None:
    one, model = speaker("one", ["Again."], [call("exit_loop", "x1")], tools=[exit_loop])
    async with talking(LoopAgent(name="loop", max_iterations=5, sub_agents=[one])) as talk:
        said = await talk.say("u1")
    assert said[:5] == ["RS", "TS m1 one", "TC Again.", "TE", "CS x1 exit_loop"]
    assert said[-1] == "RF"
    assert model.calls == 2


async def test_a_branch_that_waits_does_not_hold_up_the_other_one() -> None:
    def ask(question: str) -> None:
        """Ask a person."""

    def look(city: str) -> dict[str, Any]:
        """Look."""
        return {"sky": "clear"}

    one, first = speaker("one", [call("ask", "l1", question="?")], ["Thanks."], tools=[LongRunningFunctionTool(ask)])
    two, second = speaker("two", [call("look", "b1", city="Rome")], ["Clear."], tools=[look])
    async with talking(ParallelAgent(name="both", sub_agents=[one, two])) as talk:
        said = await talk.say("u1")
        assert (first.calls, second.calls) == (1, 2)
        assert said[-1] == "RF waits for l1"
        assert "TC Clear. @a2" in said
        answered = await talk.answer(("l1", "yes"))
    assert first.calls == 2
    assert any(word.startswith("TC Thanks.") for word in answered)


async def test_workflow_nodes_that_run_side_by_side_have_lanes_and_those_after_them_speak_up() -> None:
    one, _ = speaker("one", ["A"])
    two, _ = speaker("two", ["B"])
    last, model = speaker("last", ["C"])
    join = JoinNode(name="join")
    async with talking(Workflow(name="flow", edges=[(START, one, join), (START, two, join), (join, last)])) as talk:
        said = await talk.say("u1")
    assert sorted(word for word in said if word.startswith("AS")) == ["AS a1 one", "AS a2 two"]
    assert said[-4:] == ["TS m3 last", "TC C", "TE", "RF"]
    assert model.calls == 1


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
    assert (model.calls, inner_model.calls) == (2, 1)


async def test_an_agent_with_a_task_has_a_lane_below_its_call_and_may_ask_back() -> None:
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
            "TC What size? @a1",
            "TE @a1",
            "AF @a1",
            "RF",
        ]
        second = await talk.say("u2", "large")
    assert second[-5:] == ["CR c1 L", "TS m1", "TC Ordered.", "TE", "RF"]
    assert (model.calls, task_model.calls) == (2, 2)


async def test_state_of_parallel_agents_is_one_state() -> None:
    def note(key: str, tool_context: ToolContext) -> dict[str, Any]:
        """Note."""
        tool_context.state[key] = True
        return {}

    one, _ = speaker("one", [call("note", "n1", key="a")], ["A"], tools=[note])
    two, _ = speaker("two", [call("note", "n2", key="b")], ["B"], tools=[note])
    async with talking(ParallelAgent(name="both", sub_agents=[one, two])) as talk:
        said = await talk.say("u1")
    assert said[-2] in {"SS {'a': True, 'b': True}", "SS {'b': True, 'a': True}"}


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
            "TC Rome it is.",
            "TE",
            "RF",
        ]
    assert model.calls == 1


async def test_a_confirmation_in_a_branch_is_asked_and_answered() -> None:
    def pay(amount: int) -> dict[str, Any]:
        """Pay."""
        return {"paid": amount}

    tools = [FunctionTool(pay, require_confirmation=True)]
    one, first = speaker("one", [call("pay", "p1", amount=3)], ["Paid."], tools=tools)
    two, _ = speaker("two", ["Clear."])
    both = ParallelAgent(name="both", sub_agents=[one, two])
    async with MemoryLedger() as ledger:
        async with talking(both, ledger) as talk:
            events = await talk.run(user("u1"))
            assert short(events)[-1] == "RF asks confirmation:p1"
        async with talking(both, ledger) as talk:
            answered = await talk.resume(yes(questions(events)[0]))
    assert any(word.startswith('CR p1 {"paid":3}') for word in answered)
    assert any(word.startswith("TC Paid.") for word in answered)
    assert first.calls == 2
