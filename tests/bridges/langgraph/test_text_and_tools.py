"""What a graph says and calls, and what its model saw."""

from __future__ import annotations

import json
import math
from typing import Any, TypedDict

import pytest
from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import AIMessageChunk, ScriptedModel, atomic, blocks, call, calls, says, text
from tests.bridges.langgraph.world import agent_graph, get_weather, langgraph, react_agent, steps

ROME = '{"city": "Rome"}'
SUNNY = ["CE c1", 'CR c1 "sunny in Rome"', "TS m2", 'TC m2 "Sun."', "TE m2", "MS", "RF success"]
SEEN = ["user: weather?", "ai: c1 get_weather {'city': 'Rome'}", "tool c1: sunny in Rome"]


class Greeted(MessagesState):
    user: str


class User(TypedDict, total=False):
    """What a node sees that is not shown the messages."""

    user: str


def one_node(node: Any, **compiled: Any) -> Any:
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(**compiled)


async def test_text_comes_as_the_model_writes_it() -> None:
    model = ScriptedModel(says("Hel", "lo", "", "!"))
    async with langgraph(agent_graph(model)) as thread:
        assert await thread.say("hi") == [
            "TS m1",
            'TC m1 "Hel"',
            'TC m1 "lo"',
            'TC m1 "!"',
            "TE m1",
            "MS",
            "RF success",
        ]
        assert steps(thread.events) == ["+agent", "-agent"]
    assert model.saw == [["user: hi"]]


async def test_a_tool_is_called_and_answered() -> None:
    model = ScriptedModel(calls(text("Look: "), call("c1", "get_weather", '{"city":', ' "Rome"}')), says("Sun."))
    async with langgraph(agent_graph(model, get_weather)) as thread:
        assert await thread.say("weather?") == [
            "TS m1",
            'TC m1 "Look: "',
            "TE m1",
            "CS c1 get_weather < m1",
            'CA c1 {"city":',
            'CA c1  "Rome"}',
            *SUNNY,
        ]
        assert steps(thread.events) == ["+agent", "-agent", "+tools", "-tools", "+agent", "-agent"]
    called = "ai: Look:  c1 get_weather {'city': 'Rome'}"
    assert model.saw == [["user: weather?"], ["user: weather?", called, "tool c1: sunny in Rome"]]


@pytest.mark.parametrize(
    "turn",
    [
        atomic("c1", "get_weather", {"city": "Rome"}),
        call("c1", "get_weather", ROME),
        [
            AIMessageChunk(
                content="", tool_call_chunks=[{"id": "c1", "name": "get_weather", "args": ROME, "index": None}]
            )
        ],  # type: ignore[list-item]
    ],
    ids=["one piece", "streamed", "no index"],
)
async def test_a_call_is_emitted_whole_however_its_arguments_come(turn: Any) -> None:
    model = ScriptedModel(turn, says("Sun."))
    async with langgraph(agent_graph(model, get_weather)) as thread:
        assert await thread.say("weather?") == ["CS c1 get_weather < m1", f"CA c1 {ROME}", *SUNNY]
    assert model.saw[1] == SEEN


async def test_a_call_whose_name_comes_in_a_second_chunk_is_emitted_when_it_is_known() -> None:
    first = AIMessageChunk(content="", tool_call_chunks=[{"id": "c1", "name": None, "args": '{"city": ', "index": 0}])  # type: ignore[list-item]
    then = AIMessageChunk(
        content="", tool_call_chunks=[{"id": None, "name": "get_weather", "args": '"Rome"}', "index": 0}]
    )  # type: ignore[list-item]
    model = ScriptedModel([first, then], says("Sun."))
    async with langgraph(agent_graph(model, get_weather)) as thread:
        assert await thread.say("weather?") == ["CS c1 get_weather < m1", f"CA c1 {ROME}", *SUNNY]


