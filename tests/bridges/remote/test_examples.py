"""The gateway example, as a person would use it but for the address of the runner."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

from tests.bridges.remote.world import framed, upstream
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body
from tests.world import said

GATEWAY = Path(__file__).parents[3] / "examples" / "gateway.py"


async def test_the_gateway_passes_on_the_users_token_and_keeps_the_thread() -> None:
    spec = importlib.util.spec_from_file_location("gateway", GATEWAY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    settings = dataclasses.replace(SETTINGS, pass_headers=("authorization",))
    async with upstream(framed(*said("m1", "hello"))) as runner:
        async with client_of(module.create(runner.url, settings)) as client:
            with unless_hung():
                headers = {"Authorization": "Bearer of-the-user-7"}
                answer = await client.post("/", json=run_body("hi"), headers=headers)
                bare = await client.post("/", json=run_body("hi", thread="other"))
                stored = (await client.get("/message_snapshot/t")).json()
    assert [request.headers.get("authorization") for request in runner.requests] == ["Bearer of-the-user-7", None]
    assert [frames(one)[-1][1]["type"] for one in (answer, bare)] == ["RUN_FINISHED", "RUN_FINISHED"]
    assert [message["content"] for message in stored["messages"]] == ["hi", "hello"]
