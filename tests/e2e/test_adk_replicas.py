"""Two processes that serve one ADK agent on one store: what one has answered the other does not answer again (D24)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.machine_speed import unless_hung

from .server import Child
from .sse import open_stream
from .talk import ending, events_of, history, new_id, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from .sse import Event

ROOT = Path(__file__).parent.parent.parent
Pair = tuple[Child, Child]


@pytest.fixture(scope="module", params=["memory", "database"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    """Two servers; ADK's sessions are in each one's memory, or in a database of both."""
    directory = tmp_path_factory.mktemp("replicas")
    sessions = {"ADK_DATABASE": str(directory / "adk.db")} if request.param == "database" else {}
    env = {"PYTHONPATH": str(ROOT), "AMBIENT_STORE": f"sqlite:///{directory / 'ambient.db'}", **sessions}
    command = [sys.executable, "-m", "uvicorn", "tests.e2e.adk_app:app", "--port", "0"]
    with Child(command, cwd=directory, env=env) as a, Child(command, cwd=directory, env=env) as b:
        yield a, b


async def post_run(server: Child, body: Event) -> tuple[int, list[Event]]:
    """The status of a request and, when it was taken, its run."""
    async with open_stream(f"{server.url}/agents/root", "POST", body=body) as stream:
        if stream.status != 200:
            await stream.body()
            return stream.status, []
        return 200, events_of(await stream.rest())


async def run_events(server: Child, body: Event) -> list[Event]:
    status, events = await post_run(server, body)
    assert status == 200
    return events


async def model_history(server: Child, thread: str) -> list[Any]:
    """Return the conversation that this server sends to the model, without the message that requests it."""
    return json.loads(text_of(await run_events(server, run_input(thread, "tell"))))


def result(thread: str, call: str, content: str) -> Event:
    message = {"id": f"result-of-{call}", "role": "tool", "toolCallId": call, "content": content}
    return {**run_input(thread), "messages": [message]}


async def at_both(pair: Pair, body: Event) -> list[tuple[int, list[Event]]]:
    answers: list[tuple[int, list[Event]]] = []

    async def ask(server: Child) -> None:
        answers.append(await post_run(server, {**body, "runId": new_id("run")}))

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            for server in pair:
                tasks.start_soon(ask, server)
    return answers


async def test_a_call_of_one_process_is_answered_once_by_another(pair: Pair) -> None:
    a, b = pair
    thread = new_id("thread")
    with unless_hung():
        first = await run_events(a, run_input(thread, "ask red?"))
        assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["l-red?"]}
        answers = await at_both(pair, result(thread, "l-red?", "yes"))
        for server in pair:
            late = {**result(thread, "l-red?", "no"), "runId": new_id("run")}
            late["messages"][0]["id"] = new_id("late")
            assert (await post_run(server, late))[0] == 422
        frames = [await history(server.url, thread) for server in pair]
        expected = [await model_history(b, thread), await model_history(a, thread)]
    assert {status for status, _ in answers} <= {200, 409, 422}
    assert frames[0] == frames[1]
    runs = split_runs(events_of(frames[0]))
    assert [(ending(run), text_of(run)) for run in runs] == [("success", ""), ("success", "Got {'result': 'yes'}")]
    conversation = [
        ["user", "ask red?"],
        ["model", ["call", "ask", {"question": "red?"}]],
        ["user", ["result", "ask", {"result": "yes"}]],
        ["model", "Got {'result': 'yes'}"],
    ]
    assert expected[0] == conversation
    assert expected[1] == [*conversation, ["user", "tell"], ["model", json.dumps(conversation)]]


async def test_an_interrupt_of_one_process_is_answered_once_by_another(pair: Pair) -> None:
    a, b = pair
    thread = new_id("thread")
    with unless_hung():
        [question] = (await run_events(a, run_input(thread, "pay 1")))[-1]["outcome"]["interrupts"]
        entry = {"interruptId": question["id"], "status": "resolved", "payload": {"confirmed": True}}
        answers = await at_both(pair, run_input(thread, resume=[entry]))
        assert (await post_run(a, run_input(thread, resume=[entry])))[0] == 409
        frames = [await history(server.url, thread) for server in pair]
        expected = [await model_history(a, thread), await model_history(b, thread)]
    assert sorted(status for status, _ in answers) == [200, 409]
    assert frames[0] == frames[1]
    results = [event for event in events_of(frames[0]) if event["type"] == "TOOL_CALL_RESULT"]
    assert [(one["toolCallId"], one["content"]) for one in results] == [("p-1", '{"paid":1}')]
    conversation = [
        ["user", "pay 1"],
        ["model", ["call", "pay", {"amount": 1}]],
        ["user", ["result", "pay", {"paid": 1}]],
        ["model", "Got {'paid': 1}"],
    ]
    assert expected[0] == conversation
    assert expected[1] == [*conversation, ["user", "tell"], ["model", json.dumps(conversation)]]
