"""State that a client edits: together with its answer to an interrupt, or by a command; and state that it sends back unchanged."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.bridges.langgraph.state_edits import is_unchanged
from tests.bridges.langgraph.remote_server import serving
from tests.bridges.langgraph.scripted import ScriptedModel, says
from tests.bridges.langgraph.world import Thread, langgraph, no, yes
from tests.world import KEY, user


class Draft(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    title: str
    notes: Annotated[list[str], operator.add]
    tags: set[str]


def asking(*, inputs: Any = Draft, **compiled: Any) -> Any:
    """Asks, fails on an answer without `ok`, and says what it has. A second message finds the title in capitals."""

    def ask(state: Draft) -> Any:
        if len(state["messages"]) > 1:
            return {"messages": [AIMessage(f"then {state.get('title')}")]}
        answer = interrupt("Fine?")["ok"]
        return {"messages": [AIMessage(f"{answer} {state.get('title')} {state.get('notes')}")]}

    def shout(state: Draft) -> Any:
        return {"title": str(state.get("title")).upper()}

    graph = StateGraph(Draft, input_schema=inputs).add_node("ask", ask).add_node("shout", shout)
    return graph.add_edge(START, "ask").add_edge("ask", "shout").compile(checkpointer=InMemorySaver(), **compiled)


async def state_of(thread: Thread) -> Any:
    return (await thread.runner.view_thread(KEY)).state.value


OK = {"ok": "yes"}


async def test_what_a_client_edits_before_it_answers_reaches_the_graph_with_the_answer() -> None:
    async with langgraph(asking()) as thread:
        await thread.say("go", state={"title": "red", "notes": ["a"]})
        edited = {"title": "blue", "notes": ["b", "c"]}
        stream = await thread.resume(yes(thread.interrupts[0], OK), state=edited)
        assert thread.text() == "yes blue ['b', 'c']"
        assert [word for word in stream if word.startswith("S")] == [
            'SD [{"op": "replace", "path": "/title", "value": "BLUE"}]'
        ]
        assert await state_of(thread) == {"title": "BLUE", "notes": ["b", "c"]}


async def test_an_edit_sent_with_an_answer_is_applied_once_so_that_nodes_may_change_it() -> None:
    async with langgraph(asking()) as thread:
        await thread.say("go", state={"title": "red"})
        state = {"title": "blue", "notes": []}
        await thread.run(user("u2", "more"), resume=[yes(thread.interrupts[0], OK)], state=state)
        assert thread.text() == "yes blue []then BLUE"


async def test_keys_that_the_graph_does_not_take_are_no_edit() -> None:
    class Input(TypedDict):
        messages: Annotated[list[Any], add_messages]

    async with langgraph(asking(inputs=Input)) as thread:
        await thread.say("go")
        await thread.resume(yes(thread.interrupts[0], OK), state={"title": "forged", "messages": ["forged"]})
        assert (thread.text(), thread.error) == ("yes None []", None)


@pytest.mark.parametrize("second", ["blue", "green"])
async def test_an_edit_sent_with_an_answer_that_failed_is_not_applied_twice(second: str) -> None:
    """The graph keeps what was written for its next step, and takes one value for it: the first edit stays."""
    async with langgraph(asking()) as thread:
        await thread.say("go", state={"title": "red"})
        (raised,) = thread.interrupts
        await thread.resume(yes(raised, {"wrong": 1}), state={"title": "blue", "notes": ["n"]})
        assert thread.error == "langgraph_error"
        await thread.resume(yes(raised, OK), state={"title": second, "notes": ["n"]})
        assert (thread.text(), thread.error) == ("yes blue ['n']", None)
        assert await state_of(thread) == {"title": "BLUE", "notes": ["n"]}


async def test_an_edit_of_the_wrong_type_sent_with_an_answer_is_refused_and_the_interrupt_stays_open() -> None:
    async with langgraph(asking()) as thread:
        await thread.say("go", state={"title": "red"})
        (raised,) = thread.interrupts
        await thread.resume(yes(raised, OK), state={"title": "red", "notes": 5})
        assert thread.error == "invalid_state"
        await thread.resume(yes(raised, OK), state={"title": "red", "notes": ["b"]})
        assert thread.text() == "yes red ['b']"


class Checked(BaseModel):
    """A state that the SDK validates before each node."""

    messages: Annotated[list[Any], add_messages] = []
    title: str = ""
    notes: Annotated[list[str], operator.add] = []


class Counted(Checked):
    remaining_steps: RemainingSteps


@dataclass
class Guarded:
    messages: Annotated[list[Any], add_messages]
    title: str = ""

    def __post_init__(self) -> None:
        assert isinstance(self.title, str)


def checked(schema: Any = Checked, **compiled: Any) -> Any:
    """Asks if it is told to, and says the answer and the title."""

    def node(state: Any) -> Any:
        answer = interrupt("Fine?") if state.messages[-1].content == "ask" else "hi"
        return {"messages": [AIMessage(f"{answer} {state.title}".strip())]}

    graph = StateGraph(schema).add_node("node", node).add_edge(START, "node")
    return graph.compile(checkpointer=InMemorySaver(), **compiled)


@pytest.mark.parametrize("schema", [Checked, Counted, Guarded])
async def test_an_edit_that_no_node_can_read_is_refused_and_the_interrupt_stays_open(schema: Any) -> None:
    """The graph would store the edit with its checkpoint, and every later run would fail on it."""
    async with langgraph(checked(schema)) as thread:
        await thread.say("ask")
        (raised,) = thread.interrupts
        await thread.resume(yes(raised, "A"), state={"title": 5})
        assert (thread.error, (await state_of(thread)).get("title", "")) == ("invalid_state", "")
        await thread.resume(yes(raised, "B"), state={"title": "ok"})
        assert (thread.text(), thread.error) == ("B ok", None)
        await thread.say("hello")
        assert (thread.text(), thread.error) == ("hi ok", None)


async def test_an_edit_that_no_node_can_read_is_refused_at_a_breakpoint_and_with_a_command() -> None:
    async with langgraph(checked(interrupt_before=["node"]), LangGraphConfig(time_travel=True)) as thread:
        await thread.say("hello")
        (raised,) = thread.interrupts
        await thread.resume(yes(raised), state={"title": 5})
        assert thread.error == "invalid_state"
        await thread.resume(yes(raised), state={"title": "ok"})
        assert thread.text() == "hi ok"
        await thread.say("x", forwarded_props={"command": {"update": {"title": 5}, "goto": "node"}})
        assert thread.error == "invalid_state"
        await thread.say("hello")
        await thread.resume(yes(thread.interrupts[0]))
        assert (thread.text(), thread.error) == ("hi ok", None)


@pytest.mark.parametrize("second", [{"notes": "text"}, {"title": 6}, {"title": {"__overwrite__": "x"}}], ids=repr)
async def test_a_second_bad_edit_leaves_the_thread_usable(second: Any) -> None:
    """The checkpoint of the first one is the newest; the thread continues from the one before it."""
    async with langgraph(checked()) as thread:
        await thread.say("hello")
        for bad in ({"title": 5}, second):
            await thread.say("hello", state=bad)
            assert thread.error in {"langgraph_error", "invalid_state"}
        for state in ({"title": "fine", "notes": ["n"]}, {}):
            await thread.say("hello", state=state)
            assert (thread.text(), thread.error) == ("hi fine", None)


async def test_a_message_sent_with_a_refused_edit_is_processed_after_the_next_answer() -> None:
    async with langgraph(checked()) as thread:
        await thread.say("ask")
        (raised,) = thread.interrupts
        await thread.run(user("u2", "hello"), resume=[yes(raised, "A")], state={"title": {"__overwrite__": "x"}})
        assert (thread.error, await state_of(thread)) == ("invalid_state", {})
        await thread.resume(yes(raised, "B"), state={"title": "ok"})
        assert (thread.text(), thread.error) == ("B okhi ok", None)


async def test_what_a_client_edits_at_a_breakpoint_reaches_the_graph() -> None:
    async with langgraph(asking(interrupt_before=["shout"])) as thread:
        await thread.say("go", state={"title": "red"})
        await thread.resume(yes(thread.interrupts[0], OK))
        await thread.resume(yes(thread.interrupts[0]), state={"title": "blue", "notes": []})
        assert await state_of(thread) == {"title": "BLUE", "notes": []}


async def test_an_edit_reaches_a_graph_on_a_server_with_the_answer_and_once() -> None:
    async with (
        serving(asking()) as url,
        langgraph(None, bridge=lambda: LangGraphBridge(url=url, graph_id="agent")) as thread,
    ):
        await thread.say("go", state={"title": "red"})
        edited = {"title": "blue", "notes": []}
        await thread.resume(yes(thread.interrupts[0], OK), state=edited)
        assert (thread.text(), await state_of(thread)) == ("yes blue []", {"title": "BLUE", "notes": []})


async def test_a_second_edit_does_not_break_a_thread_on_a_server() -> None:
    """Nobody could take it back there: every later run would fail on two values for one key."""
    async with (
        serving(asking()) as url,
        langgraph(None, bridge=lambda: LangGraphBridge(url=url, graph_id="agent")) as thread,
    ):
        await thread.say("go", state={"title": "red"})
        (raised,) = thread.interrupts
        await thread.resume(yes(raised, {"wrong": 1}), state={"title": "blue", "notes": []})
        assert thread.error == "langgraph_error"
        await thread.resume(no(raised), state={"title": "green", "notes": []})
        await thread.say("go on")
        assert (thread.text(), thread.error) == ("then blue", None)


BAD_UPDATES: list[Any] = [
    {"messages": [{"type": "remove", "id": "__remove_all__"}]},
    {"messages": 5},
    {"title": "x", "notes": 5},
]


@pytest.mark.parametrize("update", BAD_UPDATES)
@pytest.mark.parametrize("turn", [0, 1])
async def test_a_command_that_the_graph_cannot_take_leaves_the_thread_usable(update: Any, turn: int) -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))

    async def node(state: Draft) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(Draft).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(graph, LangGraphConfig(time_travel=True)) as thread:
        for _ in range(turn):
            await thread.say("hi")
        await thread.say("x", forwarded_props={"command": {"update": update, "goto": "node"}})
        assert thread.error == "invalid_state"
        for _ in range(2):
            await thread.say("y")
            assert (thread.text(), thread.error) == ("ok", None)
        await thread.say("z", forwarded_props={"command": {"update": {"title": "t"}, "goto": "node"}})
        assert (thread.error, (await state_of(thread))["title"]) == (None, "t")


async def test_a_command_after_one_whose_node_failed_does_not_break_the_thread() -> None:
    titles: list[Any] = []

    def node(state: Draft) -> Any:
        titles.append(state.get("title"))
        if titles == [None, "a"]:
            raise RuntimeError
        return {"messages": [AIMessage("ok")]}

    graph = StateGraph(Draft).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(graph, LangGraphConfig(time_travel=True)) as thread:
        await thread.say("hi")
        for title, error in (("a", "langgraph_error"), ("b", "invalid_state")):
            await thread.say(title, forwarded_props={"command": {"update": {"title": title}, "goto": "node"}})
            assert thread.error == error
        await thread.say("on")
        assert (thread.text(), thread.error, titles) == ("ok", None, [None, "a", "a"])


async def test_a_set_that_no_client_touched_stays_a_set_and_one_that_a_client_changed_becomes_one() -> None:
    seen: list[Any] = []
    words = {f"word {n}" for n in range(60)}

    def node(state: Draft) -> Any:
        seen.append(state.get("tags"))
        return {} if state.get("tags") else {"tags": words}

    graph = StateGraph(Draft).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        for _ in range(3):
            await thread.say("x")
        await thread.say("x", state={**await state_of(thread), "tags": ["mine", "mine"]})
    assert seen == [None, words, words, {"mine"}]


class Shelf(BaseModel):
    books: set[str] = set()


@pytest.mark.parametrize(
    ("stored", "sent", "is_same"),
    [
        ({"a", "b"}, ["b", "a"], True),
        ({"a", "b"}, ["a"], False),
        ([{"a", "b"}], [["b", "a"]], True),
        (["a", "b"], ["b", "a"], False),
        ((1, {"x": frozenset({1, 2})}), [1, {"x": [2, 1]}], True),
        ({1: {"a", "b"}}, {"1": ["b", "a"]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (Shelf(books={"a", "b"}), {"books": ["b", "a"]}, True),
        (1, True, False),
        (1, 1.0, True),
    ],
)
def test_a_set_may_be_sent_back_in_any_order(stored: Any, sent: Any, is_same: bool) -> None:
    assert is_unchanged(stored, sent) is is_same
