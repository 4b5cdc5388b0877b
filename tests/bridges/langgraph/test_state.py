"""Shared state: what of the graph's state clients see, what of theirs it takes, and state that is shown before it is there."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from ambient_runner.bridges.langgraph.config import LangGraphConfig, PredictStateMapping
from ambient_runner.bridges.langgraph.predict_state import Predictions
from ambient_runner.bridges.toolkit.state import StateStore
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import agent_graph, langgraph, summarize, yes
from tests.world import KEY


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    recipe: dict[str, Any]
    log: Annotated[list[str], operator.add]
    secret: str


class Recipe(BaseModel):
    title: str


SERDE = JsonPlusSerializer(allowed_msgpack_modules=[(__name__, "Recipe")])


class Typed(BaseModel):
    messages: Annotated[list[Any], add_messages] = []
    recipe: Recipe | None = None


def graph_of(*nodes: Any, schema: Any = State, **options: Any) -> Any:
    """Nodes one after the other."""
    inputs = {"input_schema": options.pop("input_schema")} if "input_schema" in options else {}
    graph = StateGraph(schema, **inputs)
    before = START
    for at, node in enumerate(nodes):
        graph.add_node(f"n{at}", node)
        graph.add_edge(before, f"n{at}")
        before = f"n{at}"
    return graph.compile(**options)


def state_words(stream: list[str]) -> list[str]:
    return [word for word in stream if word.startswith(("SS", "SD"))]


async def test_each_step_sends_its_state_changes_without_messages() -> None:
    graph = graph_of(
        lambda state: {"recipe": {"title": "Soup"}},
        lambda state: {"recipe": {"title": "Soup", "salt": True}, "log": ["salted"], "messages": [AIMessage("Done.")]},
    )
    async with langgraph(graph) as thread:
        assert state_words(await thread.say("cook")) == [
            'SD [{"op": "add", "path": "/log", "value": []}]',
            'SD [{"op": "add", "path": "/recipe", "value": {"title": "Soup"}}]',
            'SD [{"op": "replace", "path": "/recipe", "value": {"title": "Soup", "salt": true}}, '
            '{"op": "replace", "path": "/log", "value": ["salted"]}]',
        ]


async def test_what_the_client_sets_reaches_the_graph_once_also_where_updates_are_added_up() -> None:
    seen: list[Any] = []

    def node(state: State) -> Any:
        seen.append((state.get("recipe"), state.get("log")))
        return {"log": ["seen"]}

    async with langgraph(graph_of(node, checkpointer=InMemorySaver())) as thread:
        await thread.say("a", state={"recipe": {"n": 1}, "log": ["mine"], "page": "home"})
        first = summarize(thread.seen)
        await thread.say("b")
        await thread.say("c", state={"recipe": {"n": 2}, "log": ["new"], "page": "home"})
    assert state_words(first) == [
        'SS {"recipe": {"n": 1}, "log": ["mine"], "page": "home"}',
        'SD [{"op": "replace", "path": "/log", "value": ["mine", "seen"]}]',
    ]
    assert seen == [({"n": 1}, ["mine"]), ({"n": 1}, ["mine", "seen"]), ({"n": 2}, ["new"])]


async def test_state_that_clients_have_is_not_sent_again() -> None:
    async with langgraph(graph_of(lambda state: {"messages": []}, checkpointer=InMemorySaver())) as thread:
        for client_state in ({"recipe": {"n": 1}}, {"recipe": {"n": 1}, "log": []}, {"recipe": {"n": 2}}, None):
            await thread.say("go", state=client_state)
            snapshots = [word for word in summarize(thread.seen) if word.startswith("SS")]
            assert len(snapshots) == 1, client_state


async def test_without_a_checkpointer_the_shared_state_carries_over() -> None:
    seen: list[Any] = []

    def node(state: State) -> Any:
        seen.append(state.get("log"))
        return {"log": ["seen"]}

    async with langgraph(graph_of(node)) as thread:
        await thread.say("a")
        await thread.say("b")
    assert seen == [[], ["seen"]]


async def test_only_keys_of_the_input_schema_flow_in() -> None:
    class Input(TypedDict):
        messages: Annotated[list[Any], add_messages]
        recipe: dict[str, Any]

    seen: list[Any] = []

    def node(state: State) -> Any:
        seen.append({key: item for key, item in state.items() if key != "messages"})
        return {}

    async with langgraph(graph_of(node, input_schema=Input)) as thread:
        await thread.say("a", state={"recipe": {"n": 1}, "secret": "forged", "other": 1})
    assert seen == [{"recipe": {"n": 1}, "log": []}]


async def test_hidden_keys_are_neither_sent_nor_accepted() -> None:
    seen: list[Any] = []

    def node(state: State) -> Any:
        seen.append(state.get("secret"))
        return {"secret": "hush", "recipe": {"n": 1}}

    graph = graph_of(node, checkpointer=InMemorySaver())
    async with langgraph(graph, LangGraphConfig(hidden_state=["secret"])) as thread:
        await thread.say("a", state={"secret": "forged"})
        assert "hush" not in repr(thread.events)
        await thread.say("b")
    assert seen == [None, "hush"]


async def test_a_state_of_pydantic_models_is_sent_as_json() -> None:
    async with langgraph(graph_of(lambda state: {"recipe": Recipe(title="Soup")}, schema=Typed)) as thread:
        assert 'SD [{"op": "add", "path": "/recipe", "value": {"title": "Soup"}}]' in await thread.say("cook")


async def test_what_the_client_did_not_change_stays_the_object_it_is_in_the_graph() -> None:
    class Mixed(TypedDict, total=False):
        messages: Annotated[list[Any], add_messages]
        recipe: Any

    seen: list[Any] = []

    def node(state: Mixed) -> Any:
        seen.append(type(state.get("recipe")))
        return {"recipe": Recipe(title="Soup")}

    async with langgraph(graph_of(node, schema=Mixed, checkpointer=InMemorySaver(serde=SERDE))) as thread:
        await thread.say("a")
        await thread.say("b")
        await thread.say("c", state={"recipe": {"title": "Stew"}})
    assert seen == [type(None), Recipe, dict]


HUGE = 10**21
"""As JavaScript writes 1e21, and more than a checkpointer can keep of an integer."""


@pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])
async def test_integers_of_more_than_64_bits_in_what_clients_send_do_not_break_the_run(saver: Any) -> None:
    seen: list[Any] = []

    def node(state: State) -> Any:
        seen.append(state.get("recipe"))
        return {"messages": [AIMessage("done")]}

    client_state = {"recipe": {"n": HUGE, "m": [-HUGE, 2**64 - 1, -(2**63), 10**308 * 9]}}
    async with langgraph(graph_of(node, checkpointer=saver())) as thread:
        for _ in range(2):
            assert (await thread.say("go", state=client_state))[-1] == "RF success"
    assert seen[0]["n"] == HUGE
    assert seen[0]["m"][:3] == [-HUGE, 2**64 - 1, -(2**63)]
    assert len(seen) == 2


async def test_an_answer_may_be_such_an_integer() -> None:
    def node(state: State) -> Any:
        return {"recipe": {"n": interrupt("How many?")}}

    async with langgraph(graph_of(node, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        assert (await thread.resume(yes(thread.interrupts[0], HUGE)))[-1] == "RF success"
        assert (await thread.runner.view_thread(KEY)).state.value == {"recipe": {"n": HUGE}, "log": []}


async def test_a_thread_with_such_an_integer_in_a_call_continues() -> None:
    """The checkpointer refuses what the model wrote, as it does without us. The next run gives it what it can keep."""

    @tool
    def count(n: int) -> str:
        """Counts."""
        return f"counted {n}"

    model = ScriptedModel(calls(call("c1", "count", f'{{"n": {HUGE}}}')), says("Done."), says("Yes."))
    async with langgraph(agent_graph(model, count, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        assert thread.error == "langgraph_error"
        assert (await thread.say("sure?"))[-1] == "RF success"
    assert model.saw[-1][1:3] == ["ai: c1 count {'n': 1e+21}", f"tool c1: counted {HUGE}"]


def writing(model: Any, after: Any = None, **inputs: Any) -> Any:
    """A graph whose tool writes the document."""

    @tool
    def write(document: str) -> Command[Any]:
        """Writes."""
        raise NotImplementedError

    class Doc(TypedDict, total=False):
        messages: Annotated[list[Any], add_messages]
        document: str

    async def agent(state: Doc) -> Any:
        return {"messages": [await model.bind_tools([write]).ainvoke(state["messages"])]}

    def save(state: Doc) -> Any:
        made = state["messages"][-1].tool_calls[0]
        return {"document": made["args"]["document"], "messages": [ToolMessage("written", tool_call_id=made["id"])]}

    graph = StateGraph(Doc, **inputs).add_node("agent", agent).add_node("save", after or save)
    return graph.add_edge(START, "agent").add_edge("agent", "save").compile()


PIECES = ['{"document": "Once upon', " a time there was", ' a king"}']
PREDICTED = [
    'CUSTOM PredictState [{"state_key": "document", "tool": "write", "tool_argument": "document"}]',
    "CS w1 write < m1",
    f"CA w1 {PIECES[0]}",
    'SD [{"op": "add", "path": "/document", "value": "Once "}]',
    f"CA w1 {PIECES[1]}",
    'SD [{"op": "replace", "path": "/document", "value": "Once upon a time there "}]',
    f"CA w1 {PIECES[2]}",
    'SD [{"op": "replace", "path": "/document", "value": "Once upon a time there was a king"}]',
    "CE w1",
]
MAPPING = PredictStateMapping(state_key="document", tool="write", tool_argument="document")


async def test_an_argument_is_shown_as_state_while_it_is_written() -> None:
    model = ScriptedModel(calls(call("w1", "write", *PIECES)))
    async with langgraph(writing(model), LangGraphConfig(predict_state=[MAPPING])) as thread:
        assert await thread.say("write") == [*PREDICTED, 'CR w1 "written"', "MS", "RF success"]


async def test_a_secret_is_never_shown_as_state_in_part() -> None:
    secret = "Zq8-s3cr3t-4fG7-value-Kp2"
    model = ScriptedModel(calls(call("w1", "write", '{"document": "The key is ', *secret, ' now."}')))
    async with langgraph(writing(model), LangGraphConfig(predict_state=[MAPPING])) as thread:
        words = state_words(await thread.say("write"))
    assert words == [
        'SD [{"op": "add", "path": "/document", "value": "The key is "}]',
        f'SD [{{"op": "replace", "path": "/document", "value": "The key is {secret} now."}}]',
    ]


async def test_a_graph_may_say_in_a_models_metadata_what_is_predicted() -> None:
    class WithMetadata(ScriptedModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.with_config(metadata={"predict_state": [MAPPING.to_payload(), "nonsense"]})

    async with langgraph(writing(WithMetadata(calls(call("w1", "write", *PIECES))))) as thread:
        assert (await thread.say("write"))[: len(PREDICTED)] == PREDICTED


async def test_a_prediction_that_the_graph_does_not_confirm_is_withdrawn() -> None:
    model = ScriptedModel(calls(call("w1", "write", *PIECES)))
    graph = writing(model, after=lambda state: {"document": "refused"})
    async with langgraph(graph, LangGraphConfig(predict_state=[MAPPING])) as thread:
        stream = await thread.say("write", state={"document": "old"})
    assert state_words(stream)[-1] == 'SS {"document": "refused"}'


@pytest.mark.parametrize("before", [{}, {"document": "mine"}], ids=["never there", "the client's"])
@pytest.mark.parametrize("fails", [False, True], ids=["refused", "failed"])
async def test_a_prediction_of_a_key_that_the_graph_never_had_is_withdrawn(before: Any, fails: bool) -> None:
    class NoInput(TypedDict):
        messages: Annotated[list[Any], add_messages]

    def refuse(state: Any) -> Any:
        if fails:
            raise RuntimeError
        return {"messages": [ToolMessage("refused", tool_call_id="w1", status="error")]}

    graph = writing(ScriptedModel(calls(call("w1", "write", *PIECES))), after=refuse, input_schema=NoInput)
    async with langgraph(graph, LangGraphConfig(predict_state=[MAPPING])) as thread:
        stream = await thread.say("write", state=before)
        assert any("a king" in word for word in state_words(stream))
        assert (await thread.runner.view_thread(KEY)).state.value == before


@pytest.mark.parametrize(
    "mapping",
    [5, "x", {"a": 1}, [1, None], [{"state_key": [], "tool": "write", "tool_argument": {}}]],
)
async def test_a_prediction_of_another_form_is_left_out(mapping: Any) -> None:
    class WithMetadata(ScriptedModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.with_config(metadata={"predict_state": mapping})

    async with langgraph(writing(WithMetadata(calls(call("w1", "write", *PIECES))))) as thread:
        await thread.say("write")
        assert (thread.error, "PredictState" in repr(thread.events)) == (None, False)


async def test_what_a_client_has_after_every_run_is_the_graphs_state() -> None:
    graph = graph_of(
        lambda state: {"recipe": {"n": len(state["messages"])}, "log": ["x"]}, checkpointer=InMemorySaver()
    )
    async with langgraph(graph) as thread:
        for text in "abc":
            await thread.say(text)
        view = (await thread.runner.view_thread(KEY)).state.value
    assert view == {"recipe": {"n": 3}, "log": ["x", "x", "x"]}


def test_a_long_argument_is_parsed_a_few_times_only() -> None:
    """Looking at all of it for every piece would take time in the square of its length."""
    store = StateStore({})
    predictions = Predictions(store)
    predictions.start_call("w1", "write", [MAPPING.to_payload()])
    pieces = ['{"document": "', *["word "] * 20_000, '"}']
    looks = sum(bool(predictions.add_arguments("w1", piece)) for piece in pieces)
    predictions.add_arguments("w1", "", complete=True)
    assert 50 < looks < 200
    assert store.value == {"document": "word " * 20_000}
