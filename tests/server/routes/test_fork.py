"""`POST /?fork=THREAD&before=MESSAGE`: a new thread begins as a copy, and its streams say so."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.runs.run import Actor
from tests.server.demo_server import SETTINGS, client_of, demo, error_of, frames, run_body

POINT = {"fork": "t", "before": "u2"}
ASYNC = {"Prefer": "respond-async"}
Frames = list[tuple[str | None, dict[str, Any]]]


@asynccontextmanager
async def talked(store: str = "memory://", **settings: Any) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A server with the thread `t` of three turns."""
    async with demo(dataclasses.replace(SETTINGS, store=store, **settings)) as client:
        for name, text in (("u1", "weather Lisbon"), ("u2", "state"), ("u3", "say three")):
            await client.post("/", json=run_body(text, message=name))
        yield client


async def fork(client: httpx.AsyncClient, text: str = "say hi", *, at: str = "/", **options: Any) -> httpx.Response:
    params = {**POINT, **options.pop("params", {})}
    body = run_body(text, **{"thread": "fork", "message": "n", **options.pop("body", {})})
    return await client.post(at, params=params, json=body, **options)


async def messages_of(client: httpx.AsyncClient, thread: str) -> list[dict[str, Any]]:
    return (await client.get(f"/message_snapshot/{thread}")).json()["messages"]


async def replay(client: httpx.AsyncClient, thread: str = "fork", **params: str) -> Frames:
    return frames(await client.get(f"/threads/{thread}/events", params={"until": "idle", **params}))


def types(stream: Frames) -> list[str]:
    return [event["type"] for _, event in stream]


def of_thread(stream: Frames) -> list[dict[str, Any]]:
    return [event["value"] for _, event in stream if event.get("name") == "ambient:thread"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_fork_is_answered_on_a_thread_of_its_own(tmp_path: Path, store: str) -> None:
    async with talked("memory://" if store == "memory" else f"sqlite:///{tmp_path}/a.db") as client:
        before = await messages_of(client, "t")
        answer = await fork(client, "say hello")
        assert answer.status_code == 200
        copied = await messages_of(client, "fork")
        assert [message.get("content") for message in copied[-2:]] == ["say hello", "hello"]
        assert copied[:-2] == before[: before.index(next(each for each in before if each["id"] == "u2"))]
        assert any(message.get("toolCalls") for message in copied)
        assert await messages_of(client, "t") == before


async def test_the_stream_of_the_run_has_the_copy_right_after_its_start() -> None:
    async with talked() as client:
        stream = frames(await fork(client))
        source = await messages_of(client, "t")
    assert types(stream)[:4] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "MESSAGES_SNAPSHOT", "CUSTOM"]
    started, copied, whole, thread = [event for _, event in stream[:4]]
    new = {"id": "n", "role": "user", "content": "say hi"}
    assert started["input"]["messages"] == [new]
    assert copied["messages"] == source[: len(copied["messages"])]
    assert whole["messages"] == [*copied["messages"], new]
    assert [name for name, _ in stream[1:4]] == [None, None, stream[3][0]]
    assert thread["value"]["forkedFrom"] == {"threadId": "t", "messageId": "u2"}
    assert {event["timestamp"] for event in (copied, whole, thread)} == {copied["timestamp"]}


async def test_the_state_is_sent_before_the_agents_first_event() -> None:
    async with talked() as client:
        stream = frames(await fork(client, params={"before": "u3"}))
        [state] = [event["snapshot"] for _, event in stream if event["type"] == "STATE_SNAPSHOT"]
        assert state == (await client.get("/state_snapshot/t")).json()["snapshot"]
        assert state == (await client.get("/state_snapshot/fork")).json()["snapshot"]
        assert types(stream).index("STATE_SNAPSHOT") < types(stream).index("TEXT_MESSAGE_START")
        assert "STATE_SNAPSHOT" not in types(frames(await fork(client, body={"thread": "stateless"})))


async def test_a_stream_without_snapshots_has_those_that_the_fork_begins_with() -> None:
    async with talked() as client:
        whole = frames(await fork(client))
        replayed = await replay(client, snapshots="0")
        posted = frames(await fork(client, params={"snapshots": "0"}, body={"thread": "other"}))
    assert replayed == [*whole[:-2], whole[-1]]
    assert types(posted) == types(replayed)


@pytest.mark.parametrize("params", [{}, {"run": ""}, {"snapshots": "0"}], ids=["thread", "run", "without snapshots"])
async def test_a_replay_has_the_frames_of_the_live_stream(params: dict[str, str]) -> None:
    async with talked() as client:
        answer = await fork(client, params=params if "snapshots" in params else {})
        query = {"run": answer.headers["x-ambient-run"]} if "run" in params else params
        assert await replay(client, **query) == frames(answer)


async def test_a_stream_cut_before_the_copy_resumes_with_it() -> None:
    async with talked() as client:
        stream = frames(await fork(client))
        resumed = await replay(client, after=str(stream[0][0]))
    assert types(resumed)[:4] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "MESSAGES_SNAPSHOT", "CUSTOM"]
    assert resumed[1:] == stream[1:]


async def test_a_page_that_connects_learns_where_the_thread_is_from() -> None:
    async with talked() as client:
        await fork(client)
        [value] = of_thread(await replay(client, **{"from": "snapshot"}))
        [source] = of_thread(await replay(client, "t", **{"from": "snapshot"}))
    assert (value["forkedFrom"], "forkedFrom" in source) == ({"threadId": "t", "messageId": "u2"}, False)
    assert (value["title"], value["status"]) == ("weather Lisbon", "finished")


