"""F13: many readers resume at once, in the middle of many threads, as when a proxy restarts. Each gets what follows its cursor, once."""

from __future__ import annotations

import random
import resource
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.e2e.sse import open_stream
from tests.e2e.talk import events_of, history, new_id, numbers, run_input, text_of
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.server import Child
    from tests.e2e.sse import Frame

COUNT = 100


@pytest.fixture
def size(long: bool) -> tuple[int, int, int]:
    """Number of threads and of readers, and milliseconds between events: a run lasts longer than all readers take to resume."""
    return (50, 1000, 40) if long else (10, 100, 20)


@pytest.fixture(autouse=True)
def enough_descriptors() -> Iterator[None]:
    """Let the test and its server open a socket for every reader."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def begin(server: Child, thread: str, pace: int, seen: dict[str, list[str]], dice: random.Random) -> None:
    """Start a run on the thread and note the cursors of its first events."""
    async with open_stream(f"{server.url}/", "POST", body=run_input(thread, f"count {COUNT} every {pace}ms")) as stream:
        frames = await stream.read(dice.randrange(5, 30))
    seen[thread] = [frame.id for frame in frames if frame.id]


async def test_f13_every_reader_that_resumes_gets_what_follows_its_cursor_once(
    server: Child, size: tuple[int, int, int]
) -> None:
    threads, readers, pace = size
    dice = random.Random(16)
    seen: dict[str, list[str]] = {}
    got: list[tuple[str, str, list[Frame]]] = []

    async def resume(url: str, thread: str, cursor: str) -> None:
        headers = {"Last-Event-ID": cursor}
        async with open_stream(f"{url}/threads/{thread}/events?until=idle&snapshots=all", headers=headers) as stream:
            got.append((thread, cursor, [frame for frame in await stream.rest() if frame.id]))

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            for _ in range(threads):
                tasks.start_soon(begin, server, new_id("thread"), pace, seen, dice)
        async with anyio.create_task_group() as tasks:
            for _ in range(readers):
                thread = dice.choice(list(seen))
                tasks.start_soon(resume, server.url, thread, dice.choice(seen[thread]))
        stored = {thread: await history(server.url, thread) for thread in seen}
    assert len(got) == readers
    assert all(text_of(events_of(frames)) == numbers(COUNT) for frames in stored.values())
    wrong = [
        (thread, cursor)
        for thread, cursor, frames in got
        if [frame.raw for frame in frames] != frames_after(stored[thread], cursor)
    ]
    assert wrong == []


def frames_after(frames: list[Frame], cursor: str) -> list[bytes]:
    ids = [frame.id for frame in frames]
    return [frame.raw for frame in frames[ids.index(cursor) + 1 :] if frame.id]
