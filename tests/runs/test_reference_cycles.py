"""Runs leave nothing to the garbage collector: what it has to find, it finds in a pause of the whole server."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from ambient_runner.errors import RunInterrupted
from ambient_runner.protocol.events import Interrupt, RunError, RunFinished, outcome_name
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from tests.garbage import find_garbage
from tests.machine_speed import unless_hung
from tests.world import ScriptedAgent, events_of, request, runner_of, said, user

RUNS = 5
ATTEMPTS = 3


async def finish(run: Run) -> AsyncIterator[Any]:
    for event in said(f"m-{run.key}", "Hello ", "there."):
        yield event


async def fail(run: Run) -> AsyncIterator[Any]:
    for event in said(f"m-{run.key}", "Hello"):
        yield event
    raise ValueError("broken")


async def interrupt(run: Run) -> AsyncIterator[Any]:
    for event in said(f"m-{run.key}", "May I?"):
        yield event
    raise RunInterrupted([Interrupt(id=f"i-{run.key}", reason="confirmation")])


async def hang(run: Run) -> AsyncIterator[Any]:
    for event in said(f"m-{run.key}", "Wait."):
        yield event
    await anyio.sleep_forever()


async def run_to_end(runner: Runner, number: int, *, is_stopped: bool) -> str:
    """Return how a run on a new thread has ended."""
    thread = f"t{number}"
    started = await runner.start(request(user(f"u{number}"), thread=thread))
    if is_stopped:
        await runner.stop_run(started, "enough")
    terminal = (await events_of(runner, started))[-1]
    assert isinstance(terminal, RunFinished | RunError)
    return terminal.code or "" if isinstance(terminal, RunError) else outcome_name(terminal)


@pytest.mark.parametrize(
    ("script", "ends_as"), [(finish, "success"), (fail, "agent_error"), (interrupt, "interrupt"), (hang, "cancelled")]
)
async def test_a_run_leaves_no_objects_in_reference_cycles(script: Any, ends_as: str) -> None:
    """Measured again if there is something: what an earlier test has left is there once, what a run leaves every time."""
    for _ in range(ATTEMPTS):
        ends, found = await collect_after_runs(script)
        assert ends == [ends_as] * RUNS
        if not found:
            return
    assert found == Counter()


async def collect_after_runs(script: Any) -> tuple[list[str], Counter[str]]:
    """Return how several runs have ended, and the types of the objects that they leave to the collector."""
    async with runner_of(ScriptedAgent(script)) as runner:
        with unless_hung():
            await run_to_end(runner, 0, is_stopped=script is hang)  # What is cached at the first run is no garbage.
            gc.collect()
            gc.disable()
            try:
                ends = [await run_to_end(runner, 1 + number, is_stopped=script is hang) for number in range(RUNS)]
                await runner.drain()  # The runs have released what they hold.
                return ends, find_garbage()
            finally:
                gc.enable()
