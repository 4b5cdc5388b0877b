"""Outcomes of a commit for the writers of a process."""

from __future__ import annotations

import anyio

from ambient_runner.ledger.buffered_writer import Append, BufferedWriter
from ambient_runner.ledger.commit_jobs import CommitOutcome, ExternalChanges
from ambient_runner.ledger.commit_outcomes import OutcomeSettler
from ambient_runner.ledger.fanout import ChannelRegistry
from ambient_runner.ledger.flush_scheduler import FlushScheduler
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import ThreadKey

KEY = ThreadKey("acme", "ada", "t1")


async def test_a_writer_whose_end_is_committed_does_not_lose_its_lease_any_more() -> None:
    """Its token is gone from the store: the changes of other processes, read right after, do not list it."""
    submitted: list[Append] = []
    scheduler = FlushScheduler(submitted.extend)
    writer = BufferedWriter(
        MemoryLedger(), scheduler, thread=KEY, run="run-1", epoch="e", token=1, last=0, has_begun=True, has_ended=False
    )
    settler = OutcomeSettler(ChannelRegistry())
    settler.writers[1] = writer
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.finish_run)
        await anyio.wait_all_tasks_blocked()
        settler.settle(CommitOutcome(committed=[(append, 1) for append in submitted]))
        settler.settle(CommitOutcome(changes=ExternalChanges()))
    assert settler.writers == {}
