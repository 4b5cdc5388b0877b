"""Cursors of another thread, ahead of it, expired or garbage: refused, or answered with a gap.

Never silence, and never everything again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from tests.e2e.server import serving
from tests.e2e.sse import open_stream
from tests.e2e.talk import events_of, history, new_id, run, run_input, split_runs
from tests.machine_speed import unless_hung

from .comparison import compare, position_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.e2e.server import Child
    from tests.e2e.sse import Event, Frame


def refusal(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    return response.status_code, response.json()["error"]["code"]


@pytest.fixture(scope="module")
async def finished_thread(server: Child) -> tuple[str, list[Frame]]:
    """A finished thread and its frames."""
    thread = new_id("thread")
    return thread, await run(server.url, run_input(thread, "count 5"))


GARBAGE = (
    "x",
    "-1",
    "0",
    "1",
    "12.5.7",
    "..",
    ".",
    "%00",
    "null",
    "undefined",
    "NaN",
    "x" * 10_000,
    "épöch.1",
    "٣.٣",
    "a.-1",
    "a.+1",
    "a.1e3",
    "a.0x1",
    "a. 1",
    "'; drop table entries; --",
)


@pytest.mark.parametrize("cursor", GARBAGE, ids=lambda cursor: cursor[:12])
async def test_f06_a_cursor_that_is_not_one_of_ours_is_refused(
    http: httpx.AsyncClient, finished_thread: tuple[str, list[Frame]], cursor: str
) -> None:
    thread, _ = finished_thread
    path = f"/threads/{thread}/events?until=idle"
    with unless_hung():
        asked = await http.get(path, params={"after": cursor, "until": "idle"})
        headed = await http.get(path, headers={b"Last-Event-ID": cursor.encode()})
    assert [refusal(asked), refusal(headed)] == [(400, "invalid_cursor")] * 2


async def test_f06_a_cursor_ahead_or_of_another_thread_is_stale(
    server: Child, http: httpx.AsyncClient, finished_thread: tuple[str, list[Frame]]
) -> None:
    thread, frames = finished_thread
    with unless_hung():
        other = await run(server.url, run_input(new_id("thread"), "count 5"))
        epoch, _, last = frames[-1].id.rpartition(".")
        stale = {
            "ahead by one": f"{epoch}.{int(last) + 1}",
            "far ahead": f"{epoch}.{10**9}",
            "beyond any integer": f"{epoch}.{10**30}",
            "of another thread": other[-1].id,
        }
        found = {
            name: refusal(await http.get(f"/threads/{thread}/events", params={"after": cursor, "until": "idle"}))
            for name, cursor in stale.items()
        }
    found_beyond = found.pop("beyond any integer")
    assert found == dict.fromkeys(found, (409, "stale_cursor"))
    assert found_beyond in {(409, "stale_cursor"), (400, "invalid_cursor")}


async def test_f06_a_negative_position_is_refused(
    http: httpx.AsyncClient, finished_thread: tuple[str, list[Frame]]
) -> None:
    thread, frames = finished_thread
    epoch = frames[-1].id.rpartition(".")[0]
    with unless_hung():
        answer = await http.get(f"/threads/{thread}/events", params={"after": f"{epoch}.-3", "until": "idle"})
    assert refusal(answer) == (400, "invalid_cursor")


async def test_f06_after_the_newest_cursor_nothing_is_sent_again(
    server: Child, finished_thread: tuple[str, list[Frame]]
) -> None:
    thread, frames = finished_thread
    with unless_hung():
        assert await history(server.url, thread, after=frames[-1].id) == []


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """A server that retains twenty entries of a thread."""
    with serving(tmp_path_factory.mktemp("trimmed") / "ambient.db", env={"AMBIENT_RETAIN": "20"}) as server:
        yield server


async def test_f06_an_expired_cursor_is_answered_with_a_gap_and_what_is_retained(trimmed: Child) -> None:
    """The gap is a run of its own without ids; after it comes everything that is retained, once."""
    thread = new_id("thread")
    with unless_hung():
        first = await run(trimmed.url, run_input(thread, "count 50"))
        last = [await run(trimmed.url, run_input(thread, "count 50")) for _ in range(3)][-1]
        before = position_of(last[0].id) - 1
        resumed, runs = await read_trimmed(trimmed.url, thread, first[3].id, before)
    gap = next(event for event in runs[0] if event["type"] == "CUSTOM")
    assert (gap["name"], gap["value"]) == ("ambient:gap", {"after": position_of(first[3].id), "before": before})
    assert [frame.id for frame in resumed[: len(runs[0])]] == [""] * len(runs[0])
    assert not compare(resumed, last)


async def read_trimmed(url: str, thread: str, cursor: str, before: int) -> tuple[list[Frame], list[list[Event]]]:
    """Resume until retention, which follows the end of a run, has trimmed the thread; return the frames and their runs."""
    while True:
        frames = await history(url, thread, after=cursor)
        runs = split_runs(events_of(frames))
        if runs[0][1].get("value", {}).get("before") == before:
            return frames, runs


async def test_f30_m2_a_reader_that_begins_while_retention_trims_is_not_refused(trimmed: Child) -> None:
    """Retention follows the end of a run, which is when the next client begins to read."""
    thread, refused, opened, is_over = new_id("thread"), list[bytes](), 0, False

    async def read_again_and_again(url: str, cursor: str) -> None:
        nonlocal opened
        while not is_over:
            async with open_stream(url, headers={"Last-Event-ID": cursor} if cursor else {}) as stream:
                refused.extend([] if stream.status == 200 else [await stream.body()])
                opened += 1

    with unless_hung():
        url = f"{trimmed.url}/threads/{thread}/events?until=idle"
        first = await run(trimmed.url, run_input(thread, "count 50"))
        async with anyio.create_task_group() as tasks:
            for cursor in ("", first[3].id, "", first[3].id):
                tasks.start_soon(read_again_and_again, url, cursor)
            for _ in range(40):
                await run(trimmed.url, run_input(thread, "count 50"))
            is_over = True
    assert opened > 40
    assert refused == []
