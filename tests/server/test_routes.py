from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import anyio
import httpx
import pytest
from fastapi import Request

from ambient_runner import Actor
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import AgentSettings
from ambient_runner.server.app import create_app
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, demo, frames, run_body


def events(response: httpx.Response) -> list[str]:
    return [event["type"] for _, event in frames(response)]


async def test_a_post_answers_with_the_run() -> None:
    async with demo() as client:
        response = await client.post("/", json=run_body("say hello there"))
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert (events(response)[0], events(response)[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    assert b"\r" not in response.content


async def test_ndjson_is_sent_when_the_client_accepts_it() -> None:
    async with demo() as client:
        response = await client.post("/", json=run_body("say hi"), headers={"Accept": "application/x-ndjson"})
    lines = [json.loads(line)["type"] for line in response.text.splitlines()]
    assert response.headers["content-type"] == "application/x-ndjson"
    assert (lines[0], lines[-1]) == ("RUN_STARTED", "RUN_FINISHED")


async def test_event_lines_are_added_on_request() -> None:
    async with demo() as client:
        response = await client.post("/?event_lines=1", json=run_body("say hi"))
    assert response.text.startswith("id: ")
    assert "\nevent: RUN_STARTED\ndata: " in response.text


async def test_an_older_client_gets_its_own_profile() -> None:
    tools = [{"name": "change_background", "description": "", "parameters": {}}]
    async with demo() as client:
        new = await client.post("/", json=run_body("color red", thread="a", tools=tools))
        old = await client.post("/", json=run_body("color red", thread="b", tools=tools, protocolVersion=None))
    assert "pendingToolCallIds" in frames(new)[-1][1]["outcome"]
    assert frames(old)[-1][1]["outcome"] == {"type": "success"}


async def _types(client: httpx.AsyncClient, command: str, path: str = "/", **more: Any) -> set[str]:
    response = await client.post(path, json=run_body(command, thread=uuid4().hex, protocolVersion=None), **more)
    return {event["type"] for _, event in frames(response)}


@pytest.mark.parametrize(
    ("path", "headers", "has_subagents", "has_reasoning"),
    [
        ("/", {}, False, True),
        ("/?protocol=0.0.59", {}, True, True),
        ("/", {"X-Ambient-Protocol": "1.0"}, True, True),
        ("/?protocol=0.0.55", {"X-Ambient-Protocol": "1.0"}, False, True),
        ("/?protocol=0.0.42", {}, False, False),
    ],
)
async def test_a_client_gets_the_events_its_version_knows(
    path: str, headers: dict[str, str], has_subagents: bool, has_reasoning: bool
) -> None:
    async with demo() as client:
        subagent = await _types(client, "subagent", path, headers=headers)
        thinking = await _types(client, "think", path, headers=headers)
    assert ("SUBAGENT_STARTED" in subagent, "REASONING_START" in thinking) == (has_subagents, has_reasoning)
    assert "STEP_STARTED" in subagent or has_subagents


async def test_the_setting_client_is_for_clients_that_declare_nothing() -> None:
    tables = (AgentSettings(name="other", bridge="demo", client="1.0"),)
    async with demo(dataclasses.replace(SETTINGS, client="0.0.42", agents=tables)) as client:
        assert "REASONING_START" not in await _types(client, "think")
        assert "REASONING_START" in await _types(client, "think", "/?protocol=0.0.55")
        assert "SUBAGENT_STARTED" in await _types(client, "subagent", "/agents/other")


async def test_an_unreadable_protocol_starts_no_run() -> None:
    async with demo() as client:
        refused = await client.post("/?protocol=latest", json=run_body("say hi"))
        thread = await client.get("/message_snapshot/t")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
    assert thread.status_code == 404


async def test_agents_have_their_own_routes_and_a_thread_keeps_its_agent() -> None:
    async with demo() as client:
        first = await client.post("/agents/other", json=run_body("say hi"))
        wrong = await client.post("/agents/demo", json=run_body("say hi", message="u2"))
        unknown = await client.post("/agents/nobody", json=run_body("say hi"))
        default = await client.post("/agents/default", json=run_body("say hi", thread="d"))
    assert (first.status_code, default.status_code) == (200, 200)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "other_agent")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_agent")


async def test_the_trace_id_of_the_caller_is_adopted() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with demo() as client:
        response = await client.post(
            "/", json=run_body("say hi"), headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        )
    assert frames(response)[0][1]["metadata"] == {"traceId": trace, "parentSpanId": "00f067aa0ba902b7"}


@pytest.mark.parametrize(
    "parent", ["", "nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{'a' * 32}-{'0' * 16}-01"]
)
async def test_a_caller_that_names_no_span_is_no_part_of_the_trace(parent: str) -> None:
    async with demo() as client:
        response = await client.post("/", json=run_body("say hi"), headers={"traceparent": parent})
    made = frames(response)[0][1]["metadata"]["traceId"]
    assert (len(made), made in {"0" * 32, "a" * 32}) == (32, False)


async def test_replaying_a_thread_gives_the_same_bytes() -> None:
    async with demo() as client:
        live = await client.post("/", json=run_body("weather Lisbon"))
        replayed = await client.get("/threads/t/events?until=idle")
    assert replayed.content == live.content


async def test_a_resumed_stream_starts_after_its_cursor_and_reopens_open_items() -> None:
    async with demo() as client:
        live = frames(await client.post("/", json=run_body("say one two three")))
        place = next(i for i, (_, event) in enumerate(live) if event.get("delta") == " two")
        cursor = live[place][0]
        assert cursor is not None
        resumed = frames(await client.get("/threads/t/events?until=idle", headers={"Last-Event-ID": cursor}))
        same = frames(await client.get("/threads/t/events", params={"until": "idle", "after": cursor}))
    opening, rest = resumed[:2], resumed[2:]
    assert [(name, event["type"]) for name, event in opening] == [(None, "RUN_STARTED"), (None, "TEXT_MESSAGE_START")]
    assert rest == live[place + 1 :]
    assert same == resumed


async def test_a_stream_resumed_after_the_last_event_is_empty() -> None:
    async with demo() as client:
        live = frames(await client.post("/", json=run_body("say hi")))
        resumed = await client.get("/threads/t/events", params={"until": "idle", "after": str(live[-1][0])})
    assert resumed.text == ""


@pytest.mark.parametrize(
    "cursor", ["", "garbage", "-1", "1", "abcdefgh.-1", "abcdefgh.1.2", "x" * 10_000, "abcdefgh.01"]
)
async def test_a_malformed_cursor_is_a_400(cursor: str) -> None:
    async with demo() as client:
        await client.post("/", json=run_body("say hi"))
        response = await client.get("/threads/t/events", params={"until": "idle", "after": cursor})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_cursor")


async def test_a_cursor_that_is_ahead_or_of_another_thread_is_a_409() -> None:
    async with demo() as client:
        first = frames(await client.post("/", json=run_body("say hi")))
        other = frames(await client.post("/", json=run_body("say hi", thread="t2")))
        epoch = str(first[0][0]).split(".")[0]
        ahead = await client.get("/threads/t/events", params={"after": f"{epoch}.999999"})
        foreign = await client.get("/threads/t/events", params={"after": str(other[0][0])})
    assert [(r.status_code, r.json()["error"]["code"]) for r in (ahead, foreign)] == [(409, "stale_cursor")] * 2


async def test_a_gap_is_sent_with_the_messages_and_state_of_the_dropped_entries() -> None:
    async with demo(dataclasses.replace(SETTINGS, retain=5)) as client:
        first = frames(await client.post("/", json=run_body("say one two three four five six")))
        for turn in range(2, 5):
            await client.post("/", json=run_body("say one two three four five six", message=f"u{turn}"))
        with unless_hung():
            while True:
                resumed = frames(
                    await client.get("/threads/t/events", params={"until": "idle", "after": str(first[2][0])})
                )
                if resumed[1][1]["type"] == "CUSTOM":
                    break
        snapshot = (await client.get("/message_snapshot/t")).json()
    assert [event["type"] for _, event in resumed[:5]] == [
        "RUN_STARTED",
        "CUSTOM",
        "MESSAGES_SNAPSHOT",
        "STATE_SNAPSHOT",
        "RUN_FINISHED",
    ]
    gap = resumed[1][1]
    assert (gap["name"], gap["value"]["after"]) == ("ambient:gap", int(str(first[2][0]).split(".")[1]))
    assert gap["value"]["before"] == int(str(resumed[5][0]).split(".")[1]) - 1
    assert resumed[-2][1].pop("timestamp") > 0
    assert resumed[-2][1] == snapshot


async def test_history_is_served_as_events() -> None:
    async with demo() as client:
        run = frames(await client.post("/", json=run_body("state")))
        messages = (await client.get("/message_snapshot/t")).json()
        state = (await client.get("/state_snapshot/t")).json()
        threads = (await client.get("/thread/list")).json()
    assert run[-2][1].pop("timestamp") > 0
    assert messages == run[-2][1]
    assert state["type"] == "STATE_SNAPSHOT"
    assert all(step["done"] for step in state["snapshot"]["plan"])
    assert [(t["threadId"], t["agent"], t["running"]) for t in threads["threads"]] == [("t", "demo", False)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/message_snapshot/x"),
        ("GET", "/state_snapshot/x"),
        ("PATCH", "/state/x"),
        ("DELETE", "/thread/x"),
        ("GET", "/threads/x/events"),
        ("GET", "/threads/x/events?from=snapshot"),
        ("GET", "/threads/x/events?run=y"),
        ("GET", "/threads/x/runs"),
    ],
)
async def test_an_unknown_thread_is_a_404(method: str, path: str) -> None:
    async with demo() as client:
        response = await client.request(method, path, json=[] if method == "PATCH" else None)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_thread")


