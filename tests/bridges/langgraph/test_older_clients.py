"""Interrupts for clients before AG-UI 1.0, over HTTP: CUSTOM `on_interrupt`, `command.resume`, and a message instead of an answer."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from ambient_runner import create_app
from ambient_runner.langgraph import LangGraphBridge
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.test_interrupts import book
from tests.bridges.langgraph.world import agent_graph
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body

QUESTION = {"question": "Sure?", "options": ["a", "b"]}


def asking(question: Any = QUESTION) -> Any:
    """A graph that asks about each message that says so, and says what it was answered."""

    def node(state: MessagesState) -> Any:
        text = state["messages"][-1].text
        return {"messages": [AIMessage(repr(interrupt(question)) if text == "ask" else f"heard {text}")]}

    return StateGraph(MessagesState).add_node("n", node).add_edge(START, "n").compile(checkpointer=InMemorySaver())


def served(graph: Any, **settings: Any) -> Any:
    return client_of(create_app(dataclasses.replace(SETTINGS, **settings), {"graph": LangGraphBridge(graph)}))


async def post(
    client: httpx.AsyncClient, message: str = "", *, version: str | None = None, **more: Any
) -> httpx.Response:
    body = run_body(message, message=f"u-{message}", **more)
    if not message:
        body["messages"] = []
    if version is None:
        del body["protocolVersion"]
    return await client.post("/", json=body)


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [event for _, event in frames(response)]


def text_of(response: httpx.Response) -> str:
    return "".join(event["delta"] for event in events_of(response) if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest.mark.parametrize(
    ("question", "value"), [(QUESTION, json.dumps(QUESTION, separators=(",", ":"))), ("Sure?", "Sure?")], ids=repr
)
async def test_an_older_page_gets_the_interrupt_as_a_custom_event_beside_the_outcome(question: Any, value: str) -> None:
    async with served(asking(question)) as client:
        *_, custom, end = events_of(await post(client, "ask"))
        assert custom == {"type": "CUSTOM", "name": "on_interrupt", "value": value}
        assert end["outcome"]["type"] == "interrupt"
        replayed = (await client.get("/threads/t/events?protocol=0.0.55&until=idle")).text
    assert replayed.count("on_interrupt") == 1


async def test_a_client_of_the_current_version_gets_the_outcome_alone() -> None:
    async with served(asking()) as client:
        stream = events_of(await post(client, "ask", version="1.0"))
    assert "on_interrupt" not in {event.get("name") for event in stream}


async def test_the_command_of_an_older_page_answers_the_graph() -> None:
    async with served(asking()) as client:
        await post(client, "ask")
        answered = await post(client, forwardedProps={"command": {"resume": '{"picked": "a"}', "interruptEvent": "x"}})
    assert text_of(answered) == "{'picked': 'a'}"


async def test_a_new_message_of_an_older_page_abandons_the_question_and_goes_on() -> None:
    async with served(asking()) as client:
        await post(client, "ask")
        assert text_of(await post(client, "never mind")) == "heard never mind"
        assert text_of(await post(client, "more")) == "heard more"


async def test_a_call_that_waits_for_an_answer_is_cancelled_by_a_new_message_and_the_model_is_told() -> None:
    model = ScriptedModel(calls(call("c1", "book", '{"city": "Rome"}')), says("Fine."))
    async with served(agent_graph(model, book, checkpointer=InMemorySaver())) as client:
        await post(client, "book it")
        assert text_of(await post(client, "no")) == "Fine."
    assert model.saw[1] == [
        "user: book it",
        "ai: c1 book {'city': 'Rome'}",
        "tool c1: This call was cancelled: it was never answered. error",
        "user: no",
    ]


@pytest.mark.parametrize(
    ("setting", "version", "expected"),
    [(None, "1.0", 409), ("cancel", "1.0", 200), ("reject", None, 409), (None, None, 200)],
)
async def test_the_setting_decides_on_a_message_while_an_interrupt_is_open(
    setting: str | None, version: str | None, expected: int
) -> None:
    async with served(asking(), on_pending_interrupt=setting) as client:
        await post(client, "ask")
        response = await post(client, "never mind", version=version)
        assert response.status_code == expected
        if expected == 409:
            assert error_of(response) == (409, "pending_interrupts")
