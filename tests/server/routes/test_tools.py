"""`GET /tools` and `GET /agents/{name}/tools`: what an agent has, from its own schemas."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.bridges.toolkit import declare_tool
from ambient_runner.protocol.events import Tool
from ambient_runner.runs.run import current_run
from ambient_runner.server import platform
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.server.demo_server import SETTINGS, client_of, demo, error_of
from tests.server.worker import WorkerBridge
from tests.services.mcp_paths import MCP_SERVER
from tests.services.world import by_header, mcp_file, settings_of, tokens_of
from tests.services.world import server as worker_server

SECRET = "sk-verysecretvalue"
WEATHER = {
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Listing(PlatformBridge):
    """A bridge that lists tools and cannot run."""

    def __init__(self, *tools: Any) -> None:
        self.tools = tools
        self.contexts: list[PlatformContext] = []
        self.owners: list[str] = []

    def create_adapter(self, ctx: PlatformContext) -> Any:
        raise NotImplementedError

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        self.contexts.append(ctx)
        self.owners.append(current_run().actor.owner)
        return list(self.tools)


class Silent(PlatformBridge):
    def create_adapter(self, ctx: PlatformContext) -> Any:
        raise NotImplementedError

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()


def app_of(settings: Settings = SETTINGS, authorize: Any = None, **agents: PlatformBridge) -> FastAPI:
    app = FastAPI()
    add_ambient_endpoints(app, agents=agents, settings=settings, authorize=authorize)
    return app


async def test_the_tools_of_the_default_agent_and_of_each_agent_are_listed() -> None:
    async with demo() as client:
        paths = ("/tools", "/tools?agent=other", "/agents/demo/tools", "/agents/other/tools", "/agents/default/tools")
        found = [(await client.get(path)).json() for path in paths]
    names = ("demo", "other", "demo", "other", "demo")
    assert found == [{"agent": name, "tools": [WEATHER]} for name in names]


@pytest.mark.parametrize("path", ["/tools?agent=nobody", "/agents/nobody/tools"])
async def test_an_unknown_agent_is_refused(path: str) -> None:
    async with demo() as client:
        assert error_of(await client.get(path)) == (404, "unknown_agent")


async def test_a_bridge_that_does_not_list_tools_has_none() -> None:
    async with client_of(app_of(silent=Silent())) as client:
        assert (await client.get("/tools")).json() == {"agent": "silent", "tools": []}


@pytest.mark.parametrize("path", ["/tools", "/agents/listing/tools"])
async def test_a_request_is_authorized_before_the_bridge_is_asked(path: str) -> None:
    bridge = Listing()
    async with client_of(app_of(authorize=by_header, listing=bridge)) as client:
        denied = await client.get(path)
        await client.get(path, headers={"x-owner": "ann"})
    assert error_of(denied) == (401, "unauthorized")
    # One is the server itself, at its start: it logs the tools that become summaries.
    assert sorted(bridge.owners) == ["ann", "local"]


async def test_secrets_are_redacted_from_descriptions_and_schemas() -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string", "default": SECRET}}}
    settings = Settings(store="memory://", secrets=(SECRET,))
    async with client_of(app_of(settings, listing=Listing(declare_tool("call", f"Use {SECRET}.", schema)))) as client:
        response = await client.get("/tools")
    assert SECRET not in response.text
    assert response.json()["tools"][0]["name"] == "call"


async def test_a_tool_that_two_parts_of_an_agent_have_is_listed_once() -> None:
    first, second = declare_tool("look", "first"), declare_tool("look", "second")
    async with client_of(app_of(listing=Listing(first, declare_tool("walk"), second))) as client:
        tools = (await client.get("/tools")).json()["tools"]
    assert [(tool["name"], tool["description"]) for tool in tools] == [("look", "first"), ("walk", "")]


async def test_a_list_of_something_else_is_the_servers_error() -> None:
    async with client_of(app_of(listing=Listing({"name": "look"})), raise_app_exceptions=False) as client:
        assert (await client.get("/tools")).status_code == 500


async def test_a_route_of_the_app_takes_precedence() -> None:
    app = app_of(listing=Listing())

    @app.get("/tools")
    async def own() -> str:
        return "mine"

    async with client_of(app) as client:
        assert (await client.get("/tools")).json() == "mine"


async def test_a_thread_may_be_named_and_need_not_be() -> None:
    bridge = Listing()
    async with client_of(app_of(listing=bridge)) as client:
        await client.get("/tools")
        await client.get("/tools?threadId=t7")
        assert error_of(await client.get("/tools", params={"threadId": "\n"})) == (422, "invalid_input")
    assert [ctx.session_id for ctx in bridge.contexts] == ["", "t7"]


async def test_the_tools_of_a_threads_mcp_servers_are_listed_without_their_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "McpStatus", partial(platform.McpStatus, timeout=HANG_SECONDS))
    log = tmp_path / "log"
    echo = {
        "command": sys.executable,
        "args": [MCP_SERVER, "stdio", str(log)],
        "env": {"TOKEN": "${GITHUB_TOKEN}", "PLAIN": "configured-value"},
    }
    broken = {"url": "http://127.0.0.1:1/", "headers": {"Authorization": "Bearer configured-header"}}
    settings = settings_of(tmp_path, mcp_config=mcp_file(tmp_path, {"echo": echo, "broken": broken}))
    bridge, credentials = WorkerBridge(file_system=False), tokens_of(GITHUB_TOKEN="granted-token")
    with unless_hung():
        async with worker_server(bridge, settings, credentials=credentials) as client:
            without = await client.get("/tools")
            assert not log.exists()
            listed = await client.get("/tools?threadId=t")
            status = await client.get("/mcp/status?threadId=t")
    assert without.json() == {"agent": "worker", "tools": []}
    tools = listed.json()["tools"]
    assert [(tool["name"], tool["metadata"]) for tool in tools] == [
        ("echo", {"source": "mcp", "mcpServer": "echo"}),
        ("erase", {"source": "mcp", "mcpServer": "echo"}),
    ]
    assert tools[0]["parameters"]["properties"].keys() == {"text"}
    assert [word for word in ("configured", "granted", "Bearer", "echo_server") if word in listed.text] == []
    assert "inputSchema" not in json.dumps(status.json())


async def test_a_gateway_lists_the_tools_of_the_agent_on_the_other_server() -> None:
    served = app_of(demo=DemoBridge(), listing=Listing(declare_tool("look", "Look.")))
    async with client_of(served), httpx.AsyncClient(transport=httpx.ASGITransport(served)) as http:
        first = RemoteBridge("http://127.0.0.1:9000/", client=http)
        second = RemoteBridge("http://127.0.0.1:9000/agents/listing", client=http)
        async with client_of(app_of(first=first, second=second)) as gateway:
            found = [(await gateway.get(f"/agents/{name}/tools")).json() for name in ("first", "second")]
    assert found == [
        {"agent": "first", "tools": [WEATHER]},
        {
            "agent": "second",
            "tools": [
                {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
            ],
        },
    ]


async def test_a_gateway_shows_none_of_its_credentials_for_the_other_server() -> None:
    other = FastAPI()

    @other.get("/tools")
    async def echo(request: Request) -> Any:
        return {"tools": [{"name": "echo", "description": request.headers["authorization"]}]}

    async with httpx.AsyncClient(transport=httpx.ASGITransport(other)) as http:
        headers = {"Authorization": f"Bearer {SECRET}"}
        bridge = RemoteBridge("http://127.0.0.1:9000/", client=http, headers=lambda run: headers)
        async with client_of(app_of(front=bridge)) as gateway:
            response = await gateway.get("/tools")
    assert response.json()["tools"][0]["name"] == "echo"
    assert SECRET not in response.text


@pytest.mark.parametrize(
    "answer",
    [
        Response('{"detail": "Not Found"}', 404, media_type="application/json"),
        Response("", 405),
        Response('{"something": "else"}', media_type="application/json"),
    ],
)
async def test_a_server_that_does_not_list_tools_is_an_error_that_says_so(answer: Response) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(answer)) as http:
        async with client_of(app_of(front=RemoteBridge("http://127.0.0.1:9000/", client=http))) as gateway:
            assert error_of(await gateway.get("/tools")) == (502, "remote_tools_unknown")


async def test_a_gateway_that_leads_back_to_itself_does_not_ask_for_ever() -> None:
    front = FastAPI()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front)) as http:
        bridge = RemoteBridge("http://127.0.0.1:8000/", client=http)
        add_ambient_endpoints(front, bridge, settings=SETTINGS)
        async with client_of(front) as gateway:
            assert error_of(await gateway.get("/tools"))[1] == "agent_loop"