async def test_a_page_that_connects_during_the_first_run_gets_the_copy() -> None:
    async with talked() as client:
        assert (await fork(client, "hang", headers=ASYNC)).status_code == 202
        assert (await client.post("/interrupt", json={"threadId": "fork"})).status_code == 200
        stream = await replay(client, **{"from": "snapshot", "snapshots": "0"})
        assert [event["messages"] for _, event in stream if event["type"] == "MESSAGES_SNAPSHOT"][-1][-1]["id"] == "n"


async def test_an_audience_that_sees_summaries_sees_them_in_the_copy() -> None:
    async with talked(audience="safe") as client:
        stream = frames(await fork(client))
        source = await messages_of(client, "t")
        forked = await messages_of(client, "fork")
    copied = stream[1][1]["messages"]
    assert copied == source[: len(copied)] == forked[: len(copied)]
    [arguments] = [call["function"]["arguments"] for each in copied for call in each.get("toolCalls", ())]
    assert "Lisbon" not in arguments


async def test_calls_of_the_clients_tools_stay_whole_for_such_an_audience() -> None:
    background: dict[str, Any] = {
        "name": "change_background",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    async with talked(audience="safe") as client:
        await client.post("/", json=run_body("color red", message="u4", tools=[background]))
        await client.post("/", json=run_body("say on", message="u5"))
        stream = frames(await fork(client, params={"before": "u5"}))
    calls = [call["function"] for each in stream[1][1]["messages"] for call in each.get("toolCalls", ())]
    assert [call["arguments"] for call in calls if call["name"] == "change_background"] == ['{"background": "red"}']


async def test_another_agent_gets_the_texts() -> None:
    async with talked() as client:
        answer = await fork(client, at="/agents/other", params={"before": "u3"})
        copied = frames(answer)[1][1]["messages"]
        source = await messages_of(client, "t")
    texts = [each for each in source if each.get("content") and each["role"] in {"user", "assistant"}]
    assert copied == [
        {name: each[name] for name in ("id", "role", "content")}
        for each in texts
        if each["id"] not in {"u3", texts[-1]["id"]}
    ]
    assert "STATE_SNAPSHOT" not in types(frames(answer))


async def test_the_first_run_of_a_fork_is_the_first_run_of_its_thread() -> None:
    async with talked() as client:
        stream = frames(await fork(client))
        second = frames(await client.post("/", json=run_body("say on", thread="fork", message="n2")))
    announced = [[event.get("name") for _, event in each if event["type"] == "CUSTOM"] for each in (stream, second)]
    assert announced == [["ambient:thread", "ambient:capabilities"], []]


@pytest.mark.parametrize("at", ["/", "/agents/demo", "/agents/default"])
async def test_every_address_of_the_agent_forks(at: str) -> None:
    async with talked() as client:
        assert len(frames(await fork(client, at=at))[1][1]["messages"]) > 1


async def test_a_fork_can_be_followed_from_its_answer() -> None:
    async with talked() as client:
        answer = (await fork(client, headers=ASYNC)).json()
        stream = await replay(client, after=answer["after"])
    assert types(stream)[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "MESSAGES_SNAPSHOT"]


async def test_the_same_key_replays_the_fork_and_another_point_is_another_request() -> None:
    key = {"Idempotency-Key": "k"}
    async with talked() as client:
        first = await fork(client, headers=key)
        again = await fork(client, headers=key)
        assert (again.headers["x-ambient-run"], frames(again)) == (first.headers["x-ambient-run"], frames(first))
        assert error_of(await fork(client, headers=key, params={"before": "u3"})) == (409, "key_reused")
        assert error_of(await fork(client)) == (409, "thread_exists")


@pytest.mark.parametrize(
    ("params", "body", "answer"),
    [
        ({"fork": "nowhere"}, {}, (404, "unknown_thread")),
        ({"before": "nothing"}, {}, (404, "unknown_message")),
        ({"before": ""}, {}, (422, "invalid_input")),
        ({"fork": ""}, {}, (422, "invalid_input")),
        ({"fork": "a\x00b"}, {}, (422, "invalid_input")),
        ({}, {"thread": "t"}, (409, "thread_exists")),
        ({}, {"message": "u1"}, (422, "invalid_input")),
    ],
)
async def test_a_wrong_fork_is_refused_and_leaves_no_thread(
    params: dict[str, str], body: dict[str, str], answer: tuple[int, str]
) -> None:
    async with talked() as client:
        assert error_of(await fork(client, params=params, body=body)) == answer
        assert [each["threadId"] for each in (await client.get("/thread/list")).json()["threads"]] == ["t"]


@pytest.mark.parametrize("params", [{"fork": "t"}, {"before": "u2"}])
async def test_one_half_of_the_point_is_refused(params: dict[str, str]) -> None:
    async with talked() as client:
        answer = await client.post("/", params=params, json=run_body("say hi", thread="fork", message="n"))
        assert error_of(answer) == (422, "invalid_input")


async def test_a_message_of_the_agent_cannot_be_replaced() -> None:
    async with talked() as client:
        [*_, spoken] = await messages_of(client, "t")
        assert error_of(await fork(client, params={"before": spoken["id"]})) == (422, "invalid_input")


def by_header(request: Request) -> Actor:
    return Actor(owner=request.headers["x-user"])


async def test_the_thread_of_another_is_as_unknown_as_one_that_never_was() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, authorize=by_header)
    async with client_of(app) as client:
        for name in ("u1", "u2"):
            await client.post("/", json=run_body("say hi", message=name), headers={"x-user": "ada"})
        eve = {"x-user": "eve"}
        other = await fork(client, headers=eve)
        unknown = await fork(client, params={"fork": "nowhere"}, headers=eve)
        assert (other.status_code, other.json()) == (unknown.status_code, unknown.json())
        assert error_of(other) == (404, "unknown_thread")
        assert (await fork(client, headers={"x-user": "ada"})).status_code == 200
