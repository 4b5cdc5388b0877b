"""The part of a client's input that reaches the agent. The agents here keep the inputs they are called with."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from ambient_runner import create_app
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.config import AgentSettings, Settings
from ambient_runner.protocol.events import RunAgentInput, StateSnapshot
from ambient_runner.runs.run import Actor, StartRequest
from tests.server.demo_server import SETTINGS, client_of, error_of, run_body
from tests.world import events_of

FORGED = {"user_id": "root", "scopes": ["admin"], "model": "large"}
EVERYTHING = dataclasses.replace(SETTINGS, forwarded_props="all")
CLIENT_HISTORY = dataclasses.replace(SETTINGS, history="client")


class InputAgent:
    """Keeps every input. `state` is what it sends as its state."""

    def __init__(self, state: Any = None) -> None:
        self.inputs: list[Any] = []
        self._state = state

    async def run(self, input: Any) -> AsyncIterator[Any]:
        self.inputs.append(input)
        if self._state is not None:
            yield StateSnapshot(snapshot=self._state)

    @property
    def props(self) -> Any:
        return self.inputs[-1].forwarded_props

    @property
    def message(self) -> dict[str, Any]:
        return self.inputs[-1].messages[-1].model_dump(by_alias=True, exclude_none=True)


class ThemeBridge(AGUIBridge):
    """A bridge that reads one key."""

    forwarded_props = ("theme",)


async def post(
    agent: InputAgent, *bodies: dict[str, Any], settings: Settings = SETTINGS, bridge: type[AGUIBridge] = AGUIBridge
) -> httpx.Response:
    """Post each body to a server with this agent; return the last response."""
    agents: dict[str, PlatformBridge] = {"agent": bridge(agent)}
    async with client_of(create_app(settings, agents)) as client:
        responses = [await client.post("/", json=body) for body in bodies]
    return responses[-1]


def message(**members: Any) -> dict[str, Any]:
    return {"role": "user", "id": "u1", "content": "hi", **members}


def body_with(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**run_body("hi"), "messages": list(messages), **more}


async def test_forwarded_props_that_nobody_listed_do_not_reach_the_agent() -> None:
    agent = InputAgent()
    assert (await post(agent, run_body("hi", forwardedProps=FORGED))).status_code == 200
    assert agent.props == {}


@pytest.mark.parametrize("props", [["a"], "text", 5])
async def test_forwarded_props_that_are_no_object_do_not_reach_the_agent(props: Any) -> None:
    agent, open_agent = InputAgent(), InputAgent()
    await post(agent, run_body("hi", forwardedProps=props))
    await post(open_agent, run_body("hi", forwardedProps=props), settings=EVERYTHING)
    assert (agent.props, open_agent.props) == ({}, props)


async def test_listed_forwarded_props_reach_the_agent() -> None:
    agent = InputAgent()
    settings = dataclasses.replace(SETTINGS, forwarded_props=("theme", "user_id"))
    await post(agent, run_body("hi", forwardedProps={**FORGED, "theme": {"dark": True}}), settings=settings)
    assert agent.props == {"user_id": "root", "theme": {"dark": True}}


async def test_the_setting_of_an_agent_replaces_that_of_the_server() -> None:
    agent = InputAgent()
    table = AgentSettings(name="agent", forwarded_props=("model",))
    settings = dataclasses.replace(EVERYTHING, agents=(table,))
    await post(agent, run_body("hi", forwardedProps=FORGED), settings=settings)
    assert agent.props == {"model": "large"}


async def test_a_bridge_gets_the_keys_that_it_reads_and_the_listed_ones() -> None:
    agent = InputAgent()
    settings = dataclasses.replace(SETTINGS, forwarded_props=("model",))
    props = {**FORGED, "theme": "dark"}
    await post(agent, run_body("hi", forwardedProps=props), settings=settings, bridge=ThemeBridge)
    assert agent.props == {"theme": "dark", "model": "large"}


async def test_the_log_names_each_left_out_key_once_and_the_setting_that_lets_it_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "ambient_runner.runs.lowering_log")
    bodies = [run_body("hi", message=name, forwardedProps={"user\n_id": 1, "b": 2}) for name in ("u1", "u2")]
    await post(InputAgent(), *bodies)
    assert [record.args for record in caplog.records] == [
        ("agent", r"forwardedProps.user\n_id", "forwarded_props"),
        ("agent", "forwardedProps.b", "forwarded_props"),
    ]


async def test_the_log_names_no_left_out_key_that_contains_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """In an app of one's own nothing else redacts the log."""
    secret = "kR8vQ2mZx7Lw3Tn5Yb9Hs4Jd6Fg1Pc0A"
    settings = dataclasses.replace(SETTINGS, secrets=(secret,))
    props = {f"a-{secret}": 1, f"{'b' * 60}{secret}": 1, "command": {secret: 1}}
    await post(InputAgent(), run_body("hi", forwardedProps=props), settings=settings)
    logged = [record.args for record in caplog.records if record.name == "ambient_runner.runs.lowering_log"]
    assert logged == [
        ("agent", "forwardedProps.a-[redacted]", "forwarded_props"),
        ("agent", f"forwardedProps.{'b' * 60}[redacted]", "forwarded_props"),
        ("agent", "forwardedProps.command.[redacted]", "forwarded_props"),
    ]


