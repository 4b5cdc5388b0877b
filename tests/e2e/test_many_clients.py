"""Many clients on one thread, with the default policy for a busy thread: each retries until its message is accepted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio

from tests.machine_speed import unless_hung

from .server import start
from .sse import open_stream
from .talk import ending, events_of, new_id, numbers, run_input, split_runs, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from .sse import Frame

CLIENTS = 12
MESSAGES = 20


async def test_no_run_that_a_client_reads_is_superseded(tmp_path: Path) -> None:
    """The reader of an earlier run that left made the new run look unread, and the next message stopped it."""
    thread = new_id("thread")
    outcomes: list[tuple[str, str]] = []

    async def send_until_accepted(url: str, dice: random.Random) -> list[Frame]:
        body = run_input(thread, "count 5 every 1ms")
        while True:
            async with open_stream(f"{url}/", "POST", body=body) as stream:
                if stream.status == 200:
                    return await stream.rest()
            await anyio.sleep(dice.random() * 0.05)  # As a client backs off.

    async def chat(url: str, dice: random.Random) -> None:
        for _ in range(MESSAGES):
            (events,) = split_runs(events_of(await send_until_accepted(url, dice)))
            outcomes.append((ending(events), text_of(events)))

    with unless_hung(), start(tmp_path / "ambient.db") as server:
        async with anyio.create_task_group() as tasks:
            for client in range(CLIENTS):
                tasks.start_soon(chat, server.url, random.Random(client))
    assert outcomes == [("success", numbers(5))] * (CLIENTS * MESSAGES)
