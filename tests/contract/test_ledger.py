"""What every store must do."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from ambient_runner.errors import (
    KeyReused,
    LeaseLost,
    OtherAgent,
    StaleCursor,
    ThreadBusy,
    UnknownThread,
)
from ambient_runner.ledger import (
    RUNTIME,
    Batch,
    Checkpoint,
    Fact,
    Held,
    KeyClaim,
    KeyUse,
    Ledger,
    RunInfo,
    Tail,
    ThreadInfo,
    ThreadKey,
    Writer,
)
from ambient_runner.ledger.base import Encoded, Text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b'{"type":"RUN_STARTED"}')
NOTE = Fact(owner="ambient.feedback", kind="thumb", body=b'{"up":true}')


def lines_of(batches: list[Batch]) -> list[tuple[int, bytes]]:
    return [(batch.first + i, line) for batch in batches for i, line in enumerate(batch.lines)]


async def stored(ledger: Ledger, key: ThreadKey = KEY, after: int = 0) -> list[tuple[int, bytes]]:
    return lines_of(await ledger.read(key, after))


async def take(tail: Tail, last: int) -> list[tuple[int, bytes]]:
    """Everything from the tail up to that seq."""
    got: list[tuple[int, bytes]] = []
    while tail.position < last:
        got += lines_of(await tail.next())
    return got


async def begin(writer: Writer, *, agent: str = "demo", claim: KeyClaim | None = None) -> int:
    return await writer.begin([STARTED], run_id="client-run", agent=agent, claim=claim)


@asynccontextmanager
async def running(ledger: Ledger, run: str = "run-1", key: ThreadKey = KEY) -> AsyncGenerator[Writer, None]:
    async with await ledger.acquire(key, run) as writer:
        await begin(writer)
        yield writer


async def a_run(ledger: Ledger, *lines: bytes, run: str = "run-1", key: ThreadKey = KEY) -> None:
    """A whole run: started, these lines, ended."""
    async with running(ledger, run, key) as writer:
        for line in lines:
            writer.append(line)
        await writer.finish()


class TestAppending:
    async def test_entries_are_numbered_from_one_without_holes(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b", run="run-1")
        await a_run(ledger, b"c", run="run-2")
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a"), (3, b"b"), (4, STARTED.body), (5, b"c")]

    async def test_a_run_begins_with_facts_of_several_owners_in_order(self, ledger: Ledger) -> None:
        given = Fact(owner="ambient.run", kind="input", body=b"{}")
        async with await ledger.acquire(KEY, "run-1") as writer:
            assert await writer.begin([given, STARTED], run_id="r", agent="demo", claim=None) == 1
        found = await ledger.read(KEY, 0)
        assert [(b.first, b.owner, b.kind, b.run, b.lines) for b in found] == [
            (1, "ambient.run", "input", "run-1", [b"{}"]),
            (2, RUNTIME, "", "run-1", [STARTED.body]),
        ]

    async def test_what_is_flushed_can_be_read(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            assert await writer.flushed() == 2
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
                await ledger.note(KEY, [Fact(owner="x", kind="y", body=b"a\nb")])

    async def test_nothing_is_appended_before_begin_or_after_finish(self, ledger: Ledger) -> None:
        async with await ledger.acquire(KEY, "run-1") as writer:
            with pytest.raises(RuntimeError):
                writer.append(b"early")
            await begin(writer)
            await writer.finish()
            with pytest.raises(RuntimeError):
                writer.append(b"late")
        assert await stored(ledger) == [(1, STARTED.body)]

    async def test_finish_marks_the_run_at_its_newest_entry(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            await writer.flushed()
            await ledger.note(KEY, [NOTE])
            await writer.finish()
        ended = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=2)
        assert await ledger.run(KEY, "run-1") == ended
        assert await ledger.run(KEY, "run-2") is None

    async def test_a_fast_producer_is_told_to_wait_and_loses_nothing(self, ledger: Ledger) -> None:
        told = 0
        async with running(ledger) as writer:
            for number in range(10_000):
                writer.append(b"%d" % number)
                if writer.full():
                    told += 1
                    await writer.room()
                    assert not writer.full()
            await writer.finish()
        assert told == 10_000 // 4096
        assert (await stored(ledger))[1:] == [(number + 2, b"%d" % number) for number in range(10_000)]

    async def test_lines_that_are_made_later_keep_their_place(self, ledger: Ledger) -> None:
        asked: list[str] = []

        def make(*lines: bytes) -> Callable[[], Encoded]:
            return lambda: asked.append("made") or Encoded(list(lines))

        async with running(ledger) as writer:
            writer.append(b"1")
            writer.later(make(b"2", b"3"))
            assert asked == []
            writer.append(b"4")
            writer.later(make())
            writer.later(make(b"5"))
            await writer.flushed()
            assert writer.written == 5
            writer.later(make(b"6"))
            await writer.finish()
        assert len(asked) == 4
        assert [line for _, line in await stored(ledger)][1:] == [b"1", b"2", b"3", b"4", b"5", b"6"]

    async def test_lines_that_are_made_later_are_committed_though_nobody_waits(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            writer.later(lambda: Encoded([b"a"]))
            with anyio.fail_after(5):
                assert lines_of(await tail.next()) == [(2, b"a")]
            writer.later(lambda: Encoded([]))
            writer.later(lambda: Encoded([b"b"]))
            with anyio.fail_after(5):
                assert lines_of(await tail.next()) == [(3, b"b")]

    async def test_who_puts_lines_aside_is_refused_once_the_lease_is_lost(self, ledger: Ledger) -> None:
        made: list[str] = []
        async with running(ledger) as writer:
            writer.later(lambda: made.append("made") or Encoded([b"a"]))
            await ledger.erase(KEY)
            assert made == ["made"]
            with pytest.raises(LeaseLost):
                writer.later(lambda: Encoded([b"b"]))

    async def test_what_the_lines_of_a_batch_say_together_is_known_where_they_are_one_text(
        self, ledger: Ledger
    ) -> None:
        def made(number: int, of: str = "m") -> Encoded:
            return Encoded([b"%d" % number], Text(of, str(number)))

        found: list[tuple[list[bytes], Text | None]] = []
        async with running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            for makes in (
                [lambda: made(1), lambda: made(2)],
                [lambda: made(3), lambda: made(4, of="other")],
                [lambda: made(5), lambda: Encoded([b"6"])],
                [lambda: made(7), lambda: Encoded([])],
            ):
                for make in makes:
                    writer.later(make)
                found += [(list(batch.lines), batch.text) for batch in await tail.next()]
            writer.later(lambda: made(8))
            writer.append(b"9")
            found += [(list(batch.lines), batch.text) for batch in await tail.next()]
        assert found == [
            ([b"1", b"2"], Text("m", "12")),
            ([b"3", b"4"], None),
            ([b"5", b"6"], None),
            ([b"7"], Text("m", "7")),
            ([b"8", b"9"], None),
        ]

    async def test_a_mebibyte_fills_the_window_too(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"x" * (1 << 20))
            assert writer.full()
            await writer.room()
            assert not writer.full()

    async def test_runs_are_found_by_the_entries_they_began_at(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", run="run-1")
        await a_run(ledger, b"b", run="run-2")
        found = [run.key if (run := await ledger.run_at(KEY, seq)) else None for seq in range(6)]
        assert found == [None, "run-1", "run-1", "run-2", "run-2", "run-2"]


class TestLeases:
    async def test_a_second_writer_is_refused_and_told_who_holds_it(self, ledger: Ledger) -> None:
        claim = KeyClaim(scope="ann/demo/k1", digest="d1")
        async with await ledger.acquire(KEY, "run-1", claim=claim):
            with pytest.raises(Held) as refusal:
                await ledger.acquire(KEY, "run-2")
        assert (refusal.value.run, refusal.value.claim) == ("run-1", claim)

    async def test_a_refused_writer_does_not_free_the_thread(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            for _ in range(2):
                with pytest.raises(Held):
                    await ledger.acquire(KEY, "run-2")
            writer.append(b"a")
            await writer.flushed()
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a")]

    async def test_tokens_only_grow(self, ledger: Ledger) -> None:
        tokens: list[int] = []
        for run in ("run-1", "run-2", "run-3"):
            async with await ledger.acquire(KEY, run) as writer:
                tokens.append(writer.token)
                await begin(writer)
            if run == "run-2":
                await ledger.erase(KEY)
        assert tokens == sorted(set(tokens))

    async def test_threads_of_different_owners_and_tenants_do_not_meet(self, ledger: Ledger) -> None:
        other_owner, other_tenant = KEY._replace(owner="bob"), KEY._replace(tenant="emca")
        await a_run(ledger, b"a")
        for key in (other_owner, other_tenant):
            assert await ledger.thread(key) is None
            assert await stored(ledger, key) == []
            await a_run(ledger, b"b", key=key)
        assert await stored(ledger) == [(1, STARTED.body), (2, b"a")]
        assert [info.key for info in await ledger.threads("acme", "bob")] == [other_owner]

    async def test_a_thread_is_visible_only_once_a_run_began(self, ledger: Ledger) -> None:
        async with await ledger.acquire(KEY, "run-1") as writer:
            assert await ledger.thread(KEY) is None
            assert await ledger.threads("acme", "ann") == []
            await begin(writer)
            info = await ledger.thread(KEY)
            assert info is not None
            assert info == ThreadInfo(
                key=KEY, agent="demo", epoch=writer.epoch, created=info.created, updated=info.updated,
                first=1, last=1, active="run-1", queued=0,
            )  # fmt: skip
        assert len(writer.epoch) == 12

    async def test_a_thread_keeps_the_agent_of_its_first_run(self, ledger: Ledger) -> None:
        await a_run(ledger)
        async with await ledger.acquire(KEY, "run-2") as writer:
            with pytest.raises(OtherAgent):
                await begin(writer, agent="other")
            await begin(writer)
        assert await stored(ledger) == [(1, STARTED.body), (2, STARTED.body)]

    async def test_a_new_lease_knows_where_the_thread_is(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        async with await ledger.acquire(KEY, "run-2") as writer:
            assert writer.last == 2

    async def test_a_run_left_open_is_abandoned_and_can_be_closed_by_another(self, ledger: Ledger) -> None:
        async with running(ledger):
            assert await ledger.abandoned() == []
        run = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=0)
        assert await ledger.abandoned() == [run]
        async with await ledger.acquire(run.thread, run.key) as writer:
            assert not writer.ended
            assert await ledger.abandoned() == []
            writer.append(b"closed")
            await writer.finish()
        assert await ledger.abandoned() == []
        assert await stored(ledger) == [(1, STARTED.body), (2, b"closed")]

    async def test_a_run_that_has_ended_cannot_be_closed_twice(self, ledger: Ledger) -> None:
        await a_run(ledger)
        async with await ledger.acquire(KEY, "run-1") as writer:
            assert writer.ended
            with pytest.raises(RuntimeError):
                writer.append(b"again")

    async def test_a_waiter_learns_of_the_release(self, ledger: Ledger) -> None:
        heard: list[bool] = []

        async def wait() -> None:
            heard.append(await ledger.released(KEY, 5))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks, running(ledger):
                assert await ledger.released(KEY, 0.01) is False
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert heard == []
        assert heard == [True]

    async def test_a_cancelled_holder_releases(self, ledger: Ledger) -> None:
        with anyio.CancelScope() as scope:
            async with running(ledger):
                scope.cancel()
                await anyio.sleep_forever()
        await a_run(ledger, run="run-2")

    async def test_a_cancelled_acquire_leaves_the_thread_free(self, ledger: Ledger) -> None:
        async def hold() -> None:
            async with await ledger.acquire(KEY, "run-1"):
                await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert await ledger.released(KEY, 5)
        await a_run(ledger)


class TestQueue:
    async def test_tickets_are_served_in_order(self, ledger: Ledger) -> None:
        served: list[int] = []

        async def wait_in_line(number: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
            async with ledger.queueing(KEY, depth=8) as ticket:
                task_status.started()
                while True:
                    assert await ledger.released(KEY, 5, ticket=ticket)
                    try:
                        writer = await ledger.acquire(KEY, f"run-{number}", ticket=ticket)
                    except Held:
                        continue
                    break
            async with writer:
                served.append(number)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks, running(ledger, "run-0"):
                for number in range(1, 6):
                    await tasks.start(wait_in_line, number)
                info = await ledger.thread(KEY)
                assert info is not None
                assert info.queued == 5
        assert served == [1, 2, 3, 4, 5]
        info = await ledger.thread(KEY)
        assert info is not None
        assert info.queued == 0

    async def test_nobody_passes_the_line(self, ledger: Ledger) -> None:
        async with ledger.queueing(KEY, depth=8) as first, ledger.queueing(KEY, depth=8) as second:
            for ticket in (None, second):
                with pytest.raises(Held) as refusal:
                    await ledger.acquire(KEY, "run-1", ticket=ticket)
                assert refusal.value.run == ""
            assert await ledger.released(KEY, 0.01, ticket=second) is False
            async with await ledger.acquire(KEY, "run-1", ticket=first):
                pass
            async with await ledger.acquire(KEY, "run-2", ticket=second):
                pass

    async def test_the_line_has_an_end(self, ledger: Ledger) -> None:
        async with ledger.queueing(KEY, depth=1):
            with pytest.raises(ThreadBusy):
                async with ledger.queueing(KEY, depth=1):
                    pytest.fail("should have been refused")
        async with ledger.queueing(KEY, depth=1):
            pass


class TestStop:
    async def test_a_stop_request_reaches_the_writer_with_its_first_reason(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            assert await ledger.request_stop(KEY, "enough")
            assert await ledger.request_stop(KEY, "really")
            with anyio.fail_after(5):
                assert await writer.stop_requested() == "enough"

    async def test_only_the_named_run_is_stopped(self, ledger: Ledger) -> None:
        assert await ledger.request_stop(KEY, "x") is False
        async with running(ledger) as writer:
            assert await ledger.request_stop(KEY, "x", run="run-0") is False
            assert await ledger.request_stop(KEY, "y", run="run-1") is True
            with anyio.fail_after(5):
                assert await writer.stop_requested() == "y"
        assert await ledger.request_stop(KEY, "x") is False

    async def test_a_stop_does_not_outlive_its_run(self, ledger: Ledger) -> None:
        async with running(ledger):
            await ledger.request_stop(KEY, "x")
        async with running(ledger, "run-2") as writer:
            with anyio.move_on_after(0.05) as scope:
                await writer.stop_requested()
            assert scope.cancelled_caught


class TestNotes:
    async def test_a_note_interleaves_with_a_run(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            await writer.flushed()
            assert await ledger.note(KEY, [NOTE, NOTE]) == 4
            writer.append(b"b")
            await writer.finish()
        found = await ledger.read(KEY, 0)
        assert lines_of(found) == [(1, STARTED.body), (2, b"a"), (3, NOTE.body), (4, NOTE.body), (5, b"b")]
        assert [(b.owner, b.kind, b.run) for b in found if b.first == 3] == [("ambient.feedback", "thumb", "")]

    async def test_a_note_needs_a_thread_and_an_owner_of_its_own(self, ledger: Ledger) -> None:
        with pytest.raises(UnknownThread):
            await ledger.note(KEY, [NOTE])
        await a_run(ledger)
        with pytest.raises(ValueError):
            await ledger.note(KEY, [STARTED])

    async def test_an_expectant_note_waits_for_nobody(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            with pytest.raises(ThreadBusy):
                await ledger.note(KEY, [NOTE], expect=1)
            await writer.finish()
        with pytest.raises(StaleCursor):
            await ledger.note(KEY, [NOTE], expect=0)
        assert await ledger.note(KEY, [NOTE], expect=1) == 2


class TestKeys:
    CLAIM = KeyClaim(scope="ann/demo/k1", digest="d1")

    async def test_a_key_finds_its_run(self, ledger: Ledger) -> None:
        assert await ledger.key_use(self.CLAIM) is None
        async with await ledger.acquire(KEY, "run-1", claim=self.CLAIM) as writer:
            await begin(writer, claim=self.CLAIM)
            await writer.finish()
        run = RunInfo(key="run-1", thread=KEY, run_id="client-run", first=1, last=1)
        for digest in ("d1", "d2"):
            use = await ledger.key_use(KeyClaim(scope="ann/demo/k1", digest=digest))
            assert use == KeyUse(digest="d1", thread=KEY, run=run)

    async def test_a_key_starts_one_run(self, ledger: Ledger) -> None:
        async with await ledger.acquire(KEY, "run-1") as writer:
            await begin(writer, claim=self.CLAIM)
        other = KEY._replace(id="other")
        async with await ledger.acquire(other, "run-2") as writer:
            with pytest.raises(KeyReused):
                await begin(writer, claim=self.CLAIM)
        assert await ledger.thread(other) is None
        assert await ledger.run(other, "run-2") is None


class TestReading:
    async def test_read_begins_and_ends_inside_batches(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b", b"c", b"d")
        assert lines_of(await ledger.read(KEY, 2, until=4)) == [(3, b"b"), (4, b"c")]
        assert await ledger.read(KEY, 4, until=4) == []
        assert lines_of(await ledger.read(KEY, 5)) == []

    async def test_read_stops_near_the_limit(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            for _ in range(10):
                writer.append(b"x" * 100)
                await writer.flushed()
        sizes: list[int] = []
        after = 0
        while found := await ledger.read(KEY, after, limit=250):
            sizes.append(len(lines_of(found)))
            after = found[-1].last
        assert sum(sizes) == 11
        assert len(sizes) >= 3

    async def test_a_tail_replays_and_goes_on_live(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        with anyio.fail_after(5):
            async with ledger.tail(KEY, 1) as tail:
                assert tail.ready()
                assert await take(tail, 2) == [(2, b"a")]
                assert not tail.ready()
                await a_run(ledger, b"b", run="run-2")
                assert tail.ready()
                assert await take(tail, 4) == [(3, STARTED.body), (4, b"b")]

    async def test_a_tail_may_come_before_its_thread(self, ledger: Ledger) -> None:
        with anyio.fail_after(5):
            async with ledger.tail(KEY, 0) as tail:
                await a_run(ledger, b"a")
                assert await take(tail, 2) == [(1, STARTED.body), (2, b"a")]

    async def test_live_readers_share_one_batch(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 1) as one, ledger.tail(KEY, 1) as two:
            writer.append(b"a")
            writer.append(b"b")
            await writer.flushed()
            assert (await one.next())[0] is (await two.next())[0]

    async def test_what_is_produced_without_waiting_is_one_batch(self, ledger: Ledger) -> None:
        async with running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            for number in range(10):
                writer.append(b"%d" % number)
            assert [len(batch.lines) for batch in await tail.next()] == [10]

    async def test_nothing_is_delivered_before_it_is_stored(self, ledger: Ledger) -> None:
        async def check() -> None:
            async with ledger.tail(KEY, 0) as tail:
                while tail.position < 201:
                    await tail.next()
                    found = await ledger.thread(KEY)
                    assert found is not None
                    assert found.last >= tail.position

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(check)
                async with running(ledger) as writer:
                    for number in range(200):
                        writer.append(b"%d" % number)
                        if number % 3 == 0:
                            await writer.flushed()
                    await writer.finish()

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

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks, running(ledger) as writer:
                joins = sorted(chance.randrange(total) for _ in range(50))
                for number in range(total):
                    writer.append(b"%d" % number)
                    while joins and joins[0] <= number:
                        joins.pop(0)
                        tasks.start_soon(reader, chance.randrange(number + 1))
                    if chance.random() < 0.1:
                        await writer.flushed()
                    elif chance.random() < 0.1:
                        await anyio.lowlevel.checkpoint()
                await writer.finish()
        assert complete == 50

    async def test_a_slow_reader_falls_back_to_the_store(self, ledger: Ledger) -> None:
        line = b"x" * 10_000
        with anyio.fail_after(10):
            async with running(ledger) as writer, ledger.tail(KEY, 0) as tail:
                for _ in range(400):  # four times what is kept in memory
                    writer.append(line)
                    if writer.full():
                        await writer.room()
                await writer.finish()
                assert await take(tail, 401) == [(1, STARTED.body), *((n + 2, line) for n in range(400))]

    async def test_threads_are_listed_newest_first_in_pages(self, ledger: Ledger) -> None:
        keys = [KEY._replace(id=f"t{number}") for number in range(7)]
        for key in keys:
            await a_run(ledger, key=key)
        await ledger.note(keys[2], [NOTE])
        expected = [keys[2], *(key for key in reversed(keys) if key != keys[2])]
        listed: list[ThreadKey] = []
        before: int | None = None
        while page := await ledger.threads("acme", "ann", limit=3, before=before):
            listed += [info.key for info in page]
            before = page[-1].updated
        assert listed == expected


class TestRetention:
    async def test_trim_keeps_the_checkpoint_and_drops_what_it_covers(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b", b"c")
        folded = Checkpoint(seq=2, body=b'{"messages":[]}')
        await ledger.trim(KEY, folded)
        assert await ledger.checkpoint(KEY) == folded
        assert await ledger.checkpoint(KEY, at=1) is None
        assert await stored(ledger) == [(3, b"b"), (4, b"c")]
        info = await ledger.thread(KEY)
        assert info is not None
        assert (info.first, info.last) == (3, 4)

    async def test_numbering_goes_on_when_everything_was_dropped(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        await ledger.trim(KEY, Checkpoint(seq=2, body=b"{}"))
        info = await ledger.thread(KEY)
        assert info is not None
        assert (info.first, info.last) == (3, 2)
        await a_run(ledger, b"b", run="run-2")
        assert await stored(ledger) == [(3, STARTED.body), (4, b"b")]

    async def test_a_reader_before_the_retained_part_sees_the_gap(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a", b"b")
        await ledger.trim(KEY, Checkpoint(seq=2, body=b"{}"))
        with anyio.fail_after(5):
            async with ledger.tail(KEY, 0) as tail:
                assert lines_of(await tail.next()) == [(3, b"b")]

    async def test_a_reader_of_an_emptied_thread_goes_on_live(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        await ledger.trim(KEY, Checkpoint(seq=2, body=b"{}"))
        with anyio.fail_after(5):
            async with ledger.tail(KEY, 0) as tail, anyio.create_task_group() as tasks:

                async def go_on() -> None:
                    await a_run(ledger, b"b", run="run-2")

                tasks.start_soon(go_on)
                assert lines_of(await tail.next())[0] == (3, STARTED.body)

    async def test_a_checkpoint_is_never_ahead(self, ledger: Ledger) -> None:
        with pytest.raises(UnknownThread):
            await ledger.trim(KEY, Checkpoint(seq=0, body=b"{}"))
        await a_run(ledger)
        with pytest.raises(ValueError):
            await ledger.trim(KEY, Checkpoint(seq=2, body=b"{}"))


class TestErasure:
    async def test_an_erased_thread_is_gone_and_its_id_begins_a_new_life(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        before = await ledger.thread(KEY)
        assert await ledger.erase(KEY) is True
        assert await ledger.erase(KEY) is False
        assert await ledger.thread(KEY) is None
        assert await stored(ledger) == []
        assert await ledger.run(KEY, "run-1") is None
        assert await ledger.checkpoint(KEY) is None
        assert await ledger.abandoned() == []
        await a_run(ledger, b"b")
        after = await ledger.thread(KEY)
        assert before is not None
        assert after is not None
        assert after.epoch != before.epoch
        assert await stored(ledger) == [(1, STARTED.body), (2, b"b")]

    async def test_a_key_of_an_erased_run_answers_gone(self, ledger: Ledger) -> None:
        claim = KeyClaim(scope="s", digest="d")
        async with await ledger.acquire(KEY, "run-1") as writer:
            await begin(writer, claim=claim)
        await ledger.erase(KEY)
        assert await ledger.key_use(claim) == KeyUse(digest="d", thread=KEY, run=None)
        await a_run(ledger)
        assert await ledger.key_use(claim) == KeyUse(digest="d", thread=KEY, run=None)

    async def test_a_running_writer_is_fenced(self, ledger: Ledger) -> None:
        async with running(ledger) as writer:
            writer.append(b"a")
            await writer.flushed()
            await ledger.erase(KEY)
            await a_run(ledger, b"new life", run="run-2")
            with pytest.raises(LeaseLost):
                writer.append(b"ghost")
            with pytest.raises(LeaseLost):
                await writer.flushed()
            with pytest.raises(LeaseLost):
                await writer.stop_requested()
        assert await stored(ledger) == [(1, STARTED.body), (2, b"new life")]

    async def test_readers_end_and_do_not_see_the_next_life(self, ledger: Ledger) -> None:
        await a_run(ledger, b"a")
        ended = anyio.Event()

        async def follow() -> None:
            async with ledger.tail(KEY, 2) as tail:
                with pytest.raises(UnknownThread):
                    await tail.next()
            ended.set()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks, ledger.tail(KEY, 0) as behind:
                tasks.start_soon(follow)
                await anyio.wait_all_tasks_blocked()
                await ledger.erase(KEY)
                await ended.wait()
                await a_run(ledger, b"b", b"c", b"d")
                assert behind.ready()
                with pytest.raises(UnknownThread):
                    await behind.next()
