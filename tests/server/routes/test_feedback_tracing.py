"""Feedback in the name of others, or on what is theirs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from ambient_runner import Settings, Timeouts, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import LangfuseSettings, TracingSettings
from tests.receiver import Receiver, receiving
from tests.server.demo_server import client_of, frames, run_body
from tests.services.world import by_header

ANN, MALLORY = {"x-owner": "ann"}, {"x-owner": "mallory"}


@asynccontextmanager
async def scored_at(receiver: Receiver, authorize: Any = by_header) -> AsyncGenerator[httpx.AsyncClient, None]:
    langfuse = LangfuseSettings(url=receiver.url, public_key="pk-lf-1", secret_key="sk-lf-12345678")
    settings = Settings(
        store="memory://", timeouts=Timeouts(grace=0.5), tracing=TracingSettings(langfuse=langfuse, content=False)
    )
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=settings, authorize=authorize)
    async with client_of(app) as client:
        yield client


async def said(client: httpx.AsyncClient, message: str, headers: dict[str, str]) -> tuple[str, str]:
    """One run; gives its trace and the id of what it said."""
    response = await client.post("/", json=run_body("say hi", message=message), headers=headers)
    events = [event for _, event in frames(response)]
    return events[0]["metadata"]["traceId"], next(e["messageId"] for e in events if e["type"] == "TEXT_MESSAGE_START")


async def thumb(client: httpx.AsyncClient, headers: dict[str, str], **payload: str) -> dict[str, Any]:
    body = {"type": "META", "metaType": "thumbs_down", "threadId": "t", "payload": payload}
    response = await client.post("/feedback", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["event"]


@pytest.mark.parametrize("named_by", ["trace", "message", "nothing"])
async def test_a_trace_that_a_run_has_only_continued_is_not_scored(named_by: str) -> None:
    """With the `traceparent` of another's run, one's own run had their trace, and one's feedback was a score of it."""
    with receiving() as langfuse:
        async with scored_at(langfuse) as client:
            trace, _ = await said(client, "u1", ANN)
            continued, message = await said(client, "u1", MALLORY | {"traceparent": f"00-{trace}-{'1' * 16}-01"})
            assert continued == trace
            about = {"trace": {"traceId": trace}, "message": {"messageId": message}, "nothing": {}}[named_by]
            assert (await thumb(client, MALLORY, **about))["recorded"] is False
            assert langfuse.scores == []
            assert (await thumb(client, ANN))["recorded"] is True
    assert [score["traceId"] for score in langfuse.scores] == [trace]


async def test_without_authorization_a_trace_started_by_a_gateway_is_scored() -> None:
    with receiving() as langfuse:
        async with scored_at(langfuse, None) as client:
            trace, _ = await said(client, "u1", {"traceparent": f"00-{'a' * 32}-{'1' * 16}-01"})
            assert (await thumb(client, {}))["recorded"] is True
    assert [score["traceId"] for score in langfuse.scores] == [trace] == ["a" * 32]


async def test_an_authorized_user_cannot_name_another_user() -> None:
    with receiving() as langfuse:
        async with scored_at(langfuse) as client:
            await said(client, "u1", MALLORY)
            events = [await thumb(client, MALLORY, userId=name) for name in ("ann", "x1", "x2")]
    assert [event["payload"] for event in events] == [{"userId": "mallory"}] * 3
    assert len({score["id"] for score in langfuse.scores}) == 1
    assert {score["metadata"]["user"] for score in langfuse.scores} == {"mallory"}
    assert "ann" not in str(langfuse.scores)


async def test_without_authorization_a_client_may_name_its_user() -> None:
    with receiving() as langfuse:
        async with scored_at(langfuse, None) as client:
            await said(client, "u1", {})
            for name in ("ann", "bob", "ann"):
                await thumb(client, {}, userId=name)
    assert [score["metadata"]["user"] for score in langfuse.scores] == ["ann", "bob", "ann"]
    assert len({score["id"] for score in langfuse.scores}) == 2
