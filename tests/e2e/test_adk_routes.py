"""The ADK façade under uvicorn, in both modes of its frames: the official clients talk to it, and a SIGTERM ends it well."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from tests.machine_speed import HANG_SECONDS

from .server import Child
from .test_official_verifier import CLIENTS, NEW, OLD, pytestmark

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["pytestmark"]

ROOT = Path(__file__).parent.parent.parent

APP = """
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext

from ambient_runner.adk import ConfigContext, RunnerConfig, SSEService, register_agui_endpoint
from tests.bridges.adk.scripted import Scripted, call, thought


def pay(amount: int):
    "Pay."
    return {"paid": amount}


def note(tool_context: ToolContext):
    "Note."
    tool_context.state["a/b"] = 1
    return {}


def answer(request):
    last = request.contents[-1].parts[-1]
    if last.function_response is not None:
        return ["Thank ", "you."]
    turns = {
        "pay": [call("pay", amount=3)],
        "paint": ["Sure. ", call("change_background", color="red")],
        "note": [thought("Hm."), call("note")],
    }
    return turns.get(last.text, ["You said ", last.text])


agent = LlmAgent(
    name="root", model=Scripted.of(answer, loop=True), tools=[FunctionTool(pay, require_confirmation=True), note]
)
context = ConfigContext(user_id="ada", event_source_response_mode=EVENT_SOURCE)
app = FastAPI()
register_agui_endpoint(app, SSEService(agent, RunnerConfig(), context))
"""
PAINT = {
    "name": "change_background",
    "description": "Change the background.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}
TALKS: dict[str, dict[str, Any]] = {
    "words": {"turns": [{"say": "hello"}, {"say": "again"}]},
    "state": {"turns": [{"say": "note"}]},
    "frontend": {"tools": [PAINT], "turns": [{"say": "paint"}, {"answer": {"change_background": "done"}}]},
    "confirmed": {"turns": [{"say": "pay"}, {"resume": "resolved", "payload": {"confirmed": True}}]},
    "refused": {"turns": [{"say": "pay"}, {"resume": "cancelled"}]},
}


@contextmanager
def serving(directory: Path, *, event_source: bool) -> Generator[Child]:
    (directory / "app.py").write_text(dedent(APP).replace("EVENT_SOURCE", str(event_source)))
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"]
    with Child(command, cwd=directory, env={"PYTHONPATH": str(ROOT)}) as child:
        yield child


def talked(client: str, url: str) -> dict[str, Any]:
    """What the client ended with, scenario by scenario. An older client cannot answer an interrupt."""
    names = [name for name in TALKS if client == NEW or "resume" not in str(TALKS[name])]
    job = {"url": url, "scenarios": [{"name": name, "thread": f"{client}-{name}", **TALKS[name]} for name in names]}
    done = subprocess.run(
        ["node", "oracle.mjs", client],
        cwd=CLIENTS,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return json.loads(done.stdout)["results"]


@pytest.mark.parametrize("event_source", [False, True], ids=["plain", "event-source"])
def test_official_clients_work_with_the_endpoint(event_source: bool, tmp_path: Path) -> None:
    with serving(tmp_path, event_source=event_source) as server:
        found = {client: talked(client, server.url) for client in (NEW, OLD)}
        code = server.stop()
    assert code in {0, -signal.SIGTERM}
    assert "Traceback" not in server.output
    for results in found.values():
        for name, result in results.items():
            for turn in result["turns"]:
                assert turn["resolved"], (name, turn["error"])
                assert turn["messages"] == turn["messageSnapshot"]["body"]["messages"], name
    assert found[NEW]["state"]["turns"][0]["state"] == {"a/b": 1}
    assert found[NEW]["confirmed"]["turns"][1]["messages"][-1]["content"] == "Thank you."
