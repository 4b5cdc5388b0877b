"""Threads of CopilotKit's pages: the list, changes, the inspector, annotations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI, Request

from ambient_runner import Actor, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.server.routes import copilotkit_threads
from tests.server.demo_server import SETTINGS, client_of, demo, frames
from tests.server.routes.test_copilotkit import refusal
from tests.server.routes.test_copilotkit_runs import body

THREADS = "/copilotkit/threads"


async def run(client: httpx.AsyncClient, text: str, *, agent: str = "default", **more: Any) -> list[dict[str, Any]]:
    answer = await client.post(f"/copilotkit/agent/{agent}/run", json=body(text, **more))
    return [event for _, event in frames(answer)]


async def listed(client: httpx.AsyncClient, **query: str) -> dict[str, Any]:
    answer = await client.get(THREADS, params=query)
    assert answer.status_code == 200
    return answer.json()


async def ids(client: httpx.AsyncClient, **query: str) -> list[str]:
    return [row["id"] for row in (await listed(client, **query))["threads"]]


async def test_the_list_has_the_threads_of_an_agent_newest_first() -> None:
    async with demo() as client:
        for thread, agent in (("one", "default"), ("two", "demo"), ("three", "other")):
            await run(client, f"say {thread}", thread=thread, agent=agent)
        assert await ids(client) == ["three", "two", "one"]
        assert await ids(client, agentId="default") == await ids(client, agentId="demo") == ["two", "one"]
        assert await ids(client, agentId="other") == ["three"]
        assert await ids(client, agentId="nobody") == []
        [row, _] = (await listed(client, agentId="default"))["threads"]
        [plain, *_] = (await client.get("/thread/list?agent=demo")).json()["threads"]
    assert (row.pop("createdAt"), row.pop("updatedAt")) > ("2026", "2026")
    assert row == {
        "id": "two",
        "organizationId": "default",
        "agentId": "default",
        "createdById": "local",
        "name": plain["title"],
        "archived": False,
    }


async def test_the_list_comes_in_pages() -> None:
    async with demo() as client:
        for number in range(5):
            await run(client, "say hi", thread=f"t{number}")
        pages: list[list[str]] = []
        query: dict[str, str] = {"agentId": "default", "limit": "2"}
        while True:
            page = await listed(client, **query)
            pages.append([row["id"] for row in page["threads"]])
            if page["nextCursor"] is None:
                break
            query["cursor"] = page["nextCursor"]
        foreign = await client.get(THREADS, params={"cursor": "nonsense"})
        odd = await client.get(THREADS, params={"limit": "many"})
    assert pages == [["t4", "t3"], ["t2", "t1"], ["t0"]]
    assert refusal(foreign) == (400, "invalid_cursor")
    assert refusal(odd) == (422, "invalid_input")


async def test_a_thread_is_renamed_archived_and_taken_back() -> None:
    async with demo() as client:
        await run(client, "say hi", thread="a/b")
        path = f"{THREADS}/a%2Fb"
        renamed = await client.patch(path, json={"agentId": "default", "name": "Tea & cakes"})
        assert (renamed.status_code, renamed.json()["name"], renamed.json()["id"]) == (200, "Tea & cakes", "a/b")
        archived = await client.post(f"{path}/archive", json={"agentId": "default"})
        assert archived.json() == {"threadId": "a/b", "archived": True}
        assert (await ids(client), await ids(client, includeArchived="true")) == ([], ["a/b"])
        back = await client.patch(path, json={"agentId": "default", "archived": False})
        assert (back.json()["archived"], back.json()["name"]) == (False, "Tea & cakes")
        assert await ids(client) == ["a/b"]


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"archived": "yes"}, "archived"),
        ({"title": "Tea"}, "title"),
        ({}, "name"),
    ],
)
async def test_a_wrong_change_names_its_member(change: dict[str, Any], member: str) -> None:
    async with demo() as client:
        await run(client, "say hi")
        answer = await client.patch(f"{THREADS}/t", json={"agentId": "default", **change})
        not_an_object = await client.patch(f"{THREADS}/t", json=["name"])
    assert refusal(answer) == (422, "invalid_input")
    assert f"`{member}`" in answer.json()["message"]
    assert refusal(not_an_object) == (422, "invalid_input")


async def test_a_deleted_thread_is_gone() -> None:
    async with demo() as client:
        await run(client, "say hi")
        deleted = await client.request("DELETE", f"{THREADS}/t", json={"agentId": "default"})
        assert deleted.json() == {"threadId": "t", "deleted": True}
        assert await ids(client, includeArchived="true") == []
        assert refusal(await client.delete(f"{THREADS}/t")) == (404, "unknown_thread")


@asynccontextmanager
async def two_people() -> AsyncGenerator[tuple[httpx.AsyncClient, httpx.AsyncClient], None]:
    """Ann and Bob on one server, which knows them by a header."""
    app = FastAPI()
    settings = dataclasses.replace(SETTINGS, audience="open")

    def who(request: Request) -> Actor:
        return Actor(owner=request.headers["x-user"])

    add_ambient_endpoints(app, DemoBridge(), settings=settings, authorize=who)
    async with client_of(app) as ann:
        ann.headers["x-user"] = "ann"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as bob:
            bob.headers["x-user"] = "bob"
            yield ann, bob


async def test_the_thread_of_another_is_an_unknown_one() -> None:
    async with two_people() as (ann, bob):
        await run(ann, "say hi")
        assert (await ids(ann), await ids(bob)) == (["t"], [])
        feedback = {"type": "feedback", "clientEventId": "e", "payload": {"messageId": "m", "value": "thumbs_up"}}

        async def answers(thread: str) -> list[bytes]:
            path = f"{THREADS}/{thread}"
            responses = [
                *[await bob.get(f"{path}/{part}") for part in ("messages", "events", "state")],
                await bob.patch(path, json={"agentId": "default", "name": "mine"}),
                await bob.post(f"{path}/archive", json={"agentId": "default"}),
                await bob.delete(path),
                await bob.post("/copilotkit/annotate", json={**feedback, "threadId": thread}),
            ]
            assert [refusal(response) for response in responses] == [(404, "unknown_thread")] * 7
            connected = await bob.post("/copilotkit/agent/default/connect", json=body(thread=thread))
            stopped = await bob.post(f"/copilotkit/agent/default/stop/{thread}")
            return [response.content for response in (*responses, connected, stopped)]

        assert await answers("t") == await answers("unknown")
        assert (await listed(ann))["threads"][0]["name"] == "say hi"


async def test_the_inspector_sees_what_the_pages_see() -> None:
    settings = dataclasses.replace(SETTINGS, audience="safe")
    async with demo(settings) as client:
        streamed = await run(client, "weather Lisbon")
        await run(client, "state", message="u2")
        inspected = {part: (await client.get(f"{THREADS}/t/{part}")).json()[part] for part in PARTS}
        state = (await client.get("/state_snapshot/t")).json()["snapshot"]
    assert inspected["state"] == state
    assert inspected["events"][: len(streamed) - 1] == [
        event for event in streamed if event["type"] != "MESSAGES_SNAPSHOT"
    ]
    # Arguments and results of tools are summaries for this audience.
    assert "Lisbon" not in json.dumps([row for row in inspected["messages"] if "toolCalls" in row])


PARTS = ("messages", "events", "state")


async def test_the_inspector_gets_the_newest_events_of_a_long_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async with demo() as client:
        await run(client, "say first")
        last = await run(client, "count 30", message="u2")
        monkeypatch.setattr(copilotkit_threads, "_MAX_EVENTS", 10)
        events = (await client.get(f"{THREADS}/t/events")).json()["events"]
    assert events == [event for event in last[-10:] if event["type"] != "MESSAGES_SNAPSHOT"]


def annotation(message: str, event: str = "e1", value: str = "thumbs_up") -> dict[str, Any]:
    payload = {"messageId": message, "value": value, "comment": "nice"}
    return {"type": "feedback", "threadId": "t", "clientEventId": event, "payload": payload}


async def annotate(client: httpx.AsyncClient, content: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post("/copilotkit/annotate", json=content)
    assert answer.status_code == 200
    return answer.json()


async def feedback_facts(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    stream = frames(await client.get("/threads/t/events?until=idle"))
    return [event["value"] for _, event in stream if event.get("name") == "ambient:feedback"]


async def test_an_annotation_is_stored_once_also_after_a_restart(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path / 'ambient.db'}")
    async with demo(settings) as client:
        events = await run(client, "say hi")
        message = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
        assert await annotate(client, annotation(message)) == {"id": "e1", "duplicate": False}
    async with demo(settings) as client:
        assert await annotate(client, annotation(message)) == {"id": "e1", "duplicate": True}
        assert await annotate(client, annotation(message, "e2", "thumbs_down")) == {"id": "e2", "duplicate": False}
        facts = await feedback_facts(client)
        snapshot = (await client.get("/message_snapshot/t")).json()
    assert [(fact["clientEventId"], fact["metaType"], fact["comment"]) for fact in facts] == [
        ("e1", "thumbs_up", "nice"),
        ("e2", "thumbs_down", "nice"),
    ]
    assert snapshot["messages"][-1]["metadata"] == {"ambient": {"feedback": "thumbs_down"}}


async def test_an_annotation_that_is_sent_twice_at_once_is_stored_once(tmp_path: Path) -> None:
    answers: list[bool] = []
    async with demo(dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path / 'ambient.db'}")) as client:
        await run(client, "say hi")

        async def send() -> None:
            answers.append((await annotate(client, annotation("m")))["duplicate"])

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(send)
        assert len(await feedback_facts(client)) == 1
    assert sorted(answers) == [False, True, True, True, True]


async def test_an_annotation_that_is_sent_to_two_processes_at_once_is_stored_once(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path / 'ambient.db'}")
    answers: list[bool] = []
    async with demo(settings) as one, demo(settings) as other:
        await run(one, "say hi")

        async def send(client: httpx.AsyncClient, event: str) -> None:
            answers.append((await annotate(client, annotation("m", event)))["duplicate"])

        for turn in range(5):
            async with anyio.create_task_group() as tasks:
                for client in (one, other, one, other):
                    tasks.start_soon(send, client, f"e{turn}")
        assert len(await feedback_facts(one)) == 5
    assert sorted(answers) == [False] * 5 + [True] * 15


async def test_the_id_of_an_annotation_is_free_again_once_its_thread_was_deleted() -> None:
    async with demo() as client:
        await run(client, "say hi")
        assert await annotate(client, annotation("m")) == {"id": "e1", "duplicate": False}
        await client.delete("/thread/t")
        await run(client, "say hi")
        assert await annotate(client, annotation("m")) == {"id": "e1", "duplicate": False}


async def test_any_other_annotation_is_refused() -> None:
    async with demo() as client:
        await run(client, "say hi")
        for wrong in ({"type": "user_action"}, {"payload": {"messageId": "m" * 300, "value": "thumbs_up"}}):
            answer = await client.post("/copilotkit/annotate", json={**annotation("m"), **wrong})
            assert refusal(answer) == (422, "invalid_input")
        assert await feedback_facts(client) == []
