"""Erasure: after DELETE no byte of the thread is on disk, its readers end, and its id begins a new life."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.machine_speed import HANG_SECONDS, unless_hung

from .server import serving, start
from .sse import open_stream
from .talk import ending, events_of, history, new_id, numbers, one_run, run, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .server import Child


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("erasure") / "ambient.db"


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Child]:
    with serving(store) as child:
        yield child


def files_with(store: Path, marker: str) -> list[str]:
    """The files beside the database, and itself, that hold the marker."""
    return [file.name for file in sorted(store.parent.iterdir()) if marker.encode() in file.read_bytes()]


async def tell_everything(server: Child, http: httpx.AsyncClient, thread: str, marker: str) -> None:
    """Put the marker wherever a thread keeps text: messages, arguments, results, state, titles, questions."""
    for command in (f"say {marker} " * 200, f"weather {marker}", f"split {marker}"):
        await run(server.url, run_input(thread, command), headers={"Idempotency-Key": new_id("key")})
    state = {"note": marker}
    await run(server.url, run_input(thread, "state", state=state, forwardedProps={"x": marker}))
    patched = await http.patch(f"/state/{thread}", json=[{"op": "add", "path": "/patched", "value": marker}])
    assert patched.status_code == 200, patched.text
    for number in range(200):
        renamed = await http.patch(f"/thread/{thread}", json={"title": f"{number} {marker}"})
        assert renamed.status_code == 200, renamed.text
    await run(server.url, run_input(thread, f"approve {marker}"))


async def test_no_byte_of_an_erased_thread_stays_on_disk(server: Child, http: httpx.AsyncClient, store: Path) -> None:
    marker, thread, other = f"marker{uuid4().hex}", new_id("thread"), new_id("thread")
    with unless_hung():
        await run(server.url, run_input(other, "say I am somebody else"))
        await tell_everything(server, http, thread, marker)
        assert files_with(store, marker) != []
        deleted = await http.delete(f"/thread/{thread}")
        found = files_with(store, marker)
        neighbor = events_of(await history(server.url, other))
    assert (deleted.status_code, deleted.json()) == (200, {"threadId": thread, "deleted": True})
    assert found == []
    assert text_of(neighbor) == "I am somebody else"


async def test_an_erased_thread_is_unknown_everywhere(server: Child, http: httpx.AsyncClient) -> None:
    thread = new_id("thread")
    with unless_hung():
        await run(server.url, run_input(thread, "hello"))
        await http.delete(f"/thread/{thread}")
        answers = [
            await http.get(f"/message_snapshot/{thread}"),
            await http.get(f"/state_snapshot/{thread}"),
            await http.get(f"/threads/{thread}/events?until=idle"),
            await http.post("/interrupt", json={"threadId": thread}),
            await http.patch(f"/thread/{thread}", json={"title": "Rome"}),
            await http.delete(f"/thread/{thread}"),
        ]
        listed = [entry["threadId"] for entry in (await http.get("/thread/list")).json()["threads"]]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(404, "unknown_thread")] * 6
    assert thread not in listed


async def test_an_unknown_thread_cannot_be_erased(http: httpx.AsyncClient) -> None:
    answer = await http.delete(f"/thread/{new_id('thread')}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_thread")


async def test_readers_of_an_erased_thread_end(server: Child, http: httpx.AsyncClient) -> None:
    thread = new_id("thread")
    with unless_hung():
        told = await run(server.url, run_input(thread, "hello"))
        async with open_stream(f"{server.url}/threads/{thread}/events") as watched:
            assert await watched.read(len(told)) == told
            await http.delete(f"/thread/{thread}")
            rest = await watched.rest()
    assert rest == []


async def test_erasing_during_a_run_stops_it(server: Child, http: httpx.AsyncClient, store: Path) -> None:
    """The poster's stream ends properly, the agent is stopped, and what it said is gone."""
    thread, marker = new_id("thread"), f"marker{uuid4().hex}"
    with unless_hung():
        await run(server.url, run_input(thread, f"say {marker}"))
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 100000 every 1ms")) as stream:
            await stream.read(30)
            deleted = await http.delete(f"/thread/{thread}")
            await stream.rest()
        again = await http.post("/interrupt", json={"threadId": thread})
        fresh = events_of(await run(server.url, run_input(thread, "count 3")))
    assert (deleted.status_code, stream.ended, again.status_code) == (200, True, 404)
    assert files_with(store, marker) == []
    assert (ending(fresh), text_of(fresh)) == ("success", numbers(3))


async def test_a_reused_thread_id_refuses_old_cursors(server: Child, http: httpx.AsyncClient) -> None:
    thread = new_id("thread")
    with unless_hung():
        old = await run(server.url, run_input(thread, "count 3"))
        await http.delete(f"/thread/{thread}")
        new = await run(server.url, run_input(thread, "count 30"))
        answers = [
            await http.get(f"/threads/{thread}/events", headers={"Last-Event-ID": frame.id})
            for frame in old
            if frame.id
        ]
        snapshot = (await http.get(f"/message_snapshot/{thread}")).json()
        frames = await history(server.url, thread)
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(409, "stale_cursor")}
    assert [frame.raw for frame in frames] == [frame.raw for frame in new]
    assert [message["content"] for message in snapshot["messages"]] == ["count 30", numbers(30)]
    one_run(events_of(frames))


async def test_the_key_of_an_erased_run_is_gone(server: Child, http: httpx.AsyncClient) -> None:
    """A late retry must not start the run again under the old key."""
    thread, key = new_id("thread"), {"Idempotency-Key": new_id("key")}
    body = run_input(thread, "count 3")
    with unless_hung():
        await run(server.url, body, headers=key)
        await http.delete(f"/thread/{thread}")
        answer = await http.post("/", json=body, headers=key)
        unknown = await http.get(f"/message_snapshot/{thread}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "run_gone")
    assert unknown.status_code == 404


async def test_an_erasure_survives_a_kill(tmp_path: Path) -> None:
    marker, thread, store = f"marker{uuid4().hex}", new_id("thread"), tmp_path / "ambient.db"
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, store)
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
            await run(server.url, run_input(thread, f"say {marker}"))
            deleted = await http.delete(f"/thread/{thread}")
        await anyio.to_thread.run_sync(server.kill)
        assert (deleted.status_code, files_with(store, marker)) == (200, [])
        with await anyio.to_thread.run_sync(start, store) as again:
            async with httpx.AsyncClient(base_url=again.url, timeout=HANG_SECONDS) as http:
                assert (
                    json.loads((await http.get(f"/message_snapshot/{thread}")).content)["error"]["code"]
                    == "unknown_thread"
                )
            frames = await run(again.url, run_input(thread, "hello"))
            assert len(split_runs(events_of(frames))) == 1
            assert files_with(store, marker) == []