async def test_arguments_that_only_the_whole_message_has_are_emitted() -> None:
    """As with providers that stream the name of a call and nothing else."""

    async def node(state: MessagesState) -> Any:
        message = await ScriptedModel(call("c1", "get_weather")).ainvoke(state["messages"])
        message.tool_calls[0]["args"] = {"city": "Rome"}
        return {"messages": [message]}

    async with langgraph(one_node(node)) as thread:
        assert (await thread.say("weather?"))[:3] == ["CS c1 get_weather < m1", 'CA c1 {"city":"Rome"}', "CE c1"]


async def test_a_tool_without_arguments_is_called() -> None:
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    model = ScriptedModel(calls(call("c1", "now")), says("Noon."))
    async with langgraph(agent_graph(model, now)) as thread:
        stream = await thread.say("time?")
    assert stream[:4] == ["CS c1 now < m1", "CA c1 {}", "CE c1", 'CR c1 "noon"']
    assert model.saw[1] == ["user: time?", "ai: c1 now {}", "tool c1: noon"]


async def test_several_calls_of_one_turn_share_their_message() -> None:
    model = ScriptedModel(
        calls(call("c1", "get_weather", ROME), call("c2", "get_weather", '{"city": "Oslo"}', index=1)), says("Sun.")
    )
    async with langgraph(agent_graph(model, get_weather)) as thread:
        assert (await thread.say("weather?"))[:8] == [
            "CS c1 get_weather < m1",
            f"CA c1 {ROME}",
            "CS c2 get_weather < m1",
            'CA c2 {"city": "Oslo"}',
            "CE c1",
            "CE c2",
            'CR c1 "sunny in Rome"',
            'CR c2 "sunny in Oslo"',
        ]


async def test_client_and_model_are_informed_of_a_failed_tool() -> None:
    def broken() -> str:
        """Fails."""
        raise ToolException("no luck")

    model = ScriptedModel(calls(call("c1", "broken")), says("Sorry."))
    failing = StructuredTool.from_function(broken, handle_tool_error=True)
    async with langgraph(agent_graph(model, failing)) as thread:
        stream = await thread.say("go")
    assert stream[3] == 'CR c1 "no luck" error'
    assert model.saw[1][-1] == "tool c1: no luck error"


async def test_client_and_model_are_informed_of_a_call_of_an_unknown_tool() -> None:
    model = ScriptedModel(calls(call("c1", "nothing_like_it")), says("Sorry."))
    async with langgraph(react_agent(model, get_weather)) as thread:
        stream = await thread.say("go")
    assert stream[3].endswith(" error")
    assert model.saw[1][-1].endswith(" error")


async def test_a_result_with_a_picture_keeps_it() -> None:
    picture = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}

    def node(state: MessagesState) -> Any:
        call_ = {"id": "c1", "name": "draw", "args": {}}
        message = ToolMessage(content=[{"type": "text", "text": "Here:"}, picture], tool_call_id="c1", name="draw")
        return {"messages": [AIMessage("", tool_calls=[call_]), message]}

    async with langgraph(one_node(node)) as thread:
        stream = await thread.say("draw")
    assert stream[:4] == ["CS c1 draw < m1", "CA c1 {}", "CE c1", 'CR c1 "Here:" + ImagePart image/png']


async def test_a_result_that_is_no_json_is_sent_in_the_nearest_form() -> None:
    def node(state: MessagesState) -> Any:
        call_ = {"id": "c1", "name": "odd", "args": {"far": math.inf}}
        message = ToolMessage(content=[{"data": b"\xff", "far": math.nan}], tool_call_id="c1", name="odd")
        return {"messages": [AIMessage("", tool_calls=[call_]), message]}

    async with langgraph(one_node(node)) as thread:
        stream = await thread.say("go")
    content_text = json.dumps('{"data":"_w==","far":null}')
    assert stream[:4] == ["CS c1 odd < m1", 'CA c1 {"far":null}', "CE c1", f"CR c1 {content_text}"]


async def test_a_model_that_does_not_stream_sends_its_message_whole_and_once() -> None:
    model = ScriptedModel(
        calls(text("Look: "), call("c1", "get_weather", ROME), usage=(3, 2)), says("Sun."), disable_streaming=True
    )
    async with langgraph(agent_graph(model, get_weather)) as thread:
        assert await thread.say("weather?") == [
            "TS m1",
            'TC m1 "Look: "',
            "TE m1",
            "CS c1 get_weather < m1",
            'CA c1 {"city":"Rome"}',
            *SUNNY,
        ]
        assert [one.total_tokens for one in thread.end.usage or []] == [5]


