"""The routes of CopilotKit's runtime: what they share, and the single route."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from ambient_runner import Actor, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from tests.server.demo_server import SETTINGS, client_of, demo, frames
from tests.server.routes.test_copilotkit_runs import body, suggestion_body, thread_ids

SINGLE = "/copilotkit"
ENDPOINTS = {"list": True, "inspect": True, "mutations": True, "realtimeMetadata": False}


def refusal(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, which has CopilotKit's shape."""
    answer = response.json()
    assert answer.keys() == {"error", "message"}
    assert isinstance(answer["message"], str)
    return response.status_code, answer["error"]


def call(method: str, content: Any = None, **params: str) -> dict[str, Any]:
    return {"method": method, "params": params, **({} if content is None else {"body": content})}


def resource(method: str, path: str, content: Any = None) -> dict[str, Any]:
    return call("resource/request", content, path=path, httpMethod=method)


async def test_the_runtime_lists_each_agent_and_the_default() -> None:
    async with demo() as client:
        info = (await client.get("/copilotkit/info")).json()
        capabilities = (await client.get("/capabilities")).json()["agents"]
        assert (await client.post(SINGLE, json={"method": "info"})).json() == info
        assert (await client.post(f"{SINGLE}/", json={"method": "info"})).json() == info
    described = {"description": "", "className": "AmbientAgent"}
    assert info == {
        "version": "1.75.0",
        "mode": "sse",
        "agents": {
            "default": {"name": "default", **described, "capabilities": capabilities["demo"]},
            "demo": {"name": "demo", **described, "capabilities": capabilities["demo"]},
            "other": {"name": "other", **described, "capabilities": capabilities["other"]},
        },
        "threadEndpoints": ENDPOINTS,
        "singleRoute": {"resourceOperations": True, "threadEndpoints": ENDPOINTS},
        "suggestions": True,
        "audioFileTranscriptionEnabled": False,
        "a2uiEnabled": False,
        "openGenerativeUIEnabled": False,
        "telemetryDisabled": True,
    }


async def test_refusals_have_the_shape_that_the_client_prints() -> None:
    foreign = {"origin": "https://evil.example"}
    async with demo(dataclasses.replace(SETTINGS, max_body=2000)) as client:
        for action in ("run", "connect", "suggest"):
            path = f"/copilotkit/agent/nobody/{action}"
            assert refusal(await client.post(path, json=body("say hi"))) == (404, "unknown_agent")
            path = f"/copilotkit/agent/default/{action}"
            assert refusal(await client.post(path, content=b"{}")) == (415, "wrong_type")
            assert refusal(await client.post(path, json=body("x" * 2000))) == (413, "too_large")
            assert refusal(await client.post(path, json=body("hi"), headers=foreign)) == (403, "forbidden")
        stop = "/copilotkit/agent/{}/stop/t"
        assert refusal(await client.post(stop.format("nobody"))) == (404, "unknown_agent")
        assert refusal(await client.post(stop.format("default"), json={"runId": 1})) == (422, "invalid_input")
        assert await thread_ids(client) == []


@pytest.mark.parametrize("agent", ["%00", "a%0Ab", "%F0%9F%8D%B5", "..", "a b", "%", "de'fault\"", "x" * 5000, "{}"])
async def test_an_odd_agent_id_is_an_unknown_one(agent: str) -> None:
    async with demo() as client:
        answer = await client.post(f"/copilotkit/agent/{agent}/connect", json=body())
    assert answer.status_code == 404


async def test_both_transports_refuse_a_stranger_in_the_same_words() -> None:
    def who(request: Request) -> Actor | None:
        return Actor(owner=request.headers["x-user"]) if "x-user" in request.headers else None

    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, authorize=who)
    async with client_of(app) as client:
        info = await client.get("/copilotkit/info")
        single = await client.post(SINGLE, json={"method": "info"})
        assert refusal(info) == refusal(single) == (401, "unauthorized")
        assert info.content == single.content
        # Nothing of a stranger's body is read.
        assert refusal(await client.post(SINGLE, content=b"nonsense")) == (401, "unauthorized")
        assert (await client.get("/copilotkit/info", headers={"x-user": "ann"})).status_code == 200


