"""Several agents in one run: graphs, swarms, graphs in graphs, and agents that are tools (cases A19 and A20)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from strands import ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm

from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import (
    ScriptedModel,
    call,
    calls,
    said_assistant,
    said_user,
    says,
    text,
    tool_result,
    tool_use,
)
from tests.bridges.strands.world import TOOL, Thread, agent_of, strands, yes
from tests.machine_speed import unless_hung


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool(context=True)
def book(tool_context: ToolContext) -> str:
    """Books after asking."""
    return f"booked: {tool_context.interrupt('confirm', reason='sure?')}"


WEATHER = call("c1", "get_weather", '{"city": "x"}')


def graph_of(*edges: tuple[str, str], **nodes: Any) -> Any:
    builder = GraphBuilder()
    for name, node in nodes.items():
        builder.add_node(node, name)
    for start, end in edges:
        builder.add_edge(start, end)
    builder.set_entry_point(next(iter(nodes)))
    builder.set_execution_timeout(60)
    return builder.build()


async def test_each_node_of_a_graph_is_a_subagent_with_its_own_messages_and_tool_calls() -> None:
    a = ScriptedModel(calls(text("A looks."), WEATHER), says("A is done."))
    b = ScriptedModel(says("B is done."))

    def build() -> Any:
        return graph_of(("a", "b"), a=agent_of(a, get_weather), b=agent_of(b))

    async with strands(build) as thread:
        assert await thread.say("go") == [
            "STEP agent:a",
            "SUB s1 a",
            "TS m1 @s1",
            'TC m1 "A looks." @s1',
            "TE m1 @s1",
            "CS c1 get_weather < m1 @s1",
            'CA c1 {"city": "x"} @s1',
            "CE c1 @s1",
            'CR c1 "sunny in x" @s1',
            "MS",
            "TS m2 @s1",
            'TC m2 "A is done." @s1',
            "TE m2 @s1",
            "END SUB s1",
            "END STEP agent:a",
            'CUSTOM MultiAgentHandoff {"from_nodes": ["a"], "to_nodes": ["b"]}',
            "STEP agent:b",
            "SUB s2 b",
            "TS m3 @s2",
            'TC m3 "B is done." @s2',
            "TE m3 @s2",
            "END SUB s2",
            "END STEP agent:b",
            "MS",
            "RF success",
        ]
        end = thread.events[-1]
        assert isinstance(end, e.RunFinished)
        assert end.usage == [e.TokenUsage(input_tokens=30, output_tokens=15, total_tokens=45)]
    assert a.saw[1][1:] == [
        said_assistant("A looks.", tool_use("c1", "get_weather", {"city": "x"})),
        said_user(tool_result("c1", "sunny in x")),
    ]


async def test_a_graph_gets_the_earlier_conversation() -> None:
    a = ScriptedModel(says("first"), says("second"))
    async with strands(lambda: graph_of(a=agent_of(a))) as thread:
        await thread.say("one")
        await thread.say("two")
    assert a.saw == [[said_user("one")], [said_user("The conversation so far:\nuser: one\nassistant: first\n\ntwo")]]


async def test_nodes_that_run_at_once_never_share_a_message() -> None:
    both = [anyio.Event(), anyio.Event()]

    def meet(mine: int) -> list[Any]:
        words = says(f"{mine}", f"{mine}{mine}")
        return [*words[:3], _Set(both[mine]), both[1 - mine], *words[3:]]

    a, b, c = ScriptedModel(says("A")), MeetingModel(meet(0)), MeetingModel(meet(1))

    def build() -> Any:
        return graph_of(("a", "b"), ("a", "c"), a=agent_of(a), b=agent_of(b), c=agent_of(c))

    async with strands(build) as thread:
        await thread.say("go")
        texts: dict[str, str] = {}
        for event in thread.events:
            if isinstance(event, e.TextMessageContent):
                texts[event.message_id] = texts.get(event.message_id, "") + event.delta
    assert sorted(texts.values()) == ["000", "111", "A"]


class _Set:
    """A step that sets an event."""

    def __init__(self, event: anyio.Event) -> None:
        self.event = event


class MeetingModel(ScriptedModel):
    """Plays one turn in which it may tell another model to go on."""

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **options: Any
    ) -> Any:
        for step in self._turns.pop(0):
            if isinstance(step, _Set):
                step.event.set()
            elif isinstance(step, anyio.Event):
                await step.wait()
            else:
                yield step


async def test_a_graph_in_a_graph_is_a_subagent_in_a_subagent() -> None:
    inner = ScriptedModel(calls(WEATHER), says("in"))

    def build() -> Any:
        return graph_of(outer=graph_of(inner=agent_of(inner, get_weather)))

    async with strands(build) as thread:
        assert await thread.say("go") == [
            "STEP multiagent:outer",
            "SUB s1 outer",
            "STEP agent:inner @s1",
            "SUB s2 inner < s1",
            "CS c1 get_weather < m1 @s2",
            'CA c1 {"city": "x"} @s2',
            "CE c1 @s2",
            'CR c1 "sunny in x" @s2',
            "MS",
            "TS m2 @s2",
            'TC m2 "in" @s2',
            "TE m2 @s2",
            "END SUB s2",
            "END STEP agent:inner @s1",
            "END SUB s1",
            "END STEP multiagent:outer",
            "MS",
            "RF success",
        ]


async def test_a_handoff_of_a_swarm_is_reported() -> None:
    handoff = '{"agent_name": "b", "message": "yours"}'
    a, b = ScriptedModel(calls(call("h1", "handoff_to_agent", handoff)), says("bye")), ScriptedModel(says("B here."))
    async with strands(lambda: Swarm([agent_of(a, name="a"), agent_of(b, name="b")])) as thread:
        stream = await thread.say("go")
    assert stream[:6] == [
        "STEP agent:a",
        "SUB s1 a",
        "CS h1 handoff_to_agent < m1 @s1",
        f"CA h1 {handoff} @s1",
        "CE h1 @s1",
        'CR h1 "Handing off to b: yours" @s1',
    ]
    assert 'CUSTOM MultiAgentHandoff {"from_nodes": ["a"], "to_nodes": ["b"], "message": "yours"}' in stream
    assert stream[-6:] == ['TC m3 "B here." @s2', "TE m3 @s2", "END SUB s2", "END STEP agent:b", "MS", "RF success"]
    assert "User Request: go" in b.saw[0][0]["content"][0]["text"]


async def test_a_node_that_fails_fails_the_run_with_everything_closed() -> None:
    a = ScriptedModel([*says("So")[:3], RuntimeError("secret")])
    async with strands(lambda: graph_of(a=agent_of(a))) as thread:
        stream = await thread.say("go")
    assert stream[:4] == ["STEP agent:a", "SUB s1 a", "TS m1 @s1", 'TC m1 "So" @s1']
    assert "secret" not in repr(thread.events)


async def test_an_interrupt_inside_a_graph_is_answered_after_a_restart(tmp_path: Path) -> None:
    a, b = ScriptedModel(calls(text("A:"), call("c1", "book")), says("A done")), ScriptedModel(says("B done"))

    def build() -> Any:
        return graph_of(("a", "b"), a=agent_of(a, book), b=agent_of(b))

    store = tmp_path / "ledger.db"
    async with strands(build, store=store) as thread:
        assert (await thread.say("go"))[-4:] == ["END STEP agent:a", "END SUB s1 suspended", "MS", "RF asks confirm"]
        (interrupt,) = thread.interrupts
        assert (interrupt.tool_call_id, interrupt.message) == ("c1", "sure?")
    async with strands(build, store=store) as thread:
        stream = await thread.resume(yes(interrupt, "yes"))
    assert stream[:3] == ["STEP agent:a", "SUB s1 a", 'CR c1 "booked: yes"']
    assert 'TC m2 "B done" @s2' in stream
    assert stream[-1] == "RF success"


async def test_a_tool_inside_a_graph_can_wait_for_approval() -> None:
    a = ScriptedModel(calls(WEATHER), says("done"))
    config = StrandsAgentConfig(tool_behaviors={"get_weather": ToolBehavior(interrupt_on_call=True)})
    async with strands(lambda: graph_of(a=agent_of(a, get_weather)), config) as thread:
        assert (await thread.say("go"))[-1] == "RF asks tool_call"
        stream = await thread.resume(yes(thread.interrupts[0], {"approved": True}))
    assert 'CR c1 "sunny in x"' in stream


async def test_a_tool_of_the_client_inside_a_graph_is_answered_after_a_restart(tmp_path: Path) -> None:
    both = calls(call("f1", "change_background", '{"color": "red"}'), WEATHER)
    a, b = ScriptedModel(both, says("A done")), ScriptedModel(says("B done"))

    def build() -> Any:
        return graph_of(("a", "b"), a=agent_of(a, get_weather), b=agent_of(b))

    store = tmp_path / "ledger.db"
    async with strands(build, store=store, tools=[TOOL]) as thread:
        stream = await thread.say("go")
        assert 'CR c1 "sunny in x" @s1' in stream
        assert stream.index('CR c1 "sunny in x" @s1') < stream.index("CE f1 @s1")
        assert stream[-1] == "RF waits for f1"
    async with strands(build, store=store, tools=[TOOL]) as thread:
        stream = await thread.answer(f1="it is red")
    assert (stream[:3], stream[-1]) == (["STEP agent:a", "SUB s1 a", "TS m1 @s1"], "RF success")
    assert a.saw[1][-1] == said_user(tool_result("c1", "sunny in x"), tool_result("f1", "it is red"))
    assert len(b.saw) == 1


async def test_a_new_message_abandons_a_call_inside_a_graph() -> None:
    a = ScriptedModel(calls(call("f1", "change_background", "{}")), says("Fine."))
    async with strands(lambda: graph_of(a=agent_of(a)), tools=[TOOL]) as thread:
        assert (await thread.say("red"))[-1] == "RF waits for f1"
        assert (await thread.say("never mind"))[-1] == "RF success"
    assert a.saw[1] == [said_user("The conversation so far:\nuser: red\n\nnever mind")]


async def test_a_helpers_own_tool_is_its_own_whatever_the_client_calls_its_tools() -> None:
    @tool
    def change_background() -> str:
        """The helper's own."""
        return "changed here"

    inner = ScriptedModel(calls(call("i1", "change_background")), says("Done."))
    outer = ScriptedModel(calls(call("o1", "helper", '{"input": "red"}')), says("Here."))
    helper = agent_of(inner, change_background, name="helper", description="Helps.")
    async with strands(agent_of(outer, helper.as_tool(name="helper")), tools=[TOOL]) as thread:
        stream = await thread.say("go")
    assert stream.index("CE i1 @s1") < stream.index('CR i1 "changed here" @s1')
    assert stream[-1] == "RF success"


