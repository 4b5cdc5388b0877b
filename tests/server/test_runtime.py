"""The service behind the routes: how it opens, and in which order it ends."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import httpx
import pytest

from ambient_runner import create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import Draining
from tests.machine_speed import unless_hung
from tests.scripts import forever, hello
from tests.server.demo_server import SETTINGS, client_of, frames, run_body, runtime_with
from tests.world import ScriptedAgent, request, user

LARGE = "say hi " + "x" * (300 << 10)


async def test_a_service_can_run_again_after_it_was_closed(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path}/ledger.db")
    app = create_app(settings, {"demo": DemoBridge()})
    for turn in range(2):
        async with client_of(app) as client:
            run = await client.post("/", json=run_body(LARGE, message=f"u{turn}"))
            ready = await client.get("/ready")
            messages = (await client.get("/message_snapshot/t")).json()["messages"]
        assert (run.status_code, ready.status_code) == (200, 200)
        assert frames(run)[-1][1]["type"] == "RUN_FINISHED"
        assert [message["role"] for message in messages] == ["user", "assistant"] * (turn + 1)


async def test_a_runtime_without_a_lifespan_is_opened_by_its_first_request() -> None:
    app = create_app(SETTINGS, {"demo": DemoBridge()})
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        run = await client.post("/", json=run_body(LARGE))
        again = await client.get("/message_snapshot/t")
    assert frames(run)[-1][1]["type"] == "RUN_FINISHED"
    assert again.status_code == 200


async def test_a_closed_service_is_not_ready_and_has_no_runner() -> None:
    service = runtime_with({"agent": ScriptedAgent(hello)}, SETTINGS)
    assert not service.is_ready
    async with service.running():
        assert service.is_ready
        first = await service.ensure_runner()
    assert not service.is_ready
    async with service.running():
        assert service.is_ready
        assert await service.ensure_runner() is not first


async def test_draining_ends_the_runs_and_then_the_streams() -> None:
    class Open:
        def __init__(self) -> None:
            self.finished = False

        def finish(self) -> None:
            self.finished = True

    service, stream = runtime_with({"agent": ScriptedAgent(forever)}, SETTINGS), Open()
    async with service.running():
        runner = await service.ensure_runner()
        started = await runner.start(request(user("u1")))
        service.streams.add(stream)
        with unless_hung():
            await service.drain()
        run = await runner.ledger.get_run(started.thread, started.run)
        assert not service.is_ready
        with pytest.raises(Draining):
            await runner.start(request(user("u2")))
    assert run is not None
    assert run.last
    assert stream.finished
