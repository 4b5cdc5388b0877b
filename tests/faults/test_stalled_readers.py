"""F11: clients that do not read. Each costs the server little memory, is disconnected after `slow_reader`, and slows nobody down."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from tests.e2e.server import start
from tests.e2e.talk import new_id, run_input
from tests.faults.harness import AGENTS, start_server
from tests.faults.metrics import read_metric
from tests.faults.slow_clients import open_slow_stream, open_stalled_socket
from tests.machine_speed import HANG_SECONDS, promised_within, unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator
    from contextlib import AbstractAsyncContextManager

    from tests.e2e.server import Child

READERS = 100
EVENTS = 88_000
"""Events of a thread of 12 MB: more than all buffers between the server and a client hold."""
MIB = 1 << 20
SLOW_READER = 2.0  # seconds
HEARTBEAT = 600.0  # seconds
LARGE_BYTES = 7 * MIB
"""Size of a message, and of a file that is searched for secrets before it is sent."""
STREAMED_BYTES = 20 * MIB
"""Size of a file that is too large to be searched."""
STALLED = 6
DISCONNECTED = "ambient_slow_clients_disconnected_total"
FILES = f"default={AGENTS}:FileBridge"
POLL_INTERVAL = 0.05


def memory_of(server: Child) -> int:
    """Return the resident memory of the server in bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def cpu_of(server: Child) -> int:
    """Return the processor time that the server has used, in clock ticks."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def sockets_of(server: Child) -> int:
    links = Path(f"/proc/{server.pid}/fd").iterdir()
    return sum(link.is_symlink() and str(link.readlink()).startswith("socket:") for link in links)


async def wait_until_stable(read: Callable[[], int]) -> int:
    """Return the value once it has not changed for ten polls."""
    seen = [read()]
    while len(seen) < 10 or len(set(seen[-10:])) > 1:
        await anyio.sleep(POLL_INTERVAL)
        seen.append(read())
    return seen[-1]


async def wait_until_idle(server: Child) -> None:
    """Return once the server has used less than a twentieth of a core for half a second: no reader gets anything more."""
    ticks = os.sysconf("SC_CLK_TCK") / 40
    before = cpu_of(server) - ticks
    while (used := cpu_of(server)) - before >= ticks:
        before = used
        await anyio.sleep(0.5)


@contextmanager
def stalled_readers(server: Child, path: str, count: int) -> Generator[None]:
    with ExitStack() as sockets:
        for _ in range(count):
            sockets.enter_context(open_stalled_socket(server.url, path))
        yield


async def read_quickly(response: AbstractAsyncContextManager[httpx.Response]) -> None:
    """Read a stream as fast as it comes, and check that it has the whole run."""
    body = bytearray()
    async with response as stream:
        async for piece in stream.aiter_raw():
            body += piece
    assert body.count(b'"TEXT_MESSAGE_CONTENT"') == EVENTS
    assert body.count(b'"RUN_FINISHED"') == 1


async def count_up(server: Child, thread: str) -> None:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        body = run_input(thread, f"count {EVENTS}")
        await read_quickly(client.stream("POST", server.url, json=body))


async def replay(server: Child, thread: str) -> None:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        await read_quickly(client.stream("GET", f"{server.url}/threads/{thread}/events?until=idle"))


async def cpu_of_a_run(server: Child) -> int:
    """Return the least processor time that the server has used for a run, of two."""
    used: list[int] = []
    for _ in range(2):
        before = cpu_of(server)
        await count_up(server, new_id("thread"))
        used.append(cpu_of(server) - before)
    return min(used)


@pytest.fixture(scope="module")
async def impatient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Child]:
    """A server of files that disconnects clients after `SLOW_READER`."""
    store = tmp_path_factory.mktemp("impatient") / "ambient.db"
    with await start_server(store, FILES, env={"AMBIENT_SLOW_READER": str(SLOW_READER)}) as server:
        yield server


async def store_large_content(server: Child, thread: str) -> list[str]:
    """Give a thread a large message and two files. Return the paths to read them from."""
    async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
        body = run_input(thread, "count 1")
        body["messages"].insert(0, {"id": new_id("user"), "role": "user", "content": "x" * LARGE_BYTES})
        (await client.post("/", json=body)).raise_for_status()
        for name, size in (("searched", LARGE_BYTES), ("streamed", STREAMED_BYTES)):
            headers = {"Content-Type": "application/octet-stream"}
            url = f"/files?name={name}&threadId={thread}"
            (await client.post(url, content=os.urandom(size), headers=headers)).raise_for_status()
    return [
        f"/message_snapshot/{thread}",
        f"/copilotkit/threads/{thread}/messages",
        f"/files/searched?threadId={thread}",
        f"/files/streamed?threadId={thread}",
    ]


async def read_whole(server: Child, path: str) -> bytes:
    async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
        return (await client.get(path)).raise_for_status().content


async def test_f11_m5_a_plain_response_that_nobody_reads_costs_its_body_and_a_mebibyte(tmp_path: Path) -> None:
    """A file that is searched for secrets took 28 MiB for each client, because of its decoded copies."""
    limits = {"AMBIENT_SLOW_READER": str(HEARTBEAT)}
    with unless_hung(), await start_server(tmp_path / "ambient.db", FILES, env=limits) as server:
        thread = new_id("thread")
        await store_large_content(server, thread)
        for path in (f"/message_snapshot/{thread}", f"/files/searched?threadId={thread}"):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):  # What making the response takes for a moment is no cost of a client that stalls.
                    tasks.start_soon(read_whole, server, path)
            before = await wait_until_stable(lambda: memory_of(server))
            with stalled_readers(server, path, STALLED):
                await wait_until_idle(server)
                assert (memory_of(server) - before) / STALLED <= LARGE_BYTES + MIB, path
            await wait_until_idle(server)


async def test_f11_m5_a_plain_response_that_nobody_reads_is_cut_after_slow_reader(impatient: Child) -> None:
    """Only clients of event streams were disconnected: the connections of 50 clients were open for as long as they wished."""
    server, already = impatient, await read_metric(impatient.url, DISCONNECTED)
    with unless_hung():
        paths = await store_large_content(server, new_id("thread"))
        before = await wait_until_stable(lambda: sockets_of(server))
        with ExitStack() as stalled:
            for path in paths:
                stalled.enter_context(stalled_readers(server, path, STALLED))
            while sockets_of(server) < before + len(paths) * STALLED:
                await anyio.sleep(POLL_INTERVAL)
            await wait_until_idle(server)
            with promised_within(2 * SLOW_READER + 1):
                while sockets_of(server) > before:
                    await anyio.sleep(POLL_INTERVAL)
        assert await read_metric(server.url, DISCONNECTED) - already == len(paths) * STALLED
        for path in paths:
            assert len(await read_whole(server, path)) >= LARGE_BYTES
        assert "ASGI" not in server.output


async def test_f11_m5_a_client_that_reads_slowly_but_steadily_gets_the_whole_file(impatient: Child) -> None:
    """The server waits longer than `slow_reader` until it can send the next piece, because the kernel's buffers are large."""
    server, already, thread = impatient, await read_metric(impatient.url, DISCONNECTED), new_id("thread")
    with unless_hung():
        await store_large_content(server, thread)
        async with open_slow_stream(server.url, f"/files/streamed?threadId={thread}") as stream:
            received, steady_until = 0, time.monotonic() + 3 * SLOW_READER
            while chunk := await stream.chunk():
                received += len(chunk)
                if time.monotonic() < steady_until:
                    await anyio.sleep(SLOW_READER / 5)  # The pace of the client, not a wait.
        assert received == STREAMED_BYTES
        assert await read_metric(server.url, DISCONNECTED) == already


