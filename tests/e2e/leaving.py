"""Clients that leave in the middle of a run, and what has to be true then, whatever the agent is made with.

The server is one of the apps whose runs `held.py` holds: an agent for each case, and `hanging`, whose model says "A " and no more.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.machine_speed import HANG_SECONDS, promised_within, unless_hung

from .held import HELD
from .server import Child
from .sse import open_stream
from .talk import ending, events_of, history, new_id, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from .sse import Event, Frame

ROOT = Path(__file__).parent.parent.parent
GRACE = 1.0
NOTHING = {"active": 0, "left_behind": 0, "playing": 0, "tasks": [], "sdk_tasks": 0}


@contextmanager
def serving(app: str, directory: Path) -> Generator[Child]:
    """The app under uvicorn, on a SQLite file."""
    store = f"sqlite:///{directory / 'ambient.db'}"
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    env = {"PYTHONPATH": path, "AMBIENT_STOP_GRACE": str(GRACE), "AMBIENT_STORE": store}
    with Child([sys.executable, "-m", "uvicorn", app, "--port", "0"], cwd=directory, env=env) as child:
        yield child


@dataclass(frozen=True, kw_only=True)
class Client:
    """Talks to one agent. `fine` is what that says to "again", `answer` what its questions are answered with."""

    url: str
    agent: str
    fine: str
    answer: Any
    tools: list[Event] = field(default_factory=list)

    async def post(self, thread: str, words: str | None = None, **more: Any) -> list[Event]:
        async with open_stream(self._door, "POST", body=self._body(thread, words, **more)) as stream:
            assert stream.status == 200, await stream.body()
            return events_of(await stream.rest())

    async def leave(self, thread: str, words: str, policy: str, *, at: int | None = None) -> list[Frame]:
        """Start a run, read so many events, or those until it is held, and be gone."""
        headers = {"X-Ambient-On-Disconnect": policy}
        async with open_stream(self._door, "POST", body=self._body(thread, words), headers=headers) as stream:
            seen = await stream.read(at or 1)
            while at is None and not _is_held(events_of(seen)[-1]):
                seen += await stream.read(1)
            stream.cut()
        return seen

    async def goes_on(self, thread: str, last: list[Event]) -> None:
        """The thread takes another message, or the answer it waits for."""
        if ending(last) == "interrupt":
            [question] = last[-1]["outcome"]["interrupts"]
            entry = {"interruptId": question["id"], "status": "resolved", "payload": self.answer}
            assert ending(await self.post(thread, resume=[entry])) == "success"
        else:
            again = await self.post(thread, "again")
            assert (ending(again), self.fine in text_of(again)) == ("success", True)

    @property
    def _door(self) -> str:
        return f"{self.url}/agents/{self.agent}"

    def _body(self, thread: str, words: str | None, **more: Any) -> Event:
        return run_input(thread, words, **{"tools": self.tools, **more})


async def held(http: httpx.AsyncClient, *, wait: bool = True) -> dict[str, Any]:
    """What the server holds for runs. A run's task has a few last steps after its thread is free."""
    return (await http.get("/held", params={"wait": wait})).json()


def kinds(events: list[Event]) -> list[str]:
    """The kinds of events, whatever the order of agents side by side."""
    return sorted(event["type"] for event in events if not _is_held(event))


def _is_held(event: Event) -> bool:
    return event["type"] == "CUSTOM" and event["name"] == HELD


async def check_leaving(client: Client, policy: str, places: Callable[[range], Iterable[int]]) -> None:
    """Leave at these of all places: the run stops or goes on as `policy` says, nothing stays behind, and the next run works."""
    whole = await client.post(new_id("thread"), "go")
    anywhere = range(1, len(whole) - 1)  # the snapshot and the terminal are written when the run is over
    async with httpx.AsyncClient(base_url=client.url, timeout=HANG_SECONDS) as http:
        for at in places(anywhere):
            thread = new_id("thread")
            with unless_hung():
                seen = await client.leave(thread, f"cut {at}", policy)
                if policy == "continue":
                    assert (await held(http, wait=False))["active"] == 1
                    await http.post(f"/go/{thread}")
                frames = await history(client.url, thread)
                assert await held(http) == NOTHING
            (events,) = split_runs(events_of(frames))
            assert frames[: len(seen)] == seen
            if policy == "stop":
                assert ending(events) == "cancelled"
            else:
                assert kinds(events) == kinds(whole)
            await client.goes_on(thread, events)


async def check_a_hanging_model_is_stopped(client: Client) -> None:
    thread = new_id("thread")
    async with httpx.AsyncClient(base_url=client.url, timeout=HANG_SECONDS) as http:
        await client.leave(thread, "hang", "stop", at=3)
        with promised_within(GRACE + 2.0):
            frames = await history(client.url, thread)
        assert await held(http) == NOTHING
    (events,) = split_runs(events_of(frames))
    assert (ending(events), text_of(events)) == ("cancelled", "A ")
    await client.goes_on(thread, events)


async def check_a_hanging_model_goes_on_until_it_is_stopped(client: Client) -> None:
    thread = new_id("thread")
    async with httpx.AsyncClient(base_url=client.url, timeout=HANG_SECONDS) as http:
        await client.leave(thread, "hang", "continue", at=3)
        meanwhile = await held(http, wait=False)
        assert (meanwhile["active"], meanwhile["playing"]) == (1, 1)
        assert (await http.post("/interrupt", json={"threadId": thread})).status_code == 200
        with promised_within(GRACE + 2.0):
            (events,) = split_runs(events_of(await history(client.url, thread)))
        assert await held(http) == NOTHING
    assert ending(events) == "cancelled"
    await client.goes_on(thread, events)


async def check_tasks_of_the_sdk_are_seen(client: Client, words: str) -> None:
    """While agents run side by side the SDK has tasks of its own, so that none afterwards means something."""
    thread = new_id("thread")
    async with httpx.AsyncClient(base_url=client.url, timeout=HANG_SECONDS) as http:
        await client.leave(thread, words, "continue", at=5)
        meanwhile = await held(http, wait=False)
        assert (meanwhile["active"], meanwhile["playing"] > 0, meanwhile["sdk_tasks"] > 0) == (1, True, True)
        assert (await http.post("/interrupt", json={"threadId": thread})).status_code == 200
        with unless_hung():
            (events,) = split_runs(events_of(await history(client.url, thread)))
            assert await held(http) == NOTHING
    assert ending(events) == "cancelled"
    await client.goes_on(thread, events)