async def test_state_can_be_patched_between_runs_and_the_next_run_sends_it() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("state"))
        patched = await client.patch("/state/t", json=[{"op": "add", "path": "/note", "value": "mine"}])
        bad = await client.patch("/state/t", json={"op": "add"})
        conflict = await client.patch("/state/t", json=[{"op": "remove", "path": "/nothing"}])
        hidden = await client.patch("/state/t", json=[{"op": "add", "path": "/messages", "value": []}])
        next_run = frames(await client.post("/", json=run_body("say hi", message="u2")))
    assert patched.json()["snapshot"]["note"] == "mine"
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_patch")
    assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "patch_conflict")
    assert (hidden.status_code, hidden.json()["error"]["code"]) == (409, "patch_conflict")
    assert next_run[1][1]["snapshot"]["note"] == "mine"


async def test_deleting_a_thread_erases_it_and_its_cursors() -> None:
    async with demo() as client:
        run = frames(await client.post("/", json=run_body("say hi")))
        deleted = await client.delete("/thread/t")
        gone = await client.get("/message_snapshot/t")
        await client.post("/", json=run_body("say hi"))
        stale = await client.get("/threads/t/events", params={"after": str(run[0][0])})
    assert deleted.json() == {"threadId": "t", "deleted": True}
    assert (gone.status_code, stale.status_code) == (404, 409)


