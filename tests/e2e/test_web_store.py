"""Stores of `@ambient-runner/core` in a Node process, over a network that breaks all the time and a server that is killed.

120 cuts and 3 kills for each audience by default, 1,000 and 20 with `--long`.
"""

from __future__ import annotations

import json
import random
import re
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.machine_speed import HANG_SECONDS, unless_hung

from .cutting_proxy import CuttingProxy
from .server import start
from .talk import events_of, history, new_id, run, run_input, split_runs
from .web_packages import WEB, build_packages, run_node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import Process

    from .server import Child
    from .sse import Frame

CLIENTS = Path(__file__).with_name("clients")
TOOLS = ("weather Lisbon", "two", "color red", "approve the deploy")
OTHERS = (
    *(
        "count 300",
        "count 150 every 5ms",
        "count 150 every 5ms",
        "count 60 every 2ms",
        "think",
        "state",
        "steps",
        "subagent",
    ),
    *("crash", "say é 😀 ü", "split abcdefghijklmnop"),
)
COMMANDS = {"open": (*TOOLS, *OTHERS), "safe": (*TOOLS, *TOOLS, "count 150 every 5ms")}
"""What the stores say, by audience. Only `safe` has entries of several frames, of which the last has the cursor: those of tool calls."""
TABS = 8
STREAMS_OPEN = re.compile(r"^ambient_streams_open (\d+)", re.MULTILINE)
ESTABLISHED = "01"
"""The state of a connection in `/proc/net/tcp`."""
LONGEST_LINE = 1 << 26

Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    build_packages()


@asynccontextmanager
async def node(program: str, *arguments: str) -> AsyncGenerator[Process]:
    """A Node program with pipes. It is killed if it has not ended at the end of the block."""
    command = ["node", str(CLIENTS / program), *arguments]
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def tell(process: Process, line: str) -> None:
    assert process.stdin is not None
    await process.stdin.send(f"{line}\n".encode())


async def read_all(process: Process) -> bytes:
    assert process.stdout is not None
    return b"".join([chunk async for chunk in process.stdout])


class KilledServer:
    """A demo server behind a proxy, killed with -9 and started again on the same file."""

    def __init__(self, store: Path, audience: str, proxy: CuttingProxy) -> None:
        self._start = partial(start, store, env={"AMBIENT_AUDIENCE": audience})
        self._proxy = proxy
        self.child: Child

    async def start(self) -> None:
        self.child = await anyio.to_thread.run_sync(self._start)
        self._proxy.connect_to(self.child.port)

    async def kill(self) -> None:
        self._proxy.disconnect()
        await anyio.to_thread.run_sync(self.child.kill)


