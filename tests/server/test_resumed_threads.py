"""A stream that resumes in a long thread: its snapshots are made from a checkpoint, not from all entries before them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.ledger import SqliteLedger
from ambient_runner.runs import checkpoints
from tests.server.demo_server import SETTINGS, demo, frames, run_body

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.ledger.records import Batch, ThreadKey

_FACTS_BEFORE_START = 2


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_ENTRIES", 20)


async def test_a_resume_after_any_event_has_the_rest_of_the_run() -> None:
    async with demo() as client:
        await client.post("/", json=run_body("count 30"))
        live = frames(await client.post("/", json=run_body("count 30")))
        assert "MESSAGES_SNAPSHOT" in [event["type"] for _, event in live]
        for index, (cursor, _) in enumerate(live[:-1]):
            resumed = frames(await client.get("/threads/t/events?until=idle", headers={"Last-Event-ID": str(cursor)}))
            assert [frame for frame in resumed if frame[0] is not None] == live[index + 1 :]


async def test_a_resume_near_the_end_of_a_long_run_reads_little_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_batches = list[int](), SqliteLedger.read_batches

    async def read_counted(self: SqliteLedger, *args: Any, **options: Any) -> list[Batch]:
        found = await read_batches(self, *args, **options)
        read.extend(len(batch.lines) for batch in found)
        return found

    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path}/ledger.db")
    async with demo(settings) as client:
        await client.post("/?snapshots=0", json=run_body("count 5000"))
        live = frames(await client.get("/threads/t/events?until=idle"))
        headers = {"Last-Event-ID": str(live[-5][0])}
        # Reads what is open there, and keeps it.
        first = await client.get("/threads/t/events?until=idle", headers=headers)
        monkeypatch.setattr(SqliteLedger, "read_batches", read_counted)
        second = await client.get("/threads/t/events?until=idle", headers=headers)
    assert second.content == first.content
    assert [frame for frame in frames(second) if frame[0] is not None] == live[-4:]
    assert sum(read) < 2000


async def test_a_resume_in_an_older_run_reads_nothing_before_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first snapshot after the cursor used to be sent in any case, for which the thread was folded from its first entry."""
    positions, read_batches = list[int](), SqliteLedger.read_batches

    async def read_noted(self: SqliteLedger, key: ThreadKey, after: int, **options: Any) -> list[Batch]:
        positions.append(after)
        return await read_batches(self, key, after, **options)

    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path}/ledger.db")
    async with demo(settings) as client:
        runs = [frames(await client.post("/", json=run_body("count 50", message=f"m{turn}"))) for turn in range(6)]
    begin, cursor = (int(str(frame[0]).rpartition(".")[2]) for frame in (runs[2][0], runs[2][20]))
    monkeypatch.setattr(SqliteLedger, "read_batches", read_noted)
    async with demo(settings) as client:
        resumed = await client.get("/threads/t/events?until=idle", headers={"Last-Event-ID": str(runs[2][20][0])})
    types = [event["type"] for _, event in frames(resumed)]
    assert types.count("RUN_FINISHED") == 4
    assert types.count("MESSAGES_SNAPSHOT") == 1
    assert cursor > begin > 100
    assert min(positions) >= begin - _FACTS_BEFORE_START
