"""The platform routes of a gateway, answered by the server that runs the agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from ambient_runner import PlatformBridge, Run, Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.remote import RemoteBridge
from tests.server.demo_server import client_of, error_of, run_body
from tests.server.worker import WorkerBridge
from tests.services.world import by_header, ending, facts, mcp_file, repository, settings_of, talk

TOKEN = "ghp_secretsecretsecret"
GATEWAY = Settings(store="memory://", history="server", pass_headers=("x-owner",))


@dataclass
class Pair:
    """A gateway, and the server that runs its agents."""

    gateway: httpx.AsyncClient
    runner: httpx.AsyncClient
    requests: list[Request]


@asynccontextmanager
async def pair(
    tmp_path: Path,
    bridge: PlatformBridge | None = None,
    *,
    headers: Any = None,
    authorize: Any = None,
    local: Mapping[str, PlatformBridge] | None = None,
    settings: Settings | None = None,
) -> AsyncGenerator[Pair, None]:
    served, seen = FastAPI(), list[Request]()

    @served.middleware("http")
    async def keep(request: Request, call_next: Any) -> Response:
        seen.append(request)
        return await call_next(request)

    add_ambient_endpoints(served, bridge or WorkerBridge(), settings=settings or settings_of(tmp_path))
    async with client_of(served) as runner, httpx.AsyncClient(transport=httpx.ASGITransport(served)) as http:
        remote = RemoteBridge("http://127.0.0.1:9000/", client=http, headers=headers)
        front = FastAPI()
        add_ambient_endpoints(front, agents={"front": remote, **(local or {})}, settings=GATEWAY, authorize=authorize)
        async with client_of(front) as gateway:
            yield Pair(gateway, runner, seen)


async def repo_names(client: httpx.AsyncClient, thread: str = "t", **options: Any) -> list[str]:
    response = await client.get("/repos/status", params={"threadId": thread}, **options)
    return [repo["name"] for repo in response.json()["repos"]]


async def test_repositories_are_added_listed_and_removed_where_the_agent_runs(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {"README": "hi"})
    async with pair(tmp_path) as both:
        await talk(both.gateway, "hello", "u1")
        added = await both.gateway.post("/repos/add", json={"threadId": "t", "url": url})
        listed = await repo_names(both.gateway), await repo_names(both.runner)
        missing = await both.gateway.post("/repos/remove", json={"threadId": "t", "name": "none"})
        removed = await both.gateway.post("/repos/remove", json={"threadId": "t", "name": "api"})
        left = await repo_names(both.gateway)
    assert (added.status_code, added.json()["name"], added.json()["newly_cloned"]) == (200, "api", True)
    assert listed == (["api"], ["api"])
    assert error_of(missing) == (404, "unknown_repo")
    assert (removed.status_code, left) == (200, [])


async def test_what_changed_at_the_agents_server_reaches_the_thread_with_its_next_run(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with pair(tmp_path) as both:
        await talk(both.gateway, "hello", "u1")
        await both.gateway.post("/repos/add", json={"threadId": "t", "url": url})
        events = await talk(both.gateway, "again", "u2")
        stored = await facts(both.gateway)
    added = {"name": "api", "url": url, "branch": "ambient/t"}
    assert [event["value"] for event in events if event.get("name") == "ambient:repo_added"] == [added]
    assert [value for name, value in stored if name == "ambient:repo_added"] == [added]


async def test_interrupts_that_were_cancelled_here_do_not_block_the_agents_server(tmp_path: Path) -> None:
    async with pair(tmp_path, DemoBridge()) as both:
        asked = await talk(both.gateway, "approve the deploy", "u1")
        stopped = await both.gateway.post("/interrupt", json={"threadId": "t"})
        said = await talk(both.gateway, "say hi", "u2")
    assert (asked[-1]["outcome"]["type"], stopped.status_code) == ("interrupt", 200)
    assert ending(said) == ("RUN_FINISHED", "success")
    assert [request.url.path for request in both.requests] == ["/", "/", "/interrupt", "/"]


async def test_a_workflow_and_the_status_of_mcp_servers_reach_the_agents_server(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "flow", {".ambient/ambient.json": '{"name": "Flow"}'})
    settings = settings_of(tmp_path, mcp_config=mcp_file(tmp_path, {"down": {"command": "/nowhere"}}))
    async with pair(tmp_path, settings=settings) as both:
        changed = await both.gateway.post("/workflow", json={"threadId": "t", "gitUrl": url})
        malformed = await both.gateway.post("/workflow", json={"threadId": "t"})
        status = await both.gateway.get("/mcp/status", params={"threadId": "t"})
    assert (changed.status_code, changed.json()["gitUrl"]) == (200, url)
    assert error_of(malformed) == (422, "invalid_input")
    assert [server["name"] for server in status.json()["servers"]] == ["down"]


async def test_feedback_is_stored_here_and_at_the_agents_server(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        events = await talk(both.gateway, "hello", "u1")
        message = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
        body = {"type": "META", "metaType": "thumbs_up", "threadId": "t", "payload": {"messageId": message}}
        answer = await both.gateway.post("/feedback", json=body)
        stored = [dict(await facts(client))["ambient:feedback"] for client in (both.gateway, both.runner)]
    assert (answer.status_code, answer.json()["event"]["recorded"]) == (200, False)
    assert [(fact["metaType"], fact["messageId"]) for fact in stored] == [("thumbs_up", message)] * 2


async def test_feedback_is_stored_here_if_the_agents_server_has_lost_the_thread(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await talk(both.gateway, "hello", "u1")
        await both.runner.delete("/thread/t")
        body = {"type": "META", "metaType": "thumbs_down", "threadId": "t", "payload": {}}
        answer = await both.gateway.post("/feedback", json=body)
        names = [name for name, _ in await facts(both.gateway)]
    assert (answer.status_code, answer.json()["event"]["recorded"]) == (200, False)
    assert "ambient:feedback" in names


@pytest.mark.parametrize(("method", "path"), [("GET", "/repos/status"), ("POST", "/workflow"), ("GET", "/mcp/status")])
async def test_a_route_that_the_agents_server_lacks_is_missing_here(tmp_path: Path, method: str, path: str) -> None:
    body = {"json": {"gitUrl": ""}} if method == "POST" else {}
    async with pair(tmp_path, DemoBridge()) as both:
        answer = await both.gateway.request(method, path, params={"threadId": "t"}, **body)
    assert error_of(answer) == (404, "not_found")


async def test_users_have_threads_of_their_own_at_the_agents_server(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with pair(tmp_path, authorize=by_header) as both:
        ann, bob = {"x-owner": "ann"}, {"x-owner": "bob"}
        await both.gateway.post("/repos/add", json={"threadId": "t", "url": url}, headers=ann)
        seen = await repo_names(both.gateway, headers=ann), await repo_names(both.gateway, headers=bob)
        nobody = await both.gateway.get("/repos/status", params={"threadId": "t"})
    assert seen == (["api"], [])
    assert error_of(nobody) == (401, "unauthorized")


async def test_the_headers_of_the_agent_and_the_git_token_are_sent_and_not_repeated(tmp_path: Path) -> None:
    def headers(run: Run) -> dict[str, str]:
        return {"Authorization": f"Bearer {run.headers['x-owner']}-{run.actor.owner}-{run.thread.id}"}

    async with pair(tmp_path, headers=headers) as both:
        sent = {"x-owner": "credential-of-ann", "x-github-token": TOKEN, "cookie": "session=1"}
        answer = await both.gateway.post(
            "/repos/add", json={"threadId": "t", "url": f"https://{TOKEN}@example.invalid/x"}, headers=sent
        )
        short = await both.gateway.post(
            "/repos/add", json={"threadId": "t", "url": "x"}, headers={**sent, "x-github-token": "short"}
        )
        (request,) = both.requests
    assert request.headers["authorization"] == "Bearer credential-of-ann-local-t"
    assert (request.headers["x-github-token"], request.headers.get("cookie")) == (TOKEN, None)
    assert answer.status_code == 422
    assert TOKEN not in answer.text
    assert error_of(short) == (422, "invalid_input")


async def test_a_thread_of_an_agent_of_this_server_is_not_forwarded(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with pair(tmp_path, local={"demo": DemoBridge()}) as both:
        await both.gateway.post("/agents/demo", json=run_body("say hi", thread="own"))
        own = await both.gateway.get("/repos/status", params={"threadId": "own"})
        added = await both.gateway.post("/repos/add", json={"threadId": "new", "url": url})
        named = await both.gateway.get("/repos/status", params={"threadId": "new", "agent": "demo"})
        unknown = await both.gateway.get("/repos/status", params={"threadId": "new", "agent": "none"})
        await both.gateway.post("/agents/demo", json=run_body("say hi", thread="own", message="u2"))
    assert [request.url.path for request in both.requests] == ["/repos/add"]
    assert (error_of(own), error_of(named)) == ((404, "not_found"), (404, "not_found"))
    assert error_of(unknown) == (404, "unknown_agent")
    assert added.status_code == 200


async def test_a_server_that_rejects_us_or_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/mcp/status":
            raise httpx.ConnectError("gone")
        return httpx.Response(401, json={"error": {"code": "unauthorized", "message": "the token ghp_1 is not valid"}})

    front = FastAPI()
    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as http:
        add_ambient_endpoints(front, RemoteBridge("http://127.0.0.1:9000/", client=http), settings=GATEWAY)
        async with client_of(front) as gateway:
            rejected = await gateway.get("/repos/status", params={"threadId": "t"})
            gone = await gateway.get("/mcp/status", params={"threadId": "t"})
    assert (rejected.status_code, "ghp_1" in rejected.text) == (502, False)
    assert error_of(gone) == (502, "remote_unreachable")


async def test_a_gateway_that_leads_back_to_itself_does_not_forward_for_ever(tmp_path: Path) -> None:
    front = FastAPI()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front)) as http:
        add_ambient_endpoints(front, RemoteBridge("http://127.0.0.1:8000/", client=http), settings=GATEWAY)
        async with client_of(front) as gateway:
            answer = await gateway.get("/repos/status", params={"threadId": "t"})
    assert error_of(answer) == (508, "agent_loop")
