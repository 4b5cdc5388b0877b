"""F28: a thread whose record and entries disagree is refused and logged. Starting a run on it must not go round in circles."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import ThreadDamaged
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger
from ambient_runner.protocol.events import RunFinished, RunStarted, encode_event
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.scripts import hello
from tests.world import KEY, SETTINGS, ScriptedAgent, request, run_once, user

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@asynccontextmanager
async def runner_on_damaged_thread(path: Path, damage: str) -> AsyncGenerator[Runner, None]:
    """A runner on a store with a run that was not ended, after someone else has changed the file."""
    async with SqliteLedger(path) as ledger:
        async with await ledger.acquire_lease(KEY, "dead") as writer:
            started = Fact(owner=RUNTIME, kind="RUN_STARTED", body=encode_event(RunStarted(thread_id="t", run_id="r")))
            await writer.begin_run([started, started], run_id="r", agent="agent", claim=None)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(damage)
        async with Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS) as runner:
            yield runner


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("UPDATE run SET last = 1", id="the record has ended and the entries have not"),
        pytest.param("DELETE FROM run", id="the run has no record"),
        pytest.param("UPDATE place SET last = 9", id="entries are missing"),
    ],
)
async def test_f28_a_thread_whose_record_and_entries_disagree_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    async with runner_on_damaged_thread(tmp_path / "ledger.db", damage) as runner:
        with unless_hung(), pytest.raises(ThreadDamaged) as refused:
            await runner.start(request(user("u1")))
        assert refused.value.status == 503
        assert [record.levelno for record in caplog.records if record.name == Runner.__module__] == [logging.ERROR]
        with unless_hung():
            events = await run_once(runner, user("u2"), thread="another")
        assert isinstance(events[-1], RunFinished)
