"""The contract of every store."""

from __future__ import annotations

import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from ambient_runner.errors import (
    AgentMismatch,
    IdempotencyConflict,
    InvalidCursor,
    LeaseLost,
    StaleCursor,
    ThreadBusy,
    ThreadExists,
    UnknownThread,
)
from ambient_runner.ledger import (
    RUNTIME,
    Batch,
    Checkpoint,
    Fact,
    IdempotencyClaim,
    IdempotencyRecord,
    LeaseHeld,
    Ledger,
    RunInfo,
    Tail,
    ThreadInfo,
    ThreadKey,
    ThreadLabels,
    ThreadStatus,
    Writer,
)
from ambient_runner.ledger.records import CheckpointPart, CheckpointUpdate, Encoded, JoinedText
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b'{"type":"RUN_STARTED"}')
OTHER = ThreadKey("acme", "ann", "other")
NOTE = Fact(owner="ambient.feedback", kind="thumb", body=b'{"up":true}')


def lines_of(batches: list[Batch]) -> list[tuple[int, bytes]]:
    return [(batch.first + i, line) for batch in batches for i, line in enumerate(batch.lines)]


async def stored(ledger: Ledger, key: ThreadKey = KEY, after: int = 0) -> list[tuple[int, bytes]]:
    return lines_of(await ledger.read_batches(key, after))


async def take(tail: Tail, last: int) -> list[tuple[int, bytes]]:
    """Everything from the tail up to that seq."""
    got: list[tuple[int, bytes]] = []
    while tail.position < last:
        got += lines_of(await tail.next_batches())
    return got


async def begin(writer: Writer, *, agent: str = "demo", claim: IdempotencyClaim | None = None, title: str = "") -> int:
    return await writer.begin_run([STARTED], run_id="client-run", agent=agent, claim=claim, title=title)


@asynccontextmanager
async def running(ledger: Ledger, run: str = "run-1", key: ThreadKey = KEY) -> AsyncGenerator[Writer, None]:
    async with await ledger.acquire_lease(key, run) as writer:
        await begin(writer)
        yield writer


async def a_run(ledger: Ledger, *lines: bytes, run: str = "run-1", key: ThreadKey = KEY) -> None:
    """A whole run: started, these lines, ended."""
    async with running(ledger, run, key) as writer:
        for line in lines:
            writer.append(line)
        await writer.finish_run()


async def a_thread(
    ledger: Ledger,
    name: str,
    *,
    title: str = "",
    agent: str = "demo",
    status: ThreadStatus = "finished",
    archived: bool = False,
    owner: str = "ann",
) -> ThreadKey:
    """A thread with one run that has ended."""
    key = ThreadKey("acme", owner, name)
    async with await ledger.acquire_lease(key, "run-1") as writer:
        await begin(writer, agent=agent, title=title)
        await writer.finish_run(status)
    if archived:
        await ledger.append_facts(key, [NOTE], labels=ThreadLabels(archived=True))
    return key


async def info_of(ledger: Ledger, key: ThreadKey = KEY) -> ThreadInfo:
    info = await ledger.get_thread(key)
    assert info is not None
    return info


async def labels_of(ledger: Ledger, key: ThreadKey = KEY) -> tuple[str, bool, str]:
    info = await info_of(ledger, key)
    return info.title, info.archived, info.status


def names(infos: list[ThreadInfo]) -> list[str]:
    return [info.key.id for info in infos]


