"""A demo server without sockets, and how to talk to it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from ambient_runner import Settings, Timeouts, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.projections.redaction import Secrets
from ambient_runner.runs.run import Agent
from ambient_runner.server.platform import Platform
from ambient_runner.server.runtime import ServerRuntime

SETTINGS = Settings(store="memory://", history="server", timeouts=Timeouts(grace=0.5))


@asynccontextmanager
async def client_of(app: FastAPI, **options: Any) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(app, **options)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        yield client


def runtime_with(agents: Mapping[str, Agent], settings: Settings = SETTINGS) -> ServerRuntime:
    """A server of these agents, which have no files."""
    return ServerRuntime(settings, agents, platform=Platform(settings, {}, Secrets(settings.secrets)))


@asynccontextmanager
async def demo(settings: Settings = SETTINGS) -> AsyncGenerator[httpx.AsyncClient, None]:
    async with client_of(create_app(settings, {"demo": DemoBridge(), "other": DemoBridge()})) as client:
        yield client


def run_body(text: str, *, thread: str = "t", message: str = "u1", **more: Any) -> dict[str, Any]:
    messages = [{"id": message, "role": "user", "content": text}]
    return {"threadId": thread, "runId": "r", "protocolVersion": "1.0", "messages": messages, **more}


def frames(response: httpx.Response) -> list[tuple[str | None, dict[str, Any]]]:
    """The (id, event) pairs of a finished stream."""
    found: list[tuple[str | None, dict[str, Any]]] = []
    for block in response.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("id"), json.loads(fields["data"])))
    return found


def error_of(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return response.status_code, response.json()["error"]["code"]