async def test_a_stop_names_its_thread_or_means_the_only_run() -> None:
    async with demo() as client:
        nothing = await client.post("/interrupt")
        unknown = await client.post("/interrupt", json={"threadId": "x"})
        async with anyio.create_task_group() as tasks:
            ended: list[httpx.Response] = []

            async def hang() -> None:
                ended.append(await client.post("/", json=run_body("hang")))

            tasks.start_soon(hang)
            with unless_hung():
                while (stopped := await client.post("/interrupt", json={"thread_id": "t"})).status_code != 200:
                    await anyio.lowlevel.checkpoint()
    assert (nothing.status_code, unknown.status_code) == (409, 404)
    assert stopped.json()["threadId"] == "t"
    assert frames(ended[0])[-1][1]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"threadId": 5}', b'{"threadId": "t", "more": ' + b"[" * 64 + b"]" * 64 + b"}"]
)
async def test_a_stop_that_is_no_object_with_a_thread_id_is_refused(body: bytes) -> None:
    async with demo() as client:
        response = await client.post("/interrupt", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_input")


async def test_the_same_idempotency_key_replays_the_run() -> None:
    async with demo() as client:
        key = {"Idempotency-Key": "abc"}
        first = await client.post("/", json=run_body("say hi"), headers=key)
        again = await client.post("/", json=run_body("say hi"), headers=key)
        other = await client.post("/", json=run_body("say ho"), headers=key)
        await client.delete("/thread/t")
        gone = await client.post("/", json=run_body("say hi"), headers=key)
    assert again.content == first.content
    assert (other.status_code, other.json()["error"]["code"]) == (409, "key_reused")
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "run_gone")


async def test_an_idempotency_key_is_that_of_its_tenant() -> None:
    """Two tenants may have an owner of the same name, who use the same key for different requests."""

    def authorize(request: Request) -> Actor:
        return Actor(tenant=request.headers["x-tenant"], owner="ann")

    app = create_app(SETTINGS, {"demo": DemoBridge()}, authorize=authorize)
    async with client_of(app) as client:
        answers = [
            await client.post("/", json=run_body(text), headers={"Idempotency-Key": "abc", "X-Tenant": tenant})
            for tenant, text in (("acme", "say hi"), ("other", "say ho"), ("acme", "say hi"))
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[2].content == answers[0].content != answers[1].content


async def test_an_idempotency_key_is_not_stored_as_it_was_sent(tmp_path: Path) -> None:
    """A client may send a secret as its key."""
    key = "kR8vQ2mZx7Lw3Tn5Yb9Hs4Jd6Fg1Pc0A"
    async with demo(dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path / 'threads.db'}")) as client:
        first = await client.post("/", json=run_body("say hi"), headers={"Idempotency-Key": key})
        again = await client.post("/", json=run_body("say hi"), headers={"Idempotency-Key": key})
        stored = {file.name: file.read_bytes().count(key.encode()) for file in tmp_path.glob("threads.db*")}
    assert again.content == first.content
    assert set(stored.values()) == {0}


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{}", "text/plain", 415, "wrong_type"),
        (b"{}", None, 415, "wrong_type"),
        (b"{}", "text/x+json", 415, "wrong_type"),
        (b"not json", "application/json", 422, "invalid_input"),
        (b"[" * 100_000, "application/json", 422, "invalid_input"),
        (b'{"messages": 5}', "application/json", 422, "invalid_input"),
        (b" " * (11 << 20), "application/json", 413, "too_large"),
    ],
    ids=["text", "untyped", "text-json", "garbage", "deep", "wrong", "large"],
)
async def test_bad_bodies_get_a_clear_answer(content: bytes, kind: str | None, status: int, code: str) -> None:
    async with demo() as client:
        response = await client.post("/", content=content, headers={"Content-Type": kind} if kind else {})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("kind", ["application/vnd.agui+json", "Application/X+JSON; charset=utf-8"])
