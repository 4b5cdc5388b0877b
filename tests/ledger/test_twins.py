"""The memory store and the SQLite store give the same results for any sequence of calls. Hypothesis searches for a counterexample."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import RunnerError
from ambient_runner.ledger import (
    RUNTIME,
    Checkpoint,
    Fact,
    IdempotencyClaim,
    LeaseHeld,
    Ledger,
    MemoryLedger,
    SqliteLedger,
    ThreadKey,
    ThreadLabels,
    ThreadStatus,
    Writer,
)
from ambient_runner.ledger.records import CheckpointUpdate
from tests.hypothesis_profiles import examples

KEYS = [ThreadKey("acme", "ann", "t0"), ThreadKey("acme", "bob", "t0")]

threads = st.sampled_from(KEYS)
runs = st.sampled_from(["run-1", "run-2", "run-3"])
small = st.integers(0, 8)
labels = st.builds(
    ThreadLabels,
    title=st.sampled_from([None, "", "x", "Ärger"]),
    archived=st.sampled_from([None, True, False]),
    status=st.sampled_from([None, "stopped"]),
)
steps = st.one_of(
    # Runs begin more often than they end, or most sequences would do nothing.
    st.tuples(st.just("acquire"), threads, runs),
    st.tuples(st.just("begin"), threads, st.just("demo")),
    st.tuples(st.just("acquire"), threads, runs),
    st.tuples(st.just("begin"), threads, st.sampled_from(["demo", "demo", "other"])),
    st.tuples(st.just("append"), threads, st.binary(max_size=5).map(lambda line: line.replace(b"\n", b""))),
    st.tuples(st.just("flush"), threads, st.none()),
    st.tuples(st.just("finish"), threads, st.sampled_from(["waiting", "finished", "failed", "stopped"])),
    st.tuples(st.just("finish_with_checkpoint"), threads, small),
    st.tuples(st.just("label"), threads, labels),
    st.tuples(st.just("list"), threads, st.sampled_from(["", "Ä", "t0", "x"])),
    st.tuples(st.just("release"), threads, st.none()),
    st.tuples(st.just("note"), threads, st.one_of(st.none(), small)),
    st.tuples(st.just("trim"), threads, small),
    st.tuples(st.just("erase"), threads, st.none()),
    st.tuples(st.just("stop"), threads, runs),
    st.tuples(st.just("read"), threads, small),
)


class Story:
    """One ledger and the leases held on it; every step gives something comparable."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.writers: dict[ThreadKey, Writer] = {}
        self.cursors: dict[ThreadKey, str] = {}

    async def tell(self, step: tuple[str, ThreadKey, Any]) -> object:
        name, key, detail = step
        try:
            return await getattr(self, name)(key, detail)
        except (RunnerError, RuntimeError, ValueError) as error:
            return type(error).__name__, error.run if isinstance(error, LeaseHeld) else ""

    async def acquire(self, key: ThreadKey, run: str) -> object:
        writer = await self.ledger.acquire_lease(key, run)
        if key in self.writers:  # fenced by an erasure; release what is left of it
            await self.release(key, None)
        self.writers[key] = writer
        return writer.last, writer.has_ended

    async def begin(self, key: ThreadKey, agent: str) -> object:
        if writer := self.writers.get(key):
            fact = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
            claim = IdempotencyClaim(scope=f"{key}{writer.run}", digest="d")
            return await writer.begin_run([fact], run_id="client", agent=agent, claim=claim, title=writer.run[:-1])
        return None

    async def append(self, key: ThreadKey, line: bytes) -> None:
        if writer := self.writers.get(key):
            writer.append(line)

    async def flush(self, key: ThreadKey, _: None) -> None:
        if writer := self.writers.get(key):
            await writer.flush()

    async def finish(self, key: ThreadKey, status: ThreadStatus) -> None:
        if writer := self.writers.get(key):
            await writer.finish_run(status)

    async def finish_with_checkpoint(self, key: ThreadKey, kept: int) -> None:
        if writer := self.writers.get(key):
            seq = await writer.flush()
            parts = (await self.ledger.list_checkpoint_parts(key))[:kept]
            update = CheckpointUpdate(seq=seq, body=b"%d" % seq, kept_parts=tuple(parts), new_part=b"x" * (kept % 3))
            await writer.finish_run(checkpoint=update)

    async def label(self, key: ThreadKey, chosen: ThreadLabels) -> object:
        return await self.ledger.append_facts(key, [Fact(owner="x", kind="y", body=b"label")], labels=chosen)

    async def list(self, key: ThreadKey, search: str) -> object:
        """Return the thread's list, and what has changed since the last step of this kind."""
        listed = await self.ledger.list_threads(key.tenant, key.owner, search=search)
        archived = await self.ledger.list_threads(
            key.tenant, key.owner, archived="only", statuses=["running", "failed"]
        )
        changed = await self.ledger.list_changed_threads(key.tenant, key.owner, after=self.cursors.get(key), limit=1)
        self.cursors[key] = changed.cursor
        runs = await self.ledger.list_runs(key, limit=2)
        everything = [info for infos in (listed, archived, changed.threads) for info in infos]
        return [(info.key, info.title, info.archived, info.status) for info in everything], changed.erased, runs

    async def release(self, key: ThreadKey, _: None) -> None:
        if writer := self.writers.pop(key, None):
            async with writer:
                pass

    async def note(self, key: ThreadKey, expect: int | None) -> object:
        return await self.ledger.append_facts(key, [Fact(owner="x", kind="y", body=b"note")], expect=expect)

    async def trim(self, key: ThreadKey, seq: int) -> None:
        await self.flush(key, None)
        await self.ledger.trim_thread(key, Checkpoint(seq=seq, body=b"%d" % seq))

    async def erase(self, key: ThreadKey, _: None) -> object:
        return await self.ledger.erase_thread(key)

    async def stop(self, key: ThreadKey, run: str) -> object:
        return await self.ledger.request_stop(key, "x", run=run)

    async def read(self, key: ThreadKey, after: int) -> object:
        """Return all observable data of the thread, except for times, epochs and the boundaries of batches."""
        await self.flush(key, None)
        info = await self.ledger.get_thread(key)
        entries = [
            (batch.first + i, batch.owner, batch.kind, batch.run, line)
            for batch in await self.ledger.read_batches(key, after)
            for i, line in enumerate(batch.lines)
        ]
        known = [await self.ledger.get_run(key, run) for run in ("run-1", "run-2", "run-3")]
        uses = [
            await self.ledger.find_idempotency_record(key.tenant, IdempotencyClaim(scope=f"{key}{run}", digest="d"))
            for run in ("run-1", "run-2")
        ]
        return (
            info
            and (info.agent, info.first, info.last, info.active, info.queued, info.title, info.archived, info.status),
            entries,
            known,
            uses,
            await self.ledger.find_run_at(key, after),
            await self.ledger.get_checkpoint(key),
            await self.ledger.get_checkpoint(key, after),
            await self.ledger.list_checkpoint_parts(key),
            sorted(await self.ledger.list_abandoned_runs(), key=lambda run: (run.thread, run.key)),
        )


async def compare(story: list[tuple[str, ThreadKey, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with MemoryLedger() as memory, SqliteLedger(Path(directory) / "ledger.db") as sqlite:
            one, two = Story(memory), Story(sqlite)
            for step in [
                *story,
                *((name, key, detail) for key in KEYS for name, detail in (("read", 0), ("list", ""))),
            ]:
                assert (step, await one.tell(step)) == (step, await two.tell(step))
            for key in KEYS:
                await one.release(key, None)
                await two.release(key, None)


@examples(60)
@given(st.lists(steps, max_size=25))
def test_both_stores_give_the_same_results(story: list[tuple[str, ThreadKey, Any]]) -> None:
    anyio.run(compare, story)
