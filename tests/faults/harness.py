"""The harness of the fault suite: an agent that counts, clients, a fault, and then every client's list against the ledger.

`Harness.run` starts a run that counts and clients that follow it, injects the fault while all of them are reading, waits until the run has
ended for every client, and checks the promise: nothing lost, nothing twice, order kept, one terminal event, the thread usable.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from tests.e2e.server import Child, start
from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run, run_input, split_runs, text_of
from tests.machine_speed import unless_hung

from .clients import Client
from .comparison import compare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from tests.e2e.sse import Event, Frame

__all__ = [
    "Harness",
    "Pair",
    "StopAnswer",
    "check_clients",
    "check_thread",
    "check_usable",
    "pause_outside_commit",
    "start_server",
    "stop_run",
]

Pair = tuple[Child, Child]
"""Two servers on one SQLite file: the fixture `pair`."""
ROOT = Path(__file__).parent.parent.parent
AGENTS = "tests.faults.agents"
"""Module of the agents that misbehave: `start_server(store, f"x={AGENTS}:poison")`."""


async def start_server(
    store: Path, *agents: str, env: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> Child:
    """Start a server on a SQLite file. Agents can be those of this package."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, **(env or {})}
    return await anyio.to_thread.run_sync(lambda: start(store, *agents, env=environment, options=options))


class StopAnswer(NamedTuple):
    """The response to a stop."""

    status: int
    body: Any


async def stop_run(url: str, thread: str = "") -> StopAnswer:
    """Ask a server to stop the run of a thread; without one, the only run."""
    body = {"threadId": thread} if thread else {}
    async with open_stream(f"{url}/interrupt", "POST", body=body) as stream:
        return StopAnswer(stream.status, msgspec.json.decode(await stream.body()))


async def pause_outside_commit(server: Child, store: Path) -> None:
    """Stop a server by SIGSTOP while it holds no lock of its store: one that is stopped inside a commit blocks all others."""
    while True:
        server.signal(signal.SIGSTOP)
        if await anyio.to_thread.run_sync(_is_unlocked, store):
            return
        server.signal(signal.SIGCONT)


def _is_unlocked(store: Path) -> bool:
    with closing(sqlite3.connect(store, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


@dataclass
class Harness:
    """One run under a fault. Change `urls` when a server moves."""

    urls: list[str]
    command: str = "count 300 every 5ms"
    count: int = 10
    """Number of clients besides the one that posts."""
    joined: int = 20
    """Frames that every client has when the fault comes."""
    history_url: str = ""
    """The server to read the ledger from; empty for the last of `urls`."""
    thread: str = field(default_factory=lambda: new_id("thread"))
    clients: list[Client] = field(default_factory=list[Client])

    async def run(self, fault: Callable[[], Awaitable[None]]) -> list[Event]:
        """Return the events of the run, after every check."""
        poster = Client(self.thread, self.urls)
        self.clients = [poster, *(Client(self.thread, self.urls, turn=turn) for turn in range(self.count))]
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._post, poster)
                await poster.has_received(1)
                for client in self.clients[1:]:
                    tasks.start_soon(client.follow)
                for client in self.clients:
                    await client.has_received(self.joined)
                await fault()
            (events,) = await check_thread(self.history_url or self.urls[-1], self.thread, self.clients)
        return events

    async def _post(self, poster: Client) -> None:
        await poster.post(run_input(self.thread, self.command))
        await poster.follow()


def check_clients(clients: Iterable[Client], stored: Sequence[Frame]) -> None:
    """Raises: AssertionError for a client whose frames are not exactly those of the ledger."""
    wrong = {number: found for number, client in enumerate(clients) if (found := compare(client.frames, stored))}
    assert wrong == {}


async def check_thread(url: str, thread: str, clients: Iterable[Client]) -> list[list[Event]]:
    """Compare clients that read everything with the ledger; check one terminal event per run, whole counts and a usable thread.

    Return the runs of the ledger.
    """
    stored = await history(url, thread)
    check_clients(clients, stored)
    runs = split_runs(events_of(stored))
    for events in runs:
        text = text_of(events)
        assert text == numbers(text.count(" "))
    await check_usable(url, thread)
    return runs


async def check_usable(url: str, thread: str) -> None:
    """Run the agent once more on the thread."""
    again = events_of(await run(url, run_input(thread, "count 3")))
    assert (ending(again), text_of(again)) == ("success", numbers(3))
