"""Clients that leave an ADK run in the middle: it is stopped or goes on as they said, nothing stays behind, and the next run works."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from tests.bridges.adk.test_cuts import CASES, EVERYWHERE

from .server import Child
from .sse import open_stream
from .talk import ending, events_of, history, new_id, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from .sse import Event, Frame

ROOT = Path(__file__).parent.parent.parent
GRACE = 1.0
NOTHING = {"active": 0, "left_behind": 0, "playing": 0, "tasks": []}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Child]:
    command = [sys.executable, "-m", "uvicorn", "tests.e2e.adk_app:app", "--port", "0"]
    folder = tmp_path_factory.mktemp("adk")
    store = f"sqlite:///{folder / 'ambient.db'}"
    env = {"PYTHONPATH": str(ROOT), "AMBIENT_STOP_GRACE": str(GRACE), "AMBIENT_STORE": store}
    with Child(command, cwd=folder, env=env) as child:
        yield child


async def post(url: str, case: str, body: Event) -> list[Event]:
    async with open_stream(f"{url}/agents/{case}", "POST", body=body) as stream:
        assert stream.status == 200, await stream.body()
        return events_of(await stream.rest())


async def leave(url: str, case: str, thread: str, at: int, policy: str) -> list[Frame]:
    """Start a run that is held after so many events, read those, and be gone."""
    headers = {"X-Ambient-On-Disconnect": policy}
    body = run_input(thread, f"cut {at}" if case != "hanging" else "hang")
    async with open_stream(f"{url}/agents/{case}", "POST", body=body, headers=headers) as stream:
        seen = await stream.read(at)
        stream.cut()
    return seen


async def held(client: httpx.AsyncClient, *, wait: bool = True) -> dict[str, Any]:
    """What the server holds for runs. A run's task has a few last steps after its thread is free."""
    return (await client.get("/held", params={"wait": wait})).json()


async def goes_on(url: str, case: str, thread: str, last: list[Event]) -> None:
    """The thread takes another message, or the answer it waits for."""
    if ending(last) == "interrupt":
        [question] = last[-1]["outcome"]["interrupts"]
        entry = {"interruptId": question["id"], "status": "resolved", "payload": {"confirmed": True}}
        assert ending(await post(url, case, run_input(thread, resume=[entry]))) == "success"
    else:
        again = await post(url, case, run_input(thread, "again"))
        assert (ending(again), "Fine." in text_of(again)) == ("success", True)


def kinds(events: list[Event]) -> list[str]:
    """The kinds of events, whatever the order of agents side by side."""
    return sorted(event["type"] for event in events)


async def whole_of(url: str, case: str) -> list[Event]:
    return await post(url, case, run_input(new_id("thread"), "go"))


@pytest.mark.parametrize("policy", ["stop", "continue"])
@pytest.mark.parametrize("case", CASES)
async def test_a_client_that_leaves_decides_what_becomes_of_its_run(server: Child, case: str, policy: str) -> None:
    whole = await whole_of(server.url, case)
    anywhere = range(1, len(whole) - 1)  # the snapshot and the terminal are written when the run is over
    places = anywhere if case in EVERYWHERE else Random(case).sample(anywhere, min(5, len(anywhere)))
    async with httpx.AsyncClient(base_url=server.url) as client:
        for at in places:
            thread = new_id("thread")
            with anyio.fail_after(10):
                seen = await leave(server.url, case, thread, at, policy)
                if policy == "continue":
                    assert (await held(client, wait=False))["active"] == 1
                    await client.post(f"/go/{thread}")
                frames = await history(server.url, thread)
                assert await held(client) == NOTHING
            (events,) = split_runs(events_of(frames))
            assert frames[:at] == seen
            if policy == "stop":
                assert ending(events) == "cancelled"
            else:
                assert kinds(events) == kinds(whole)
            await goes_on(server.url, case, thread, events)


async def test_a_model_that_hangs_is_stopped_within_the_grace(server: Child) -> None:
    thread = new_id("thread")
    async with httpx.AsyncClient(base_url=server.url) as client:
        await leave(server.url, "hanging", thread, 3, "stop")
        with anyio.fail_after(GRACE + 2.0):
            frames = await history(server.url, thread)
        assert await held(client) == NOTHING
    (events,) = split_runs(events_of(frames))
    assert (ending(events), text_of(events)) == ("cancelled", "A")
    await goes_on(server.url, "hanging", thread, events)


async def test_a_model_that_hangs_goes_on_when_its_client_says_so(server: Child) -> None:
    thread = new_id("thread")
    async with httpx.AsyncClient(base_url=server.url) as client:
        await leave(server.url, "hanging", thread, 3, "continue")
        meanwhile = await held(client, wait=False)
        assert (meanwhile["active"], meanwhile["playing"]) == (1, 1)
        assert (await client.post("/interrupt", json={"threadId": thread})).status_code == 200
        with anyio.fail_after(GRACE + 2.0):
            (events,) = split_runs(events_of(await history(server.url, thread)))
        assert await held(client) == NOTHING
    assert ending(events) == "cancelled"
