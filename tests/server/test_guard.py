from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.testclient import TestClient

from ambient_runner import Actor, Settings, add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from tests.server.demo_server import SETTINGS, client_of, demo, run_body


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost."},
        {"Host": "evil@127.0.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.com"},
        {"Origin": "http://evil.com/localhost"},
        {"Origin": "http://localhost@evil.com"},
        {"Origin": "file://localhost"},
        {"Host": "testserver"},
        {"X-Forwarded-For": "1.2.3.4"},
        {"Forwarded": "for=1.2.3.4"},
    ],
    ids=str,
)
async def test_strangers_are_refused(headers: dict[str, str]) -> None:
    async with demo() as client:
        response = await client.post("/", json=run_body("say hi"), headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("headers", "setting"),
    [
        ({"Origin": "https://app.example.com"}, "AMBIENT_ALLOWED_ORIGINS"),
        ({"Host": "agents.example.com"}, "AMBIENT_ALLOWED_HOSTS"),
    ],
    ids=str,
)
async def test_a_refusal_names_the_setting_that_would_allow_it(headers: dict[str, str], setting: str) -> None:
    async with demo() as client:
        message = (await client.post("/", json=run_body("say hi"), headers=headers)).json()["error"]["message"]
    assert setting in message
    assert "ambient.toml" in message


async def test_a_peer_on_another_machine_is_refused() -> None:
    app = create_app(SETTINGS, {"demo": DemoBridge()})
    async with client_of(app, client=("10.0.0.9", 1)) as client:
        response = await client.get("/thread/list")
    assert response.status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8000", "127.0.0.1:8000"])
async def test_every_loopback_name_is_served(host: str) -> None:
    async with demo() as client:
        assert (await client.get("/thread/list", headers={"Host": host})).status_code == 200


async def test_a_listed_origin_may_read_and_others_may_not() -> None:
    settings = Settings(store="memory://", allowed_origins=("http://localhost:5173",))
    async with client_of(create_app(settings, {"demo": DemoBridge()})) as client:
        headers = {"Origin": "http://localhost:5173"}
        preflight = await client.options("/", headers=headers)
        run = await client.post("/", json=run_body("say hi"), headers=headers)
        stranger = await client.options("/", headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 204
    assert run.headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "access-control-allow-credentials" not in run.headers
    assert "access-control-allow-origin" not in stranger.headers


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1:3000", "http://[::1]:8080"])
async def test_pages_of_this_machine_may_use_a_server_without_authorization(origin: str) -> None:
    """Development servers such as Vite and Next.js serve the page on another port."""
    async with demo() as client:
        preflight = await client.options("/", headers={"Origin": origin})
        run = await client.post("/", json=run_body("say hi"), headers={"Origin": origin})
    assert (preflight.status_code, run.status_code) == (204, 200)
    assert run.headers["access-control-allow-origin"] == origin


async def test_with_authorization_pages_of_this_machine_have_to_be_listed() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, authorize=by_header)
    async with client_of(app) as client:
        headers = {"Origin": "http://localhost:5173", "x-user": "alice"}
        preflight = await client.options("/", headers=headers)
        run = await client.post("/", json=run_body("say hi"), headers=headers)
    assert (preflight.status_code, run.status_code) == (405, 403)


async def test_cors_leaves_the_other_routes_of_an_app_alone() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)

    @app.get("/mine")
    async def mine() -> str:
        return "mine"

    async with client_of(app) as client:
        response = await client.get("/mine", headers={"Origin": "http://localhost:5173"})
    assert (response.status_code, "access-control-allow-origin" in response.headers) == (200, False)


@pytest.mark.parametrize("prefix", ["", "/chat"])
async def test_pages_may_use_an_app_that_is_mounted_in_another(prefix: str) -> None:
    """The path of a mounted app's request begins with that of the mount."""
    inner, app = FastAPI(), FastAPI()
    add_ambient_endpoints(inner, DemoBridge(), settings=SETTINGS, prefix=prefix)
    app.mount("/api", inner)
    headers, url = {"Origin": "http://localhost:5173"}, f"/api{prefix}/"
    async with inner.router.lifespan_context(inner), client_of(app) as client:
        preflight = await client.options(url, headers=headers)
        run = await client.post(url, json=run_body("say hi"), headers=headers)
    assert (preflight.status_code, run.status_code) == (204, 200)
    assert run.headers["access-control-allow-origin"] == headers["Origin"]


@pytest.mark.parametrize("path", ["/", "/api/"])
async def test_pages_may_use_an_app_behind_a_proxy_with_a_path_of_its_own(path: str) -> None:
    """A proxy may remove the path before it forwards a request, or leave it."""
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    async with client_of(app, root_path="/api") as client:
        preflight = await client.options(path, headers={"Origin": "http://localhost:5173"})
    assert preflight.status_code == 204


PAGE, STRANGER = "https://page.example", "https://stranger.example"