async def test_a_body_may_have_a_type_that_is_based_on_json(kind: str) -> None:
    """FastAPI, and so the published adapters, accept these too. Like `application/json` they need a preflight request."""
    async with demo() as client:
        body = json.dumps(run_body("say hi"))
        run = await client.post("/", content=body, headers={"Content-Type": kind})
        patched = await client.patch("/state/t", content="[]", headers={"Content-Type": "application/merge-patch+json"})
    assert (run.status_code, patched.status_code) == (200, 415)


@pytest.mark.parametrize("name", ["X-Ambient-On-Busy", "X-Ambient-On-Disconnect", "Idempotency-Key"])
async def test_a_header_with_an_unknown_value_is_refused(name: str) -> None:
    async with demo() as client:
        response = await client.post("/", json=run_body("say hi"), headers={name: "not a word"})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_input")


async def test_status_routes_answer() -> None:
    async with demo() as client:
        health, ready = await client.get("/health"), await client.get("/ready")
        capabilities = (await client.get("/capabilities")).json()
        metrics = await client.get("/metrics")
        missing = await client.get("/nothing/here")
    assert health.json() == {"status": "healthy"}
    assert ready.json() == {"status": "ready"}
    assert set(capabilities["agents"]) == {"demo", "other"}
    assert "ambient_runs_total" in metrics.text
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_a_load_balancer_may_ask_with_head(path: str) -> None:
    """It was answered with 405, which reads as a server that is down."""
    async with demo() as client:
        answered = await client.head(path)
        elsewhere = await client.head(path, headers={"Host": "somewhere.example"})
    assert (answered.status_code, answered.content) == (200, b"")
    assert elsewhere.status_code == 403


@pytest.mark.parametrize("policy", ["queue", "supersede"])
async def test_a_request_that_may_wait_is_refused_as_plainly_as_others(policy: str) -> None:
    async with demo() as client:
        refused_at_once = await client.post(
            "/agents/nobody", json=run_body("say hi"), headers={"X-Ambient-On-Busy": policy}
        )
        started = await client.post("/", json=run_body("say hi"), headers={"X-Ambient-On-Busy": policy})
    assert (refused_at_once.status_code, refused_at_once.json()["error"]["code"]) == (404, "unknown_agent")
    assert started.status_code == 200


@pytest.mark.parametrize("thread", [".", ".."])
async def test_a_thread_id_that_clients_remove_from_urls_is_refused(thread: str) -> None:
    """`/threads/../events` becomes `/events` in every browser, however the id is encoded: nobody could read the thread."""
    body = run_body("say hi", thread=thread)
    annotation = {"threadId": thread, "clientEventId": "e", "type": "feedback"}
    rating = {"type": "META", "metaType": "thumbs_up", "threadId": thread, "payload": {"messageId": "m"}}
    async with demo() as client:
        answers = [
            await client.post("/", json=body),
            await client.post("/copilotkit/agent/demo/run", json=body),
            await client.post(
                "/copilotkit/annotate", json={**annotation, "payload": {"messageId": "m", "value": "thumbs_up"}}
            ),
            await client.post("/feedback", json=rating),
        ]
        listed = (await client.get("/thread/list")).json()["threads"]
        kept = [
            await client.post("/", json=run_body("say hi", thread=name)) for name in ("...", "%2e", "a/../b", "a//b")
        ]
        read = [
            frames(await client.get(f"/threads/{quote(name, safe='')}/events?until=idle"))
            for name in ("...", "%2e", "a/../b", "a//b")
        ]
    assert [answer.status_code for answer in answers] == [422] * 4
    assert listed == []
    assert [frames(answer) for answer in kept] == read
