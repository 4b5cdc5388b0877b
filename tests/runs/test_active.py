from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ambient_runner.config import Timeouts
from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.events import Event, RunError, RunFinished, TextMessageContent, TextMessageStart
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Run, Started
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.scripts import begun, forever
from tests.world import SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, said, user

IMPATIENT = dataclasses.replace(SETTINGS, timeouts=Timeouts(grace=0.05))


async def delay_cancellation(run: Run) -> AsyncGenerator[Any, None]:
    """Shields itself from its cancellation for a while, as a call into foreign code does."""
    yield TextMessageStart(message_id="m1")
    yield TextMessageContent(message_id="m1", delta="…")
    with anyio.CancelScope(shield=True):
        await run.stopping.wait()
        await anyio.sleep(0.3)
    await checkpoint()


async def whole(ledger: Ledger, started: Started) -> list[Event]:
    """The run's events; it has ended, so nothing has to be waited for."""
    verifier = Verifier()
    events: list[Event] = []
    with unless_hung():
        async for event in follow_run(ledger, started):
            verifier.check(event)
            events.append(event)
    verifier.finish()
    return events


@pytest.mark.parametrize("script", [forever, delay_cancellation])
async def test_a_run_ends_well_when_everything_around_the_runner_is_cancelled(script: Any) -> None:
    async with MemoryLedger() as ledger:
        started: list[Started] = []
        with unless_hung(), anyio.CancelScope() as around:
            async with Runner(ledger, {"agent": ScriptedAgent(script)}, IMPATIENT) as runner:
                started.append(await begun(runner, user("u1")))
                around.cancel()
                await anyio.sleep_forever()
        events = await whole(ledger, started[0])
        info = await ledger.get_thread(started[0].thread)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"
    assert info is not None
    assert info.active == ""


@pytest.mark.parametrize("script", [forever, delay_cancellation])
async def test_a_run_that_ignores_the_drain_still_gets_its_terminal_event(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An agent that ignores its cancellation for longer than the Runner waits for the end of a run; ten seconds would be a long test.
    monkeypatch.setattr("ambient_runner.runs.execution.FINALIZE_TIMEOUT", 0.1)
    async with MemoryLedger() as ledger:
        with unless_hung():
            async with Runner(ledger, {"agent": ScriptedAgent(script)}, IMPATIENT) as runner:
                started = await begun(runner, user("u1"))
        events = await whole(ledger, started)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"


async def test_an_error_in_the_body_of_the_runner_ends_its_runs_too() -> None:
    started: list[Started] = []

    async def fail(ledger: Ledger) -> None:
        async with Runner(ledger, {"agent": ScriptedAgent(forever)}, IMPATIENT) as runner:
            started.append(await begun(runner, user("u1")))
            raise ZeroDivisionError

    async with MemoryLedger() as ledger:
        with unless_hung(), pytest.raises(ExceptionGroup) as raised:
            await fail(ledger)
        events = await whole(ledger, started[0])
    assert raised.group_contains(ZeroDivisionError)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"


async def test_an_agent_cancelled_by_its_own_framework_harms_no_other_run() -> None:
    release = anyio.Event()

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        if run.thread.id == "cancelled":
            raise asyncio.CancelledError
        await release.wait()
        for event in said("m1", "hi"):
            yield event

    async with runner_of(ScriptedAgent(talk)) as runner:
        with unless_hung():
            other = await runner.start(request(user("u1"), thread="other"))
            await anyio.wait_all_tasks_blocked()
            cancelled = await run_once(runner, user("u1"), thread="cancelled")
            release.set()
            unharmed = await events_of(runner, other)
    assert isinstance(cancelled[-1], RunError)
    assert isinstance(unharmed[-1], RunFinished)
