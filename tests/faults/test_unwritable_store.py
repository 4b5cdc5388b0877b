"""F7: the store cannot be written for a while: locked by another process, a full disk, an I/O error. Runs wait, and then go on."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from ambient_runner.errors import LeaseLost, LedgerError
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from ambient_runner.protocol.events import RunFinished, TextMessageContent
from ambient_runner.runs.runner import Runner
from tests.e2e.server import start
from tests.e2e.sse import open_stream
from tests.e2e.talk import answer_of, ending, events_of, new_id, numbers, one_run, run_input
from tests.faults.small_disk import fill_disk, mounted_disk
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.world import SETTINGS, ScriptedAgent, request, said, user
from tests.world import events_of as read_events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from ambient_runner.ledger import Writer
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Run
    from tests.e2e.server import Child

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
NOTE = Fact(owner="ambient.feedback", kind="thumb", body=b"{}")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "ambient.db"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock counts as an outage at once, and not after five seconds."""
    monkeypatch.setattr("ambient_runner.ledger.sqlite.connection.BUSY_TIMEOUT", 0.05)


@contextmanager
def locked(store: Path) -> Generator[sqlite3.Connection]:
    """Hold the write lock of the file, as another program may."""
    with closing(sqlite3.connect(store, timeout=HANG_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@asynccontextmanager
async def running(ledger: SqliteLedger, run: str = "run-1") -> AsyncGenerator[Writer, None]:
    async with await ledger.acquire_lease(KEY, run) as writer:
        await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)
        yield writer


async def until_failing(ledger: SqliteLedger) -> str:
    """Wait until the ledger knows that it cannot write. Return its reason."""
    while (reason := ledger.unavailable_reason()) is None:
        await anyio.sleep(0.01)
    return reason


async def until_available(ledger: SqliteLedger) -> None:
    while ledger.unavailable_reason() is not None:
        await anyio.sleep(0.01)


async def stored(ledger: SqliteLedger) -> list[bytes]:
    return [line for batch in await ledger.read_batches(KEY, 0) for line in batch.lines]


@pytest.mark.usefixtures("impatient")
class TestLockedStore:
    async def test_f07_m6_what_is_queued_is_kept_and_written_once(self, store: Path) -> None:
        async with SqliteLedger(store) as ledger, running(ledger) as writer, ledger.tail(KEY, 1) as tail:
            with unless_hung():
                with locked(store):
                    writer.append(b"a")
                    assert await until_failing(ledger) == "The store is locked by another process."
                    for line in (b"b", b"c"):
                        writer.append(line)
                        with pytest.raises(LedgerError):  # One more attempt, with more to write.
                            await ledger.append_facts(KEY, [NOTE])
                    assert not tail.has_next()
                await writer.flush()
                assert ledger.unavailable_reason() is None
                writer.append(b"d")
                await writer.finish_run()
                got: list[bytes] = []
                while tail.position < 5:
                    got += [line for batch in await tail.next_batches() for line in batch.lines]
            assert got == [b"a", b"b", b"c", b"d"]
            assert await stored(ledger) == [b"started", *got]

    async def test_f07_m6_a_server_that_starts_waits_for_the_lock(
        self, store: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with SqliteLedger(store):
            pass  # Creates the file.

        async def open_store() -> None:
            async with SqliteLedger(store) as ledger:
                assert ledger.unavailable_reason() is None

        with unless_hung():
            async with anyio.create_task_group() as tasks:
                with locked(store):
                    tasks.start_soon(open_store)
                    while not any("is locked" in record.message for record in caplog.records):
                        await anyio.sleep(0.01)
        with unless_hung(), locked(store), pytest.raises(LedgerError):
            async with SqliteLedger(store, patience=0.1):
                raise AssertionError("It was opened although it is locked.")

    async def test_f07_m6_a_producer_waits_while_too_much_is_queued(self, store: Path) -> None:
        async with SqliteLedger(store) as ledger, running(ledger) as writer:
            reason, waited = "", list[str]()

            async def produce() -> None:
                for number in range(5000):
                    writer.append(b"%d" % number)
                    if writer.is_full():
                        waited.append(ledger.unavailable_reason() or "")
                        await writer.wait_for_capacity()
                        waited.append(ledger.unavailable_reason() or "")

            with unless_hung():
                async with anyio.create_task_group() as tasks:
                    with locked(store):
                        writer.append(b"first")
                        reason = await until_failing(ledger)
                        tasks.start_soon(produce)
                        await anyio.wait_all_tasks_blocked()
                        assert waited == [reason]
                await writer.flush()
            assert waited == [reason, ""]
            assert await stored(ledger) == [b"started", b"first", *(b"%d" % number for number in range(5000))]

    async def test_f07_m6_a_request_is_refused_soon(self, store: Path) -> None:
        async with SqliteLedger(store) as ledger, running(ledger) as writer:
            with unless_hung(), locked(store):
                writer.append(b"a")
                await until_failing(ledger)
                with pytest.raises(LedgerError):
                    await ledger.acquire_lease(KEY._replace(id="other"), "run-2")

    async def test_f07_m6_after_its_patience_the_run_is_lost(self, store: Path) -> None:
        async with SqliteLedger(store, patience=0.3) as ledger:
            async with running(ledger) as writer:
                with unless_hung(), locked(store):
                    writer.append(b"lost")
                    with pytest.raises(LedgerError):
                        await writer.flush()
                    with pytest.raises(LedgerError):
                        writer.append(b"after the hole")
            with unless_hung():
                await until_available(ledger)
                assert [run.key for run in await ledger.list_abandoned_runs()] == ["run-1"]
            assert await stored(ledger) == [b"started"]

    async def test_f07_m6_an_idle_ledger_recovers_by_itself(self, store: Path) -> None:
        async with SqliteLedger(store) as ledger:
            with unless_hung():
                with locked(store):
                    with pytest.raises(LedgerError):
                        await ledger.acquire_lease(KEY, "run-1")
                    assert ledger.unavailable_reason() is not None
                await until_available(ledger)

    async def test_f07_m6_what_was_released_meanwhile_is_written_before_the_release(self, store: Path) -> None:
        async with SqliteLedger(store) as ledger:
            with unless_hung():
                async with running(ledger) as writer:
                    with locked(store):
                        writer.append(b"a")
                        await until_failing(ledger)
                        await writer.__aexit__(None, None, None)
                await until_available(ledger)
                async with await ledger.acquire_lease(KEY, "run-1") as heir:
                    assert heir.last == 2
            assert await stored(ledger) == [b"started", b"a"]

    async def test_f07_m6_the_readers_of_a_run_that_is_lost_are_ended(self, store: Path) -> None:
        """They got pings for as long as the outage lasted, of a run that was given up."""
        async with SqliteLedger(store, patience=0.3) as ledger, running(ledger) as writer:
            async with ledger.tail(KEY, 1) as tail:
                with unless_hung(), locked(store):
                    writer.append(b"ghost")
                    with pytest.raises(LedgerError):
                        await tail.next_batches()

    async def test_f07_m6_a_store_that_is_closed_meanwhile_does_not_wait_for_its_patience(self, store: Path) -> None:
        with unless_hung():
            async with SqliteLedger(store, patience=10 * HANG_SECONDS) as ledger:
                async with running(ledger) as writer:
                    with locked(store):
                        writer.append(b"a")
                        await until_failing(ledger)
                        await ledger.__aexit__(None, None, None)
                    with pytest.raises(LedgerError):
                        await writer.flush()

    async def test_f07_m6_nobody_takes_a_lease_that_its_owner_could_not_renew(self, store: Path) -> None:
        """Both wait for the lock for longer than a lease. Whoever gets it first, the owner keeps its lease."""
        now = 1000.0

        def clock() -> float:
            return now

        async with SqliteLedger(store, clock=clock) as owner, SqliteLedger(store, clock=clock) as other:
            async with running(owner) as writer:
                with unless_hung():
                    with locked(store):
                        writer.append(b"a")
                        await until_failing(owner)
                        owner.pause()  # It comes late after the outage, too.
                        with pytest.raises(LedgerError):
                            await other.append_facts(KEY, [NOTE])
                        now += 20.0  # two leases
                    await until_available(other)
                    assert await other.list_abandoned_runs() == []
                    await writer.flush()
                    writer.append(b"b")
                    await writer.finish_run()
            assert await stored(other) == [b"started", b"a", b"b"]

    async def test_f07_m6_a_run_whose_lease_was_taken_over_meanwhile_writes_nothing(self, store: Path) -> None:
        async with SqliteLedger(store) as ledger:
            async with running(ledger) as writer:
                with unless_hung():
                    with locked(store) as other:
                        writer.append(b"ghost")
                        await until_failing(ledger)
                        other.execute("UPDATE lease SET token = token + 1, worker = 0")  # As a takeover does.
                        other.execute("COMMIT")
                    with pytest.raises(LeaseLost):
                        await writer.flush()
            assert await stored(ledger) == [b"started"]

    async def test_f07_m6_a_run_that_ends_meanwhile_writes_its_end(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The time to write the terminal event is longer by the store's patience."""
        monkeypatch.setattr("ambient_runner.runs.execution.FINALIZE_TIMEOUT", 0.1)
        may_end = anyio.Event()

        async def wait_then_end(run: Run) -> AsyncGenerator[Event, None]:
            for event in said("m1", "a"):
                yield event
            await may_end.wait()

        settings = replace(SETTINGS, store_patience=HANG_SECONDS)
        async with (
            SqliteLedger(store) as ledger,
            Runner(ledger, {"agent": ScriptedAgent(wait_then_end)}, settings) as runner,
        ):
            with unless_hung():
                started = await runner.start(request(user("u1")))
                with locked(store):
                    may_end.set()
                    await until_failing(ledger)
                    await anyio.sleep(0.5)
                events = await read_events(runner, started)
        assert isinstance(events[-1], RunFinished)
        assert [event.delta for event in events if isinstance(event, TextMessageContent)] == ["a"]


async def test_f07_m6_an_agent_that_waits_for_the_store_is_not_idle(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ambient_runner.ledger.sqlite.connection.BUSY_TIMEOUT", 0.05)
    has_begun = anyio.Event()
    may_fill = anyio.Event()

    async def fill(run: Run) -> AsyncGenerator[Event, None]:
        begin, delta, end = said("m1", "x" * 1000)
        yield begin
        has_begun.set()
        await may_fill.wait()
        for _ in range(3000):
            yield delta
        yield end

    settings = replace(SETTINGS, timeouts=replace(SETTINGS.timeouts, idle=0.4))
    async with SqliteLedger(store) as ledger, Runner(ledger, {"agent": ScriptedAgent(fill)}, settings) as runner:
        with unless_hung():
            started = await runner.start(request(user("u1")))
            await has_begun.wait()
            with locked(store):
                may_fill.set()
                await until_failing(ledger)
                await anyio.sleep(1.0)
            events = await read_events(runner, started)
    assert isinstance(events[-1], RunFinished)


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    with mounted_disk(tmp_path / "disk", 2 << 20) as directory:
        yield directory


async def test_f07_m6_a_run_on_a_full_disk_goes_on_once_there_is_space(small_disk: Path) -> None:
    async with SqliteLedger(small_disk / "ambient.db") as ledger, running(ledger) as writer:
        with unless_hung():
            ballast = fill_disk(small_disk)
            lines = [b"%d" % number * 2000 for number in range(200)]
            for line in lines[:100]:
                writer.append(line)
            assert await until_failing(ledger) == "The disk of the store is full."
            for line in lines[100:]:
                writer.append(line)
            ballast.unlink()
            await writer.finish_run()
        assert ledger.unavailable_reason() is None
        assert await stored(ledger) == [b"started", *lines]


async def until_ready(client: httpx.AsyncClient, status: int) -> None:
    while (answer := await client.get("/ready")).status_code != status:
        await anyio.sleep(0.02)
    assert answer.json()["status"] == ("ready" if status == 200 else "store_unavailable")


@contextmanager
def without_space(server: Child, store: Path) -> Generator[None]:
    """Let every write of the server beyond the end of its files fail."""
    size = min(file.stat().st_size for file in (store, store.with_name(f"{store.name}-wal")))
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


async def test_f07_m6_a_server_says_that_it_cannot_write_and_its_runs_go_on_afterwards(store: Path) -> None:
    """An I/O error, then a lock that two servers wait for. One run goes on through both."""
    thread = new_id("thread")
    with start(store) as server, start(store) as other, unless_hung():
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client,
            httpx.AsyncClient(base_url=other.url, timeout=HANG_SECONDS) as client_of_other,
            open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 500 every 20ms")) as stream,
        ):
            frames = await stream.until("TEXT_MESSAGE_CONTENT")
            with locked(store):
                answer = await client_of_other.post("/", json=run_input(new_id("thread"), "hello"))
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
                await until_ready(client, 503)
                await until_ready(client_of_other, 503)
                assert (await client.get(f"/message_snapshot/{thread}")).status_code == 200
            await until_ready(client, 200)
            await until_ready(client_of_other, 200)
            assert other.stop() == 0  # It could write, and would rightly take over what the first one cannot renew.
            with without_space(server, store):
                await until_ready(client, 503)
            await until_ready(client, 200)
            frames += await stream.rest()
    events = one_run(events_of(frames))
    assert ending(events) == "success"
    assert answer_of(events) == numbers(500)
