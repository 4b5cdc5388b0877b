from __future__ import annotations

import pytest
from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from tests.server.demo_server import SETTINGS, client_of, run_body

AGENTS = {"demo": DemoBridge(), "other": DemoBridge()}
REFUSED: list[tuple[str, bytes, dict[str, str]]] = [
    ("/", b"{", {}),
    ("/", b"[]", {"Content-Type": "text/plain"}),
    ("/", b"{}", {"X-Ambient-On-Busy": "sometimes"}),
    ("/", b"{}", {"Origin": "https://elsewhere.example"}),
    ("/agents/other", b"{}", {}),
    ("/agents/nobody", b"{}", {}),
]


@pytest.mark.parametrize(("path", "body", "headers"), REFUSED)
async def test_a_refused_run_is_answered_as_by_the_router(path: str, body: bytes, headers: dict[str, str]) -> None:
    routed = FastAPI()
    add_ambient_endpoints(routed, agents=AGENTS, settings=SETTINGS)
    answers: list[tuple[int, str, str]] = []
    for app in (create_app(SETTINGS, AGENTS), routed):
        async with client_of(app) as client:
            answer = await client.post(path, content=body, headers={"Content-Type": "application/json", **headers})
        answers.append((answer.status_code, answer.headers["content-type"], answer.text))
    assert answers[0] == answers[1]
    assert answers[0][0] >= 400


async def test_the_agent_of_the_path_runs() -> None:
    app = create_app(SETTINGS, AGENTS)
    paths = ["/", "/agents/default", "/agents/demo", "/agents/other", "/agents/other/"]
    async with client_of(app) as client:
        for path in paths:
            assert (await client.post(path, json=run_body("say hi", thread=path))).status_code == 200
        threads = (await client.get("/thread/list")).json()["threads"]
    agents = {thread["threadId"]: thread["agent"] for thread in threads}
    assert agents == dict(zip(paths, ["demo", "demo", "demo", "other", "other"], strict=True))


async def test_another_host_is_refused_and_an_allowed_origin_gets_its_headers() -> None:
    async with client_of(create_app(SETTINGS, AGENTS)) as client:
        foreign = await client.post("/", json=run_body("say hi"), headers={"Host": "elsewhere.example"})
        page = await client.post("/", json=run_body("say hi"), headers={"Origin": "http://localhost:3000"})
    assert (foreign.status_code, page.status_code) == (403, 200)
    assert page.headers["access-control-allow-origin"] == "http://localhost:3000"


async def test_other_methods_and_the_schema_are_those_of_the_router() -> None:
    async with client_of(create_app(SETTINGS, AGENTS)) as client:
        refused = await client.put("/")
        schema = (await client.get("/openapi.json")).json()
    assert (refused.status_code, "POST" in refused.headers["allow"]) == (405, True)
    assert ["post" in schema["paths"][path] for path in ("/", "/agents/{name}")] == [True, True]
