"""SIGTERM: no new work, running work gets its grace and a terminal event, every stream ends properly, nothing is lost."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.machine_speed import HANG_SECONDS, promised_within, unless_hung

from .server import start
from .sse import open_stream
from .talk import ending, events_of, history, new_id, numbers, one_run, run, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .server import Child
    from .sse import Frame

GRACE = 2.0


async def start_server(store: Path) -> Child:
    return await anyio.to_thread.run_sync(lambda: start(store, env={"AMBIENT_STOP_GRACE": str(GRACE)}))


async def exit_code(server: Child) -> int:
    return await anyio.to_thread.run_sync(server.wait)


def raw(frames: Iterable[Frame]) -> list[bytes]:
    return [frame.raw for frame in frames]


async def test_runs_and_watchers_end_properly_and_nothing_is_lost(tmp_path: Path) -> None:
    """A counting run, a hanging one and a reader of an idle thread, all at once."""
    store = tmp_path / "ambient.db"
    threads = {command: new_id("thread") for command in ("count 100000 every 5ms", "hang")}
    idle, seen = new_id("thread"), dict[str, list["Frame"]]()
    watched, code = list["Frame"](), -1
    ready = {name: anyio.Event() for name in (*threads, idle)}

    async def talk(url: str, command: str) -> None:
        async with open_stream(f"{url}/", "POST", body=run_input(threads[command], command)) as stream:
            frames = await stream.until("TEXT_MESSAGE_CONTENT")
            ready[command].set()
            seen[command] = frames + await stream.rest()

    async def watch(url: str, count: int) -> None:
        async with open_stream(f"{url}/threads/{idle}/events") as stream:
            frames = await stream.read(count)
            ready[idle].set()
            watched.extend(frames + await stream.rest())

    with unless_hung():
        server = await start_server(store)
        try:
            told = await run(server.url, run_input(idle, "hello"))
            async with anyio.create_task_group() as tasks:
                for command in threads:
                    tasks.start_soon(talk, server.url, command)
                tasks.start_soon(watch, server.url, len(told))
                for event in ready.values():
                    await event.wait()
                with promised_within(2 * GRACE + 3):
                    server.signal(signal.SIGTERM)
                    code = await exit_code(server)
        finally:
            await anyio.to_thread.run_sync(server.stop)
        again = await start_server(store)
        try:
            stored = {command: await history(again.url, thread) for command, thread in threads.items()}
            goes_on = events_of(await run(again.url, run_input(threads["hang"], "count 3")))
        finally:
            await anyio.to_thread.run_sync(again.stop)

    assert code == 0
    assert raw(watched) == raw(told)
    for command in threads:
        events = one_run(events_of(seen[command]))
        assert raw(stored[command]) == raw(seen[command])
        assert events[-1]["type"] in {"RUN_ERROR", "RUN_FINISHED"}
        assert ending(events) != "run_abandoned"
    counted = text_of(events_of(seen["count 100000 every 5ms"]))
    assert counted == numbers(counted.count(" "))
    assert (text_of(goes_on), ending(goes_on)) == (numbers(3), "success")


async def test_a_draining_server_is_alive_but_not_ready(tmp_path: Path) -> None:
    """Between SIGTERM and the end of the last run: /ready is 503, /health is 200, new work is refused."""
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        with unless_hung():
            server = await start_server(tmp_path / "ambient.db")
            try:
                before = await http.get(f"{server.url}/ready")
                body = run_input(new_id("thread"), "count 100000 every 5ms")
                async with open_stream(f"{server.url}/", "POST", body=body) as stream:
                    frames = await stream.until("TEXT_MESSAGE_CONTENT")
                    server.signal(signal.SIGTERM)
                    answers = await draining_answers(http, server.url)
                    frames += await stream.rest()
                code = await exit_code(server)
            finally:
                await anyio.to_thread.run_sync(server.stop)
    assert (before.status_code, before.json()) == (200, {"status": "ready"})
    assert [(answer.status_code, answer.json()) for answer in answers[:2]] == [
        (503, {"status": "draining"}),
        (200, {"status": "healthy"}),
    ]
    assert (answers[2].status_code, answers[2].json()["error"]["code"]) == (503, "draining")
    assert (len(split_runs(events_of(frames))), code) == (1, 0)


async def draining_answers(http: httpx.AsyncClient, url: str) -> list[httpx.Response]:
    """Ask on the open keep-alive connection until the server says that it drains, then ask for more."""
    while (ready := await http.get(f"{url}/ready")).status_code == 200:
        pass
    health = await http.get(f"{url}/health")
    return [ready, health, await http.post(f"{url}/", json=run_input(new_id("thread"), "hello"))]


async def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    with unless_hung():
        server = await start_server(tmp_path / "ambient.db")
        with promised_within(GRACE + 1):
            server.signal(signal.SIGTERM)
            code = await exit_code(server)
    assert code == 0


async def test_control_c_is_as_good_as_sigterm(tmp_path: Path) -> None:
    with unless_hung():
        server = await start_server(tmp_path / "ambient.db")
        try:
            body = run_input(new_id("thread"), "hang")
            async with open_stream(f"{server.url}/", "POST", body=body) as stream:
                frames = await stream.until("TEXT_MESSAGE_CONTENT")
                server.signal(signal.SIGINT)
                frames += await stream.rest()
            code = await exit_code(server)
        finally:
            await anyio.to_thread.run_sync(server.stop)
    one_run(events_of(frames))
    assert (code, "Traceback" in server.output) == (0, False)


BLOCKING_AGENTS = """
import asyncio, time
import anyio.to_thread

def started(input):
    return {"type": "RUN_STARTED", "threadId": input.thread_id, "runId": input.run_id}

def generator(input):
    yield started(input)
    time.sleep(100000)

async def in_executor(input):
    yield started(input)
    await asyncio.to_thread(time.sleep, 100000)

async def in_anyio(input):
    yield started(input)
    await anyio.to_thread.run_sync(time.sleep, 100000)

def graph():
    from langgraph.graph import START, MessagesState, StateGraph

    def node(state: MessagesState) -> None:
        time.sleep(100000)

    return StateGraph(MessagesState).add_node(node).add_edge(START, "node").compile()
"""


@pytest.mark.parametrize("agent", ["generator", "in_executor", "in_anyio", "graph"])
async def test_agents_that_block_in_threads_do_not_keep_the_server_alive_and_their_runs_are_named(
    tmp_path: Path, agent: str
) -> None:
    """The log said that the server had stopped, and the process waited for the thread: forever."""
    (tmp_path / "blocking_agents.py").write_text(BLOCKING_AGENTS)
    store, thread, env = tmp_path / "ambient.db", new_id("thread"), {"AMBIENT_STOP_GRACE": "1"}
    with unless_hung():
        server = await anyio.to_thread.run_sync(lambda: start(store, f"x=blocking_agents:{agent}", env=env))
        try:
            async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "hello")) as stream:
                frames = await stream.until("RUN_STARTED")
                server.signal(signal.SIGTERM)
                frames += await stream.rest()
            with promised_within(6):
                code = await exit_code(server)
        finally:
            server.process.kill()
    (line,) = [line for line in server.lines if "Exiting although" in line]
    assert (code, ending(events_of(frames))) == (0, "shutdown")
    assert (f"of agent x on thread {thread}" in line, "blocking_agents.py" in line) == (
        True,
        agent in {"generator", "graph"},
    )
