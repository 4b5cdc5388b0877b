from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ambient_runner.config import Timeouts
from ambient_runner.errors import Draining, NoActiveRun, RunGone, ThreadBusy
from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.records import RUNTIME, Fact, IdempotencyClaim
from ambient_runner.protocol.events import (
    Event,
    RunStarted,
    TextMessageStart,
    encode_event,
    type_of_line,
)
from ambient_runner.runs.maintenance import apply_retention
from ambient_runner.runs.run import Actor, Run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.scripts import begun, forever, hello
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, user

CLAIM = IdempotencyClaim(scope="me", digest="a")


async def first_hangs(run: Run) -> AsyncGenerator[Any, None]:
    """Goes on for ever for `u1` and answers everything else."""
    async for event in forever(run) if run.input.messages[-1].id == "u1" else hello(run):
        yield event


async def in_line(runner: Runner, waiting: int) -> None:
    with unless_hung():
        while (info := await runner.ledger.get_thread(KEY)) is None or info.queued < waiting:
            await checkpoint()


async def abandon(ledger: Ledger, *events: Event) -> None:
    """Leave a run behind as a process that dies does: begun, without a terminal event, its lease free."""
    async with await ledger.acquire_lease(KEY, "dead") as writer:
        facts = [
            Fact(owner=RUNTIME, kind="", body=encode_event(event))
            for event in (RunStarted(thread_id="t", run_id="r"), *events)
        ]
        await writer.begin_run(facts, run_id="r", agent="agent", claim=None)


async def test_a_new_run_first_closes_the_abandoned_one_before_it() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        await abandon(runner.ledger, TextMessageStart(message_id="m1"))
        with unless_hung():
            events = await run_once(runner, user("u2"))
        batches = [batch for batch in await runner.ledger.read_batches(KEY, 0) if batch.owner == RUNTIME]
    log = [(batch.run == "dead", type_of_line(line)) for batch in batches for line in batch.lines]
    assert log == [
        (True, "RUN_STARTED"),
        (True, "TEXT_MESSAGE_START"),
        (True, "TEXT_MESSAGE_END"),
        (True, "MESSAGES_SNAPSHOT"),
        (True, "RUN_ERROR"),
        (False, "RUN_STARTED"),
        (False, "TEXT_MESSAGE_START"),
        (False, "TEXT_MESSAGE_CONTENT"),
        (False, "TEXT_MESSAGE_CONTENT"),
        (False, "TEXT_MESSAGE_END"),
        (False, "MESSAGES_SNAPSHOT"),
        (False, "RUN_FINISHED"),
    ]
    dead = [line for batch in batches if batch.run == "dead" for line in batch.lines]
    assert b'"code":"run_abandoned"' in dead[-1]
    assert len(events) == 7


async def test_an_abandoned_run_closed_by_its_successor_is_no_longer_abandoned() -> None:
    async with runner_of(ScriptedAgent(forever)) as runner:
        await abandon(runner.ledger)
        await begun(runner, user("u2"))
        info = await runner.ledger.get_run(KEY, "dead")
        newest = await runner.ledger.find_run_at(KEY, 1 << 30)
    assert info is not None
    assert newest is not None
    assert 0 < info.last < newest.first


async def test_a_queued_request_is_refused_when_the_runner_drains() -> None:
    settings = dataclasses.replace(SETTINGS, timeouts=Timeouts(grace=0.05))
    async with runner_of(ScriptedAgent(forever), settings) as runner:
        first = await begun(runner, user("u1"))
        async with anyio.create_task_group() as tasks:

            async def wait_in_line() -> None:
                with pytest.raises(Draining):
                    await runner.start(request(user("u2"), on_busy="queue"))

            tasks.start_soon(wait_in_line)
            await in_line(runner, 1)
            with unless_hung():
                await runner.drain()
        info = await runner.ledger.get_thread(KEY)
        newest = await runner.ledger.find_run_at(KEY, 1 << 30)
        with pytest.raises(NoActiveRun):
            await runner.find_active_thread(Actor())
    assert info is not None
    assert (info.active, info.queued) == ("", 0)
    assert newest is not None
    assert newest.key == first.run


@pytest.mark.parametrize("script", [hello, forever], ids=["ends", "goes on"])
async def test_the_same_key_twice_in_the_queue_is_one_run(script: Any) -> None:
    async def one_script(run: Run) -> AsyncGenerator[Any, None]:
        async for event in forever(run) if run.input.messages[-1].id == "u1" else script(run):
            yield event

    runs: list[str] = []
    async with runner_of(ScriptedAgent(one_script)) as runner:
        first = await begun(runner, user("u1"))

        async def post() -> None:
            runs.append((await runner.start(request(user("u2"), claim=CLAIM, on_busy="queue"))).run)

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(post)
                await in_line(runner, 1)
                await anyio.wait_all_tasks_blocked()
                await runner.stop(KEY)
    assert len(runs) == 2
    assert len({first.run, *runs}) == 2


async def test_a_key_whose_run_is_no_longer_retained_is_gone() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"), claim=CLAIM)
        for turn in range(2, 6):
            await run_once(runner, user(f"u{turn}"))
        assert await apply_retention(runner.ledger, KEY, 2)
        with unless_hung(), pytest.raises(RunGone):
            await run_once(runner, user("u1"), claim=CLAIM)


async def test_a_key_whose_run_is_still_retained_replays_it_whole() -> None:
    async with runner_of(ScriptedAgent(hello)) as runner:
        for turn in range(1, 5):
            await run_once(runner, user(f"u{turn}"))
        live = await run_once(runner, user("u5"), claim=CLAIM)
        assert await apply_retention(runner.ledger, KEY, 2)
        with unless_hung():
            assert await run_once(runner, user("u5"), claim=CLAIM) == live


@pytest.mark.parametrize("stale", [["u0"], ["u0", "m0"], []], ids=["earlier message", "earlier answer", "nothing"])
async def test_a_request_without_new_messages_does_not_stop_a_run_without_readers(stale: list[str]) -> None:
    runs: list[Run] = []

    async def noted(run: Run) -> AsyncGenerator[Any, None]:
        runs.append(run)
        async for event in first_hangs(run):
            yield event

    async with runner_of(ScriptedAgent(noted)) as runner:
        await run_once(runner, user("u0"))
        answer = (await runner.view_thread(KEY)).transcript.messages()[-1]
        started = await begun(runner, user("u1"))
        with runner.track_reader(KEY, started.run):
            pass
        known = {"u0": user("u0"), "m0": answer}
        with unless_hung(), pytest.raises(ThreadBusy):
            await runner.start(request(*(known[name] for name in stale)))
        await anyio.wait_all_tasks_blocked()
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        assert info.active == started.run
        assert not runs[-1].stopping.is_set()
        await runner.stop(KEY)
        with unless_hung():
            await events_of(runner, started)
