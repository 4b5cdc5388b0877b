"""Smaller behaviours that the documentation of the AWS Strands integration of AG-UI promises."""

from __future__ import annotations

from typing import Any

import pytest
from strands import tool
from strands.multiagent import GraphBuilder, Swarm
from strands.session.file_session_manager import FileSessionManager

from ambient_runner.bridges.strands.agent import StrandsAgent
from ambient_runner.bridges.strands.config import (
    PredictStateMapping,
    StrandsAgentConfig,
    ToolBehavior,
    ToolResultContext,
)
from ambient_runner.bridges.strands.messages import result_data
from ambient_runner.errors import ConfigError
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import ScriptedModel, Turn, call, calls, said_user, says, turn
from tests.bridges.strands.world import agent_of, strands


async def test_an_empty_state_that_a_client_sends_is_shown_like_any_other() -> None:
    async with strands(agent_of(ScriptedModel(says("ok")))) as thread:
        assert (await thread.say("hi", state={}))[0] == "SS {}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'title': 'Soup', 'steps': ['boil']}", {"title": "Soup", "steps": ["boil"]}),
        ("{'who': \"it's me\", 'n': None, 'ok': True}", {"who": "it's me", "n": None, "ok": True}),
        ("{'ok': true, 'n': null}", {"ok": True, "n": None}),
        ("(1, 2)", [1, 2]),
        ("{'a': (1,), 'b': [None, 'x\\n', \"y\"],}", {"a": [1], "b": [None, "x\n", "y"]}),
        ("[" + "1+" * 50_000 + "1]", "[" + "1+" * 50_000 + "1]"),
        ('{"a": 1}', {"a": 1}),
        ("it's {not} json", "it's {not} json"),
        ("{broken", "{broken"),
        ("[" * 5000, "[" * 5000),
        ("{'a': open('x')}", "{'a': open('x')}"),
        ("", ""),
    ],
)
def test_a_result_in_single_quotes_reaches_hooks_as_an_object(text: str, value: Any) -> None:
    assert result_data({"content": [{"text": text}]}) == value


@tool
def write_recipe(title: str) -> dict[str, Any]:
    """Writes a recipe."""
    return {"title": title, "note": "it's good"}


async def test_what_a_tool_returns_reaches_the_hook_as_the_tool_returned_it() -> None:
    seen: list[Any] = []

    def to_state(context: ToolResultContext) -> dict[str, Any]:
        seen.append(context.result_data)
        return {"recipe": context.result_data}

    model = ScriptedModel(calls(call("c1", "write_recipe", '{"title": "Soup"}')), says("ok"))
    config = StrandsAgentConfig({"write_recipe": ToolBehavior(state_from_result=to_state)})
    async with strands(agent_of(model, write_recipe), config) as thread:
        await thread.say("soup")
    assert seen == [{"title": "Soup", "note": "it's good"}]


def test_the_configuration_takes_positional_arguments_and_can_be_changed() -> None:
    mapping = PredictStateMapping("recipe", "write_recipe", "title")
    behavior = ToolBehavior(True, True, True, False, mapping)
    assert (behavior.skip_messages_snapshot, behavior.predict_state) == (True, (mapping,))
    config = StrandsAgentConfig({"write_recipe": behavior}, lambda run_input, prompt: prompt)
    config.tool_behaviors["other"] = ToolBehavior()
    behavior.stop_streaming_after_result = False
    assert not config.behavior("write_recipe").stop_streaming_after_result


def graph_of(first: ScriptedModel, second: ScriptedModel, session: Any = None) -> Any:
    builder = GraphBuilder()
    builder.set_execution_timeout(60)
    if session is not None:
        builder.set_session_manager(session)
    builder.add_node(agent_of(first, name="a"), "a")
    builder.add_node(agent_of(second, name="b"), "b")
    builder.add_edge("a", "b")
    builder.set_entry_point("a")
    return builder.build()


async def test_a_graph_can_be_passed_as_it_is_and_every_run_has_its_own() -> None:
    first, second = (ScriptedModel(script=lambda messages: says("ok")) for _ in range(2))
    graph = graph_of(first, second)
    async with strands(graph) as thread:
        for name in ("x", "y"):
            thread.name = name
            stream = await thread.say("hello")
            assert "STEP agent:a" in stream
            assert "STEP agent:b" in stream
    assert first.saw == [[said_user("hello")], [said_user("hello")]]
    assert [node.executor.messages for node in graph.nodes.values()] == [[], []]


async def test_a_swarm_can_be_passed_as_it_is() -> None:
    to_b = calls(call("h1", "handoff_to_agent", '{"agent_name": "b", "message": "yours"}'))
    models = {"a": ScriptedModel(script=_once(to_b, says("out"))), "b": ScriptedModel(script=lambda _: says("B"))}
    swarm = Swarm([agent_of(model, name=name) for name, model in models.items()])
    async with strands(swarm) as thread:
        for name in ("x", "y"):
            thread.name = name
            stream = await thread.say("hello")
            assert stream[-1] == "RF success"
            assert any(line.startswith("CUSTOM MultiAgentHandoff") for line in stream)


def _once(first: Turn, then: Turn) -> Any:
    return lambda messages: then if any(m["role"] == "assistant" for m in messages) else first


def test_a_graph_that_cannot_be_copied_is_refused_with_advice(tmp_path: Any) -> None:
    session = FileSessionManager(session_id="s", storage_dir=str(tmp_path))
    with pytest.raises(ConfigError):
        StrandsAgent(graph_of(ScriptedModel(), ScriptedModel(), session))


async def test_citations_are_in_the_metadata_of_their_message() -> None:
    cited = {
        "title": "Soups",
        "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 9}},
        "sourceContent": [{"text": "Boil water."}, {"text": ""}],
    }
    found = {"source": "web", "location": {"web": {"url": "https://example.com", "domain": ""}}}
    block: Turn = [
        {"contentBlockStart": {"start": {}}},
        {"contentBlockDelta": {"delta": {"text": "Boil 🍲"}}},
        {"contentBlockDelta": {"delta": {"citation": cited}}},
        {"contentBlockDelta": {"delta": {"text": " first."}}},
        {"contentBlockDelta": {"delta": {"citation": found}}},
        {"contentBlockDelta": {"delta": {"citation": {"title": ""}}}},
        {"contentBlockStop": {}},
    ]
    async with strands(agent_of(ScriptedModel(turn(block)))) as thread:
        await thread.say("soup?")
        [end] = [event for event in thread.events if isinstance(event, e.TextMessageEnd)]
        snapshot = next(event for event in thread.events if isinstance(event, e.MessagesSnapshot))
    expected = {
        "citations": [
            {
                "title": "Soups",
                "location": {"type": "documentChar", "documentIndex": 0, "start": 1, "end": 9},
                "sourceContent": [{"text": "Boil water."}],
                "textOffset": 7,
            },
            {"source": "web", "location": {"type": "web", "url": "https://example.com"}, "textOffset": 14},
        ]
    }
    assert end.metadata == expected
    assert snapshot.messages[-1].metadata == expected
    assert [event.delta for event in thread.events if isinstance(event, e.TextMessageContent)] == ["Boil 🍲", " first."]