async def test_an_agent_used_as_a_tool_is_a_subagent_of_its_call() -> None:
    inner = ScriptedModel(calls(text("I look."), WEATHER), says("Found it."))
    outer = ScriptedModel(calls(call("o1", "helper", '{"input": "find"}')), says("Here."))
    helper = agent_of(inner, get_weather, name="helper", description="Finds things.")
    async with strands(agent_of(outer, helper.as_tool(name="helper"))) as thread:
        assert await thread.say("go") == [
            "CS o1 helper < m1",
            'CA o1 {"input": "find"}',
            "CE o1",
            "SUB s1 helper < o1",
            "TS m2 @s1",
            'TC m2 "I look." @s1',
            "TE m2 @s1",
            "CS c1 get_weather < m2 @s1",
            'CA c1 {"city": "x"} @s1',
            "CE c1 @s1",
            'CR c1 "sunny in x" @s1',
            "MS",
            "TS m3 @s1",
            'TC m3 "Found it." @s1',
            "TE m3 @s1",
            "END SUB s1",
            'CR o1 "Found it.\\n"',
            "MS",
            "TS m4",
            'TC m4 "Here."',
            "TE m4",
            "MS",
            "RF success",
        ]
    assert inner.saw[0] == [said_user("find")]
    assert outer.saw[1] == [
        said_user("go"),
        said_assistant(tool_use("o1", "helper", {"input": "find"})),
        said_user(tool_result("o1", "Found it.\n")),
    ]