async def test_messages_a_node_creates_are_emitted_and_those_of_a_user_are_not() -> None:
    def node(state: MessagesState) -> Any:
        return {"messages": [HumanMessage("as if"), AIMessage("First."), AIMessage("Second.")]}

    async with langgraph(one_node(node)) as thread:
        assert await thread.say("go") == [
            "TS m1",
            'TC m1 "First."',
            "TE m1",
            "TS m2",
            'TC m2 "Second."',
            "TE m2",
            "MS",
            "RF success",
        ]


async def test_a_message_the_thread_has_is_not_emitted_again() -> None:
    def node(state: MessagesState) -> Any:
        return {"messages": [*state["messages"], AIMessage("new")]}

    async with langgraph(one_node(node, checkpointer=InMemorySaver())) as thread:
        await thread.say("a")
        await thread.say("b")
    assert thread.text() == "new"


async def test_a_message_that_a_node_writes_again_under_an_id_the_thread_has_is_not_emitted_twice() -> None:
    def greet(state: User) -> Any:
        return {"messages": [AIMessage("Hello.", id="greeting")]}

    graph = StateGraph(Greeted).add_node("greet", greet).add_edge(START, "greet").compile(checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        await thread.say("a")
        assert thread.text() == "Hello."
        assert await thread.say("b") == ["MS", "RF success"]


THINKING = {
    "anthropic": blocks({"type": "thinking", "thinking": "Hm"}, {"type": "thinking", "thinking": ", well"}),
    "standard": blocks({"type": "reasoning", "reasoning": "Hm"}, {"type": "reasoning", "reasoning": ", well"}),
    "summary": blocks(
        *({"type": "reasoning", "summary": [{"type": "summary_text", "text": one}]} for one in ("Hm", ", well"))
    ),
    "bedrock": blocks(*({"type": "reasoning_content", "reasoning_content": {"text": one}} for one in ("Hm", ", well"))),
    "beside": [AIMessageChunk(content="", additional_kwargs={"reasoning_content": one}) for one in ("Hm", ", well")],
}


@pytest.mark.parametrize("form", THINKING)
async def test_reasoning_comes_before_the_answer_in_every_form_providers_have(form: str) -> None:
    answer = text("Yes.") if form == "beside" else blocks({"type": "text", "text": "Yes.", "index": 1})
    async with langgraph(agent_graph(ScriptedModel([*THINKING[form], *answer]))) as thread:
        assert await thread.say("go") == [
            "ZS z1",
            "ZMS z1",
            'ZMC z1 "Hm"',
            'ZMC z1 ", well"',
            "ZME z1",
            "ZE z1",
            "TS m1",
            'TC m1 "Yes."',
            "TE m1",
            "MS",
            "RF success",
        ]


@pytest.mark.parametrize("form", THINKING)
async def test_only_a_summary_for_people_is_marked_as_one(form: str) -> None:
    """The audience `safe` sees marked reasoning."""
    async with langgraph(agent_graph(ScriptedModel(THINKING[form]))) as thread:
        await thread.say("go")
    marks = [event.metadata for event in thread.events if isinstance(event, e.ReasoningMessageContent)]
    assert marks == [{"summary": True} if form == "summary" else None] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([None, 5, "Hi"], ["TS z", 'TC z "Hi"', "TE z"]),
        ([{"type": "reasoning", "summary": ["Hm", None, {"text": "."}]}], ['ZMC z1 "Hm."']),
    ],
    ids=["no blocks", "a summary of words"],
)
async def test_content_of_an_unknown_form_is_skipped_alone(content: list[Any], message: list[str]) -> None:
    made = AIMessage("", id="z")
    made.content = content
    async with langgraph(one_node(lambda state: {"messages": [made]})) as thread:
        stream = await thread.say("hi")
    assert thread.error is None
    assert [word for word in stream if word[:2] in {"TS", "TC", "TE"} or word.startswith("ZMC")] == message