async def test_every_method_of_the_single_route_answers_as_its_own_route() -> None:
    async with demo() as client:

        async def single(envelope: dict[str, Any]) -> httpx.Response:
            return await client.post(SINGLE, json=envelope)

        run = await single(call("agent/run", body("weather Oslo"), agentId="default"))
        assert frames(run)[-1][1]["type"] == "RUN_FINISHED"
        agent = "/copilotkit/agent/default"
        connected = await single(call("agent/connect", body(), agentId="demo"))
        assert connected.content == (await client.post(f"{agent}/connect", json=body())).content
        asked = await single(call("agent/suggest", suggestion_body(), agentId="default"))
        assert asked.content == (await client.post(f"{agent}/suggest", json=suggestion_body())).content
        stopped = await single(call("agent/stop", agentId="default", threadId="t"))
        assert stopped.json() == (await client.post(f"{agent}/stop/t")).json()
        for path in ("/threads?agentId=default", "/threads/t/messages", "/threads/t/events", "/threads/t/state"):
            assert (await single(resource("GET", path))).json() == (await client.get(f"/copilotkit{path}")).json()
        renamed = await single(resource("PATCH", "/threads/t", {"agentId": "default", "name": "Oslo"}))
        assert (renamed.json()["name"], renamed.json()["agentId"]) == ("Oslo", "default")
        archived = await single(resource("POST", "/threads/t/archive", {"agentId": "default"}))
        assert archived.json() == {"threadId": "t", "archived": True}
        message = frames(connected)[1][1]["messages"][-1]["id"]
        feedback = {"type": "feedback", "threadId": "t", "clientEventId": "e"}
        payload = {"messageId": message, "value": "thumbs_up"}
        annotated = await single(resource("POST", "/annotate", {**feedback, "payload": payload}))
        assert annotated.json() == {"id": "e", "duplicate": False}
        deleted = await single(resource("delete", "/threads/t"))
        assert deleted.json() == {"threadId": "t", "deleted": True}


@pytest.mark.parametrize(
    "envelope",
    [
        [],
        {"method": "agent/erase", "params": {"agentId": "default"}, "body": body("say hi")},
        {"method": "agent/run", "body": body("say hi")},
        {"method": "agent/run", "params": {"agentId": 1}, "body": body("say hi")},
        {"method": "agent/stop", "params": {"agentId": "default"}},
        resource("POST", "/agent/default/run", body("say hi")),
        resource("POST", "/threads/../agent/default/run", body("say hi")),
        resource("POST", "http://127.0.0.1:8000/annotate", {}),
        resource("POST", "//evil.example/annotate", {}),
        {"method": "resource/request", "params": {"path": "/threads"}},
    ],
)
async def test_the_single_route_dispatches_nothing_that_it_does_not_know(envelope: Any) -> None:
    async with demo() as client:
        assert refusal(await client.post(SINGLE, json=envelope)) == (400, "invalid_method")
        assert await thread_ids(client) == []


async def test_an_unknown_operation_on_threads_is_not_found() -> None:
    async with demo() as client:
        for method, path in (("POST", "/threads/subscribe"), ("GET", "/threads/t"), ("PUT", "/annotate")):
            assert refusal(await client.post(SINGLE, json=resource(method, path))) == (404, "not_found")


async def test_the_single_route_refuses_as_the_routes_do() -> None:
    async with demo() as client:
        for envelope, path in (
            (call("agent/run", body("hi"), agentId="nobody"), "agent/nobody/run"),
            (call("agent/run", {"threadId": "t"}, agentId="default"), "agent/default/run"),
        ):
            single = await client.post(SINGLE, json=envelope)
            routed = await client.post(f"/copilotkit/{path}", json=envelope["body"])
            assert (single.status_code, single.content) == (routed.status_code, routed.content)
        missing = await client.post(SINGLE, json=call("agent/run", agentId="default"))
        assert refusal(missing) == (422, "invalid_input")


async def test_the_routes_are_below_the_prefix_of_an_app() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS, prefix="/chat")
    async with client_of(app) as client:
        assert (await client.get("/chat/copilotkit/info")).json()["agents"].keys() == {"default"}
        run = await client.post("/chat/copilotkit/agent/default/run", json=body("say hi"))
        assert frames(run)[-1][1]["type"] == "RUN_FINISHED"
        single = await client.post("/chat/copilotkit", json=resource("GET", "/threads"))
        assert [row["id"] for row in single.json()["threads"]] == ["t"]
        assert (await client.get("/copilotkit/info")).status_code == 404


async def test_a_route_of_the_app_at_the_same_path_wins() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)

    @app.post("/copilotkit")
    async def own() -> str:
        return "own"

    async with client_of(app) as client:
        assert (await client.post("/copilotkit", json={"method": "info"})).json() == "own"


async def test_pages_of_an_allowed_origin_may_use_every_method() -> None:
    origin = "https://app.example.com"
    settings = dataclasses.replace(SETTINGS, allowed_origins=(origin,), pass_headers=("x-tenant",))
    async with demo(settings) as client:
        for path, method in (("threads/t", "PATCH"), ("threads/t", "DELETE"), ("agent/default/run", "POST")):
            headers = {"origin": origin, "access-control-request-method": method}
            answer = await client.options(f"/copilotkit/{path}", headers=headers)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, origin)
            assert method in answer.headers["access-control-allow-methods"]
            assert "x-tenant" in answer.headers["access-control-allow-headers"]
        run = await client.post("/copilotkit/agent/default/run", json=body("say hi"), headers={"origin": origin})
    assert run.headers["access-control-allow-origin"] == origin