async def test_f11_m5_a_reader_that_stalls_costs_a_mebibyte_and_nobody_else_is_slower(tmp_path: Path) -> None:
    thread = new_id("thread")
    limits = {"AMBIENT_SLOW_READER": str(HEARTBEAT)}  # None is disconnected meanwhile.
    with unless_hung(), start(tmp_path / "ambient.db", env=limits) as server:
        await count_up(server, thread)
        alone = await cpu_of_a_run(server)
        async with anyio.create_task_group() as tasks:
            for _ in range(4):  # What reading the store takes for a moment is no cost of a reader that stalls.
                tasks.start_soon(replay, server, thread)
        before = await wait_until_stable(lambda: memory_of(server))
        with stalled_readers(server, f"/threads/{thread}/events", READERS):
            while await read_metric(server.url, "ambient_streams_open") < READERS:
                await anyio.sleep(POLL_INTERVAL)
            await wait_until_idle(server)
            assert (memory_of(server) - before) / READERS <= MIB
            beside = await cpu_of_a_run(server)
            assert await read_metric(server.url, "ambient_streams_open") == READERS
    # 30 %: a busy machine measures no better.
    assert beside <= alone * 1.3 + 3


async def test_f11_m5_a_reader_that_stalls_is_cut_after_slow_reader_although_the_heartbeat_is_longer(
    tmp_path: Path,
) -> None:
    thread = new_id("thread")
    limits = {"AMBIENT_SLOW_READER": str(SLOW_READER), "AMBIENT_HEARTBEAT": str(HEARTBEAT)}
    with unless_hung(), start(tmp_path / "ambient.db", env=limits) as server:
        await count_up(server, thread)
        before = await wait_until_stable(lambda: sockets_of(server))  # The connections of the run are closing.
        with stalled_readers(server, f"/threads/{thread}/events", 10):
            while await read_metric(server.url, "ambient_streams_open") < 10:
                await anyio.sleep(POLL_INTERVAL)
            assert sockets_of(server) >= before + 10
            with promised_within(2 * SLOW_READER + 1):
                while await read_metric(server.url, "ambient_streams_open"):
                    await anyio.sleep(POLL_INTERVAL)
            assert await read_metric(server.url, DISCONNECTED) == 10
            # The connections are closed, although their clients still have not read.
            while sockets_of(server) > before:
                await anyio.sleep(POLL_INTERVAL)
        assert "ASGI" not in server.output
        await replay(server, thread)
