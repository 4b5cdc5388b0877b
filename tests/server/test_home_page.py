"""`GET /` of `ambient serve`: a page for browsers, and nothing else for other clients."""

from __future__ import annotations

import httpx

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


async def test_a_client_that_accepts_no_html_is_referred_to_post() -> None:
    async with client("demo") as other:
        answer = await other.get("/", headers={"Accept": "application/json"})
    assert (answer.status_code, answer.headers["allow"], answer.json()["error"]["code"]) == (
        405,
        "POST",
        "method_not_allowed",
    )


async def test_the_page_is_guarded_as_every_route_is() -> None:
    async with client("demo") as foreign:
        answer = await foreign.get("/", headers={**HTML, "Host": "evil.example"})
    assert answer.status_code == 403
