from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from ambient_runner import add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import ConfigError
from tests.server.demo_server import SETTINGS, client_of, run_body


def test_a_server_needs_an_agent() -> None:
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), settings=SETTINGS)
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), agents={}, settings=SETTINGS)
    with pytest.raises(ConfigError):
        create_app(SETTINGS, {})


def test_only_one_agent_can_be_called_default() -> None:
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), DemoBridge(), agents={"default": DemoBridge()}, settings=SETTINGS)


def test_a_refused_configuration_adds_no_routes() -> None:
    app = FastAPI()
    before = len(app.routes)
    with pytest.raises(ConfigError):
        add_ambient_endpoints(app, agents={"not a name": DemoBridge()}, settings=SETTINGS)
    with pytest.raises(ConfigError):
        add_ambient_endpoints(app, settings=SETTINGS)
    assert len(app.routes) == before


async def test_a_bridge_and_named_agents_live_side_by_side_under_a_prefix() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), agents={"other": DemoBridge()}, prefix="/ai", settings=SETTINGS)
    async with client_of(app) as client:
        answers = [
            await client.post(path, json=run_body("say hi", thread=path))
            for path in ("/ai/", "/ai/agents/default", "/ai/agents/other", "/")
        ]
        capabilities = (await client.get("/ai/capabilities")).json()
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404]
    assert list(capabilities["agents"]) == ["default", "other"]


OWN_PATHS = [
    *(("GET", path) for path in ("/health", "/capabilities", "/message_snapshot/{key:path}", "/state_snapshot/mine")),
    *(("POST", path) for path in ("/interrupt", "/feedback")),
]


def add_own_routes(app: FastAPI | APIRouter) -> None:
    for method, path in OWN_PATHS:
        app.add_api_route(path, lambda: {"is_own": True}, methods=[method])


def served_app() -> FastAPI:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    add_own_routes(app)
    return app


def served_under_a_prefix() -> FastAPI:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), prefix="/api", settings=SETTINGS)
    own = APIRouter(prefix="/api")
    add_own_routes(own)
    app.include_router(own)
    return app


def served_router() -> FastAPI:
    app, router = FastAPI(), APIRouter(prefix="/{tenant}")
    add_ambient_endpoints(router, DemoBridge(), settings=SETTINGS)
    add_own_routes(router)
    app.include_router(router)
    return app


@pytest.mark.parametrize(
    ("create", "prefix"), [(served_app, ""), (served_under_a_prefix, "/api"), (served_router, "/acme")]
)
async def test_routes_that_the_app_adds_later_take_precedence_over_ours(create: Any, prefix: str) -> None:
    """An app at path `/` once never reached its own `GET /health`."""
    async with client_of(create()) as client:
        answers = [
            await client.request(method, prefix + path.replace("{key:path}", "a"), json={})
            for method, path in OWN_PATHS
        ]
        started = await client.post(f"{prefix}/", json=run_body("hi"))
        ready = await client.get(f"{prefix}/ready")
    assert [answer.json() for answer in answers] == [{"is_own": True}] * len(OWN_PATHS)
    assert started.headers["content-type"].startswith("text/event-stream")
    assert ready.json() == {"status": "ready"}


async def test_more_general_routes_of_the_app_do_not_take_precedence_over_ours() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    app.add_api_route("/{page}", lambda page: {"page": page})
    app.add_api_route("/{path:path}", lambda path: {"path": path})
    app.router.routes.append(Mount("/", PlainTextResponse("static")))
    async with client_of(app) as client:
        assert (await client.get("/health")).json() == {"status": "healthy"}
        assert (await client.get("/about")).json() == {"page": "about"}
        assert (await client.get("/about/us")).json() == {"path": "about/us"}
        assert (await client.get("/message_snapshot/unknown")).status_code == 404


def test_the_openapi_document_describes_the_route_of_the_app() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)

    @app.get("/health", summary="My own")
    def check() -> None: ...

    assert app.openapi()["paths"]["/health"]["get"]["summary"] == "My own"
    assert "post" in app.openapi()["paths"]["/interrupt"]
