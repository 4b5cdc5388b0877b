"""Clients of a server see all but secrets on this machine, and the safe part as soon as other machines can connect."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from fastapi import FastAPI, Request

from ambient_runner import Actor, Settings, add_ambient_endpoints, current_run
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.config import AgentSettings
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.events import (
    Custom,
    Event,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    StateSnapshot,
    Tool,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)
from ambient_runner.testing import fold_frames
from tests.world import said

SECRETS = ("the plan", "nine rows", "they want", "the output", "a private value")
"""Texts that only the audience `open` sees."""
STORED = Settings(store="memory://", history="server")
ARGUMENTS = '{"query": "the plan"}'


class ScriptedAgent:
    """An agent that thinks, searches, shows a chart in the page and answers."""

    def __init__(self) -> None:
        self.waits, self.goes_on = anyio.Event(), anyio.Event()
        self.goes_on.set()

    async def run(self, input: Any) -> AsyncIterator[Event]:
        for event in self._before():
            yield event
        self.waits.set()
        await self.goes_on.wait()
        for event in self._after():
            yield event

    def _before(self) -> list[Event]:
        return [
            ReasoningStart(message_id="r"),
            ReasoningMessageStart(message_id="r"),
            ReasoningMessageContent(message_id="r", delta="they want"),
            ReasoningMessageEnd(message_id="r"),
            ReasoningEnd(message_id="r"),
            *said("m", "I will ", "search."),
            ToolCallStart(tool_call_id="c1", tool_call_name="search", parent_message_id="m"),
            ToolCallArgs(tool_call_id="c1", delta=ARGUMENTS[:7]),
        ]

    def _after(self) -> list[Event]:
        return [
            ToolCallArgs(tool_call_id="c1", delta=ARGUMENTS[7:]),
            ToolCallEnd(tool_call_id="c1"),
            ToolCallResult(tool_call_id="c1", message_id="t1", content="nine rows"),
            ToolCallStart(tool_call_id="c2", tool_call_name="show_chart"),
            ToolCallArgs(tool_call_id="c2", delta='{"kind":'),
            ToolCallArgs(tool_call_id="c2", delta='"bar"}'),
            ToolCallEnd(tool_call_id="c2"),
            Custom(name="mine", value={"a": "a private value"}),
            StateSnapshot(snapshot={"shared": 1}),
            RunFinished(thread_id="t", run_id="r", result={"text": "the output"}),
        ]


def body(**more: Any) -> dict[str, Any]:
    return {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "u", "role": "user", "content": "hi"}],
        "tools": [{"name": "show_chart", "description": "d", "parameters": {}}],
        "context": [],
        "state": {},
        "forwardedProps": {},
        "protocolVersion": "1.0",
        **more,
    }


def anybody(request: Request) -> Actor:
    return Actor()


@asynccontextmanager
async def serving(
    settings: Settings = STORED, *, authorized: bool = True, bridge: AGUIBridge | None = None, **options: Any
) -> AsyncGenerator[httpx.AsyncClient, None]:
    app = FastAPI()
    bridge = bridge or AGUIBridge(ScriptedAgent())
    add_ambient_endpoints(app, bridge, settings=settings, authorize=anybody if authorized else None, **options)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def events_in(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


async def stream_of(client: httpx.AsyncClient, **params: str) -> str:
    return (await client.get("/threads/t/events", params={"until": "idle", **params})).text


def secrets_in(text: str) -> set[str]:
    return {secret for secret in SECRETS if secret in text}


async def test_without_authorization_everything_is_sent_as_it_is_stored() -> None:
    async with serving(authorized=False) as client:
        response = await client.post("/", json=body())
        assert secrets_in(response.text) == set(SECRETS)
        assert (await client.get("/capabilities")).json()["platform"]["audience"] == "open"


async def test_with_authorization_clients_see_the_safe_part() -> None:
    async with serving() as client:
        response = await client.post("/", json=body())
        assert secrets_in(response.text) == set()
        assert [event["toolCallName"] for event in events_in(response) if event["type"] == "TOOL_CALL_START"] == [
            "search",
            "show_chart",
        ]
        assert [event["delta"] for event in events_in(response) if event["type"] == "TOOL_CALL_ARGS"] == [
            '{"redacted":true,"reason":"tool_arguments","type":"object","bytes":21,"keys":["query"]}',
            '{"kind"',
            ':"bar"}',
        ]
        capabilities = (await client.get("/capabilities")).json()
        assert capabilities["platform"]["audience"] == "safe"
        assert capabilities["agents"]["default"]["custom"]["ambient"]["audience"] == "safe"


async def test_a_replay_has_the_bytes_of_the_live_stream() -> None:
    async with serving() as client:
        live = (await client.post("/", json=body())).text
        assert await stream_of(client) == live
        assert await stream_of(client) == live


async def test_a_snapshot_equals_the_stream() -> None:
    async with serving() as client:
        events = events_in(await client.post("/", json=body()))
        asked = (await client.get("/message_snapshot/t")).json()
        [snapshot] = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
        streamed = [event for event in events if event["type"] != "MESSAGES_SNAPSHOT"]
        assert asked["messages"] == snapshot["messages"]
        assert fold_frames(streamed)["messages"] == fold_frames(events)["messages"]


@pytest.mark.parametrize("protocol", ["1.0", "0.0.59", "0.0.55", "0.0.42"])
async def test_older_clients_see_the_same_part(protocol: str) -> None:
    async with serving() as client:
        assert secrets_in((await client.post(f"/?protocol={protocol}", json=body())).text) == set()
        assert secrets_in(await stream_of(client, protocol=protocol)) == set()


async def test_a_resume_in_the_middle_of_a_call_sends_its_summary_once() -> None:
    async with serving() as client:
        live = (await client.post("/", json=body())).text
        frames = live.split("\n\n")
        at = next(number for number, frame in enumerate(frames) if '"TOOL_CALL_START"' in frame)
        cursor = frames[at].partition("\n")[0].removeprefix("id: ")
        resumed = await client.get("/threads/t/events", params={"until": "idle"}, headers={"last-event-id": cursor})
        events = events_in(resumed)
        assert secrets_in(resumed.text) == set()
        assert [event["type"] for event in events[:4]] == [
            "RUN_STARTED",
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
        ]
        assert resumed.text.endswith("\n\n".join(frames[at + 1 :]))


async def test_readers_that_join_a_running_call_get_the_same_frames() -> None:
    agent = ScriptedAgent()
    agent.goes_on = anyio.Event()
    texts: list[str] = []
    with anyio.fail_after(20):
        async with serving(bridge=AGUIBridge(agent)) as client, anyio.create_task_group() as tasks:

            async def post() -> None:
                texts.append((await client.post("/", json=body())).text)

            async def read() -> None:
                texts.append(await stream_of(client))

            tasks.start_soon(post)
            await agent.waits.wait()
            tasks.start_soon(read)
            tasks.start_soon(read)
            await anyio.lowlevel.checkpoint()
            agent.goes_on.set()
    assert len(set(texts)) == 1
    assert secrets_in(texts[0]) == set()


async def test_a_tool_is_shown_as_far_as_a_line_exposes_it() -> None:
    async with serving(replace(STORED, exposure={"search": "all", "mine": "all"})) as client:
        assert secrets_in((await client.post("/", json=body())).text) == {"the plan", "nine rows", "a private value"}
    async with serving(replace(STORED, exposure={"search": "arguments"})) as client:
        response = await client.post("/", json=body())
        assert secrets_in(response.text) == {"the plan"}
        # An exposed call is streamed, not sent in one piece.
        arguments = [event["delta"] for event in events_in(response) if event["type"] == "TOOL_CALL_ARGS"]
        assert arguments[:2] == [ARGUMENTS[:2], ARGUMENTS[2:]]


async def test_the_bridge_exposes_tools_and_the_table_of_the_agent_wins() -> None:
    bridge = AGUIBridge(ScriptedAgent())
    bridge.exposure = {"search": "result"}
    async with serving(bridge=bridge) as client:
        assert secrets_in((await client.post("/", json=body())).text) == {"nine rows"}
    table = AgentSettings(name="default", exposure={"search": "summary"})
    async with serving(replace(STORED, agents=(table,)), bridge=bridge) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set()


async def test_a_declared_tool_that_a_line_names_is_not_exposed_by_the_declaration() -> None:
    tools: list[Any] = [{"name": "search", "description": "d", "parameters": {}}]
    async with serving() as client:
        # The arguments could be for the client. The result shows that the agent has executed the tool.
        assert "nine rows" not in (await client.post("/", json=body(tools=tools))).text
        assert "nine rows" not in await stream_of(client)
        assert secrets_in((await client.get("/message_snapshot/t")).text) == set()
    async with serving(replace(STORED, exposure={"search": "summary"})) as client:
        assert secrets_in((await client.post("/", json=body(tools=tools))).text) == set()


async def test_endpoints_that_render_tools_show_them_and_hide_reasoning() -> None:
    async with serving(renders_tools=True) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set(SECRETS) - {"they want"}
    async with serving(replace(STORED, audience="safe"), renders_tools=True) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set()


@pytest.mark.parametrize("authorized", [True, False])
async def test_the_setting_wins(authorized: bool) -> None:
    async with serving(replace(STORED, audience="open"), authorized=authorized) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set(SECRETS)
    async with serving(replace(STORED, audience="safe"), authorized=authorized) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set()
    tables = (AgentSettings(name="default", audience="open"),)
    async with serving(replace(STORED, audience="safe", agents=tables), authorized=authorized) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set(SECRETS)


async def test_where_clients_keep_the_conversation_they_see_all_of_it() -> None:
    async with serving(Settings(store="memory://")) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set(SECRETS)
        assert (await client.get("/capabilities")).json()["platform"]["history"] == "client"


async def test_an_audience_that_is_set_to_safe_makes_the_server_keep_the_conversation() -> None:
    async with serving(Settings(store="memory://", audience="safe")) as client:
        assert secrets_in((await client.post("/", json=body())).text) == set()
        assert (await client.get("/capabilities")).json()["platform"]["history"] == "server"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(store="memory://", history="client", audience="safe"),
        Settings(store="memory://", history="client", agents=(AgentSettings(name="default", audience="safe"),)),
    ],
)
async def test_clients_cannot_keep_a_conversation_of_summaries(settings: Settings) -> None:
    with pytest.raises(ConfigError):
        async with serving(settings):
            pass


class ListedBridge(AGUIBridge):
    """A bridge that lists the tools of its agent."""

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        return [Tool(name=name, description="") for name in ("search", "lookup")]


class TwiceListedBridge(AGUIBridge):
    """A bridge that lists a tool twice, and knows for whom."""

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        run = current_run()
        return [Tool(name=f"search_for_{run.actor.owner}", description="")] * 2


class DottedBridge(AGUIBridge):
    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        return [Tool(name="shop.search", description="")]


async def test_the_line_in_the_log_is_toml(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(bridge=DottedBridge(ScriptedAgent())):
        pass
    line = caplog.text.split("`")[1]
    assert tomllib.loads(line) == {"exposure": {"shop.search": "all"}}


async def test_the_log_and_the_route_list_the_same_tools(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(bridge=TwiceListedBridge(ScriptedAgent())) as client:
        listed = [tool["name"] for tool in (await client.get("/tools")).json()["tools"]]
    assert listed == ["search_for_local"]
    assert "of its tools search_for_local. " in caplog.text


async def logged_start(caplog: pytest.LogCaptureFixture, settings: Settings, **options: Any) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "ambient_runner.server.audiences"):
        async with serving(settings, bridge=ListedBridge(ScriptedAgent()), **options) as client:
            await client.get("/ready")
    return caplog.text


async def test_the_log_names_the_tools_that_become_summaries_and_the_line_that_shows_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logged = await logged_start(caplog, STORED)
    assert "its tools search, lookup" in logged
    assert '`exposure = { search = "all" }`' in logged
    assert "its tools lookup" in await logged_start(caplog, replace(STORED, exposure={"search": "all"}))


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (STORED, {"authorized": False}),
        (replace(STORED, audience="safe"), {}),
        (replace(STORED, audience="open"), {}),
        (STORED, {"renders_tools": True}),
    ],
)
async def test_nothing_is_logged_where_nothing_is_hidden_by_default(
    caplog: pytest.LogCaptureFixture, settings: Settings, options: dict[str, Any]
) -> None:
    assert await logged_start(caplog, settings, **options) == ""


async def test_a_gateway_is_refused_before_a_run_is_started_for_it() -> None:
    async with serving() as client:
        refused = await client.post("/", json=body(), headers={"x-ambient-audience": "open"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "audience_not_open")
        assert (await client.get("/thread/list")).json()["threads"] == []
    async with serving(replace(STORED, audience="open")) as client:
        served = await client.post("/", json=body(), headers={"x-ambient-audience": "open"})
        assert secrets_in(served.text) == set(SECRETS)


class ThinkingAgent:
    """An agent that thinks these events under the id `r`, and answers."""

    def __init__(self, *events: Event) -> None:
        self._events = events

    async def run(self, input: Any) -> AsyncIterator[Event]:
        yield ReasoningStart(message_id="r")
        yield ReasoningMessageStart(message_id="r")
        for event in self._events:
            yield event
        yield ReasoningEnd(message_id="r")
        for event in said("m", "Done."):
            yield event


def thought(text: str, *, marked: bool = False) -> Event:
    return ReasoningMessageContent(message_id="r", delta=text, metadata={"summary": True} if marked else None)


def thought_end(*, marked: bool = False) -> Event:
    return ReasoningMessageEnd(message_id="r", metadata={"summary": True} if marked else None)


@pytest.mark.parametrize(
    "events",
    [
        [thought("they want "), thought("A summary. ", marked=True), thought_end(marked=True)],
        [thought("A summary. ", marked=True), thought("they want "), thought_end(marked=True)],
        [thought("they want "), thought_end(marked=True)],
    ],
)
async def test_reasoning_of_which_only_a_part_is_marked_is_not_in_a_snapshot(events: list[Event]) -> None:
    async with serving(bridge=AGUIBridge(ThinkingAgent(*events))) as client:
        live = (await client.post("/", json=body())).text
        asked = (await client.get("/message_snapshot/t")).json()["messages"]
        assert secrets_in(live) == set()
        assert [message["content"] for message in asked if message["role"] == "reasoning"] == ["[reasoning is hidden]"]


async def test_a_marked_summary_is_in_the_stream_and_in_a_snapshot() -> None:
    summary = "I looked it up"
    events = [thought(summary, marked=True), thought("today", marked=True), thought_end(marked=True)]
    async with serving(bridge=AGUIBridge(ThinkingAgent(*events))) as client:
        live = events_in(await client.post("/", json=body()))
        asked = (await client.get("/message_snapshot/t")).json()["messages"]
        shown = [event["delta"] for event in live if event["type"] == "REASONING_MESSAGE_CONTENT"]
        assert "".join(shown) == f"{summary}today"
        assert [message["content"] for message in asked if message["role"] == "reasoning"] == [f"{summary}today"]


@pytest.mark.parametrize("first", ["text", "reasoning"])
async def test_reasoning_under_the_id_of_a_text_is_not_shown_as_text(first: str) -> None:
    thinks: list[Event] = [
        ReasoningStart(message_id="m"),
        ReasoningMessageStart(message_id="m"),
        ReasoningMessageContent(message_id="m", delta="they want"),
        ReasoningMessageEnd(message_id="m"),
        ReasoningEnd(message_id="m"),
    ]
    says = said("m", "Done.")

    class TwofoldAgent:
        async def run(self, input: Any) -> AsyncIterator[Event]:
            for event in (*says, *thinks) if first == "text" else (*thinks, *says):
                yield event

    async with serving(bridge=AGUIBridge(TwofoldAgent())) as client:
        live = (await client.post("/", json=body())).text
        assert secrets_in(live + (await client.get("/message_snapshot/t")).text) == set()