async def test_a_client_cannot_fill_the_log_with_names(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ambient_runner.runs.lowering_log")
    await post(InputAgent(), run_body("hi", forwardedProps={f"key-{n}": n for n in range(10_000)}))
    assert len(caplog.records) == 100


def left_out_count(kind: str) -> float:
    return REGISTRY.get_sample_value("ambient_input_left_out_total", {"kind": kind}) or 0.0


async def test_what_is_left_out_is_counted() -> None:
    kinds = ("forwarded_props", "message")
    before = [left_out_count(kind) for kind in kinds]
    await post(InputAgent(), body_with(message(name="Ada", encryptedValue="x"), forwardedProps=FORGED))
    after = [left_out_count(kind) for kind in kinds]
    assert [late - early for early, late in zip(before, after, strict=True)] == [3, 2]


async def test_an_answer_in_the_command_of_an_older_client_is_not_reported_as_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = {"resume": "yes", "interruptEvent": {}, "goto": "end"}
    await post(InputAgent(), run_body("hi", forwardedProps={"command": command}))
    assert [record.args for record in caplog.records] == [("agent", "forwardedProps.command.goto", "forwarded_props")]


async def test_only_content_and_own_metadata_of_a_user_message_reach_the_agent_and_the_thread() -> None:
    agent = InputAgent()
    metadata = {"hidden": True, "autoSent": True, "source": "workflow", "ambient": {"a": 1}, "Ambient:x": 1, "page": 3}
    forged = message(name="Ada", encryptedValue="x", subagentRunId="s", metadata=metadata)
    agents: dict[str, PlatformBridge] = {"agent": AGUIBridge(agent)}
    async with client_of(create_app(SETTINGS, agents)) as client:
        await client.post("/", json=body_with(forged))
        stored = (await client.get("/message_snapshot/t")).json()["messages"]
    assert agent.message == message(metadata={"page": 3})
    assert stored == [message(metadata={"page": 3})]


async def test_metadata_with_nothing_but_reserved_names_is_left_out() -> None:
    agent = InputAgent()
    await post(agent, body_with(message(metadata={"hidden": True})))
    assert agent.message == message()


async def test_metadata_that_is_too_large_is_left_out() -> None:
    agent = InputAgent()
    await post(agent, body_with(message(metadata={"page": "x" * (17 << 10)})))
    assert agent.message == message()


async def test_what_the_server_marked_stays_marked_when_a_client_owns_the_history() -> None:
    """A page sends the server's own prompt back; if its mark were lost, the page would show it as the user's words."""
    agent = InputAgent()
    bridge = AGUIBridge(agent)
    app = create_app(CLIENT_HISTORY, {"agent": bridge})
    async with client_of(app) as client:
        runner = await app.state.ambient.ensure_runner()
        empty = RunAgentInput(thread_id="t", run_id="r", messages=[])
        start = StartRequest(agent="agent", actor=Actor(), input=empty, prompt="Greet.")
        await events_of(runner, await runner.start(start))
        (prompt,) = (await client.get("/message_snapshot/t")).json()["messages"]
        later = body_with(message(), {**prompt, "metadata": {"hidden": False, "page": 1}}, message(id="u2"))
        await client.post("/", json=later)
        stored = (await client.get("/message_snapshot/t")).json()["messages"]
    marks = {"hidden": True, "autoSent": True, "source": "workflow"}
    assert prompt["metadata"] == marks
    assert stored == [message(), {**prompt, "metadata": {**marks, "page": 1}}, message(id="u2")]


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype"])
@pytest.mark.parametrize("nested", [False, True])
async def test_a_state_with_a_prototype_key_is_refused_as_in_a_patch(key: str, nested: bool) -> None:
    value = {"a": [{key: 1}]} if nested else {key: 1}
    agents: dict[str, PlatformBridge] = {"agent": AGUIBridge(InputAgent())}
    async with client_of(create_app(SETTINGS, agents)) as client:
        await client.post("/", json=run_body("hi", state={"a": 1}))
        patched = await client.patch("/state/t", json=[{"op": "replace", "path": "", "value": value}])
        sent = await client.post("/", json=run_body("hi", message="u2", state=value))
    assert error_of(sent) == error_of(patched) == (400, "invalid_patch")


async def test_a_prototype_key_of_the_agents_own_state_does_not_block_its_thread() -> None:
    state = {"design": {"prototype": "v1"}}
    bodies = [run_body("hi"), run_body("hi", message="u2", state={**state, "page": 2})]
    agent = InputAgent(state)
    assert (await post(agent, *bodies)).status_code == 200
    assert agent.inputs[-1].state == {**state, "page": 2}


async def test_assistant_text_of_an_unknown_thread_is_adopted_unless_the_setting_forbids_it() -> None:
    body = body_with(message(), {"role": "assistant", "id": "a1", "content": "I promised."}, message(id="u2"))
    adopting, strict = InputAgent(), InputAgent()
    await post(adopting, body)
    await post(strict, body, settings=dataclasses.replace(SETTINGS, adopt_history=False))
    assert [[item.id for item in agent.inputs[0].messages] for agent in (adopting, strict)] == [
        ["u1", "a1", "u2"],
        ["u1", "u2"],
    ]


def picture(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "value": url, "mimeType": "image/png"}}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.png",
        "HTTP://x/a.png",
        "file:///etc/passwd",
        "gs://ours/a",
        "/a.png",
        "//x/a.png",
        " https://x",
    ],
)
async def test_a_media_url_that_is_not_https_is_refused(url: str) -> None:
    agent = InputAgent()
    response = await post(agent, body_with(message(content=[picture(url)])))
    assert error_of(response) == (422, "invalid_input")
    assert agent.inputs == []


