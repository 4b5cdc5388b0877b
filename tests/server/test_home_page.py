"""`GET /` of `ambient serve`: a page for browsers, and nothing else for other clients."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx
import pytest

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def client(*names: str) -> httpx.AsyncClient:
    app = create_app(Settings(store="memory://"), {name: DemoBridge() for name in names})
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")


async def test_a_browser_gets_a_page_with_each_agent_and_its_address() -> None:
    async with client("demo", "other") as browser:
        page = await browser.get("/", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for text in ("POST http://127.0.0.1:8000/<", "POST http://127.0.0.1:8000/agents/other<", "curl -N"):
        assert text in page.text


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "TEXT/HTML",
        "text/html;q=0.1, application/json",
        "application/json, text/html; charset=utf-8; Q=0.5",
        "text/*",
        "text/plain;q=0, Text/* ;q=0.3",
        "*/*;q=0, text/html",
        "text/html;level=1;q=0, text/html",
    ],
)
async def test_a_request_that_accepts_html_gets_the_page(accept: str) -> None:
    async with client("demo") as browser:
        page = await browser.get("/", headers={"Accept": accept})
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "text/event-stream",
        "text/html;q=0",
        "text/html; Q=0.000",
        "text/htmlx",
        "application/text/html",
        "text/html;q=0, text/*",
        "text/html;q=0, */*",
        "text/*;q=0, */*",
        "text/html;q=high",
        "text/html;q=nan",
        ";,=,/",
    ],
)
async def test_a_client_that_does_not_ask_for_html_is_referred_to_post(accept: str) -> None:
    async with client("demo") as other:
        answer = await other.get("/", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["allow"], answer.json()["error"]["code"]) == (
        405,
        "GET, HEAD, POST",
        "method_not_allowed",
    )


async def test_all_accept_headers_of_a_request_count() -> None:
    async with client("demo") as browser:
        page = await browser.get("/", headers=[("Accept", "application/json"), ("Accept", "text/html")])
    assert page.status_code == 200


@pytest.mark.parametrize("accept", ["text/html", "*/*"])
async def test_head_is_answered_as_get(accept: str) -> None:
    async with client("demo") as browser:
        page = await browser.get("/", headers={"Accept": accept})
        head = await browser.head("/", headers={"Accept": accept})
    assert (head.status_code, head.headers) == (page.status_code, page.headers)


async def test_caches_keep_the_page_apart_from_the_other_answer() -> None:
    app = create_app(Settings(store="memory://", allowed_origins=("http://localhost:5173",)), {"demo": DemoBridge()})
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as browser:
        page = await browser.get("/", headers=HTML)
        other = await browser.get("/", headers={"Accept": "*/*"})
        of_listed_origin = await browser.get("/", headers={**HTML, "Origin": "http://localhost:5173"})
    assert (page.headers["vary"], other.headers["vary"]) == ("Accept", "Accept")
    assert of_listed_origin.headers["vary"] == "Accept, Origin"


async def test_the_page_may_load_and_run_nothing_but_its_own_style() -> None:
    async with client("demo") as browser:
        page = await browser.get("/", headers=HTML)
    [style] = re.findall("<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert page.headers["content-security-policy"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/", "GET, HEAD, POST"),
        ("PUT", "/", "GET, HEAD, POST"),
        ("PUT", "/health", "GET, HEAD"),
        ("PUT", "/thread/t1", "PATCH, DELETE"),
    ],
)
async def test_allow_lists_every_method_of_the_path(method: str, path: str, allowed: str) -> None:
    async with client("demo") as other:
        answer = await other.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_the_page_is_guarded_as_every_route_is() -> None:
    async with client("demo") as foreign:
        answer = await foreign.get("/", headers={**HTML, "Host": "evil.example"})
    assert answer.status_code == 403
