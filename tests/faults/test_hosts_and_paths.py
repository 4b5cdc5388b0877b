"""M13: a path that only resembles a known one is refused, and a server answers nothing for the host name of another."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI, Request

from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import Settings
from ambient_runner.runs.run import Actor
from ambient_runner.server.app import add_ambient_endpoints
from tests.server.demo_server import client_of, demo, error_of, run_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx

SETTINGS = Settings(store="memory://")
FOREIGN = {"Host": "rebound.example"}
LOCAL = {"Host": "127.0.0.1:8000"}

ID_PATHS = [
    ("GET", "/threads/t/events?until=idle"),
    ("GET", "/threads/t/runs"),
    ("GET", "/message_snapshot/t"),
    ("GET", "/state_snapshot/t"),
    ("PATCH", "/thread/t"),
    ("PATCH", "/state/t"),
    ("GET", "/copilotkit/threads/t/messages"),
    ("DELETE", "/thread/t"),
]


def accept_everyone(request: Request) -> Actor:
    return Actor()


@asynccontextmanager
async def embedded(settings: Settings = SETTINGS, *, is_private: bool = False) -> AsyncGenerator[httpx.AsyncClient]:
    """An app of someone else, with a route of its own."""
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=settings, authorize=accept_everyone if is_private else None)

    @app.get("/own")
    async def answer_own() -> str:  # pyright: ignore[reportUnusedFunction]
        return "own"

    async with client_of(app) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), ID_PATHS)
async def test_m13_an_id_with_a_line_feed_is_not_the_id_without_it(method: str, path: str) -> None:
    async with demo() as client:
        assert (await client.post("/", json=run_body("hello"))).status_code == 200
        route, mark, query = path.partition("?")
        response = await client.request(method, f"{route}%0A{mark}{query}", json={"title": "changed"})
        assert error_of(response) == (404, "not_found")
        listed = (await client.get("/thread/list")).json()["threads"]
    assert [(each["threadId"], each["title"]) for each in listed] == [("t", "hello")]


@pytest.mark.parametrize("path", ["/health%0A", "/openapi.json%0A", "/thread/list%0A"])
async def test_m13_a_route_with_a_line_feed_is_no_route(path: str) -> None:
    async with demo() as client:
        assert error_of(await client.get(path)) == (404, "not_found")


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/openapi.json", "/docs", "/metrics", "/nothing"])
async def test_m13_a_server_of_ours_answers_no_request_for_another_host(path: str) -> None:
    """A page of another site can make its own name resolve to this machine, and could read all that answers any name."""
    async with demo() as client:
        assert error_of(await client.get(path, headers=FOREIGN)) == (403, "forbidden")


@pytest.mark.parametrize("path", ["/health", "/ready", "/openapi.json"])
async def test_m13_the_same_paths_answer_for_this_machine(path: str) -> None:
    async with demo() as client:
        assert (await client.get(path, headers=LOCAL)).status_code == 200


async def test_m13_a_preflight_request_for_another_host_is_refused() -> None:
    asked = {"Origin": "http://localhost:5173", "Access-Control-Request-Method": "POST"}
    for serve in (demo, embedded):
        async with serve() as client:
            assert (await client.options("/", headers={**asked, **LOCAL})).status_code == 204
            assert error_of(await client.options("/", headers={**asked, **FOREIGN})) == (403, "forbidden")


async def test_m13_in_another_app_only_our_routes_check_the_host() -> None:
    async with embedded() as client:
        found = [
            (await client.get(path, headers=FOREIGN)).status_code for path in ("/health", "/ready", "/own", "/docs")
        ]
    assert found == [403, 403, 200, 200]


async def test_m13_an_app_with_authorization_answers_health_checks_for_any_host_unless_hosts_are_named() -> None:
    async with embedded(is_private=True) as client:
        assert (await client.get("/health", headers=FOREIGN)).status_code == 200
    async with embedded(Settings(store="memory://", allowed_hosts=("ours.example",)), is_private=True) as client:
        statuses = [(await client.get("/health", headers={"Host": host})).status_code for host in ("ours.example", "x")]
    assert statuses == [200, 403]
