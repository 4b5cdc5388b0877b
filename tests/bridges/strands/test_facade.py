"""`ambient_runner.strands`: an app around a Strands agent, its endpoint, and agents named on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from strands import Agent, tool

import ambient_runner.strands as facade
from ambient_runner.bridges.registry import load_agent
from ambient_runner.bridges.strands.agent import StrandsAgent
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.errors import ConfigError
from ambient_runner.strands import add_strands_fastapi_endpoint, create_strands_app
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.world import agent_of
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

PAGE = "http://localhost:3000"


@tool
def now() -> str:
    """The time."""
    return "noon"


def kinds(response: Any) -> list[str]:
    return [event["type"] for _, event in frames(response)]


async def test_an_app_serves_the_agent_and_answers_ping() -> None:
    agent = StrandsAgent(agent_of(ScriptedModel(says("hi"))), name="helper")
    app = create_strands_app(agent, settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            assert (await client.get("/ping")).json() == {"status": "healthy"}
            response = await client.post("/", json=run_body("hello"))
            assert response.headers["content-type"].startswith("text/event-stream")
            assert list((await client.get("/capabilities")).json()["agents"]) == ["helper"]
    assert kinds(response) == [
        "RUN_STARTED",
        "CUSTOM",  # ambient:capabilities
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]


def test_a_path_without_a_slash_is_refused_with_an_explanation() -> None:
    with pytest.raises(ConfigError):
        create_strands_app(agent_of(ScriptedModel()), "chat", settings=SETTINGS)


@pytest.mark.parametrize("path", ["/chat", "/chat/"])
async def test_an_endpoint_can_be_anywhere_in_an_app_with_others(path: str) -> None:
    app = FastAPI()
    add_strands_fastapi_endpoint(app, agent_of(ScriptedModel(says("one"))), path, settings=SETTINGS)
    add_strands_fastapi_endpoint(app, StrandsAgent(agent_of(ScriptedModel(says("two"))), "b"), "/b", settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            first = await client.post("/chat", json=run_body("hello"))
            second = await client.post("/b", json=run_body("hello", thread="other"))
    deltas = [event["delta"] for response in (first, second) for _, event in frames(response) if "delta" in event]
    assert deltas == ["one", "two"]


async def test_clients_may_have_lines_of_json() -> None:
    app = create_strands_app(agent_of(ScriptedModel(says("hi"))), settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            response = await client.post("/", json=run_body("hello"), headers={"Accept": "application/x-ndjson"})
    assert response.headers["content-type"].startswith("application/x-ndjson")


async def test_only_listed_pages_may_call_and_never_with_credentials() -> None:
    app = create_strands_app(agent_of(ScriptedModel(says("hi"))), settings=SETTINGS, origins=[PAGE])
    async with client_of(app) as client:
        with unless_hung():
            mine = await client.post("/", json=run_body("hello"), headers={"Origin": PAGE})
            other = await client.post("/", json=run_body("hello"), headers={"Origin": "http://evil.example"})
    assert (mine.status_code, mine.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-credentials" not in mine.headers
    assert other.status_code == 403
    with pytest.raises(ConfigError):
        create_strands_app(agent_of(ScriptedModel()), settings=SETTINGS, origins=["*"])


async def test_tool_results_bring_the_conversation_along() -> None:
    app = create_strands_app(agent_of(ScriptedModel(calls(call("c1", "now")), says("noon")), now), settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            response = await client.post("/", json=run_body("time?"))
    snapshots = [event["messages"] for _, event in frames(response) if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [[message["role"] for message in messages] for messages in snapshots] == [
        ["user", "assistant", "tool"],
        ["user", "assistant", "tool", "assistant"],
    ]


async def test_a_request_without_new_input_is_refused() -> None:
    app = create_strands_app(agent_of(ScriptedModel()), settings=SETTINGS)
    async with client_of(app) as client:
        assert (await client.post("/", json={"threadId": "t", "runId": "r", "messages": []})).status_code == 422


def test_the_public_names_are_a_decision() -> None:
    assert facade.__all__ == [
        "PredictStateMapping",
        "StrandsAgent",
        "StrandsAgentConfig",
        "StrandsBridge",
        "ToolBehavior",
        "ToolCallContext",
        "ToolResultContext",
        "ToolStreamEventContext",
        "UrlFetchPolicy",
        "add_ping",
        "add_strands_fastapi_endpoint",
        "create_strands_app",
        "maybe_await",
        "normalize_predict_state",
    ]


MODULE = """
from strands import Agent
from tests.bridges.strands.scripted import ScriptedModel, says
from ambient_runner.strands import StrandsAgent, StrandsBridge

agent = Agent(model=ScriptedModel(says("hi")), callback_handler=None)
wrapped = StrandsAgent(agent)
bridge = StrandsBridge(agent)

def make():
    return agent
"""
OBJECTS = """
[ambient_runner.objects]
strands = ambient_runner.bridges.strands.bridge:StrandsBridge
ambient_runner.bridges.strands = ambient_runner.bridges.strands.bridge:StrandsBridge
"""


@pytest.mark.parametrize("name", ["agent", "wrapped", "bridge", "make"])
def test_the_command_line_takes_an_agent_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strands_project.py").write_text(MODULE)
    info = tmp_path / "strands_objects-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strands-objects\nVersion: 1\n")
    (info / "entry_points.txt").write_text(OBJECTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "strands_project", raising=False)
    assert isinstance(load_agent(f"mine=strands_project:{name}")[1], StrandsBridge)


def test_without_an_agent_a_bridge_has_the_default_model_and_makes_it_only_when_asked() -> None:
    assert StrandsBridge().capabilities().tool_use


def test_the_package_is_imported_only_by_those_who_use_it() -> None:
    code = "import sys, ambient_runner, ambient_runner.bridges.registry; sys.exit('strands' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_package_is_named_with_the_line_to_type() -> None:
    code = "import sys; sys.modules['strands'] = None; import ambient_runner.strands"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "BridgeUnavailable" in done.stderr
    assert "pip install 'ambient-runner[strands]'" in done.stderr


def test_a_bridge_of_a_template_declares_its_capabilities() -> None:
    agent = Agent(model=ScriptedModel(), callback_handler=None)
    assert StrandsBridge(agent).capabilities().thinking
