from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import anyio
import psutil
import pytest

from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.server.demo_server import client_of, frames, run_body
from tests.services.remotes import make_repo

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "platform_agent.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("platform_agent_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_example_reads_the_repository_of_its_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ambient.toml").write_text('store = "memory://"\n[git]\nschemes = ["file"]\n')
    origin = make_repo(tmp_path / "origin" / "api", {"README": "hi"})
    async with client_of(loaded().app) as client:
        added = await client.post("/repos/add", json={"threadId": "t", "url": origin.as_uri()})
        response = await client.post("/", json=run_body("What is new?"))
    deltas = [event["delta"] for _, event in frames(response) if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert (added.status_code, deltas) == (200, ["Auth ", "connected", "Workspace ", "validated", "a: first\n"])


async def test_a_run_that_is_stopped_ends_its_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ambient.toml").write_text('store = "memory://"\n')
    fifo, slow = tmp_path / "begun", tmp_path / "bin" / "git"
    os.mkfifo(fifo)
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {fifo}\nexec sleep 600\n")
    slow.chmod(0o700)
    app = loaded().app
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    with unless_hung():
        async with client_of(app) as client, anyio.create_task_group() as group:
            group.start_soon(lambda: client.post("/", json=run_body("What is new?")))
            child = psutil.Process(int(await anyio.to_thread.run_sync(fifo.read_text)))
            stopped = await client.post("/interrupt", json={"threadId": "t"})
            left = await anyio.to_thread.run_sync(lambda: psutil.wait_procs([child], timeout=HANG_SECONDS)[1])
    assert (stopped.status_code, left) == (200, [])