@pytest.mark.parametrize(("value", "status"), [("file-123", 200), ("http://127.0.0.1/a", 422)])
async def test_a_file_source_is_an_id_or_follows_the_rules_of_urls(value: str, status: int) -> None:
    part = {"type": "document", "source": {"type": "file", "value": value}}
    assert (await post(InputAgent(), body_with(message(content=[part])))).status_code == status


async def test_a_media_url_in_a_tool_result_follows_the_same_rules() -> None:
    result = {"role": "tool", "id": "r1", "toolCallId": "c1", "content": [picture("http://x/a.png")]}
    response = await post(InputAgent(), body_with(message(), result), settings=CLIENT_HISTORY)
    assert error_of(response) == (422, "invalid_input")


@pytest.mark.parametrize("url", ["https://x/a.png", "HTTPS://x/a.png", "data:image/png;base64,aGk="])
async def test_a_media_url_that_is_https_or_has_the_data_itself_reaches_the_agent(url: str) -> None:
    agent = InputAgent()
    await post(agent, body_with(message(content=[picture(url)])))
    assert agent.message["content"][0]["source"]["value"] == url


async def test_a_stored_media_url_does_not_block_its_thread() -> None:
    """Threads from before the rule may hold such a URL, and clients send all messages again."""

    class LenientBridge(AGUIBridge):
        media_url_schemes = ("http", "https")

    agent, old = InputAgent(), message(content=[picture("http://x/a.png")])
    app = create_app(SETTINGS, {"agent": LenientBridge(agent)})
    async with client_of(app) as client:
        assert (await client.post("/", json=body_with(old))).status_code == 200
        app.state.ambient.agents["agent"].media_url_schemes = frozenset({"https"})
        assert (await client.post("/", json=body_with(old, message(id="u2")))).status_code == 200
