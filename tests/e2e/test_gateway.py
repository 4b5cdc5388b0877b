"""A gateway that keeps the threads, a runner that keeps nothing: two real processes, and what happens when one of them dies."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import psutil
import pytest

from tests.machine_speed import HANG_SECONDS, unless_hung

from .gateway import free_port, pair, start_gateway, start_runner
from .server import Child, start
from .sse import open_stream
from .talk import ending, events_of, history, new_id, one_run, run, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
SEEN = "seen=seen_agent:agent"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a place for the runner, where its agents are."""
    (tmp_path / "runner").mkdir()
    for name in ("seen_agent.py", "compacting_app.py"):
        shutil.copy(HERE / name, tmp_path / "runner")
    return tmp_path


@pytest.fixture
def runner(directory: Path) -> Iterator[Child]:
    with start_runner(directory / "runner", SEEN, "demo") as child:
        yield child


@pytest.fixture
def gateway(directory: Path, runner: Child) -> Iterator[Child]:
    with start_gateway(directory / "gateway.db", runner.url) as child:
        yield child


async def say(server: Child, thread: str, text: str) -> list[dict[str, Any]]:
    return one_run(events_of(await run(server.url, run_input(thread, text))))


def shown(events: list[dict[str, Any]]) -> list[str]:
    """Return the messages that the agent reports it was sent."""
    return json.loads(text_of(events))


def lapsed(events: list[dict[str, Any]]) -> list[list[str]]:
    """The interrupts that the run says have lapsed."""
    return [event["value"]["interruptIds"] for event in events if event.get("name") == "ambient:interrupt_lapsed"]


