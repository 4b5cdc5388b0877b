"""The conventions of `copilotkit`: hidden output, emitted messages, calls and state. The events are those that it dispatches."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, text
from tests.bridges.langgraph.world import TOOL, get_weather, langgraph
from tests.world import KEY

ROME = '{"city": "Rome"}'


class Shared(MessagesState):
    steps: list[str]
    secret: str


def graph_of(*nodes: Any, **compiled: Any) -> Any:
    builder = StateGraph(Shared)
    for before, node in zip([None, *nodes], nodes, strict=False):
        builder.add_node(node.__name__, node)
        builder.add_edge(before.__name__ if before else START, node.__name__)
    return builder.compile(**compiled)


def model_node(model: ScriptedModel, **metadata: Any) -> Any:
    configured = model.with_config(
        metadata={f"copilotkit:{name.replace('_', '-')}": item for name, item in metadata.items()}
    )

    async def agent(state: Shared) -> Any:
        return {"messages": [await configured.ainvoke(state["messages"])]}

    return agent


async def tools(state: Shared, config: RunnableConfig) -> Any:
    return await ToolNode([get_weather]).ainvoke(state, config)


def both() -> ScriptedModel:
    return ScriptedModel(calls(text("psst"), call("c1", "get_weather", ROME)))


@pytest.mark.parametrize("spelling", ["emit-messages", "emit_messages", "copilotkit:emit-messages"])
async def test_hidden_text_is_hidden_and_calls_are_shown(spelling: str) -> None:
    model = both().with_config(metadata={spelling: False})

    async def agent(state: Shared) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async with langgraph(graph_of(agent, tools)) as thread:
        lines = await thread.say("go")
    assert [word[:2] for word in lines if word[:2] in {"TS", "TC", "CS", "CE", "CR"}] == ["CS", "CE", "CR"]


async def test_hidden_calls_are_hidden_with_their_results_and_text_is_shown() -> None:
    async with langgraph(graph_of(model_node(both(), emit_tool_calls=False), tools)) as thread:
        await thread.say("go")
        assert thread.text() == "psst"
    assert not [event for event in thread.seen if isinstance(event, e.ToolCallStart | e.ToolCallResult)]


@pytest.mark.parametrize(
    ("shown", "names"), [("a", ["a"]), (["a", "b"], ["a", "b"]), (True, ["a", "b", "c"])], ids=repr
)
async def test_calls_are_shown_by_the_names_of_their_tools(shown: Any, names: list[str]) -> None:
    turn = calls(*(call(f"c{at}", name, "{}", index=at) for at, name in enumerate("abc")))
    async with langgraph(graph_of(model_node(ScriptedModel(turn), emit_tool_calls=shown))) as thread:
        await thread.say("go")
    assert [event.tool_call_name for event in thread.events if isinstance(event, e.ToolCallStart)] == names


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize(
    ("mapping", "expected"),
    [({"tool_argument": "steps"}, ["a", "b"]), ({}, {"steps": ["a", "b"]})],
    ids=["one argument", "all arguments"],
)
async def test_intermediate_state_shows_the_arguments_of_a_call(
    mapping: dict[str, str], expected: Any, hidden: bool
) -> None:
    model = ScriptedModel(calls(call("c1", "plan", '{"steps": ["a"', ', "b"]}')))
    wanted = [{"state_key": "steps", "tool": "plan", **mapping}]
    more = {"emit_tool_calls": False} if hidden else {}
    async with langgraph(graph_of(model_node(model, emit_intermediate_state=wanted, **more))) as thread:
        lines = await thread.say("go")
    assert any(f'"value": {expected!r}'.replace("'", '"') in word for word in lines if word.startswith("SD"))
    announced = [event.value for event in thread.events if isinstance(event, e.Custom) and event.name == "PredictState"]
    assert announced == ([] if hidden else [wanted])


@pytest.mark.parametrize("name", ["copilotkit_manually_emit_message", "manually_emit_message"])
async def test_an_emitted_message_is_shown_at_once_and_not_again_when_the_node_returns_it(name: str) -> None:
    async def work(state: Shared) -> Any:
        await adispatch_custom_event(name, {"message": "Half.", "message_id": "e1", "role": "assistant"})
        await adispatch_custom_event("then", 1)
        return {"messages": [AIMessage("Half.")]}

    async with langgraph(graph_of(work, checkpointer=InMemorySaver())) as thread:
        assert await thread.say("go") == ["TS e1", 'TC e1 "Half."', "TE e1", "CUSTOM then 1", "MS", "RF success"]
        stored = (await thread.runner.view_thread(KEY)).transcript.messages()
        assert [message.content for message in stored] == ["go", "Half."]


@pytest.mark.parametrize("name", ["copilotkit_manually_emit_tool_call", "manually_emit_tool_call"])
async def test_an_emitted_call_is_shown_once_with_the_result_that_the_node_returns(name: str) -> None:
    async def work(state: Shared) -> Any:
        await adispatch_custom_event(name, {"id": "c1", "name": "search", "args": {"n": 1}})
        shown = AIMessage("", tool_calls=[{"id": "c1", "name": "search", "args": {"n": 1}}])
        return {"messages": [shown, ToolMessage("found", tool_call_id="c1")]}

    async with langgraph(graph_of(work)) as thread:
        assert await thread.say("go") == [
            "CS c1 search < m1",
            'CA c1 {"n":1}',
            "CE c1",
            'CR c1 "found"',
            "MS",
            "RF success",
        ]


async def test_an_emitted_call_of_a_client_tool_waits_for_the_client() -> None:
    async def work(state: Shared) -> Any:
        if state["messages"][-1].type == "human":
            await adispatch_custom_event(
                "manually_emit_tool_call", {"id": "c1", "name": TOOL.name, "args": {"color": "red"}}
            )
        return {"messages": [AIMessage("Look.")]}

    async with langgraph(graph_of(work), tools=[TOOL]) as thread:
        assert (await thread.say("go"))[-1] == "RF waits for c1"
        assert (await thread.answer(c1="done"))[-1] == "RF success"


@pytest.mark.parametrize("name", ["copilotkit_manually_emit_intermediate_state", "manually_emit_state"])
async def test_every_emitted_state_is_a_snapshot_without_hidden_keys(name: str) -> None:
    async def work(state: Shared) -> Any:
        for steps in (["a"], ["a", "b"]):
            await adispatch_custom_event(name, {**state, "steps": steps, "secret": "x"})
        return {"steps": ["a", "b", "c"]}

    async with langgraph(graph_of(work), LangGraphConfig(hidden_state=["secret"])) as thread:
        lines = await thread.say("go")
    assert [word for word in lines if word[:2] in {"SS", "SD"}] == [
        'SS {"steps": ["a"]}',
        'SS {"steps": ["a", "b"]}',
        'SD [{"op": "replace", "path": "/steps", "value": ["a", "b", "c"]}]',
    ]


async def test_emitted_state_that_the_graph_does_not_keep_is_gone_at_the_end() -> None:
    async def work(state: Shared) -> Any:
        await adispatch_custom_event("manually_emit_state", {"steps": ["a"], "progress": 3})
        return {"messages": [AIMessage("Done.")]}

    async with langgraph(graph_of(work)) as thread:
        lines = await thread.say("go")
    assert [word for word in lines if word[:2] == "SS"] == ['SS {"steps": ["a"], "progress": 3}', "SS {}"]


async def test_exit_reaches_the_client() -> None:
    async def work(state: Shared) -> Any:
        await adispatch_custom_event("copilotkit_exit", {})
        return {"messages": [AIMessage("Bye.")]}

    async with langgraph(graph_of(work)) as thread:
        assert (await thread.say("go"))[0] == "CUSTOM Exit true"


@pytest.mark.parametrize("data", [None, {}, {"message": 1}, "text"], ids=repr)
async def test_a_malformed_event_stays_a_custom_event(data: Any) -> None:
    async def work(state: Shared) -> Any:
        await adispatch_custom_event("manually_emit_message", data)
        return {"messages": [AIMessage("Done.")]}

    async with langgraph(graph_of(work)) as thread:
        assert (await thread.say("go"))[0].startswith("CUSTOM manually_emit_message")