class TestAppending:
    async def test_entries_are_numbered_from_one_without_gaps(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b", run="run-1")
        await a_run(ledger, b"c", run="run-2")
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a"), (3, b"b"), (4, STARTED.body), (5, b"c")]

    async def test_a_run_begins_with_facts_of_several_owners_in_order(self, ledger: Ledger) -> None:
        run_input = Fact(owner="ambient.run", kind="input", body=b"{}")
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            assert await writer.begin_run([run_input, STARTED], run_id="r", agent="demo", claim=None) == 1
        found = await ledger.read_batches(KEY, 0)
        assert [(b.first, b.owner, b.kind, b.run, b.lines) for b in found] == [
            (1, "ambient.run", "input", "run-1", [b"{}"]),
            (2, RUNTIME, "", "run-1", [STARTED.body]),
        ]

    async def test_what_is_flushed_can_be_read(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            assert await writer.flush() == 2
            assert await stored(ledger) == [(1, STARTED.body), (2, b"a")]

    async def test_leaving_the_writer_commits_what_is_queued(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a")]

    async def test_a_line_break_is_refused(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            with pytest.raises(ValueError):
                writer.append(b"a\nb")
            with pytest.raises(ValueError):
                await ledger.append_facts(KEY, [Fact(owner="x", kind="y", body=b"a\nb")])

    async def test_nothing_is_appended_before_begin_or_after_finish(self, ledger: Ledger) -> None:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            with pytest.raises(RuntimeError):
                writer.append(b"early")
            await begin(writer)
            await writer.finish_run()
            with pytest.raises(RuntimeError):
                writer.append(b"late")
        assert await stored(ledger) == [(1, STARTED.body)]

    async def test_finish_marks_the_run_at_its_newest_entry(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            await writer.flush()
            await ledger.append_facts(KEY, [NOTE])
            await writer.finish_run()
        ended = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=2)
        assert await ledger.get_run(KEY, "run-1") == ended
        assert await ledger.get_run(KEY, "run-2") is None

    async def test_a_fast_producer_must_wait_and_loses_nothing(self, ledger: Ledger) -> None:
        full = 0
        async with running(ledger) as writer:
            for number in range(10_000):
                writer.append(b"%d" % number)
                if writer.is_full():
                    full += 1
                    await writer.wait_for_capacity()
                    assert not writer.is_full()
            await writer.finish_run()
        assert full == 10_000 // 4096
        assert (await stored(ledger))[1:] == [(number + 2, b"%d" % number) for number in range(10_000)]

    async def test_lines_appended_lazily_keep_their_order(self, ledger: Ledger) -> None:
        encoded: list[str] = []

        def make(*lines: bytes) -> Callable[[], Encoded]:
            return lambda: encoded.append("made") or Encoded(list(lines))

        async with running(ledger) as writer:
            writer.append(b"1")
            writer.append_lazily(make(b"2", b"3"))
            assert encoded == []
            writer.append(b"4")
            writer.append_lazily(make())
            writer.append_lazily(make(b"5"))
            await writer.flush()
            assert writer.appended_count == 5
            writer.append_lazily(make(b"6"))
            await writer.finish_run()
            assert writer.appended_count == 6  # The end of the run is no line.
        assert len(encoded) == 4
        assert [line for _, line in await stored(ledger)][1:] == [b"1", b"2", b"3", b"4", b"5", b"6"]

    async def test_lines_appended_lazily_are_committed_without_a_flush(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            writer.append_lazily(lambda: Encoded([b"a"]))
            with unless_hung():
                assert lines_of(await tail.next_batches()) == [(2, b"a")]
            writer.append_lazily(lambda: Encoded([]))
            writer.append_lazily(lambda: Encoded([b"b"]))
            with unless_hung():
                assert lines_of(await tail.next_batches()) == [(3, b"b")]

    async def test_a_lazy_append_is_refused_once_the_lease_is_lost(self, ledger: Ledger) -> None:
        made: list[str] = []
        async with running(ledger) as writer:
            writer.append_lazily(lambda: made.append("made") or Encoded([b"a"]))
            await ledger.erase_thread(KEY)
            assert made == ["made"]
            with pytest.raises(LeaseLost):
                writer.append_lazily(lambda: Encoded([b"b"]))

    async def test_a_batch_has_the_joined_text_if_its_lines_are_deltas_of_one_message(self, ledger: Ledger) -> None:
        def made(number: int, of: str = "m") -> Encoded:
            return Encoded([b"%d" % number], JoinedText(of, str(number)))

        found: list[tuple[list[bytes], JoinedText | None]] = []
        async with running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            for makes in (
                [lambda: made(1), lambda: made(2)],
                [lambda: made(3), lambda: made(4, of="other")],
                [lambda: made(5), lambda: Encoded([b"6"])],
                [lambda: made(7), lambda: Encoded([])],
            ):
                for make in makes:
                    writer.append_lazily(make)
                found += [(list(batch.lines), batch.text) for batch in await tail.next_batches()]
            writer.append_lazily(lambda: made(8))
            writer.append(b"9")
            found += [(list(batch.lines), batch.text) for batch in await tail.next_batches()]
        assert found == [
            ([b"1", b"2"], JoinedText("m", "12")),
            ([b"3", b"4"], None),
            ([b"5", b"6"], None),
            ([b"7"], JoinedText("m", "7")),
            ([b"8", b"9"], None),
        ]

    async def test_a_mebibyte_fills_the_window_too(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"x" * (1 << 20))
            assert writer.is_full()
            await writer.wait_for_capacity()
            assert not writer.is_full()

    async def test_runs_are_found_by_the_entries_they_began_at(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", run="run-1")
        await a_run(ledger, b"b", run="run-2")
        found = [run.key if (run := await ledger.find_run_at(KEY, seq)) else None for seq in range(6)]
        assert found == [None, "run-1", "run-1", "run-2", "run-2", "run-2"]


class TestLeases:
    async def test_the_end_of_a_run_releases_its_lease(self, ledger: Ledger) -> None:
        async with await ledger.acquire_lease(KEY, "run-1") as ended:
            await begin(ended)
            ended.append(b"a")
            await ended.finish_run()
            async with await ledger.acquire_lease(KEY, "run-2") as writer:
                await begin(writer)
                info = await ledger.get_thread(KEY)
                assert info is not None
                assert info.active == "run-2"

    async def test_a_second_writer_is_refused_with_the_key_of_the_holder(self, ledger: Ledger) -> None:
        claim = IdempotencyClaim(scope="ann/demo/k1", digest="d1")
        async with await ledger.acquire_lease(KEY, "run-1", claim=claim):
            with pytest.raises(LeaseHeld) as refusal:
                await ledger.acquire_lease(KEY, "run-2")
        assert (refusal.value.run, refusal.value.claim) == ("run-1", claim)

    async def test_a_refused_writer_does_not_free_the_thread(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            for _ in range(2):
                with pytest.raises(LeaseHeld):
                    await ledger.acquire_lease(KEY, "run-2")
            writer.append(b"a")
            await writer.flush()
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a")]

    async def test_tokens_only_grow(self, ledger: Ledger) -> None:
        tokens: list[int] = []
        for run in ("run-1", "run-2", "run-3"):
            async with await ledger.acquire_lease(KEY, run) as writer:
                tokens.append(writer.token)
                await begin(writer)
            if run == "run-2":
                await ledger.erase_thread(KEY)
        assert tokens == sorted(set(tokens))

    async def test_threads_of_different_owners_and_tenants_do_not_meet(self, ledger: Ledger) -> None:
        other_owner, other_tenant = KEY._replace(owner="bob"), KEY._replace(tenant="emca")
        await a_run(ledger, b"a")
        for key in (other_owner, other_tenant):
            assert await ledger.get_thread(key) is None
            assert await stored(ledger, key) == []
            await a_run(ledger, b"b", key=key)
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a")]
        assert [info.key for info in await ledger.list_threads("acme", "bob")] == [other_owner]

    async def test_a_thread_is_visible_only_once_a_run_began(self, ledger: Ledger) -> None:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            assert await ledger.get_thread(KEY) is None
            assert await ledger.list_threads("acme", "ann") == []
            await begin(writer)
            info = await ledger.get_thread(KEY)
            assert info is not None
            assert info == ThreadInfo(
                key=KEY, agent="demo", epoch=writer.epoch, created=info.created, updated=info.updated,
                first=1, last=1, active="run-1", queued=0, title="", archived=False, status="running", cursor=info.cursor,
            )  # fmt: skip
        assert len(writer.epoch) == 12

    async def test_a_thread_keeps_the_agent_of_its_first_run(self, ledger: Ledger) -> None:
        await a_run(ledger)
        async with await ledger.acquire_lease(KEY, "run-2") as writer:
            with pytest.raises(AgentMismatch):
                await begin(writer, agent="other")
            await begin(writer)
        assert await stored(ledger) == [(1, STARTED.body), (2, STARTED.body)]

    async def test_a_new_lease_knows_where_the_thread_is(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        async with await ledger.acquire_lease(KEY, "run-2") as writer:
            assert writer.last == 2

    async def test_a_run_left_open_is_abandoned_and_can_be_closed_by_another(self, ledger: Ledger) -> None:
        async with running(ledger):
            assert await ledger.list_abandoned_runs() == []
        run = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=0)
        assert await ledger.list_abandoned_runs() == [run]
        async with await ledger.acquire_lease(run.thread, run.key) as writer:
            assert not writer.has_ended
            assert await ledger.list_abandoned_runs() == []
            writer.append(b"closed")
            await writer.finish_run()
        assert await ledger.list_abandoned_runs() == []
        assert await stored(ledger) == [(1, STARTED.body), (2, b"closed")]

    async def test_some_of_many_abandoned_runs_are_listed_in_random_order(self, ledger: Ledger) -> None:
        """Several processes that recover at the same time should not all begin with the same run."""
        for number in range(8):
            async with running(ledger, f"run-{number}", KEY._replace(id=f"t{number}")):
                pass
        assert {run.key for run in await ledger.list_abandoned_runs()} == {f"run-{number}" for number in range(8)}
        draws = [[run.key for run in await ledger.list_abandoned_runs(limit=3)] for _ in range(50)]
        assert {len(set(draw)) for draw in draws} == {3}
        assert len({draw[0] for draw in draws}) > 1
        assert {key for draw in draws for key in draw} == {f"run-{number}" for number in range(8)}

    async def test_a_run_that_has_ended_cannot_be_closed_twice(self, ledger: Ledger) -> None:
        await a_run(ledger)
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            assert writer.has_ended
            with pytest.raises(RuntimeError):
                writer.append(b"again")

    async def test_a_waiter_learns_of_the_release(self, ledger: Ledger) -> None:
        released: list[bool] = []

        async def wait() -> None:
            released.append(await ledger.wait_released(KEY, 5))

        with unless_hung():
            async with anyio.create_task_group() as tasks, running(ledger):
                assert await ledger.wait_released(KEY, 0.01) is False
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert released == []
        assert released == [True]

    async def test_a_cancelled_holder_releases(self, ledger: Ledger) -> None:
        with anyio.CancelScope() as scope:
            async with running(ledger):
                scope.cancel()
                await anyio.sleep_forever()
        await a_run(ledger, run="run-2")

    async def test_a_cancelled_acquire_leaves_the_thread_free(self, ledger: Ledger) -> None:
        async def hold() -> None:
            async with await ledger.acquire_lease(KEY, "run-1"):
                await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert await ledger.wait_released(KEY, 5)
        await a_run(ledger)


class TestNewThreads:
    async def begin(
        self,
        ledger: Ledger,
        run: str = "run-1",
        *,
        key: ThreadKey = KEY,
        epoch: str = "e1",
        claim: IdempotencyClaim | None = None,
    ) -> Writer:
        facts = [STARTED, NOTE]
        return await ledger.begin_thread(
            key, run, facts, epoch=epoch, run_id="r", agent="demo", claim=claim, title="Hello"
        )

    async def test_a_thread_begins_with_its_first_run(self, ledger: Ledger) -> None:
        async with await self.begin(ledger) as writer:
            assert (writer.epoch, writer.last, await writer.flush()) == ("e1", 0, 2)
            with pytest.raises(LeaseHeld):
                await ledger.acquire_lease(KEY, "run-2")
            writer.append(b"a")
            await writer.finish_run()
        info = await ledger.get_thread(KEY)
        assert info is not None
        assert (info.epoch, info.last, info.title, info.status, info.active) == ("e1", 3, "Hello", "finished", "")
        (run,) = await ledger.list_runs(KEY)
        assert (run.key, run.first, run.last) == ("run-1", 1, 3)
        lines = [line for batch in await ledger.read_batches(KEY, 0) for line in batch.lines]
        assert lines == [STARTED.body, NOTE.body, b"a"]

    async def test_a_reader_gets_its_first_entries_live(self, ledger: Ledger) -> None:
        async with ledger.tail(KEY, 0) as tail, await self.begin(ledger):
            with unless_hung():
                assert (await tail.next_batches())[0].lines == [STARTED.body]

    async def test_a_thread_that_exists_is_not_begun_again(self, ledger: Ledger) -> None:
        async with await self.begin(ledger) as writer:
            await writer.finish_run()
        with pytest.raises(ThreadExists):
            await self.begin(ledger, "run-2", epoch="e2")
        info = await ledger.get_thread(KEY)
        assert info is not None
        assert (info.epoch, info.last, info.active) == ("e1", 2, "")

    async def test_a_thread_that_another_run_is_about_to_begin_is_busy(self, ledger: Ledger) -> None:
        async with await ledger.acquire_lease(KEY, "run-1"):
            with pytest.raises(LeaseHeld):
                await self.begin(ledger, "run-2")
        assert await ledger.get_thread(KEY) is None

    async def test_a_thread_with_a_queue_is_busy(self, ledger: Ledger) -> None:
        async with ledger.queue_ticket(KEY, depth=1):
            with pytest.raises(LeaseHeld):
                await self.begin(ledger)

    async def test_a_used_key_leaves_neither_a_thread_nor_a_lease(self, ledger: Ledger) -> None:
        claim = IdempotencyClaim(scope="s", digest="d")
        async with await self.begin(ledger, claim=claim) as writer:
            await writer.finish_run()
        with pytest.raises(IdempotencyConflict):
            await self.begin(ledger, "run-2", key=OTHER, claim=claim)
        assert await ledger.get_thread(OTHER) is None
        assert await ledger.list_active_threads(OTHER.tenant, OTHER.owner) == []
        record = await ledger.find_idempotency_record(KEY.tenant, claim)
        assert record is not None
        assert record.run is not None
        assert record.run.key == "run-1"


class TestQueue:
    async def test_tickets_are_served_in_order(self, ledger: Ledger) -> None:
        served: list[int] = []

        async def wait_in_line(number: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
            async with ledger.queue_ticket(KEY, depth=8) as ticket:
                task_status.started()
                while True:
                    assert await ledger.wait_released(KEY, 5, ticket=ticket)
                    try:
                        writer = await ledger.acquire_lease(KEY, f"run-{number}", ticket=ticket)
                    except LeaseHeld:
                        continue
                    break
            async with writer:
                served.append(number)

        with unless_hung():
            async with anyio.create_task_group() as tasks, running(ledger, "run-0"):
                for number in range(1, 6):
                    await tasks.start(wait_in_line, number)
                info = await ledger.get_thread(KEY)
                assert info is not None
                assert info.queued == 5
        assert served == [1, 2, 3, 4, 5]
        info = await ledger.get_thread(KEY)
        assert info is not None
        assert info.queued == 0

    async def test_the_queue_is_first_in_first_out(self, ledger: Ledger) -> None:
        async with ledger.queue_ticket(KEY, depth=8) as first, ledger.queue_ticket(KEY, depth=8) as second:
            for ticket in (None, second):
                with pytest.raises(LeaseHeld) as refusal:
                    await ledger.acquire_lease(KEY, "run-1", ticket=ticket)
                assert refusal.value.run == ""
            assert await ledger.wait_released(KEY, 0.01, ticket=second) is False
            async with await ledger.acquire_lease(KEY, "run-1", ticket=first):
                pass
            async with await ledger.acquire_lease(KEY, "run-2", ticket=second):
                pass

    async def test_the_line_has_an_end(self, ledger: Ledger) -> None:
        async with ledger.queue_ticket(KEY, depth=1):
            with pytest.raises(ThreadBusy):
                async with ledger.queue_ticket(KEY, depth=1):
                    pytest.fail("should have been refused")
        async with ledger.queue_ticket(KEY, depth=1):
            pass


class TestStop:
    async def test_a_stop_request_reaches_the_writer_with_its_first_reason(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            assert await ledger.request_stop(KEY, "enough")
            assert await ledger.request_stop(KEY, "really")
            with unless_hung():
                assert await writer.wait_for_stop() == "enough"

    async def test_only_the_named_run_is_stopped(self, ledger: Ledger) -> None:
        assert await ledger.request_stop(KEY, "x") is False
        async with running(ledger) as writer:
            assert await ledger.request_stop(KEY, "x", run="run-0") is False
            assert await ledger.request_stop(KEY, "y", run="run-1") is True
            with unless_hung():
                assert await writer.wait_for_stop() == "y"
        assert await ledger.request_stop(KEY, "x") is False

    async def test_a_stop_does_not_outlive_its_run(self, ledger: Ledger) -> None:
        async with running(ledger):
            await ledger.request_stop(KEY, "x")
        async with running(ledger, "run-2") as writer:
            with anyio.move_on_after(0.05) as scope:
                await writer.wait_for_stop()
            assert scope.cancelled_caught


class TestNotes:
    async def test_a_fact_interleaves_with_a_run(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            await writer.flush()
            assert await ledger.append_facts(KEY, [NOTE, NOTE]) == 4
            writer.append(b"b")
            await writer.finish_run()
        found = await ledger.read_batches(KEY, 0)
        assert lines_of(found) == [(1, STARTED.body), (2, b"a"), (3, NOTE.body), (4, NOTE.body), (5, b"b")]
        assert [(b.owner, b.kind, b.run) for b in found if b.first == 3] == [("ambient.feedback", "thumb", "")]

    async def test_a_fact_outside_of_runs_needs_a_thread_and_its_own_owner(self, ledger: Ledger) -> None:
        with pytest.raises(UnknownThread):
            await ledger.append_facts(KEY, [NOTE])
        await a_run(ledger)
        with pytest.raises(ValueError):
            await ledger.append_facts(KEY, [STARTED])

    async def test_a_fact_with_an_expected_seq_does_not_wait_for_a_run(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            with pytest.raises(ThreadBusy):
                await ledger.append_facts(KEY, [NOTE], expect=1)
            await writer.finish_run()
        with pytest.raises(StaleCursor):
            await ledger.append_facts(KEY, [NOTE], expect=0)
        assert await ledger.append_facts(KEY, [NOTE], expect=1) == 2


class TestClaimedFacts:
    async def test_facts_with_one_claim_are_appended_once(self, ledger: Ledger) -> None:
        await a_run(ledger)
        claim = IdempotencyClaim(scope="s", digest="d")
        assert await ledger.append_facts(KEY, [NOTE], claim=claim) == 2
        with pytest.raises(IdempotencyConflict):
            await ledger.append_facts(KEY, [NOTE], claim=claim)
        await ledger.append_facts(KEY, [NOTE], claim=IdempotencyClaim(scope="other", digest="d"))
        assert await stored(ledger) == [(1, STARTED.body), (2, NOTE.body), (3, NOTE.body)]

    async def test_a_claim_of_facts_that_were_not_appended_is_free(self, ledger: Ledger) -> None:
        await a_run(ledger)
        claim = IdempotencyClaim(scope="s", digest="d")
        with pytest.raises(StaleCursor):
            await ledger.append_facts(KEY, [NOTE], expect=99, claim=claim)
        assert await ledger.append_facts(KEY, [NOTE], claim=claim) == 2


class TestKeys:
    CLAIM = IdempotencyClaim(scope="ann/demo/k1", digest="d1")

    async def test_a_key_finds_its_run(self, ledger: Ledger) -> None:
        assert await ledger.find_idempotency_record(KEY.tenant, self.CLAIM) is None
        async with await ledger.acquire_lease(KEY, "run-1", claim=self.CLAIM) as writer:
            await begin(writer, claim=self.CLAIM)
            await writer.finish_run()
        run = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=1)
        for digest in ("d1", "d2"):
            use = await ledger.find_idempotency_record(KEY.tenant, IdempotencyClaim(scope="ann/demo/k1", digest=digest))
            assert use == IdempotencyRecord(digest="d1", thread=KEY, run=run)

    async def test_a_key_is_not_found_for_another_tenant(self, ledger: Ledger) -> None:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer, claim=self.CLAIM)
        assert await ledger.find_idempotency_record("other", self.CLAIM) is None

    async def test_a_key_starts_one_run(self, ledger: Ledger) -> None:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer, claim=self.CLAIM)
        other = KEY._replace(id="other")
        async with await ledger.acquire_lease(other, "run-2") as writer:
            with pytest.raises(IdempotencyConflict):
                await begin(writer, claim=self.CLAIM)
        assert await ledger.get_thread(other) is None
        assert await ledger.get_run(other, "run-2") is None


class TestReading:
    async def test_read_begins_and_ends_inside_batches(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b", b"c", b"d")
        assert lines_of(await ledger.read_batches(KEY, 2, until=4)) == [(3, b"b"), (4, b"c")]
        assert await ledger.read_batches(KEY, 4, until=4) == []
        assert lines_of(await ledger.read_batches(KEY, 5)) == []

    async def test_read_stops_near_the_limit(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            for _ in range(10):
                writer.append(b"x" * 100)
                await writer.flush()
        sizes: list[int] = []
        after = 0
        while found := await ledger.read_batches(KEY, after, limit=250):
            sizes.append(len(lines_of(found)))
            after = found[-1].last
        assert sum(sizes) == 11
        assert len(sizes) >= 3

    async def test_a_read_slices_a_large_batch_and_returns_one_entry_at_least(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            for _ in range(20):
                writer.append(b"x" * 1000)
            await writer.flush()
        found = await ledger.read_batches(KEY, 1, limit=5000)
        assert 0 < sum(batch.size for batch in found) <= 5000
        assert lines_of(found)[0] == (2, b"x" * 1000)
        assert lines_of(await ledger.read_batches(KEY, 4, limit=1)) == [(5, b"x" * 1000)]

    async def test_a_tail_returns_about_as_much_as_its_reader_wants(self, ledger: Ledger) -> None:
        line = b"x" * 1000
        with unless_hung():
            async with running(ledger) as writer, ledger.tail(KEY, 0) as tail:
                for _ in range(200):
                    writer.append(line)
                    await writer.flush()
                sizes: list[int] = []
                got: list[tuple[int, bytes]] = []
                while tail.position < 201:
                    found = await tail.next_batches(limit=20_000)
                    sizes.append(sum(batch.size for batch in found))
                    got += lines_of(found)
        assert max(sizes) <= 20_000 + len(line)
        assert got == [(1, STARTED.body), *((seq, line) for seq in range(2, 202))]

    async def test_a_tail_replays_and_continues_live(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        with unless_hung():
            async with ledger.tail(KEY, 1) as tail:
                assert tail.has_next()
                assert await take(tail, 2) == [(2, b"a")]
                assert not tail.has_next()
                await a_run(ledger, b"b", run="run-2")
                assert tail.has_next()
                assert await take(tail, 4) == [(3, STARTED.body), (4, b"b")]

    async def test_a_tail_may_come_before_its_thread(self, ledger: Ledger) -> None:
        with unless_hung():
            async with ledger.tail(KEY, 0) as tail:
                await a_run(ledger, b"a")
                assert await take(tail, 2) == [(1, STARTED.body), (2, b"a")]

    async def test_live_readers_share_one_batch(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 1) as one, ledger.tail(KEY, 1) as two:
            writer.append(b"a")
            writer.append(b"b")
            await writer.flush()
            assert (await one.next_batches())[0] is (await two.next_batches())[0]

    async def test_what_is_produced_without_waiting_is_one_batch(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            for number in range(10):
                writer.append(b"%d" % number)
            assert [len(batch.lines) for batch in await tail.next_batches()] == [10]

    async def test_nothing_is_delivered_before_it_is_stored(self, ledger: Ledger) -> None:
        async def check() -> None:
            async with ledger.tail(KEY, 0) as tail:
                while tail.position < 201:
                    await tail.next_batches()
                    found = await ledger.get_thread(KEY)
                    assert found is not None
                    assert found.last >= tail.position

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(check)
                async with running(ledger) as writer:
                    for number in range(200):
                        writer.append(b"%d" % number)
                        if number % 3 == 0:
                            await writer.flush()
                    await writer.finish_run()

    async def test_fifty_readers_joining_at_random_get_everything_once_in_order(self, ledger: Ledger) -> None:
        chance = random.Random(7)
        total = 1500
        everything = [(1, STARTED.body), *((n + 2, b"%d" % n) for n in range(total))]
        complete = 0

        async def reader(after: int) -> None:
            nonlocal complete
            async with ledger.tail(KEY, after) as tail:
                assert await take(tail, total + 1) == everything[after:]
            complete += 1

        with unless_hung():
            async with anyio.create_task_group() as tasks, running(ledger) as writer:
                joins = sorted(chance.randrange(total) for _ in range(50))
                for number in range(total):
                    writer.append(b"%d" % number)
                    while joins and joins[0] <= number:
                        joins.pop(0)
                        tasks.start_soon(reader, chance.randrange(number + 1))
                    if chance.random() < 0.1:
                        await writer.flush()
                    elif chance.random() < 0.1:
                        await anyio.lowlevel.checkpoint()
                await writer.finish_run()
        assert complete == 50

    async def test_a_slow_reader_falls_back_to_the_store(self, ledger: Ledger) -> None:
        line = b"x" * 10_000
        with unless_hung():
            async with running(ledger) as writer, ledger.tail(KEY, 0) as tail:
                for _ in range(400):  # four times what a channel retains
                    writer.append(line)
                    if writer.is_full():
                        await writer.wait_for_capacity()
                await writer.finish_run()
                assert await take(tail, 401) == [(1, STARTED.body), *((n + 2, line) for n in range(400))]

    async def test_threads_are_listed_newest_first_in_pages(self, ledger: Ledger) -> None:
        keys = [KEY._replace(id=f"t{number}") for number in range(7)]
        for key in keys:
            await a_run(ledger, key=key)
        await ledger.append_facts(keys[2], [NOTE])
        expected = [keys[2], *(key for key in reversed(keys) if key != keys[2])]
        listed: list[ThreadKey] = []
        before: str | None = None
        while page := await ledger.list_threads("acme", "ann", limit=3, before=before):
            listed += [info.key for info in page]
            before = page[-1].cursor
        assert listed == expected


class TestReaders:
    async def readers_become(self, ledger: Ledger, count: int) -> None:
        """Wait until the thread has so many: a store may write it down a moment later."""
        with unless_hung():
            while (await info_of(ledger)).readers != count:
                await anyio.lowlevel.checkpoint()

    async def test_a_process_counts_once_while_it_has_readers(self, ledger: Ledger) -> None:
        await a_run(ledger)
        assert (await info_of(ledger)).readers == 0
        async with ledger.tail(KEY, 0):
            async with ledger.tail(KEY, 0):
                await self.readers_become(ledger, 1)
            assert (await info_of(ledger)).readers == 1
        await self.readers_become(ledger, 0)

    async def test_the_process_that_holds_the_lease_does_not_count(self, ledger: Ledger) -> None:
        await a_run(ledger)
        async with ledger.tail(KEY, 0):
            await self.readers_become(ledger, 1)
            async with running(ledger, "run-2") as writer:
                assert (await info_of(ledger)).readers == 0
                await writer.finish_run()
            await self.readers_become(ledger, 1)

    async def test_a_reader_that_stays_after_a_run_of_its_process_counts(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 0):
            await writer.finish_run()
            await writer.__aexit__(None, None, None)
            await self.readers_become(ledger, 1)

    async def test_active_threads_are_those_of_the_owner_with_a_lease(self, ledger: Ledger) -> None:
        new, other = KEY._replace(id="new"), KEY._replace(owner="bob")
        await a_run(ledger, key=KEY._replace(id="ended"))
        assert await ledger.list_active_threads("acme", "ann") == []
        async with running(ledger), running(ledger, key=other), await ledger.acquire_lease(new, "run-1"):
            assert sorted(await ledger.list_active_threads("acme", "ann")) == [new, KEY]
        assert await ledger.list_active_threads("acme", "ann") == []


class TestLabels:
    async def test_the_first_title_stays_until_someone_chooses_another(self, ledger: Ledger) -> None:
        for run, title in (("run-1", ""), ("run-2", "Plan a trip"), ("run-3", "And now?")):
            async with await ledger.acquire_lease(KEY, run) as writer:
                await begin(writer, title=title)
                await writer.finish_run()
        assert await labels_of(ledger) == ("Plan a trip", False, "finished")
        await ledger.append_facts(KEY, [NOTE], labels=ThreadLabels(title="Rome"))
        async with await ledger.acquire_lease(KEY, "run-4") as writer:
            await begin(writer, title="Plan a trip")
        assert await labels_of(ledger) == ("Rome", False, "running")

    async def test_a_label_that_is_not_given_stays(self, ledger: Ledger) -> None:
        await a_thread(ledger, KEY.id, title="Rome", status="waiting")
        seen: list[tuple[str, bool, str]] = []
        for labels in (
            ThreadLabels(archived=True),
            ThreadLabels(title="Oslo"),
            ThreadLabels(status="stopped"),
            ThreadLabels(archived=False),
            None,
        ):
            await ledger.append_facts(KEY, [NOTE], labels=labels)
            seen.append(await labels_of(ledger))
        assert seen == [
            ("Rome", True, "waiting"),
            ("Oslo", True, "waiting"),
            ("Oslo", True, "stopped"),
            ("Oslo", False, "stopped"),
            ("Oslo", False, "stopped"),
        ]

    @pytest.mark.parametrize("status", ["waiting", "finished", "failed", "stopped"])
    async def test_a_run_sets_the_status_when_it_begins_and_when_it_ends(
        self, ledger: Ledger, status: ThreadStatus
    ) -> None:
        seen: list[str] = []
        for run in ("run-1", "run-2"):
            async with running(ledger, run) as writer:
                seen.append((await info_of(ledger)).status)
                writer.append(b"a")
                await writer.finish_run(status)
                seen.append((await info_of(ledger)).status)
        assert seen == ["running", status] * 2

    async def test_a_refused_fact_changes_no_label(self, ledger: Ledger) -> None:
        with pytest.raises(UnknownThread):
            await ledger.append_facts(KEY, [NOTE], labels=ThreadLabels(title="Rome"))
        await a_thread(ledger, KEY.id, title="Rome")
        with pytest.raises(StaleCursor):
            await ledger.append_facts(KEY, [NOTE], expect=99, labels=ThreadLabels(title="Oslo", archived=True))
        with pytest.raises(ValueError):
            await ledger.append_facts(KEY, [], labels=ThreadLabels(title="Oslo"))
        assert await labels_of(ledger) == ("Rome", False, "finished")

    async def test_a_refused_run_leaves_the_labels_alone(self, ledger: Ledger) -> None:
        await a_thread(ledger, KEY.id)
        async with await ledger.acquire_lease(KEY, "run-2") as writer:
            with pytest.raises(AgentMismatch):
                await begin(writer, agent="other", title="Rome")
        assert await labels_of(ledger) == ("", False, "finished")

    async def test_a_thread_that_is_created_again_has_no_label_of_the_first(self, ledger: Ledger) -> None:
        await a_thread(ledger, KEY.id, title="Rome", archived=True)
        await ledger.erase_thread(KEY)
        await a_thread(ledger, KEY.id)
        assert await labels_of(ledger) == ("", False, "finished")


class TestThreadList:
    async def test_filters_select_by_agent_status_and_archive(self, ledger: Ledger) -> None:
        await a_thread(ledger, "a", agent="one", status="failed")
        await a_thread(ledger, "b", agent="two", status="waiting")
        await a_thread(ledger, "c", agent="one", status="waiting", archived=True)
        await a_thread(ledger, "d", agent="three")
        await a_thread(ledger, "e", owner="bob")

        async def listed(**wanted: Any) -> list[str]:
            return names(await ledger.list_threads("acme", "ann", **wanted))

        assert await listed() == ["d", "b", "a"]
        assert await listed(archived="only") == ["c"]
        assert await listed(archived="with") == ["d", "c", "b", "a"]
        assert await listed(agents=["one"]) == ["a"]
        assert await listed(agents=["one", "two"], archived="with") == ["c", "b", "a"]
        assert await listed(statuses=["waiting"]) == ["b"]
        assert await listed(statuses=["waiting", "failed"], agents=["one"], archived="with") == ["c", "a"]
        assert await listed(statuses=["running"]) == []

    @pytest.mark.parametrize(
        ("search", "found"),
        [
            ("%", ["percent"]),
            ("100%", ["percent"]),
            ("_", ["snake_case", "underline"]),
            ("a_b", ["underline"]),
            ("'", ["quotes"]),
            ('"', ["quotes"]),
            ("\'; DROP TABLE thread; --", []),
            ("\\", ["backslash"]),
            ("*", ["star"]),
            ("[a]", ["star"]),
            ("🦊", ["emoji"]),
            ("👩‍🚀", ["emoji"]),
            ("👩", ["emoji"]),
            ("🚁", []),
            ("ÜBER KÖLN", ["umlaut"]),
            ("über köln", ["umlaut"]),
            ("u\u0308ber", ["umlaut"]),
            ("uber", []),
            ("STRASSE", ["sharp"]),
            ("straße", ["sharp"]),
            ("ПРИВЕТ", ["cyrillic"]),
            ("ΣΊΣΥΦΟΣ", ["greek"]),
            ("UMLAUT", ["umlaut"]),
            ("quo", ["quotes"]),
            ("straße\nsharp", []),
            ("\n", []),
            (" ", ["umlaut", "emoji", "star", "backslash", "quotes", "percent"]),
            ("title id", []),
        ],
    )  # fmt: skip
    async def test_a_search_finds_exactly_this_text_in_title_or_id(
        self, ledger: Ledger, search: str, found: list[str]
    ) -> None:
        titles = {
            "sharp": "Hauptstraße",
            "percent": "100% of it",
            "underline": "a_b",
            "snake_case": "axb",
            "quotes": 'it\'s "it"',
            "backslash": "a \\ b",
            "star": "* [a]",
            "emoji": "🦊 and 👩‍🚀",
            "umlaut": "Über Köln",
            "cyrillic": "Привет",
            "greek": "Σίσυφος",
        }
        for name, title in titles.items():
            await a_thread(ledger, name, title=title)
        await a_thread(ledger, "other", title=search, owner="bob")
        assert sorted(names(await ledger.list_threads("acme", "ann", search=search))) == sorted(found)

    async def test_a_search_knows_the_newest_title_only(self, ledger: Ledger) -> None:
        await a_thread(ledger, "t", title="Rome")
        await ledger.append_facts(ThreadKey("acme", "ann", "t"), [NOTE], labels=ThreadLabels(title="Oslo"))
        assert names(await ledger.list_threads("acme", "ann", search="rome")) == []
        assert names(await ledger.list_threads("acme", "ann", search="oslo")) == ["t"]

    async def test_a_filtered_list_has_pages(self, ledger: Ledger) -> None:
        for number in range(9):
            await a_thread(ledger, f"t{number}", title="odd" if number % 2 else "even", archived=number == 4)
        listed: list[list[str]] = []
        before: str | None = None
        while page := await ledger.list_threads("acme", "ann", limit=2, before=before, search="even"):
            listed.append(names(page))
            before = page[-1].cursor
        assert listed == [["t8", "t6"], ["t2", "t0"]]

    async def test_threads_that_change_in_the_same_moment_have_different_cursors(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now)
        for number in range(5):
            await a_thread(ledger, f"t{number}")
        infos = await ledger.list_threads("acme", "ann")
        assert names(infos) == ["t4", "t3", "t2", "t1", "t0"]
        assert len({info.updated for info in infos}) == 1
        assert len({info.cursor for info in infos}) == 5

    @pytest.mark.parametrize("cursor", ["", "x", "1", ".", ".1", "x.1", "{store}", "{store}.", "{store}.x", "{store}.-1",
                                        "{store}.1.1", "{store}. 1", "{store}.²", "{store}.9999999999999999999", "{last}0"])  # fmt: skip
    async def test_a_cursor_of_another_list_is_refused(self, ledger: Ledger, cursor: str) -> None:
        await a_thread(ledger, "t")
        last = (await ledger.list_threads("acme", "ann"))[0].cursor
        forged = cursor.format(store=last.partition(".")[0], last=last)
        with pytest.raises(InvalidCursor):
            await ledger.list_threads("acme", "ann", before=forged)
        with pytest.raises(InvalidCursor):
            await ledger.list_changed_threads("acme", "ann", after=forged)

    async def test_runs_are_listed_newest_first_in_pages(self, ledger: Ledger) -> None:
        assert await ledger.list_runs(KEY) == []
        for number in range(1, 6):
            await a_run(ledger, b"a", run=f"run-{number}")
        async with running(ledger, "run-6"):
            newest = await ledger.list_runs(KEY, limit=2)
            assert newest == [
                RunInfo(key="run-6", thread=KEY, run_id="client-run", first=11, last=0),
                RunInfo(key="run-5", thread=KEY, run_id="client-run", first=9, last=10),
            ]
            older = await ledger.list_runs(KEY, limit=2, before=newest[-1].first)
            rest = await ledger.list_runs(KEY, before=older[-1].first)
        assert [run.key for run in (*older, *rest)] == ["run-4", "run-3", "run-2", "run-1"]
        assert await ledger.list_runs(KEY._replace(owner="bob")) == []


class TestChanges:
    async def test_changes_are_reported_once_the_oldest_first(self, ledger: Ledger) -> None:
        start = await ledger.list_changed_threads("acme", "ann", after=None)
        assert (start.threads, start.erased) == ([], [])
        for name in ("a", "b", "c"):
            await a_thread(ledger, name, archived=name == "b")
        await a_thread(ledger, "d", owner="bob")
        first = await ledger.list_changed_threads("acme", "ann", after=start.cursor)
        assert (names(first.threads), first.erased) == (["a", "b", "c"], [])
        assert first.threads == list(reversed(await ledger.list_threads("acme", "ann", archived="with")))
        none = await ledger.list_changed_threads("acme", "ann", after=first.cursor)
        assert (none.threads, none.erased) == ([], [])
        await ledger.append_facts(ThreadKey("acme", "ann", "a"), [NOTE])
        second = await ledger.list_changed_threads("acme", "ann", after=none.cursor)
        assert (names(second.threads), second.erased) == (["a"], [])

    async def test_a_list_can_be_followed_from_its_newest_thread(self, ledger: Ledger) -> None:
        await a_thread(ledger, "a")
        await a_thread(ledger, "b")
        newest = (await ledger.list_threads("acme", "ann"))[0]
        assert names((await ledger.list_changed_threads("acme", "ann", after=newest.cursor)).threads) == []
        await a_thread(ledger, "c")
        assert names((await ledger.list_changed_threads("acme", "ann", after=newest.cursor)).threads) == ["c"]

    async def test_the_start_and_the_end_of_a_run_and_a_fact_are_changes(self, ledger: Ledger) -> None:
        seen: list[list[tuple[str, str]]] = []
        cursor = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor

        async def poll() -> None:
            nonlocal cursor
            changed = await ledger.list_changed_threads("acme", "ann", after=cursor)
            seen.append([(info.key.id, info.status) for info in changed.threads])
            cursor = changed.cursor

        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await poll()
            await begin(writer)
            await poll()
            writer.append(b"a")
            await writer.flush()
            await poll()
            await writer.finish_run("failed")
            await poll()
        await poll()
        await ledger.append_facts(KEY, [NOTE])
        await poll()
        assert seen == [[], [("trip", "running")], [], [("trip", "failed")], [], [("trip", "failed")]]

    async def test_an_erased_thread_is_reported_until_it_exists_again(self, ledger: Ledger) -> None:
        key = await a_thread(ledger, "a")
        await a_thread(ledger, "b")
        await a_thread(ledger, "x", owner="bob")
        start = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor
        await ledger.erase_thread(key)
        await ledger.erase_thread(ThreadKey("acme", "bob", "x"))
        gone = await ledger.list_changed_threads("acme", "ann", after=start)
        assert (gone.threads, gone.erased) == ([], ["a"])
        assert (await ledger.list_changed_threads("acme", "ann", after=gone.cursor)).erased == []
        await a_thread(ledger, "a")
        again = await ledger.list_changed_threads("acme", "ann", after=start)
        assert (names(again.threads), again.erased) == (["a"], [])

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_many_changes_come_in_parts_and_none_is_lost(self, ledger: Ledger, limit: int) -> None:
        cursor = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor
        keys = [await a_thread(ledger, f"t{number}") for number in range(7)]
        await ledger.erase_thread(keys[1])
        await ledger.append_facts(keys[0], [NOTE])
        await ledger.erase_thread(keys[4])
        parts: list[list[str]] = []
        while True:
            changed = await ledger.list_changed_threads("acme", "ann", after=cursor, limit=limit)
            if changed.cursor == cursor:
                break
            parts.append([*names(changed.threads), *(f"-{name}" for name in changed.erased)])
            cursor = changed.cursor
        assert sorted(name for part in parts for name in part) == ["-t1", "-t4", "t0", "t2", "t3", "t5", "t6"]
        assert [part for part in parts if len(part) > limit] == []
        assert limit != 1 or parts == [["t2"], ["t3"], ["t5"], ["t6"], ["-t1"], ["t0"], ["-t4"]]

    async def test_nothing_is_lost_when_the_clock_goes_back(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now)
        await ledger.erase_thread(await a_thread(ledger, "a"))
        cursor = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor
        now -= 3600 * 10**9
        await a_thread(ledger, "b")
        changed = await ledger.list_changed_threads("acme", "ann", after=cursor)
        assert (names(changed.threads), changed.erased) == (["b"], [])

    async def test_a_cursor_from_before_forgotten_erasures_is_stale(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now)
        await a_thread(ledger, "a", owner="bob")
        old = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor
        bobs = (await ledger.list_changed_threads("acme", "bob", after=None)).cursor
        await ledger.erase_thread(ThreadKey("acme", "bob", "a"))
        now += 25 * 3600 * 10**9
        await ledger.erase_thread(await a_thread(ledger, "b", owner="bob"))
        for owner, cursor in (("ann", old), ("bob", bobs)):
            with pytest.raises(StaleCursor):
                await ledger.list_changed_threads("acme", owner, after=cursor)
        # A new cursor is good, also of someone whose threads have not changed for long.
        for owner in ("ann", "bob"):
            fresh = (await ledger.list_changed_threads("acme", owner, after=None)).cursor
            assert (await ledger.list_changed_threads("acme", owner, after=fresh)).threads == []

    async def test_who_keeps_asking_is_never_stale_whatever_others_erase(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now)
        await a_thread(ledger, "quiet")
        cursor = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor
        for number in range(60):
            now += 3600 * 10**9
            await ledger.erase_thread(await a_thread(ledger, f"t{number}", owner="bob"))
            changed = await ledger.list_changed_threads("acme", "ann", after=cursor)
            assert (changed.threads, changed.erased) == ([], [])
            cursor = changed.cursor

    async def test_the_moment_of_another_owners_change_is_not_in_a_cursor(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 1_800_000_000 * 10**9  # a whole hour
        monkeypatch.setattr(time, "time_ns", lambda: now)
        cursors: set[str] = set()
        await a_thread(ledger, "quiet")
        for minute in range(1, 60):
            now += 60 * 10**9
            await a_thread(ledger, f"t{minute}", owner="bob")
            cursors.add((await ledger.list_changed_threads("acme", "ann", after=None)).cursor)
        assert len(cursors) == 1


class TestRetention:
    async def test_trim_keeps_the_checkpoint_and_drops_what_it_covers(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b", b"c")
        folded = Checkpoint(seq=2, body=b'{"messages":[]}')
        await ledger.trim_thread(KEY, folded)
        assert await ledger.get_checkpoint(KEY) == folded
        assert await ledger.get_checkpoint(KEY, at=1) is None
        assert await stored(ledger) == [(3, b"b"), (4, b"c")]
        info = await ledger.get_thread(KEY)
        assert info is not None
        assert (info.first, info.last) == (3, 4)

    async def test_an_earlier_checkpoint_does_not_replace_a_later_one(self, ledger: Ledger) -> None:
        """Two processes may apply retention at once, and the entries between their checkpoints are in the later one alone."""
        await a_run(ledger, b"a", b"b", b"c")
        later = Checkpoint(seq=3, body=b'{"messages":[1,2]}')
        await ledger.trim_thread(KEY, later)
        await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b'{"messages":[1]}'))
        assert await ledger.get_checkpoint(KEY) == later
        assert await stored(ledger) == [(4, b"c")]

    async def test_a_checkpoint_of_an_erased_thread_is_not_stored_in_the_next_one(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b")
        erased = await ledger.get_thread(KEY)
        assert erased is not None
        await ledger.erase_thread(KEY)
        await a_run(ledger, b"c", b"d", run="run-2")
        with pytest.raises(UnknownThread):
            await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"), epoch=erased.epoch)
        assert await ledger.get_checkpoint(KEY) is None

    async def test_numbering_continues_when_everything_was_dropped(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))
        info = await ledger.get_thread(KEY)
        assert info is not None
        assert (info.first, info.last) == (3, 2)
        await a_run(ledger, b"b", run="run-2")
        assert await stored(ledger) == [(3, STARTED.body), (4, b"b")]

    @pytest.mark.parametrize("seq", [2, 3], ids=["a part", "everything"])
    async def test_a_reader_before_the_retained_part_is_refused(self, ledger: Ledger, seq: int) -> None:
        await a_run(ledger, b"a", b"b")
        await ledger.trim_thread(KEY, Checkpoint(seq=seq, body=b"{}"))
        with unless_hung():
            async with ledger.tail(KEY, 0) as tail:
                with pytest.raises(StaleCursor):
                    await tail.next_batches()
            assert tail.position == 0

    async def test_f30_m2_an_established_reader_never_passes_over_dropped_entries(self, ledger: Ledger) -> None:
        """They were evicted from memory, and retention dropped them from the store before the reader asked for them."""
        line = b"x" * 10_000
        with unless_hung():
            async with ledger.tail(KEY, 0) as tail:
                async with running(ledger) as writer:
                    assert await take(tail, 1) == [(1, STARTED.body)]
                    for _ in range(400):  # four times what a channel retains
                        writer.append(line)
                        if writer.is_full():
                            await writer.wait_for_capacity()
                    await writer.finish_run()
                await ledger.trim_thread(KEY, Checkpoint(seq=390, body=b"{}"))
                with pytest.raises(StaleCursor):
                    await take(tail, 401)
            async with ledger.tail(KEY, 390) as tail:
                assert await take(tail, 401) == [(seq, line) for seq in range(391, 402)]

    async def test_a_reader_of_an_emptied_thread_continues_live(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))
        with unless_hung():
            async with ledger.tail(KEY, 2) as tail, anyio.create_task_group() as tasks:

                async def go_on() -> None:
                    await a_run(ledger, b"b", run="run-2")

                tasks.start_soon(go_on)
                assert lines_of(await tail.next_batches())[0] == (3, STARTED.body)

    async def test_a_checkpoint_is_never_ahead(self, ledger: Ledger) -> None:
        with pytest.raises(UnknownThread):
            await ledger.trim_thread(KEY, Checkpoint(seq=0, body=b"{}"))
        await a_run(ledger)
        with pytest.raises(ValueError):
            await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))


class TestCheckpointsOfRuns:
    async def end_with(self, ledger: Ledger, checkpoint: CheckpointUpdate | None, run: str = "run-1") -> None:
        """A run of one line that ends with this checkpoint. It adds two entries."""
        async with running(ledger, run) as writer:
            writer.append(b"line")
            await writer.flush()
            await writer.finish_run(checkpoint=checkpoint)

    async def test_a_run_ends_with_a_checkpoint_and_nothing_is_dropped(self, ledger: Ledger) -> None:
        await self.end_with(ledger, CheckpointUpdate(seq=2, body=b"head", new_part=b"one"))
        found = Checkpoint(seq=2, body=b"head", parts=(CheckpointPart(2, b"one"),))
        assert await ledger.get_checkpoint(KEY) == await ledger.get_checkpoint(KEY, 2) == found
        assert await ledger.get_checkpoint(KEY, 1) is None
        assert await stored(ledger) == [(1, STARTED.body), (2, b"line")]

    async def test_the_next_one_keeps_parts_and_adds_one(self, ledger: Ledger) -> None:
        await self.end_with(ledger, CheckpointUpdate(seq=2, body=b"head", new_part=b"one"))
        await self.end_with(ledger, CheckpointUpdate(seq=4, body=b"head2", kept_parts=(2,), new_part=b"two"), "run-2")
        await self.end_with(ledger, CheckpointUpdate(seq=6, body=b"head3", kept_parts=(2, 4)), "run-3")
        assert await ledger.list_checkpoint_parts(KEY) == [2, 4]
        parts = (CheckpointPart(2, b"one"), CheckpointPart(4, b"two"))
        assert await ledger.get_checkpoint(KEY) == Checkpoint(seq=6, body=b"head3", parts=parts)
        assert await ledger.get_checkpoint(KEY, 5) is None
        await self.end_with(ledger, CheckpointUpdate(seq=8, body=b"head4", kept_parts=(2,), new_part=b"2"), "run-4")
        parts = (CheckpointPart(2, b"one"), CheckpointPart(8, b"2"))
        assert await ledger.get_checkpoint(KEY) == Checkpoint(seq=8, body=b"head4", parts=parts)

    async def test_a_checkpoint_on_parts_that_are_not_there_is_left_out(self, ledger: Ledger) -> None:
        await self.end_with(ledger, CheckpointUpdate(seq=2, body=b"head", new_part=b"one"))
        await self.end_with(ledger, CheckpointUpdate(seq=4, body=b"no", kept_parts=(1,), new_part=b"two"), "run-2")
        found = await ledger.get_checkpoint(KEY)
        assert found == Checkpoint(seq=2, body=b"head", parts=(CheckpointPart(2, b"one"),))
        run = await ledger.get_run(KEY, "run-2")
        assert run is not None
        assert run.last == 4

    async def test_a_checkpoint_is_never_ahead_of_what_is_committed(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"line")
            with pytest.raises(ValueError):
                await writer.finish_run(checkpoint=CheckpointUpdate(seq=2, body=b"head"))
            await writer.finish_run()
        assert await ledger.get_checkpoint(KEY) is None

    async def test_readers_after_the_dropped_entries_begin_at_retentions_checkpoint(self, ledger: Ledger) -> None:
        await self.end_with(ledger, None)
        await self.end_with(ledger, CheckpointUpdate(seq=4, body=b"head", new_part=b"one"), "run-2")
        dropped = Checkpoint(seq=2, body=b"{}")
        await ledger.trim_thread(KEY, dropped)
        assert await ledger.get_checkpoint(KEY, 3) == dropped
        newest = await ledger.get_checkpoint(KEY, 4)
        assert newest is not None
        assert newest.body == b"head"

    async def test_retention_that_overtakes_a_checkpoint_replaces_it(self, ledger: Ledger) -> None:
        await self.end_with(ledger, CheckpointUpdate(seq=2, body=b"head", new_part=b"one"))
        await self.end_with(ledger, None, "run-2")
        await ledger.trim_thread(KEY, Checkpoint(seq=3, body=b"{}"))
        assert await ledger.get_checkpoint(KEY) == Checkpoint(seq=3, body=b"{}")
        assert await ledger.list_checkpoint_parts(KEY) == []

    async def test_an_erased_thread_has_no_checkpoint_and_the_next_one_none_of_it(self, ledger: Ledger) -> None:
        await self.end_with(ledger, CheckpointUpdate(seq=2, body=b"head", new_part=b"one"))
        erased = await info_of(ledger)
        await ledger.erase_thread(KEY)
        assert await ledger.get_checkpoint(KEY) is None
        await self.end_with(ledger, CheckpointUpdate(seq=2, body=b"new"))
        assert await ledger.get_checkpoint(KEY) == Checkpoint(seq=2, body=b"new")
        assert await ledger.get_checkpoint(KEY, epoch=erased.epoch) is None

    async def test_a_writer_that_lost_its_lease_stores_none(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            await writer.flush()
            await ledger.erase_thread(KEY)
            with pytest.raises(LeaseLost):
                await writer.finish_run(checkpoint=CheckpointUpdate(seq=1, body=b"head"))
        assert await ledger.get_checkpoint(KEY) is None


class TestErasure:
    async def test_an_erased_thread_is_unknown_and_its_id_gets_a_new_epoch(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        before = await ledger.get_thread(KEY)
        assert await ledger.erase_thread(KEY) is True
        assert await ledger.erase_thread(KEY) is False
        assert await ledger.get_thread(KEY) is None
        assert await stored(ledger) == []
        assert await ledger.get_run(KEY, "run-1") is None
        assert await ledger.get_checkpoint(KEY) is None
        assert await ledger.list_abandoned_runs() == []
        await a_run(ledger, b"b")
        after = await ledger.get_thread(KEY)
        assert before is not None
        assert after is not None
        assert after.epoch != before.epoch
        assert await stored(ledger) == [(1, STARTED.body), (2, b"b")]

    async def test_a_key_of_an_erased_run_answers_gone(self, ledger: Ledger) -> None:
        claim = IdempotencyClaim(scope="s", digest="d")
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer, claim=claim)
        await ledger.erase_thread(KEY)
        assert await ledger.find_idempotency_record(KEY.tenant, claim) == IdempotencyRecord(
            digest="d", thread=KEY, run=None
        )
        await a_run(ledger)
        assert await ledger.find_idempotency_record(KEY.tenant, claim) == IdempotencyRecord(
            digest="d", thread=KEY, run=None
        )

    async def test_a_running_writer_is_fenced(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            await writer.flush()
            await ledger.erase_thread(KEY)
            await a_run(ledger, b"new epoch", run="run-2")
            with pytest.raises(LeaseLost):
                writer.append(b"ghost")
            with pytest.raises(LeaseLost):
                await writer.flush()
            with pytest.raises(LeaseLost):
                await writer.wait_for_stop()
        assert await stored(ledger) == [(1, STARTED.body), (2, b"new epoch")]

    async def test_readers_end_and_do_not_see_the_next_epoch(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        ended = anyio.Event()

        async def follow() -> None:
            async with ledger.tail(KEY, 2) as tail:
                with pytest.raises(UnknownThread):
                    await tail.next_batches()
            ended.set()

        with unless_hung():
            async with anyio.create_task_group() as tasks, ledger.tail(KEY, 0) as behind:
                tasks.start_soon(follow)
                await anyio.wait_all_tasks_blocked()
                await ledger.erase_thread(KEY)
                await ended.wait()
                await a_run(ledger, b"b", b"c", b"d")
                assert behind.has_next()
                with pytest.raises(UnknownThread):
                    await behind.next_batches()