def app_with_cors(is_first: bool, add: Callable[[FastAPI], object]) -> FastAPI:
    """An app with a CORSMiddleware of its own, added before or after our routes."""
    app = FastAPI()
    steps = [
        lambda: app.add_middleware(CORSMiddleware, allow_origins=[PAGE], allow_credentials=True, allow_headers=["*"]),
        lambda: add(app),
    ]
    for step in steps if is_first else reversed(steps):
        step()
    return app


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("on_router", [True, False])
async def test_an_app_with_its_own_cors_middleware_decides_alone_if_cors_is_auto(
    is_first: bool, on_router: bool
) -> None:
    def add(app: FastAPI) -> None:
        target = APIRouter() if on_router else app
        add_ambient_endpoints(target, DemoBridge(), settings=SETTINGS, cors="auto")
        if isinstance(target, APIRouter):
            app.include_router(target)

    answers: dict[str, Any] = {}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-mine"}
    async with client_of(app_with_cors(is_first, add)) as client:
        for origin in (PAGE, "http://localhost:3000"):
            run = await client.post("/", json=run_body("say hi", message=origin), headers={"Origin": origin})
            preflight = await client.options("/", headers={"Origin": origin, **asked})
            answers[origin] = [
                run.status_code,
                run.headers.get("access-control-allow-origin"),
                preflight.headers.get("access-control-allow-origin"),
                preflight.headers.get("access-control-allow-headers"),
                run.headers.get_list("access-control-allow-credentials"),
            ]
    assert answers[PAGE] == [200, PAGE, PAGE, "x-mine", ["true"]]
    assert answers["http://localhost:3000"][:3] == [200, None, None]


async def test_without_a_cors_middleware_auto_is_our_own_rule() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, cors="auto")
    async with client_of(app) as client:
        local = await client.options("/", headers={"Origin": "http://localhost:3000"})
        refused = await client.post("/", json=run_body("say hi"), headers={"Origin": STRANGER})
    assert (local.status_code, refused.status_code) == (204, 403)


async def test_without_cors_headers_origins_are_still_checked() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, cors_headers=None)
    async with client_of(app) as client:
        local = await client.options("/", headers={"Origin": "http://localhost:3000"})
        refused = await client.post("/", json=run_body("say hi"), headers={"Origin": STRANGER})
    assert "access-control-allow-origin" not in local.headers
    assert refused.status_code == 403


def test_fastapis_test_client_is_served() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    with TestClient(app) as client:
        response = client.post("/", json=run_body("say hi"))
        other_host = client.get("/thread/list", headers={"Host": "evil.example"})
    assert (response.status_code, other_host.status_code) == (200, 403)
    assert "RUN_FINISHED" in response.text


@pytest.mark.parametrize("prefix", ["", "/chat"])
async def test_the_routes_can_be_added_to_a_router(prefix: str) -> None:
    router = APIRouter()
    add_ambient_endpoints(router, DemoBridge(), settings=SETTINGS, prefix=prefix)
    app = FastAPI()
    app.include_router(router, prefix="/api")
    async with client_of(app) as client:
        response = await client.post(f"/api{prefix}/", json=run_body("say hi"))
    assert response.status_code == 200
    assert "RUN_FINISHED" in response.text


async def test_a_page_may_send_the_headers_that_agents_may_see() -> None:
    settings = Settings(store="memory://", allowed_origins=("http://localhost:5173",), pass_headers=("x-tenant",))
    async with client_of(create_app(settings, {"demo": DemoBridge()})) as client:
        preflight = await client.options("/", headers={"Origin": "http://localhost:5173"})
    allowed = preflight.headers["access-control-allow-headers"].lower().split(", ")
    assert {"content-type", "traceparent", "x-tenant"} <= set(allowed)


def by_header(request: Request) -> Actor | None:
    name = request.headers.get("x-user")
    return Actor(owner=name) if name else None


async def test_with_authorization_threads_belong_to_their_owner() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, authorize=by_header)
    async with client_of(app) as client:
        alice, bob = {"x-user": "alice"}, {"x-user": "bob"}
        await client.post("/", json=run_body("say hi"), headers=alice)
        reads = [
            (await client.request(method, path, headers=bob, json=[] if method == "PATCH" else None)).status_code
            for method, path in (
                ("GET", "/message_snapshot/t"),
                ("GET", "/state_snapshot/t"),
                ("GET", "/threads/t/events"),
                ("PATCH", "/state/t"),
                ("DELETE", "/thread/t"),
            )
        ]
        mine = await client.get("/message_snapshot/t", headers=alice)
        nobody = await client.get("/thread/list")
    assert reads == [404] * 5
    assert (mine.status_code, nobody.status_code) == (200, 401)


@pytest.mark.parametrize("answer", ["alice", Actor(owner=""), 5])
async def test_an_authorization_function_that_returns_nonsense_denies_every_request(answer: Any) -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, authorize=lambda request: answer)
    async with client_of(app) as client:
        assert (await client.get("/thread/list")).status_code == 500


async def test_a_failing_authorization_function_is_a_500_without_its_text() -> None:
    def failing(request: Request) -> Actor:
        raise ConnectionError("ldap://secret-host")

    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, authorize=failing)
    async with client_of(app) as client:
        response = await client.get("/thread/list")
    assert response.status_code == 500
    assert "secret-host" not in response.text
