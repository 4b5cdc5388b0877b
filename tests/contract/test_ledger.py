"""The contract of every store."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from ambient_runner.errors import (
    AgentMismatch,
    IdempotencyConflict,
    LeaseLost,
    StaleCursor,
    ThreadBusy,
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
    Writer,
)
from ambient_runner.ledger.records import Encoded, TextRun
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b'{"type":"RUN_STARTED"}')
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


async def begin(writer: Writer, *, agent: str = "demo", claim: IdempotencyClaim | None = None) -> int:
    return await writer.begin_run([STARTED], run_id="client-run", agent=agent, claim=claim)


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
            assert writer.queued_count == 5
            writer.append_lazily(make(b"6"))
            await writer.finish_run()
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
            return Encoded([b"%d" % number], TextRun(of, str(number)))

        found: list[tuple[list[bytes], TextRun | None]] = []
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
            ([b"1", b"2"], TextRun("m", "12")),
            ([b"3", b"4"], None),
            ([b"5", b"6"], None),
            ([b"7"], TextRun("m", "7")),
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
                first=1, last=1, active="run-1", queued=0,
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


class TestKeys:
    CLAIM = IdempotencyClaim(scope="ann/demo/k1", digest="d1")

    async def test_a_key_finds_its_run(self, ledger: Ledger) -> None:
        assert await ledger.find_idempotency_record(self.CLAIM) is None
        async with await ledger.acquire_lease(KEY, "run-1", claim=self.CLAIM) as writer:
            await begin(writer, claim=self.CLAIM)
            await writer.finish_run()
        run = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=1)
        for digest in ("d1", "d2"):
            use = await ledger.find_idempotency_record(IdempotencyClaim(scope="ann/demo/k1", digest=digest))
            assert use == IdempotencyRecord(digest="d1", thread=KEY, run=run)

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
        before: int | None = None
        while page := await ledger.list_threads("acme", "ann", limit=3, before=before):
            listed += [info.key for info in page]
            before = page[-1].updated
        assert listed == expected


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

    async def test_numbering_continues_when_everything_was_dropped(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))
        info = await ledger.get_thread(KEY)
        assert info is not None
        assert (info.first, info.last) == (3, 2)
        await a_run(ledger, b"b", run="run-2")
        assert await stored(ledger) == [(3, STARTED.body), (4, b"b")]

    async def test_a_reader_before_the_retained_part_sees_the_gap(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b")
        await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))
        with unless_hung():
            async with ledger.tail(KEY, 0) as tail:
                assert lines_of(await tail.next_batches()) == [(3, b"b")]

    async def test_a_reader_of_an_emptied_thread_continues_live(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        await ledger.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))
        with unless_hung():
            async with ledger.tail(KEY, 0) as tail, anyio.create_task_group() as tasks:

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
        assert await ledger.find_idempotency_record(claim) == IdempotencyRecord(digest="d", thread=KEY, run=None)
        await a_run(ledger)
        assert await ledger.find_idempotency_record(claim) == IdempotencyRecord(digest="d", thread=KEY, run=None)

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
