"""`DirectRoutes` calls the route that the router would choose, as the router would."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Scope

from ambient_runner import add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import UnknownThread
from ambient_runner.server.direct_routes import DirectRoutes
from ambient_runner.server.error_responses import AmbientRoute, JsonResponse
from tests.server.demo_server import SETTINGS, client_of, error_of, run_body

METHODS = st.sampled_from(["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS", "post"])
WORDS = (
    "threads thread list events runs agents demo tools health ready capabilities metrics interrupt feedback copilotkit agent run connect "
    "suggest stop info archive messages state annotate message_snapshot state_snapshot openapi.json"
)
SEGMENTS = st.sampled_from(WORDS.split())
NAMES = st.text(max_size=3) | SEGMENTS | st.lists(SEGMENTS, max_size=3).map("/".join)
PATHS = st.one_of(
    st.lists(SEGMENTS | st.text(max_size=3), max_size=6).map(lambda parts: "/" + "/".join(parts)),
    NAMES.map("/agents/{}".format),
    NAMES.map("/threads/{}/events".format),
    NAMES.map("/thread/{}".format),
    NAMES.map("/copilotkit/threads/{}/messages".format),
)
ROOTS = st.sampled_from(["", "", "", "/threads", "/agents"])


async def describe_match(
    route: AmbientRoute, handle: Callable[[Request], Awaitable[Response]], request: Request
) -> Response:
    """Return what was matched instead of the response of the endpoint."""
    params = handle.keywords if isinstance(handle, partial) else request.path_params
    return JsonResponse({"path": route.path, "name": route.name, "params": params})


@pytest.fixture(scope="module")
def matching_app() -> FastAPI:
    """An app whose routes answer with what was matched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AmbientRoute, "call_handler", describe_match)
        app = create_app(SETTINGS, {"demo": DemoBridge()})
        app.router.redirect_slashes = False
        return app


def scope_of(app: FastAPI, method: str, path: str, root_path: str = "", **more: Any) -> Scope:
    scope = {"type": "http", "method": method, "path": path, "root_path": root_path, "headers": [], "query_string": b""}
    return {**scope, "app": app, "scheme": "http", "server": ("127.0.0.1", 80), **more}


async def respond(app: Any, scope: Scope) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        raise NotImplementedError

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def direct_routes_of(app: FastAPI) -> tuple[Any, DirectRoutes]:
    """Return the app without `DirectRoutes`, and `DirectRoutes` in front of it."""
    added, app.user_middleware = app.user_middleware, []
    inner = app.build_middleware_stack()
    app.user_middleware = added
    dispatch = DirectRoutes(inner, served=app, routes=app.router.routes)
    return inner, dispatch


@given(method=METHODS, path=PATHS, root=ROOTS)
async def test_a_request_reaches_the_route_that_the_router_chooses(
    matching_app: FastAPI, method: str, path: str, root: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AmbientRoute, "call_handler", describe_match)
        inner, dispatch = direct_routes_of(matching_app)
        directly = await respond(dispatch, scope_of(matching_app, method, path, root))
        by_router = await respond(inner, scope_of(matching_app, method, path, root))
    assert directly == by_router


async def test_the_run_routes_do_not_pass_the_router(matching_app: FastAPI) -> None:
    async def fail(scope: Scope, receive: Any, send: Any) -> None:
        raise AssertionError(scope["path"])

    dispatch = DirectRoutes(fail, served=matching_app, routes=matching_app.router.routes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AmbientRoute, "call_handler", describe_match)
        for path, params in {"/": {}, "/agents/demo": {"name": "demo"}}.items():
            scope = scope_of(matching_app, "POST", path)
            _, body = await respond(dispatch, scope)
            assert json.loads(body["body"])["params"] == scope["path_params"] == params
            assert scope["route"].endpoint == scope["endpoint"]


@pytest.mark.parametrize(
    "more", [{"root_path": "/api"}, {"fastapi.telemetry": None}, {"path_params": {"tenant": "acme"}}]
)
async def test_mounted_and_traced_requests_are_left_to_the_router(matching_app: FastAPI, more: dict[str, Any]) -> None:
    passed: list[Scope] = []

    async def router(scope: Scope, receive: Any, send: Any) -> None:
        passed.append(scope)

    scope = {**scope_of(matching_app, "POST", "/"), **more}
    await respond(DirectRoutes(router, served=matching_app, routes=matching_app.router.routes), scope)
    assert passed == [scope]


async def test_a_route_that_is_added_later_takes_part() -> None:
    app = create_app(SETTINGS, {"demo": DemoBridge()})
    async with client_of(app) as client:
        assert (await client.get("/health")).json() != "mine"
        app.add_api_route("/health", lambda: "mine")
        assert (await client.get("/health")).json() == "mine"


async def test_a_route_inserted_before_ours_is_first() -> None:
    app = create_app(SETTINGS, {"demo": DemoBridge()})
    own = APIRouter()
    own.add_api_route("/", lambda: "mine", methods=["POST"])
    app.include_router(own)
    app.router.routes.insert(0, app.router.routes.pop())
    async with client_of(app) as client:
        assert (await client.post("/", json=run_body("say hi"))).json() == "mine"


async def test_a_route_that_is_added_later_to_a_router_of_the_app_takes_part() -> None:
    app, own = create_app(SETTINGS, {"demo": DemoBridge()}), APIRouter()
    app.include_router(own)
    app.router.routes.insert(0, app.router.routes.pop())
    async with client_of(app) as client:
        assert (await client.get("/health")).json() != "mine"
        own.add_api_route("/health", lambda: "mine")
        assert (await client.get("/health")).json() == "mine"


def deny() -> None:
    raise HTTPException(401, "no")


@pytest.mark.parametrize("included", ["endpoints", "router", "later"])
async def test_dependencies_of_endpoints_that_are_added_to_the_app_are_called(included: str) -> None:
    """They were skipped: a dependency that authorizes let everybody in."""
    app, denied = create_app(SETTINGS, {"demo": DemoBridge()}), [Depends(deny)]
    more: dict[str, Any] = {"agents": {"x": DemoBridge()}, "settings": SETTINGS}
    if included == "endpoints":
        add_ambient_endpoints(app, prefix="/admin", dependencies=denied, **more)
    else:
        router = APIRouter(dependencies=denied if included == "router" else None)
        add_ambient_endpoints(router, **more)
        app.include_router(router, prefix="/admin", dependencies=denied if included == "later" else None)
    async with client_of(app) as client:
        assert (await client.post("/admin/agents/x", json=run_body("say hi"))).status_code == 401
        assert (await client.get("/admin/thread/list")).status_code == 401
        assert (await client.get("/thread/list")).status_code == 200


async def test_errors_of_an_endpoint_are_answered() -> None:
    app = create_app(SETTINGS, {"demo": DemoBridge()})
    async with client_of(app) as client:
        assert error_of(await client.get("/threads/none/events")) == (UnknownThread.status, UnknownThread.code)
        assert error_of(await client.post("/agents/none", json=run_body("say hi"))) == (404, "unknown_agent")
        assert error_of(await client.get("/agents/demo")) == (405, "method_not_allowed")