async def talk_over_cuts(
    store: Path, audience: str, seed: int, *, cuts: int, kills: int
) -> tuple[list[Json], list[list[Frame]]]:
    """Let the stores talk until so many streams were cut. Returns what they have, and the histories of their threads."""
    proxy = CuttingProxy(random.Random(seed))
    server = KilledServer(store, audience, proxy)
    printed = bytearray()
    async with proxy.listening() as url:
        await server.start()
        try:
            async with (
                node("web_store.mjs", url, str(seed), *COMMANDS[audience]) as process,
                anyio.create_task_group() as tasks,
            ):

                async def cut_and_kill() -> None:
                    for kill in range(1, kills + 1):
                        await proxy.reached(kill * cuts // (kills + 1))
                        await server.kill()
                        await server.start()
                    await proxy.reached(cuts)
                    await tell(process, server.child.url)

                tasks.start_soon(cut_and_kill)
                printed += await read_all(process)
                assert await process.wait() == 0
                tasks.cancel_scope.cancel()
            results: list[Json] = json.loads(printed)
            queries = ["" if result["snapshots"] else "&snapshots=0" for result in results]
            asked = zip(results, queries, strict=True)
            frames = [await history(server.child.url, result["id"], query=query) for result, query in asked]
        finally:
            await anyio.to_thread.run_sync(server.child.stop)
    print(f"{proxy.cuts} streams cut, {proxy.lost} other requests lost, {kills} kills")
    print(f"{sum(result['resumes'] for result in results)} streams resumed")
    return results, frames


def fold(frames: list[Frame]) -> Json:
    """What the reducer makes of a whole history."""
    lines = b"".join(frame.data + b"\n" for frame in frames)
    return json.loads(run_node(WEB / "tools" / "fold.mjs", stdin=lines))


def check_cursors(connects: list[list[str]], ids: list[str]) -> None:
    """From each connect on, every entry but snapshots came once and in its order; the last connection has reached the end."""
    for first, *rest in filter(None, connects):  # Some were cut before their first cursor.
        begin = ids.index(first) + 1 if first in ids else 0
        assert rest == ids[begin : begin + len(rest)]
    assert connects[-1][-1] == ids[-1]


def check_thread(result: Json, frames: list[Frame]) -> None:
    whole = fold(frames)
    thread = result["thread"]
    shared = ("messages", "state", "interrupts", "run", "pendingCalls", "failedPatches")
    assert {name: thread[name] for name in shared} == {name: whole[name] for name in shared}
    assert thread == result["uncut"]
    assert (thread["failedPatches"], thread["rawCount"]) == (0, 0)
    snapshots = {frame.id for frame in frames if frame.id and frame.event["type"] == "MESSAGES_SNAPSHOT"}
    seen = [[cursor for cursor in cursors if cursor not in snapshots] for cursors in result["cursors"]]
    check_cursors(seen, [frame.id for frame in frames if frame.id and frame.id not in snapshots])


def check_sent_once(result: Json, frames: list[Frame]) -> None:
    """Every message started one run, and every frontend call was handled once."""
    runs = split_runs(event for event in events_of(frames) if event["type"] != "CUSTOM")
    said = [message["content"] for message in result["thread"]["messages"] if message["role"] == "user"]
    assert said == result["sent"]
    assert len(set(result["handled"])) == len(result["handled"])
    assert len({events[0]["runId"] for events in runs}) == len(runs)
    assert len(set(result["runIds"])) == len(result["runIds"])


@pytest.mark.timeout(0)
@pytest.mark.parametrize("audience", COMMANDS)
async def test_a_thread_that_is_cut_all_the_time_is_the_thread_that_was_never_cut(
    tmp_path: Path, long: bool, audience: str
) -> None:
    """Nothing is lost and nothing comes twice: over cuts inside frames, kills of the server, and pages hidden and shown again."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    cuts, kills = (1000, 20) if long else (120, 3)
    with anyio.fail_after(10 * HANG_SECONDS if long else HANG_SECONDS):
        results, histories = await talk_over_cuts(tmp_path / "ambient.db", audience, seed, cuts=cuts, kills=kills)
    for result, frames in zip(results, histories, strict=True):
        abandoned = sum(event.get("code") == "run_abandoned" for event in events_of(frames))
        print(
            f"{len(result['sent'])} messages, {len(frames)} frames, {abandoned} runs killed, hidden {result['hidden']} times"
        )
        check_thread(result, frames)
        check_sent_once(result, frames)
    assert sum(result["resumes"] for result in results) > cuts // 3
    assert sum(result["hidden"] for result in results) > 0


async def count_streams(http: httpx.AsyncClient) -> int:
    found = STREAMS_OPEN.search((await http.get("/metrics")).text)
    assert found is not None
    return int(found[1])


async def until_open(http: httpx.AsyncClient, server: Child, *, streams: int, sockets: int) -> None:
    """Ask the server until it has so many streams open, and the kernel so many of its connections."""
    while (await count_streams(http), count_sockets(server)) != (streams, sockets):
        pass


def count_sockets(server: Child) -> int:
    """Return the number of established connections of a server."""
    rows = [line.split() for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{server.port:04X}") and row[3] == ESTABLISHED for row in rows)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel does not list its connections in /proc")
async def test_hidden_tabs_hold_no_connection_and_miss_nothing(tmp_path: Path) -> None:
    threads = [new_id("thread") for _ in range(TABS)]
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, tmp_path / "ambient.db")
        try:
            for thread in threads:
                await run(server.url, run_input(thread, "say hello"))
            async with (
                httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http,
                node("hidden_tabs.mjs", server.url, *threads) as process,
            ):
                assert process.stdout is not None
                printed = BufferedByteReceiveStream(process.stdout)

                async def read() -> Any:
                    return json.loads(await printed.receive_until(b"\n", LONGEST_LINE))

                assert await read() == "live"
                await until_open(http, server, streams=TABS, sockets=TABS + 1)  # The last one is that of `http`.
                await tell(process, "hide")
                assert await read() == "hidden"
                await until_open(http, server, streams=0, sockets=1)
                for thread in threads:
                    await run(server.url, run_input(thread, "weather Lisbon"))
                await tell(process, "show")
                shown = await read()
                await until_open(http, server, streams=TABS, sockets=TABS + 1)
                stored = [(await http.get(f"/message_snapshot/{thread}")).json()["messages"] for thread in threads]
        finally:
            await anyio.to_thread.run_sync(server.stop)
    assert shown == stored


async def test_a_thread_whose_messages_are_larger_than_a_snapshot_of_a_run_is_shown(tmp_path: Path) -> None:
    """A run leaves out a snapshot above 8 MiB, because its readers have the messages. A page that opens the thread has none."""
    thread, text = new_id("thread"), "x" * (3 << 20)
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, tmp_path / "ambient.db")
        try:
            await run(server.url, run_input(thread, f"say {text}"))
            frames = await run(server.url, run_input(thread, f"say {text}"))
            output = await anyio.to_thread.run_sync(partial(run_node, CLIENTS / "large_thread.mjs", server.url, thread))
        finally:
            await anyio.to_thread.run_sync(server.kill)
    assert "ambient:snapshot_skipped" in {event.get("name") for event in events_of(frames)}
    asked, answered = ["user", len(f"say {text}")], ["assistant", len(text)]
    assert json.loads(output) == {"messages": [asked, answered] * 2, "connection": "live", "gaps": 0}


async def test_a_message_on_a_deleted_thread_begins_it_anew(tmp_path: Path) -> None:
    thread = new_id("thread")
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, tmp_path / "ambient.db")
        try:
            await run(server.url, run_input(thread, "say first"))
            program = CLIENTS / "deleted_thread.mjs"
            output = await anyio.to_thread.run_sync(partial(run_node, program, server.url, thread))
        finally:
            await anyio.to_thread.run_sync(server.kill)
    anew = {"anew": ["say second", "second"], "runs": 1, "error": None}
    assert json.loads(output) == {"gone": ["say first", "first"], **anew}
