"""Gateways whose agents lead back to themselves: the run says so at once, instead of waiting for itself or starting runs without end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from ambient_runner import Actor, Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.config import AgentSettings
from ambient_runner.errors import ConfigError
from ambient_runner.runs.loop_detection import MAX_HOPS, VIA
from tests.bridges.remote.world import framed, fronting
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body
from tests.world import events_of, request, user

HERE = "http://127.0.0.1:8000"
OPEN = replace(SETTINGS, audience="open")
"""The server is its own gateway, and a gateway needs all of a run."""


@asynccontextmanager
async def gateway(
    paths: Mapping[str, str], settings: Settings = OPEN, **options: Any
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A server whose agents of these names are found at these paths of the same server; and a real one."""
    app = FastAPI()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as to_itself:
        agents = {name: RemoteBridge(HERE + path, client=to_itself) for name, path in paths.items()}
        add_ambient_endpoints(app, agents={**agents, "demo": DemoBridge()}, settings=settings, **options)
        async with client_of(app) as client:
            with unless_hung():
                yield client


async def by_header(request: Any) -> Actor:
    return Actor(owner="ann")


LOOPS = [{"a": "/agents/a"}, {"a": "/agents/b", "b": "/agents/a"}]


@pytest.mark.parametrize("options", [{}, {"authorize": by_header}], ids=["one thread", "a thread for each"])
@pytest.mark.parametrize("paths", LOOPS, ids=["itself", "two"])
async def test_an_agent_that_leads_back_to_itself_ends_with_an_error(
    paths: dict[str, str], options: dict[str, Any]
) -> None:
    async with gateway(paths, **options) as client:
        last = frames(await client.post("/agents/a", json=run_body("hi")))[-1][1]
        listed = (await client.get("/thread/list")).json()
    assert (last["type"], last["code"]) == ("RUN_ERROR", "agent_loop")
    assert "URL" in last["message"]
    assert len(listed["threads"]) <= MAX_HOPS + 1


async def test_a_gateway_may_ask_itself_for_another_agent_of_another_thread() -> None:
    async with gateway({"a": "/agents/demo"}, authorize=by_header) as client:
        last = frames(await client.post("/agents/a", json=run_body("hi")))[-1][1]
    assert last["type"] == "RUN_FINISHED"


async def test_a_gateway_refuses_a_server_that_shows_only_the_safe_part_of_its_runs() -> None:
    tables = (AgentSettings(name="a", audience="open"),)
    safe_demo = replace(SETTINGS, audience="safe", agents=tables)
    async with gateway({"a": "/agents/demo"}, safe_demo, authorize=by_header) as client:
        last = frames(await client.post("/agents/a", json=run_body("weather Lisbon")))[-1][1]
        listed = (await client.get("/thread/list")).json()
    assert (last["type"], last["code"]) == ("RUN_ERROR", "audience_not_open")
    assert "must set the audience of this agent to open" in last["message"]
    assert len(listed["threads"]) == 1  # nothing was started behind the gateway


async def test_a_run_that_has_come_through_many_servers_is_refused() -> None:
    async with gateway({}) as client:
        for hops, status in ((MAX_HOPS, 200), (MAX_HOPS + 1, 508)):
            via = ", ".join(f"run-{n}" for n in range(hops))
            answer = await client.post("/", json=run_body("hi", thread=f"t{hops}"), headers={VIA: via})
            assert answer.status_code == status
        assert error_of(answer) == (508, "agent_loop")


async def test_each_server_adds_its_run_to_those_that_wait() -> None:
    async with fronting(framed()) as thread:
        started = await thread.runner.start(request(user("u1"), via=("run-of-another",)))
        await events_of(thread.runner, started)
        [sent] = thread.upstream.requests
    assert sent.headers[VIA.lower()] == f"run-of-another, {started.run}"


def test_users_cannot_set_the_loop_detection_header() -> None:
    with pytest.raises(ConfigError):
        RemoteBridge("http://127.0.0.1:1/", headers={VIA.lower(): ""})
