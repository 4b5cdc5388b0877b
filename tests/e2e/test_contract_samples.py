"""The samples of the public bridge contract, word for word, served by a real uvicorn."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.machine_speed import HANG_SECONDS, unless_hung

from .aimock import environment, scripted_model
from .contract_samples import CLAUDE_APP, MY_BRIDGE
from .server import Child
from .sse import open_stream
from .talk import answer_of, ending, events_of, new_id, one_run, run, run_input, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MY_ADAPTER = '''
import asyncio

from ag_ui.core import RunFinishedEvent, RunStartedEvent, TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from fastapi import FastAPI


class MyAdapter:
    """The adapter the sample leaves to the reader."""

    def __init__(self, model, prompt):
        self.stopped = asyncio.Event()
        self.words = f"{type(model).__name__} {type(prompt).__name__}"

    async def run(self, input_data):
        yield RunStartedEvent(thread_id=input_data.thread_id, run_id=input_data.run_id)
        yield TextMessageStartEvent(message_id=f"{input_data.run_id}-answer")
        yield TextMessageContentEvent(message_id=f"{input_data.run_id}-answer", delta=self.words)
        if input_data.messages[-1].content == "wait":
            await self.stopped.wait()
            yield TextMessageContentEvent(message_id=f"{input_data.run_id}-answer", delta=" and stopped")
        yield TextMessageEndEvent(message_id=f"{input_data.run_id}-answer")
        yield RunFinishedEvent(thread_id=input_data.thread_id, run_id=input_data.run_id)

    async def interrupt(self):
        self.stopped.set()

'''


def served(directory: Path, source: str, env: Mapping[str, str] | None = None) -> Child:
    (directory / "app.py").write_text(source)
    return Child([sys.executable, "-m", "uvicorn", "app:app", "--port", "0"], cwd=directory, env=env)


async def test_my_bridge_runs_and_its_adapter_is_interrupted(tmp_path: Path) -> None:
    thread = new_id("thread")
    with served(tmp_path, MY_ADAPTER + MY_BRIDGE) as server, unless_hung():
        said = one_run(events_of(await run(server.url, run_input(thread, "hello"))))
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "wait")) as stream:
            frames = await stream.until("TEXT_MESSAGE_START")
            async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
                interrupted = await http.post("/interrupt", json={"threadId": thread})
            frames += await stream.rest()
    stopped = one_run(events_of(frames))
    assert (text_of(said), ending(said)) == ("str str", "success")
    assert interrupted.status_code == 200
    assert (text_of(stopped), ending(stopped)) == ("str str and stopped", "cancelled")


async def test_my_bridge_has_the_routes_its_capabilities_say_and_no_others(tmp_path: Path) -> None:
    with served(tmp_path, MY_ADAPTER + MY_BRIDGE) as server, unless_hung():
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
            always = {path: (await http.get(path)).status_code for path in ("/health", "/capabilities")}
            absent = {
                path: (await http.request(method, path, json=None if method == "GET" else {})).status_code
                for method, path in (
                    ("POST", "/repos/add"),
                    ("POST", "/repos/remove"),
                    ("GET", "/repos/status"),
                    ("POST", "/workflow"),
                    ("GET", "/mcp/status"),
                )
            }
            declared = (await http.get("/capabilities")).json()["framework"]
    assert set(always.values()) == {200}
    assert set(absent.values()) == {404}
    assert {name: declared[name] for name in ("file_system", "mcp", "streaming", "tool_use")} == {
        "file_system": False,
        "mcp": False,
        "streaming": True,
        "tool_use": True,
    }


async def test_the_claude_sample_serves_claude(tmp_path: Path) -> None:
    """Two turns with the real command line and a scripted model; the second one is shown the first."""
    if importlib.util.find_spec("ambient_runner.bridges.claude") is None:
        pytest.skip("there is no Claude bridge")
    thread = new_id("thread")
    answers = [("quokka", "A quokka is a small wallaby."), ("numbat", "A numbat eats termites.")]
    with scripted_model(tmp_path, answers) as model:
        env = environment(tmp_path, model)
        with served(tmp_path, "from fastapi import FastAPI\n" + CLAUDE_APP, env) as server, unless_hung():
            turns = [
                one_run(events_of(await run(server.url, run_input(thread, text))))
                for text in ("What is a quokka?", "And a numbat?")
            ]
            async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
                declared = (await http.get("/capabilities")).json()["framework"]
    assert [(ending(events), answer_of(events)) for events in turns] == [("success", answer) for _, answer in answers]
    assert {declared[name] for name in ("file_system", "mcp", "session_persistence", "thinking")} == {True}
