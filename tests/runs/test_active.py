from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from ambient_runner.config import Timeouts
from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.events import Event, RunError, TextMessageContent, TextMessageStart
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.run import Run, Started
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.watch import run_events
from tests.world import SETTINGS, ScriptedAgent, request, user

IMPATIENT = dataclasses.replace(SETTINGS, timeouts=Timeouts(grace=0.05))


async def forever(run: Run) -> AsyncGenerator[Any, None]:
    yield TextMessageStart(message_id="m1")
    yield TextMessageContent(message_id="m1", delta="…")
    await anyio.sleep_forever()


async def deaf(run: Run) -> AsyncGenerator[Any, None]:
    """Does not hear a cancellation for a while, as a call into foreign code does not."""
    yield TextMessageStart(message_id="m1")
    yield TextMessageContent(message_id="m1", delta="…")
    with anyio.CancelScope(shield=True):
        await run.stopping.wait()
        await anyio.sleep(0.3)


async def begun(runner: Runner) -> Started:
    started = await runner.start(request(user("u1")))
    async with runner.ledger.tail(started.thread, started.after) as tail:
        with anyio.fail_after(5):
            while not any(b"CONTENT" in line for batch in await tail.next() for line in batch.lines):
                pass
    return started


async def whole(ledger: Ledger, started: Started) -> list[Event]:
    """The run's events; it has ended, so nothing has to be waited for."""
    verifier = Verifier()
    events: list[Event] = []
    with anyio.fail_after(1):
        async for event in run_events(ledger, started):
            verifier.check(event)
            events.append(event)
    verifier.finish()
    return events


@pytest.mark.parametrize("script", [forever, deaf])
async def test_a_run_ends_well_when_everything_around_the_runner_is_cancelled(script: Any) -> None:
    async with MemoryLedger() as ledger:
        started: list[Started] = []
        with anyio.fail_after(5), anyio.CancelScope() as around:
            async with Runner(ledger, {"agent": ScriptedAgent(script)}, IMPATIENT) as runner:
                started.append(await begun(runner))
                around.cancel()
                await anyio.sleep_forever()
        events = await whole(ledger, started[0])
        info = await ledger.thread(started[0].thread)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"
    assert info is not None
    assert info.active == ""


@pytest.mark.parametrize("script", [forever, deaf])
async def test_a_run_that_ignores_the_drain_still_gets_its_terminal_event(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An agent that is deaf for longer than the Runner waits for last words; ten seconds would be a long test.
    monkeypatch.setattr("ambient_runner.runs.runner._LAST_WORDS", 0.1)
    async with MemoryLedger() as ledger:
        with anyio.fail_after(5):
            async with Runner(ledger, {"agent": ScriptedAgent(script)}, IMPATIENT) as runner:
                started = await begun(runner)
        events = await whole(ledger, started)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"


async def test_an_error_in_the_body_of_the_runner_ends_its_runs_too() -> None:
    async with MemoryLedger() as ledger:
        started: list[Started] = []
        with anyio.fail_after(5), pytest.raises(BaseException) as raised:
            async with Runner(ledger, {"agent": ScriptedAgent(forever)}, IMPATIENT) as runner:
                started.append(await begun(runner))
                raise ZeroDivisionError
        events = await whole(ledger, started[0])
    assert "ZeroDivisionError" in repr(raised.value)
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "shutdown"
