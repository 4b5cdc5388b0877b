"""Runs on threads that another process erases at the same time."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ambient_runner.ledger import Ledger, MemoryLedger, SqliteLedger
from ambient_runner.protocol.events import RunFinished, UserMessage
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.scripts import hello
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, user


class ErasingProcess:
    """Another process on the same store, which erases the thread while a run of this one waits for its credentials."""

    def __init__(self, ledger: Ledger, *, times: int) -> None:
        self._ledger = ledger
        self._left = times

    async def __call__(self, run: Run) -> None:
        if run.input.messages[-1].id != "u1" and self._left:
            self._left -= 1
            await self._ledger.erase_thread(KEY)


async def open_twice(stack: AsyncExitStack, store: str, directory: Path) -> tuple[Ledger, Ledger]:
    """The store as two processes see it."""
    if store == "memory":
        ledger = await stack.enter_async_context(MemoryLedger())
        return ledger, ledger
    return (
        await stack.enter_async_context(SqliteLedger(directory / "ambient.db")),
        await stack.enter_async_context(SqliteLedger(directory / "ambient.db")),
    )


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_run_whose_thread_is_erased_before_it_begins_starts_on_the_next_epoch(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        ledger, other = await open_twice(stack, store, tmp_path)
        erase = ErasingProcess(other, times=1)
        runner = await stack.enter_async_context(Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS, grant=erase))
        with unless_hung():
            await run_once(runner, user("u1"))
            erased = await ledger.get_thread(KEY)
            events = await events_of(runner, await runner.start(request(user("u2"))))
        found = await ledger.get_thread(KEY)
        view = await runner.view_thread(KEY)
    assert erased is not None
    assert found is not None
    assert found.epoch != erased.epoch
    assert isinstance(events[-1], RunFinished)
    assert [message.id for message in view.transcript.messages() if isinstance(message, UserMessage)] == ["u2"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