async def test_an_answer_that_is_handed_over_is_the_agents_own() -> None:
    inner = ScriptedModel(says("From the helper."))
    outer = ScriptedModel(calls(call("o1", "helper", '{"input": "find"}')), says("And?"))
    helper = agent_of(inner, name="helper", description="Finds things.")
    async with strands(agent_of(outer, helper.as_tool(name="helper", delegate=True))) as thread:
        stream = await thread.say("go")
        await thread.say("more")
    assert stream[-7:] == [
        "TS m2",
        'TC m2 "From the helper."',
        "TE m2",
        'CR o1 "From the helper."',
        "MS",
        "MS",
        "RF success",
    ]
    assert outer.saw[1][-2:] == [said_assistant("From the helper."), said_user("more")]


async def test_messages_of_a_subagent_are_not_part_of_the_agents_history() -> None:
    inner = ScriptedModel(says("inner words"))
    outer = ScriptedModel(calls(call("o1", "helper", '{"input": "find"}')), says("Here."), says("Bye."))
    helper = agent_of(inner, name="helper", description="Finds things.")
    async with strands(agent_of(outer, helper.as_tool(name="helper"))) as thread:
        await thread.say("go")
        await thread.say("thanks")
    assert outer.saw[2] == [
        said_user("go"),
        said_assistant(tool_use("o1", "helper", {"input": "find"})),
        said_user(tool_result("o1", "inner words\n")),
        said_assistant("Here."),
        said_user("thanks"),
    ]


