"""A server with one agent that works on files, without sockets; and git repositories to give it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request

from ambient_runner import Actor, Settings, Timeouts, add_ambient_endpoints
from tests.server.doors import asking, client_of, frames
from tests.server.worker import WorkerBridge
from tests.services.remotes import make_repo

STREAMS: list[list[dict[str, Any]]] = []
"""Every run that was talked to, for the official clients to judge."""


def settings_of(tmp_path: Path, **more: Any) -> Settings:
    """Everything below `tmp_path`; repositories may come from this machine."""
    options: dict[str, Any] = {"git_schemes": ("https", "file"), **more}
    return Settings(
        store=f"sqlite:///{tmp_path / 'store.db'}",
        workspace=str(tmp_path / "workspaces"),
        timeouts=Timeouts(grace=0.5),
        **options,
    )


def by_header(request: Request) -> Actor | None:
    owner = request.headers.get("x-owner")
    return Actor(owner=owner) if owner else None


@asynccontextmanager
async def server(
    bridge: WorkerBridge, settings: Settings, *, authorize: Any = None, **options: Any
) -> AsyncGenerator[httpx.AsyncClient, None]:
    app = FastAPI()
    add_ambient_endpoints(app, agents={"worker": bridge}, settings=settings, authorize=authorize, **options)
    async with client_of(app) as client:
        client.timeout = httpx.Timeout(60)
        yield client


def repository(folder: Path, files: Mapping[str, str]) -> str:
    """A repository with one commit; gives its URL."""
    return make_repo(folder, files).as_uri()


async def talk(client: httpx.AsyncClient, text: str, message: str, **more: Any) -> list[dict[str, Any]]:
    """The events of one run."""
    headers = more.pop("headers", {})
    response = await client.post("/", json=asking(text, message=message, **more), headers=headers)
    assert response.status_code == 200, response.text
    events = [event for _, event in frames(response)]
    STREAMS.append(events)
    return events


def told(events: list[dict[str, Any]]) -> list[str]:
    """What set-up has said in a run, in order: developer messages as they read, custom events by name."""
    found: dict[str, str] = {}
    for event in events:
        match event:
            case {"type": "TEXT_MESSAGE_START", "role": "developer", "messageId": name}:
                found[name] = ""
            case {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": delta} if name in found:
                found[name] += delta
            case {"type": "CUSTOM", "name": name}:
                found[name] = name
            case _:
                pass
    return list(found.values())


def ending(events: list[dict[str, Any]]) -> tuple[str, str]:
    """The last event's type, and its outcome or code."""
    last = events[-1]
    return last["type"], last.get("code") or last.get("outcome", {}).get("type", "")
