"""The route for feedback."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI, Request

from ambient_runner import Actor, Settings, Timeouts, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import LangfuseSettings, TracingSettings
from tests.receiver import LANGFUSE_TRACES, Receiver, receiving
from tests.server.demo_server import client_of, demo, error_of, frames, run_body


def settings_for(receiver: Receiver | None = None, **more: Any) -> Settings:
    langfuse = LangfuseSettings(url=receiver.url, public_key="pk-lf-1", secret_key="sk-lf-1") if receiver else None
    tracing = TracingSettings(langfuse=langfuse)
    return Settings(store="memory://", history="server", timeouts=Timeouts(grace=0.5), tracing=tracing, **more)


def thumbs(meta: str = "thumbs_up", *, thread: str | None = "t", **payload: Any) -> dict[str, Any]:
    named = {"threadId": thread} if thread else {}
    return {"type": "META", "metaType": meta, "payload": payload, **named}


async def run_demo(client: httpx.AsyncClient, text: str = "say hello", **more: Any) -> tuple[str, str]:
    """The trace of a run, and the id of what it said."""
    events = [event for _, event in frames(await client.post("/", json=run_body(text, **more)))]
    message = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
    return events[0]["metadata"]["traceId"], message


async def test_feedback_is_answered_and_becomes_part_of_the_thread() -> None:
    async with demo() as client:
        trace, message = await run_demo(client)
        answer = await client.post(
            "/feedback", json=thumbs("thumbs_down", messageId=message, comment="meh", userId="ann")
        )
        thread = frames(await client.get("/threads/t/events?until=idle"))
    payload = {"messageId": message, "comment": "meh", "userId": "ann"}
    assert answer.status_code == 200
    assert answer.json() == {
        "type": "RAW",
        "event": {"name": "ambient:feedback", "metaType": "thumbs_down", "payload": payload, "recorded": False},
    }
    (feedback_cursor, feedback), (cursor, changed) = thread[-2:]
    # Both are of one entry: a reader that has lost the second gets the first again.
    assert (feedback_cursor, cursor is not None) == (None, True)
    assert feedback == {
        "type": "CUSTOM",
        "name": "ambient:feedback",
        "value": payload | {"metaType": "thumbs_down", "recorded": False, "traceId": trace},
        "timestamp": changed["timestamp"],
    }
    assert changed["name"] == "ambient:thread"
    assert changed["value"]["feedback"] == {message: "thumbs_down"}


async def test_langfuse_gets_the_score_of_the_trace_it_has() -> None:
    with receiving() as langfuse:
        async with demo(settings_for(langfuse)) as client:
            trace, message = await run_demo(client)
            await run_demo(client, "say more", message="u2")
            answers = [await client.post("/feedback", json=thumbs(messageId=message)) for _ in range(2)]
    assert [answer.json()["event"]["recorded"] for answer in answers] == [True, True]
    assert [(score["traceId"], score["value"], score["name"]) for score in langfuse.scores] == [
        (trace, 1, "user-feedback")
    ] * 2
    assert len({score["id"] for score in langfuse.scores}) == 1
    assert trace in {span.trace for span in langfuse.spans(LANGFUSE_TRACES)}


async def test_feedback_that_langfuse_refuses_is_reported_as_not_recorded() -> None:
    with receiving(answer=401) as langfuse:
        async with demo(settings_for(langfuse)) as client:
            await run_demo(client)
            answer = await client.post("/feedback", json=thumbs())
    assert (answer.status_code, answer.json()["event"]["recorded"]) == (200, False)
    assert len(langfuse.scores) == 1


async def test_a_traced_run_sends_its_trace_id_and_clients_can_name_it() -> None:
    with receiving() as langfuse:
        async with demo(settings_for(langfuse)) as client:
            events = [event for _, event in frames(await client.post("/", json=run_body("say hi")))]
            trace_ids = [event["value"]["traceId"] for event in events if event.get("name") == "ambient:trace_id"]
            answer = await client.post("/feedback", json=thumbs(traceId=trace_ids[0]))
    assert trace_ids == [events[0]["metadata"]["traceId"]]
    assert answer.json()["event"]["recorded"] is True
    assert [score["traceId"] for score in langfuse.scores] == trace_ids


async def test_invalid_feedback_requests_are_refused_in_our_error_format() -> None:
    async with demo() as client:
        await run_demo(client)
        bad = thumbs() | {"type": "CUSTOM"}
        assert error_of(await client.post("/feedback", json=bad)) == (400, "invalid_feedback")
        assert error_of(await client.post("/feedback", json=thumbs("shrug"))) == (400, "invalid_feedback")
        assert error_of(await client.post("/feedback", json={"type": "META"})) == (422, "invalid_input")
        assert error_of(await client.post("/feedback", json=thumbs(thread=None))) == (422, "invalid_input")
        assert error_of(await client.post("/feedback", json=thumbs(thread="unknown"))) == (404, "unknown_thread")
        assert error_of(await client.post("/feedback", content=b"{}")) == (415, "wrong_type")
        large = thumbs(transcript=["x" * (1 << 20)])
        assert error_of(await client.post("/feedback", json=large)) == (413, "too_large")
        foreign = {"origin": "https://evil.example"}
        assert error_of(await client.post("/feedback", json=thumbs(), headers=foreign)) == (403, "forbidden")


async def test_the_thread_is_named_as_in_every_other_request() -> None:
    nameless = {name: value for name, value in thumbs().items() if name != "threadId"}
    async with demo() as client:
        await run_demo(client)
        in_the_body = await client.post("/feedback", json=nameless | {"thread_id": "t"})
        in_the_query = await client.post("/feedback?threadId=t", json=nameless)
        wrong = await client.post("/feedback", json=nameless | {"threadId": "x" * 1000})
    assert (in_the_body.status_code, in_the_query.status_code) == (200, 200)
    assert error_of(wrong) == (422, "invalid_input")


async def test_the_session_names_the_thread_where_the_request_does_not() -> None:
    async with demo(settings_for(default_thread="t")) as client:
        await run_demo(client)
        assert (await client.post("/feedback", json=thumbs(thread=None))).status_code == 200
    async with demo() as client:
        await run_demo(client)
        assert (await client.post("/feedback", json=thumbs(thread=None, sessionName="t"))).status_code == 200


@asynccontextmanager
async def for_several(receiver: Receiver) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A server that knows people by a header."""

    def who(request: Request) -> Actor | None:
        name = request.headers.get("x-user")
        return Actor(owner=name) if name else None

    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=settings_for(receiver), authorize=who)
    async with client_of(app) as client:
        yield client


async def test_no_user_can_send_feedback_on_the_thread_or_trace_of_another() -> None:
    ann, bob = {"x-user": "ann"}, {"x-user": "bob"}
    with receiving() as langfuse:
        async with for_several(langfuse) as client:
            events = [event for _, event in frames(await client.post("/", json=run_body("say hi"), headers=ann))]
            trace = events[0]["metadata"]["traceId"]
            assert error_of(await client.post("/feedback", json=thumbs(traceId=trace), headers=bob)) == (
                404,
                "unknown_thread",
            )
            await client.post("/", json=run_body("say hi"), headers=bob)
            stolen = await client.post("/feedback", json=thumbs(traceId=trace), headers=bob)
            assert (stolen.status_code, stolen.json()["event"]["recorded"]) == (200, False)
            assert error_of(await client.post("/feedback", json=thumbs())) == (401, "unauthorized")
    assert langfuse.scores == []