async def test_an_interrupt_of_a_helper_is_answered_after_a_restart(tmp_path: Path) -> None:
    inner = ScriptedModel(calls(call("c1", "book")), says("Booked."))
    outer = ScriptedModel(calls(call("o1", "helper", '{"input": "find"}')), says("Here."))
    store = tmp_path / "ledger.db"

    def build() -> Any:
        helper = agent_of(inner, book, name="helper", description="Books things.")
        return agent_of(outer, helper.as_tool(name="helper"))

    async with strands(build(), store=store) as thread:
        assert (await thread.say("go"))[-1] == "RF asks confirm"
        (interrupt,) = thread.interrupts
    async with strands(build(), store=store) as thread:
        stream = await thread.resume(yes(interrupt, "yes"))
    assert stream[-1] == "RF success"
    assert inner.saw[1][-1] == said_user(tool_result("c1", "booked: yes"))
    assert outer.saw[1][-1] == said_user(tool_result("o1", "Booked.\n"))


@pytest.mark.parametrize("makes", ["agent", "function", "graph"])
@pytest.mark.parametrize("approved", [True, False])
async def test_a_helper_has_to_ask_too_before_a_call_that_needs_approval(
    makes: str, approved: bool, tmp_path: Path
) -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    inner = ScriptedModel(calls(call("c1", "pay", '{"amount": 5}')), says("Done."))
    outer = ScriptedModel(calls(call("o1", "helper", '{"input": "settle it"}')), says("Here."))
    helper = agent_of(inner, pay, name="helper", description="Settles things.")

    def build() -> Any:
        agent = agent_of(outer, helper.as_tool(name="helper"))
        return graph_of(a=agent) if makes == "graph" else agent

    config = StrandsAgentConfig(tool_behaviors={"pay": ToolBehavior(interrupt_on_call=True)})
    made = build() if makes == "agent" else build
    async with strands(made, config, store=tmp_path / "ledger.db") as thread:
        await thread.say("go")
        (interrupt,) = thread.interrupts
    assert (interrupt.tool_call_id, interrupt.message, paid) == ("c1", "Approve the call to pay?", [])
    assert interrupt.metadata == {"tool_name": "pay", "tool_input": {"amount": 5}}
    async with strands(made, config, store=tmp_path / "ledger.db") as thread:
        assert (await thread.resume(yes(interrupt, {"approved": approved})))[-1] == "RF success"
    assert paid == ([5] if approved else [])


async def test_two_threads_may_use_one_helper_at_once() -> None:
    go = anyio.Event()
    inner = ScriptedModel(script=lambda messages: [go, *says("found")])
    outer = ScriptedModel(
        script=lambda messages: (
            says("ok") if len(messages) > 1 else calls(call(f"o{messages[0]['content'][0]['text']}", "helper", "{}"))
        )
    )
    helper = agent_of(inner, name="helper", description="Finds things.")
    async with strands(agent_of(outer, helper.as_tool(name="helper"))) as thread:
        streams: list[list[str]] = []

        async def talk(name: str) -> None:
            streams.append(await Thread(thread.runner, name=name).say(name))

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk, "1")
                tasks.start_soon(talk, "2")
                await inner.wait_for_calls(2)
                go.set()
    assert sorted(word for stream in streams for word in stream if word.startswith("CR")) == [
        'CR o1 "found\\n"',
        'CR o2 "found\\n"',
    ]
