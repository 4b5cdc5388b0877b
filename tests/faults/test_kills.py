"""kill -9 at random moments: what a client has seen is still there, every run ends once, and its thread goes on.

Few kills by default, 200 with `--long`.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from tests.e2e.server import LEASE, Child, start
from tests.e2e.sse import Frame, Truncated, open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run, run_input, split_runs, text_of
from tests.machine_speed import promised_within, unless_hung

from .harness import Harness, start_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.sse import Event

COMMANDS = ("count 100000 every 1ms", "count 5000", "weather Lisbon", "approve the deploy", "think", "hang", "two")
NEVER_ENDS = ("count 100000 every 1ms", "hang")
MAX_KILL_DELAY = 0.5


@dataclass
class Talk:
    """One thread of one round, and what a client saw of it before the kill."""

    command: str
    thread: str = field(default_factory=lambda: new_id("thread"))
    seen: list[Frame] = field(default_factory=list[Frame])
    ended: bool = False
    enough: int = 1
    answered: anyio.Event = field(default_factory=anyio.Event)
    """Set when this many frames were seen, or none will be any more."""

    async def listen(self, url: str) -> None:
        try:
            async with open_stream(f"{url}/", "POST", body=run_input(self.thread, self.command)) as stream:
                assert stream.status == 200, await stream.body()
                async for frame in stream:
                    self.seen.append(frame)
                    if len(self.seen) >= self.enough:
                        self.answered.set()
                self.ended = True
        except (Truncated, EOFError, ConnectionError):
            pass
        finally:
            self.answered.set()


def seen_ids(frames: list[Frame]) -> list[tuple[str, bytes]]:
    return [(frame.id, frame.raw) for frame in frames if frame.id]


async def run_and_kill(server: Child, dice: random.Random) -> list[Talk]:
    """Run every command at once and kill the server in the middle: sometimes before anything was seen."""
    talks = [Talk(command) for command in COMMANDS]
    async with anyio.create_task_group() as tasks:
        for talk in talks:
            tasks.start_soon(talk.listen, server.url)
        if dice.random() < 0.9:
            await talks[0].answered.wait()
        await anyio.sleep(dice.random() * MAX_KILL_DELAY)
        server.process.kill()
    await anyio.to_thread.run_sync(server.wait)
    return talks


async def is_known(url: str, thread: str) -> bool:
    async with open_stream(f"{url}/message_snapshot/{thread}") as answer:
        await answer.body()
        return answer.status == 200


async def check_recovered(url: str, talk: Talk) -> None:
    """Check the thread after the restart: nothing seen is missing, one terminal event, usable."""
    if not await is_known(url, talk.thread):
        assert talk.seen == [], "a thread a client had seen is gone"
        return
    with promised_within(2 * LEASE):
        frames = await history(url, talk.thread)
    seen = seen_ids(talk.seen)
    assert seen_ids(frames)[: len(seen)] == seen
    (events,) = split_runs(events_of(frames))
    how = ending(events)
    if talk.ended:
        assert len(frames) == len(talk.seen)
    else:
        assert how in {"run_abandoned", *([] if talk.command in NEVER_ENDS else ["success", "interrupt"])}
    if talk.command.startswith("count"):
        text = text_of(events)
        assert text == numbers(text.count(" "))
    await check_continues(url, talk, events_of(frames)[-1], how)


async def check_continues(url: str, talk: Talk, last: Event, how: str) -> None:
    """Check that the thread can be used: by a new run, or by an answer to the open interrupt."""
    body = run_input(talk.thread, "say still here")
    if how == "interrupt":
        entries = [
            {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
            for interrupt in last["outcome"]["interrupts"]
        ]
        body = run_input(talk.thread, resume=entries)
    with unless_hung():
        events = events_of(await run(url, body))
        assert (ending(events), text_of(events) != "") == ("success", True)
        assert len(split_runs(events_of(await history(url, talk.thread)))) == 2


@pytest.mark.timeout(0)
async def test_f01_a_killed_server_loses_nothing_and_leaves_no_run_open(tmp_path: Path, long: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice, store = random.Random(seed), tmp_path / "ambient.db"
    kills, goal = 0, 200 if long else 4
    server = await anyio.to_thread.run_sync(start, store)
    try:
        while kills < goal:
            with unless_hung():
                talks = await run_and_kill(server, dice)
                server = await anyio.to_thread.run_sync(start, store)
                listening = time.monotonic()
                async with anyio.create_task_group() as tasks:
                    for talk in talks:
                        tasks.start_soon(check_recovered, server.url, talk)
            kills += 1
            seen, took = sum(len(talk.seen) for talk in talks), time.monotonic() - listening
            print(f"kill {kills}: {seen} frames seen, usable after {took:.2f} s (seed {seed})", flush=True)
    except BaseException:
        print(f"kill {kills + 1} of seed {seed} failed; the server said:\n{server.output[-4000:]}")
        raise
    finally:
        await anyio.to_thread.run_sync(server.stop)


async def test_f02_an_open_interrupt_can_be_answered_after_a_kill(tmp_path: Path) -> None:
    thread, store = new_id("thread"), tmp_path / "ambient.db"
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, store)
        asked = events_of(await run(server.url, run_input(thread, "approve the deploy")))
        await anyio.to_thread.run_sync(server.kill)
        (interrupt,) = asked[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        with await anyio.to_thread.run_sync(start, store) as again:
            async with open_stream(f"{again.url}/", "POST", body=run_input(thread, "never mind")) as refused:
                assert (refused.status, b"pending_interrupts" in await refused.body()) == (409, True)
            answered = events_of(await run(again.url, run_input(thread, resume=[answer])))
            assert ending(answered) == "success"
            async with open_stream(f"{again.url}/", "POST", body=run_input(thread, resume=[answer])) as refused:
                assert (refused.status, b"nothing_to_resume" in await refused.body()) == (409, True)


async def test_f01_a_client_cut_by_a_kill_resumes_at_its_cursor(tmp_path: Path) -> None:
    """The client that was cut resumes at its cursor after the restart and gets the rest of a legal stream."""
    talk, store = Talk("count 100000 every 1ms", enough=20), tmp_path / "ambient.db"
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.listen, server.url)
            await talk.answered.wait()
            server.process.kill()
        await anyio.to_thread.run_sync(server.wait)
        with await anyio.to_thread.run_sync(start, store) as again:
            with promised_within(2 * LEASE):
                rest = await history(again.url, talk.thread, after=talk.seen[-1].id)
            whole = await history(again.url, talk.thread)
    assert seen_ids(talk.seen) + seen_ids(rest) == seen_ids(whole)
    (events,) = split_runs(events_of(rest))
    assert [event["type"] for event in events][-3:] == ["TEXT_MESSAGE_END", "MESSAGES_SNAPSHOT", "RUN_ERROR"]
    assert ending(events) == "run_abandoned"


async def test_f01_clients_of_two_servers_lose_nothing_when_the_owner_is_killed(tmp_path: Path) -> None:
    """Eleven clients read at both servers and move on to the other one when theirs dies."""
    store = tmp_path / "ambient.db"
    with unless_hung():
        owner = await start_server(store)
        with await start_server(store) as other:
            harness = Harness(urls=[owner.url, other.url], command="count 100000 every 5ms")

            async def kill() -> None:
                with promised_within(2 * LEASE):
                    await anyio.to_thread.run_sync(owner.kill)
                    harness.urls[:] = [other.url]
                    for client in harness.clients:
                        await client.has_ended()

            events = await harness.run(kill)
    assert ending(events) == "run_abandoned"
