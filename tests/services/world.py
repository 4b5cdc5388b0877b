"""A server with one agent that works on files, without sockets; workspaces without a server; and git repositories to give them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from ambient_runner import Actor, Settings, Timeouts, add_ambient_endpoints
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.services.credentials import Credentials, CredentialSubject
from ambient_runner.services.workspaces.clone import CloneLimits
from ambient_runner.services.workspaces.repos import AddedRepo, Repos
from ambient_runner.services.workspaces.workspaces import Workspaces
from tests.machine_speed import unless_hung
from tests.server.demo_server import client_of, frames, run_body
from tests.server.worker import WorkerBridge
from tests.services.remotes import ANN, HERE, NOTHING, PATH, make_repo

STREAMS: list[list[dict[str, Any]]] = []
"""Every run that was talked to, for the official clients to judge."""
BYTES = {"content-type": "application/octet-stream"}
"""The headers of an upload."""
EMPTY = {
    "default",
    "default/ann",
    "default/ann/trip",
    *(f"default/ann/trip/{name}" for name in ("repos", "workflows", "artifacts", "file-uploads")),
    *(".records", ".records/default", ".records/default/ann", ".records/default/ann/trip"),
    *(f".records/default/ann/trip/{name}" for name in ("tmp", "trash", "uploads", "lock")),
}
"""What there is of a workspace in which nothing is."""


def settings_of(tmp_path: Path, **more: Any) -> Settings:
    """Everything below `tmp_path`; repositories may come from this machine."""
    options: dict[str, Any] = {"git_schemes": ("https", "file"), **more}
    return Settings(
        store=f"sqlite:///{tmp_path / 'store.db'}",
        workspace=str(options.pop("workspace", tmp_path / "workspaces")),
        timeouts=Timeouts(grace=0.5),
        **options,
    )


def tokens_of(**variables: str) -> Credentials:
    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return variables

    return give


def mcp_file(tmp_path: Path, servers: dict[str, object]) -> str:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


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


def repository(directory: Path, files: Mapping[str, str]) -> str:
    """A repository with one commit; gives its URL."""
    return make_repo(directory, files).as_uri()


async def talk(client: httpx.AsyncClient, text: str, message: str, **more: Any) -> list[dict[str, Any]]:
    """The events of one run."""
    headers = more.pop("headers", {})
    response = await client.post("/", json=run_body(text, message=message, **more), headers=headers)
    assert response.status_code == 200, response.text
    events = [event for _, event in frames(response)]
    STREAMS.append(events)
    return events


@contextmanager
def unerasable(name: str) -> Generator[None]:
    """While this is open, no call can delete a file of this name."""
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == name:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as stuck:
        stuck.setattr(os, "unlink", refuse)
        yield


def announcements(events: list[dict[str, Any]]) -> list[str]:
    """Return what set-up announced in a run, in order: developer messages by text, custom events by name."""
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


async def facts(client: httpx.AsyncClient, thread: str = "t", **options: Any) -> list[tuple[str, Any]]:
    """Return the custom events of the thread, read until it is idle."""
    response = await client.get(f"/threads/{thread}/events?until=idle", **options)
    return [(event["name"], event["value"]) for _, event in frames(response) if event["type"] == "CUSTOM"]


def ending(events: list[dict[str, Any]]) -> tuple[str, str]:
    """The last event's type, and its outcome or code."""
    last = events[-1]
    return last["type"], last.get("code") or last.get("outcome", {}).get("type", "")


class World:
    """Workspaces below a directory, without a server. Repositories to clone are next to them."""

    def __init__(self, directory: Path, *, limits: CloneLimits | None = None) -> None:
        self.directory = directory
        self.workspaces = Workspaces(directory / "root", rules=HERE, limits=limits, git_environment=PATH)
        self.repos = Repos(self.workspaces)
        self.prepare = self.workspaces.prepare

    def make(self, name: str = "app", files: Mapping[str, str | bytes] | None = None, **options: Any) -> str:
        """A repository to clone, by its path."""
        return str(make_repo(self.directory / "srv" / name, files or {"a.txt": "hello"}, **options))

    async def add(self, url: str, thread: ThreadKey = ANN, **options: Any) -> AddedRepo:
        with unless_hung():
            job = await self.repos.add(thread, url, **{"environment": NOTHING, **options})
            return await job.wait_for_result()

    def inside(self) -> set[str]:
        """Everything below the workspaces, of git's own only that it is there."""
        found: set[str] = set()
        for at, directories, files in os.walk(self.directory / "root"):
            found |= {str(Path(at, name).relative_to(self.directory / "root")) for name in (*directories, *files)}
            directories[:] = [name for name in directories if name != ".git"]
        return found


@asynccontextmanager
async def world(directory: Path, *, limits: CloneLimits | None = None) -> AsyncGenerator[World, None]:
    made = World(directory, limits=limits)
    async with made.workspaces:
        yield made