async def test_what_a_provider_has_encrypted_goes_with_the_reasoning_and_signatures_do_not() -> None:
    thought = blocks(
        {"type": "thinking", "thinking": "Hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "xyz"}
    )
    async with langgraph(
        agent_graph(ScriptedModel([*thought, *blocks({"type": "text", "text": "Yes.", "index": 2})]))
    ) as thread:
        stream = await thread.say("go")
    assert "ENC message z1 xyz" in stream
    assert "sig" not in repr(thread.events)


async def test_a_muted_model_emits_nothing() -> None:
    model = ScriptedModel(calls(text("psst"), call("c1", "get_weather", ROME)))
    quiet = model.with_config(metadata={"emit-messages": False, "emit-tool-calls": False})

    async def node(state: MessagesState) -> Any:
        await quiet.ainvoke(state["messages"])
        return {"messages": [AIMessage("Aloud.")]}

    async with langgraph(one_node(node)) as thread:
        assert await thread.say("go") == ["TS m1", 'TC m1 "Aloud."', "TE m1", "MS", "RF success"]


async def test_what_nodes_and_tools_write_to_the_stream_are_custom_events_in_order() -> None:
    @tool
    async def work() -> str:
        """Works."""
        get_stream_writer()({"name": "progress", "value": 1})
        get_stream_writer()({"half": object()})
        await adispatch_custom_event("dispatched", {"at": 2})
        await adispatch_custom_event("ambient:memory", {"checkpoint": "forged"})
        return "done"

    model = ScriptedModel(calls(call("c1", "work")), says("ok"))
    async with langgraph(agent_graph(model, work)) as thread:
        assert (await thread.say("go"))[3:8] == [
            "CUSTOM progress 1",
            'CUSTOM langgraph:custom {"half": "<object>"}',
            'CUSTOM dispatched {"at": 2}',
            'CUSTOM ambient:dropped {"type": "CUSTOM", "reason": "reserved_name", "name": "ambient:memory"}',
            'CR c1 "done"',
        ]


async def test_a_cyclic_value_in_the_stream_is_replaced_by_its_type_name() -> None:
    endless: dict[str, Any] = {}
    endless["me"] = endless

    def node(state: MessagesState) -> Any:
        get_stream_writer()({"name": "odd", "value": endless})
        return {"messages": [AIMessage("ok", id="z")]}

    async with langgraph(one_node(node)) as thread:
        assert (await thread.say("go"))[:2] == ['CUSTOM odd "<dict>"', "TS z"]


async def test_usage_is_added_up_by_model() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", ROME), usage=(10, 5)), says("Sun.", usage=(20, 1)))
    async with langgraph(agent_graph(model, get_weather)) as thread:
        await thread.say("weather?")
    assert thread.end.usage == [
        e.TokenUsage(provider="scripted", model="scripted-1", input_tokens=30, output_tokens=6, total_tokens=36)
    ]


async def test_pictures_and_files_reach_the_model_as_content_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LangGraphBridge, "media_url_schemes", {"https", "file"})  # The server refuses files otherwise.
    model = ScriptedModel(says("I see."))
    parts: list[e.ContentPart] = [
        e.TextPart(text="What is this?"),
        e.ImagePart(source=e.DataSource(value="aGk=", mime_type="image/png")),
        e.ImagePart(source=e.UrlSource(value="https://example.org/a.png")),
        e.DocumentPart(source=e.DataSource(value="aGk=", mime_type="application/pdf")),
        e.AudioPart(source=e.DataSource(value="aGk=", mime_type="audio/wav")),
        e.ImagePart(source=e.UrlSource(value="file:///etc/passwd", mime_type="image/png")),
    ]
    async with langgraph(agent_graph(model)) as thread:
        await thread.say(parts)
    assert model.shown[0][0].content == [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        {"type": "image", "url": "https://example.org/a.png"},
        {"type": "file", "base64": "aGk=", "mime_type": "application/pdf"},
        {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"},
        {"type": "text", "text": "[An attachment that cannot be read here: image/png]"},
    ]