async def snapshot(server: Child, thread: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
        return (await http.get(f"/message_snapshot/{thread}")).json()["messages"]


async def test_a_runner_killed_in_the_middle_ends_the_run_and_a_new_one_continues_from_what_is_stored(
    directory: Path,
) -> None:
    """kill -9 in the middle of an answer: the client gets a terminal event; the next runner, which knows nothing, sees it all."""
    thread, port = new_id("thread"), free_port()
    with unless_hung():
        runner = await anyio.to_thread.run_sync(lambda: start_runner(directory / "runner", SEEN, port=port))
        with await anyio.to_thread.run_sync(start_gateway, directory / "gateway.db", runner.url) as gateway:
            first = await say(gateway, thread, "hello")
            async with open_stream(f"{gateway.url}/", "POST", body=run_input(thread, "hang")) as stream:
                frames = await stream.until("TEXT_MESSAGE_CONTENT")
                runner.process.kill()
                with unless_hung():
                    frames += await stream.rest()
            await anyio.to_thread.run_sync(runner.wait)
            cut = one_run(events_of(frames))
            alone = await say(gateway, thread, "anyone?")
            with await anyio.to_thread.run_sync(lambda: start_runner(directory / "runner", SEEN, port=port)):
                again = await say(gateway, thread, "seen")
                later = await say(gateway, thread, "and now")
            stored = await snapshot(gateway, thread)
            runs = split_runs(events_of(await history(gateway.url, thread)))
    assert shown(first) == ["hello"]
    assert (ending(cut), shown(cut)) == ("remote_ended_early", ["hello", '["hello"]', "hang"])
    assert ending(alone) == "remote_unreachable"
    before = ["hello", '["hello"]', "hang", text_of(cut), "anyone?"]
    assert shown(again) == [*before, "seen"]
    assert shown(later) == [*before, "seen", text_of(again), "and now"]
    assert [message["content"] for message in stored] == [*shown(later), text_of(later)]
    assert runs == [first, cut, alone, again, later]


async def test_a_gateway_killed_in_the_middle_stops_the_runner_and_continues_after_its_restart(directory: Path) -> None:
    thread, store = new_id("thread"), directory / "gateway.db"
    with unless_hung():
        with await anyio.to_thread.run_sync(start_runner, directory / "runner", SEEN) as runner:
            gateway = await anyio.to_thread.run_sync(start_gateway, store, runner.url)
            async with open_stream(f"{gateway.url}/", "POST", body=run_input(thread, "hang")) as stream:
                await stream.until("TEXT_MESSAGE_CONTENT")
                gateway.process.kill()
            await anyio.to_thread.run_sync(gateway.wait)
            with unless_hung():
                ended = split_runs(events_of(await history(runner.url, thread)))
            with await anyio.to_thread.run_sync(start_gateway, store, runner.url) as again:
                events = await say(again, thread, "seen")
    assert [ending(events) for events in ended] == ["cancelled"]
    assert shown(events) == ["hang", '["hang"]', "seen"]


async def test_the_runner_opens_no_file(directory: Path, gateway: Child, runner: Child) -> None:
    before = {path.name for path in (directory / "runner").iterdir()}
    for text in ("hello", "again"):
        await say(gateway, "t", text)
    process = psutil.Process(runner.pid)
    files = [file.path for file in process.open_files()]
    assert files == []
    assert {path.name for path in (directory / "runner").iterdir()} - before <= {"__pycache__"}
    assert (directory / "gateway.db").exists()


async def test_an_interrupt_survives_its_server_by_being_raised_again(directory: Path) -> None:
    thread, port = new_id("thread"), free_port()

    def answer(events: list[dict[str, Any]]) -> dict[str, Any]:
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        return run_input(thread, resume=[entry])

    with unless_hung():
        runner = await anyio.to_thread.run_sync(lambda: start_runner(directory / "runner", port=port))
        with await anyio.to_thread.run_sync(start_gateway, directory / "gateway.db", runner.url) as gateway:
            asked = await say(gateway, thread, "approve the deploy")
            await anyio.to_thread.run_sync(runner.kill)
            with await anyio.to_thread.run_sync(lambda: start_runner(directory / "runner", port=port)):
                again = one_run(events_of(await run(gateway.url, answer(asked))))
                done = one_run(events_of(await run(gateway.url, answer(again))))
    assert [ending(events) for events in (asked, again, done)] == ["interrupt", "interrupt", "success"]
    # The answer that the runner lost is reported.
    assert lapsed(again) == [[interrupt["id"] for interrupt in asked[-1]["outcome"]["interrupts"]]]
    assert lapsed(done) == []
    assert text_of(done) == "Approved: I may the deploy."


async def test_a_frontend_tool_is_answered_after_its_runner_died(directory: Path) -> None:
    thread, port = new_id("thread"), free_port()
    tool = {"name": "change_background", "description": "Change it.", "parameters": {"type": "object"}}
    with unless_hung():
        runner = await anyio.to_thread.run_sync(lambda: start_runner(directory / "runner", port=port))
        with await anyio.to_thread.run_sync(start_gateway, directory / "gateway.db", runner.url) as gateway:
            asked = one_run(events_of(await run(gateway.url, run_input(thread, "color red", tools=[tool]))))
            (call,) = asked[-1]["outcome"]["pendingToolCallIds"]
            await anyio.to_thread.run_sync(runner.kill)
            with await anyio.to_thread.run_sync(lambda: start_runner(directory / "runner", port=port)):
                result = {"id": "result", "role": "tool", "toolCallId": call, "content": "painted"}
                body = run_input(thread, tools=[tool]) | {"messages": [result]}
                done = one_run(events_of(await run(gateway.url, body)))
    assert (ending(done), text_of(done)) == ("success", "Your client has done it and answered: painted")


async def test_another_server_may_send_a_shorter_history(directory: Path) -> None:
    """It streams under one id and tells its history under another, and compacts: its word is stored and fed back."""
    thread = new_id("thread")
    command = [sys.executable, "-m", "uvicorn", "compacting_app:app", "--port", "0"]
    with unless_hung(), Child(command, cwd=directory / "runner") as other:
        with start(directory / "gateway.db", f"front=remote+{other.url}/chat") as gateway:
            turns = [await say(gateway, thread, text) for text in ("one", "two", "three")]
            stored = await snapshot(gateway, thread)
    assert [shown(events) for events in turns] == [
        ["one"],
        ["1 messages came before.", "one", '["one"]', "two"],
        ["4 messages came before.", "two", text_of(turns[1]), "three"],
    ]
    assert [message["content"] for message in stored] == ["4 messages came before.", "three", text_of(turns[2])]
    streamed = next(event["messageId"] for event in turns[2] if event["type"] == "TEXT_MESSAGE_START")
    assert stored[-1]["id"] == streamed


async def test_erasing_a_thread_erases_it_at_the_runner_too(tmp_path: Path) -> None:
    with pair(tmp_path) as (gateway, runner), unless_hung():
        await say(gateway, "t", "say hello")
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
            there = (await http.get(f"{runner.url}/message_snapshot/t")).status_code
            erased = (await http.delete(f"{gateway.url}/thread/t")).status_code
            left = [(await http.get(f"{url}/message_snapshot/t")).status_code for url in (gateway.url, runner.url)]
    assert (there, erased, left) == (200, 200, [404, 404])
