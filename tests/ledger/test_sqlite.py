"""The SQLite store beyond the contract: several ledgers on one file, and the content of the disk."""

from __future__ import annotations

import random
import sqlite3
import stat
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING

import anyio
import pytest

from ambient_runner.errors import ConfigError, IdempotencyConflict, LeaseLost, LedgerError, UnknownThread
from ambient_runner.ledger import (
    RUNTIME,
    Batch,
    Checkpoint,
    Encoded,
    Fact,
    IdempotencyClaim,
    JoinedText,
    LeaseHeld,
    SqliteLedger,
    ThreadKey,
    ThreadLabels,
    Writer,
)
from ambient_runner.ledger.records import CheckpointUpdate
from ambient_runner.ledger.sqlite.connection import connect as open_connection
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from ambient_runner.ledger import Tail

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
NOTE = Fact(owner="ambient.feedback", kind="thumb", body=b"note")


class Clock:
    """The machine's monotonic clock, in our hands."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "ledger.db"


@asynccontextmanager
async def two_ledgers(
    path: Path, clock: Clock | None = None
) -> AsyncGenerator[tuple[SqliteLedger, SqliteLedger], None]:
    clock = clock or Clock()
    async with SqliteLedger(path, clock=clock) as one, SqliteLedger(path, clock=clock) as two:
        yield one, two


async def begin(writer: Writer, claim: IdempotencyClaim | None = None) -> None:
    await writer.begin_run([STARTED], run_id="client", agent="demo", claim=claim)


def lines_of(batches: list[Batch]) -> list[tuple[int, bytes]]:
    return [(batch.first + i, line) for batch in batches for i, line in enumerate(batch.lines)]


async def take(tail: Tail, last: int) -> list[tuple[int, bytes]]:
    got: list[tuple[int, bytes]] = []
    while tail.position < last:
        got += lines_of(await tail.next_batches())
    return got


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def files_with(secret: bytes, path: Path) -> list[str]:
    """Which of the database's files hold these bytes anywhere."""
    return [file.name for file in path.parent.iterdir() if secret in file.read_bytes()]


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)


def content(path: Path) -> bytes:
    return path.read_bytes()


class TestTwoLedgersOnOneFile:
    async def test_a_reader_follows_a_run_of_the_other(self, path: Path) -> None:
        async with two_ledgers(path) as (one, two), two.tail(KEY, 0) as tail:
            with unless_hung():
                async with await one.acquire_lease(KEY, "run-1") as writer:
                    await begin(writer)
                    assert await take(tail, 1) == [(1, b"started")]
                    for number in range(50):
                        writer.append(b"%d" % number)
                        await writer.flush()
                    assert await take(tail, 51) == [(n + 2, b"%d" % n) for n in range(50)]

    async def test_facts_of_one_and_appends_of_the_other_share_the_numbering(self, path: Path) -> None:
        async with two_ledgers(path) as (one, two), one.tail(KEY, 0) as near, two.tail(KEY, 0) as far:
            with unless_hung():
                async with await one.acquire_lease(KEY, "run-1") as writer:
                    await begin(writer)
                    for number in range(20):
                        writer.append(b"a%d" % number)
                        await writer.flush()
                        await two.append_facts(KEY, [NOTE])
                    writer.append(b"end")
                    await writer.finish_run()
                everything = lines_of(await one.read_batches(KEY, 0))
                assert [seq for seq, _ in everything] == list(range(1, 43))
                assert await take(near, 42) == everything
                assert await take(far, 42) == everything

    async def test_the_lease_of_one_is_respected_by_the_other(self, path: Path) -> None:
        claim = IdempotencyClaim(scope="s", digest="d")
        async with two_ledgers(path) as (one, two), await one.acquire_lease(KEY, "run-1", claim=claim) as writer:
            await begin(writer)
            with pytest.raises(LeaseHeld) as refusal:
                await two.acquire_lease(KEY, "run-2")
            assert (refusal.value.run, refusal.value.claim) == ("run-1", claim)
            assert await two.list_abandoned_runs() == []
            found = await two.get_thread(KEY)
            assert found is not None
            assert found.active == "run-1"

    async def test_a_stop_request_reaches_the_other(self, path: Path) -> None:
        async with two_ledgers(path) as (one, two), await one.acquire_lease(KEY, "run-1") as writer:
            assert await two.request_stop(KEY, "enough")
            with unless_hung():
                assert await writer.wait_for_stop() == "enough"

    async def test_a_waiter_learns_of_the_release_by_the_other(self, path: Path) -> None:
        async with two_ledgers(path) as (one, two):
            writer = await one.acquire_lease(KEY, "run-1")
            released: list[bool] = []

            async def wait() -> None:
                released.append(await two.wait_released(KEY, 5))

            with unless_hung():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    async with writer:
                        pass
            assert released == [True]

    async def test_tickets_of_both_stand_in_one_line(self, path: Path) -> None:
        async with (
            two_ledgers(path) as (one, two),
            one.queue_ticket(KEY, depth=2) as first,
            two.queue_ticket(KEY, depth=2) as second,
        ):
            with pytest.raises(LeaseHeld):
                await two.acquire_lease(KEY, "run-2", ticket=second)
            async with await one.acquire_lease(KEY, "run-1", ticket=first):
                pass
            async with await two.acquire_lease(KEY, "run-2", ticket=second):
                pass

    async def test_a_key_used_by_one_is_refused_by_the_other(self, path: Path) -> None:
        claim = IdempotencyClaim(scope="s", digest="d")
        async with two_ledgers(path) as (one, two):
            async with await one.acquire_lease(KEY, "run-1") as writer:
                await begin(writer, claim)
            async with await two.acquire_lease(KEY._replace(id="other"), "run-2") as writer:
                with pytest.raises(IdempotencyConflict):
                    await begin(writer, claim)

    async def test_an_erasure_by_the_other_ends_readers_and_writers(self, path: Path) -> None:
        async with two_ledgers(path) as (one, two), await one.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            with unless_hung():
                async with one.tail(KEY, 1) as tail:
                    assert await two.erase_thread(KEY)
                    with pytest.raises(UnknownThread):
                        await tail.next_batches()
                with pytest.raises(LeaseLost):
                    await writer.wait_for_stop()
            with pytest.raises(LeaseLost):
                writer.append(b"ghost")


class TestTakeover:
    async def test_a_zombie_cannot_append_after_a_takeover(self, path: Path) -> None:
        clock = Clock()
        async with two_ledgers(path, clock) as (one, two), await one.acquire_lease(KEY, "run-1") as zombie:
            await begin(zombie)
            one.pause()
            clock.now += 11
            assert [run.key for run in await two.list_abandoned_runs()] == ["run-1"]
            async with await two.acquire_lease(KEY, "run-1") as heir:
                assert heir.token > zombie.token
                heir.append(b"abandoned")
                await heir.finish_run()
            zombie.append(b"ghost")  # it does not know yet
            with pytest.raises(LeaseLost):
                await zombie.flush()
            with pytest.raises(LeaseLost):
                zombie.append(b"ghost")
            assert lines_of(await two.read_batches(KEY, 0)) == [(1, b"started"), (2, b"abandoned")]

    async def test_a_zombie_does_not_harm_others_in_its_transaction(self, path: Path) -> None:
        clock = Clock()
        other = KEY._replace(id="other")
        async with (
            two_ledgers(path, clock) as (one, two),
            await one.acquire_lease(KEY, "run-1") as zombie,
            await one.acquire_lease(other, "run-2") as healthy,
        ):
            await begin(zombie)
            await begin(healthy)
            one.pause()
            clock.now += 11
            async with await two.acquire_lease(KEY, "run-1"):
                zombie.append(b"a")
                healthy.append(b"a")
                assert await healthy.flush() == 2
                with pytest.raises(LeaseLost):
                    await zombie.flush()
            # The heir wrote nothing, so only the fence kept the suspended process out: its seqs would have fitted.
            assert lines_of(await two.read_batches(KEY, 0)) == [(1, b"started")]
            assert lines_of(await two.read_batches(other, 0)) == [(1, b"started"), (2, b"a")]

    async def test_a_lease_that_is_renewed_is_kept(self, path: Path) -> None:
        clock = Clock()
        async with two_ledgers(path, clock) as (one, two), await one.acquire_lease(KEY, "run-1"):
            for _ in range(5):
                before = rows(path, "SELECT max(expires) FROM worker")
                clock.now += 4
                with unless_hung():
                    while rows(path, "SELECT max(expires) FROM worker") == before:
                        await anyio.sleep(0.01)
            with pytest.raises(LeaseHeld):
                await two.acquire_lease(KEY, "run-2")

    async def test_an_expired_ticket_does_not_hold_up_the_line(self, path: Path) -> None:
        clock = Clock()
        async with two_ledgers(path, clock) as (one, two), one.queue_ticket(KEY, depth=1):
            one.pause()
            clock.now += 11
            async with two.queue_ticket(KEY, depth=1) as ticket, await two.acquire_lease(KEY, "run-1", ticket=ticket):
                pass

    async def test_a_lease_from_before_a_reboot_is_free(self, path: Path) -> None:
        async with SqliteLedger(path) as one, await one.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE worker SET boot = 'another boot'")
            async with SqliteLedger(path) as two:
                assert [run.key for run in await two.list_abandoned_runs()] == ["run-1"]
                async with await two.acquire_lease(KEY, "run-2"):
                    pass


class TestOnDisk:
    async def test_only_the_owner_may_read_it(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
            assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    async def test_everything_is_there_after_reopening(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            writer.append(b"a")
            await writer.finish_run()
        async with SqliteLedger(path) as ledger:
            assert lines_of(await ledger.read_batches(KEY, 0)) == [(1, b"started"), (2, b"a")]

    async def test_a_lease_without_a_run_leaves_nothing_behind(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            async with (
                ledger.queue_ticket(KEY, depth=1) as ticket,
                await ledger.acquire_lease(KEY, "run-1", ticket=ticket),
            ):
                pass
            assert rows(path, "SELECT 1 FROM lease UNION ALL SELECT 1 FROM thread UNION ALL SELECT 1 FROM ticket") == []
        assert rows(path, "SELECT 1 FROM worker") == []

    async def test_an_erased_thread_leaves_no_byte(self, path: Path) -> None:
        secrets = [b"violet-%d-" % number for number in range(3)]
        async with SqliteLedger(path) as ledger:
            for number, secret in enumerate(secrets):
                async with await ledger.acquire_lease(KEY._replace(id=f"t{number}"), f"run-{number}") as writer:
                    await writer.begin_run([STARTED], run_id=secret.decode(), agent="demo", claim=None)
                    for size in (1, 10, 100, 1000, 100):
                        writer.append(secret * size)
                        await writer.flush()
            for number, secret in enumerate(secrets):
                key = KEY._replace(id=f"t{number}")
                await ledger.trim_thread(key, Checkpoint(seq=2, body=secret * 50))
                assert files_with(secret, path) != []
                await ledger.erase_thread(key)
                assert files_with(secret, path) == []

    async def test_no_byte_of_a_checkpoint_stays_after_two_hundred_of_them(self, path: Path) -> None:
        """Checkpoints of all sizes, of threads that write them in turns, keep or replace parts, and are erased one after another."""
        chance = random.Random(7)
        keys = [KEY._replace(id=f"t{number}") for number in range(4)]
        async with SqliteLedger(path) as ledger:
            for turn in range(50):
                for number in chance.sample(range(4), 4):
                    parts = await ledger.list_checkpoint_parts(keys[number])
                    secret = b"violet-%d-" % number
                    async with await ledger.acquire_lease(keys[number], f"run-{turn}") as writer:
                        first = await writer.begin_run([STARTED], run_id="client", agent="demo", claim=None)
                        checkpoint = CheckpointUpdate(
                            seq=first,
                            body=secret * chance.choice([1, 20, 500, 5000]),
                            kept_parts=tuple(parts[: chance.choice([len(parts), len(parts), 1, 0])]),
                            new_part=secret * chance.choice([0, 1, 20, 500, 5000]),
                        )
                        await writer.finish_run(checkpoint=checkpoint)
            for number, key in enumerate(keys):
                assert files_with(b"violet-%d-" % number, path) != []
                await ledger.erase_thread(key)
                assert files_with(b"violet-%d-" % number, path) == []
            assert rows(path, "SELECT count(*) FROM checkpoint_part WHERE thread_no IS NOT NULL") == [(0,)]

    async def test_no_byte_of_a_title_stays_after_two_hundred_renames(self, path: Path) -> None:
        """Titles of all lengths, of threads that are renamed in turns and erased one after another."""
        chance = random.Random(5)
        keys = [KEY._replace(id=f"t{number}") for number in range(4)]
        async with SqliteLedger(path) as ledger:
            for number, key in enumerate(keys):
                async with await ledger.acquire_lease(key, f"run-{number}") as writer:
                    title = f"Violet{number}-first"
                    await writer.begin_run([STARTED], run_id="client", agent="demo", claim=None, title=title)
                    await writer.finish_run()
            for rename in range(200):
                for number in chance.sample(range(4), 4):
                    title = (f"Violet{number}-{rename} " * chance.choice([1, 2, 5, 20]))[:200]
                    await ledger.append_facts(keys[number], [NOTE], labels=ThreadLabels(title=title))
            for number, key in enumerate(keys):
                assert files_with(b"Violet%d" % number, path) != []
                await ledger.erase_thread(key)
                assert files_with(b"Violet%d" % number, path) == []
                assert files_with(b"violet%d" % number, path) == []
            assert rows(path, "SELECT count(*) FROM label WHERE thread_no IS NOT NULL") == [(0,)]

    async def test_no_byte_stays_whatever_happened_around_it(self, path: Path) -> None:
        """SQLite copies rows when it merges pages, and the old bytes stay in the pages' unused space."""
        chance = random.Random(3)
        async with SqliteLedger(path) as ledger, AsyncExitStack() as stack:
            writers: dict[int, Writer] = {}
            for number in range(40):
                writer = await ledger.acquire_lease(KEY._replace(id=f"t{number}"), f"run-{number}")
                writers[number] = await stack.enter_async_context(writer)
                await begin(writer)
            for _ in range(250):
                for number in chance.sample(sorted(writers), 5):
                    title = (f"secret{number:03d}-" * chance.choice([1, 3, 19]))[:200]
                    await ledger.append_facts(writers[number].thread, [NOTE], labels=ThreadLabels(title=title))
                    writers[number].append(b"secret%03d-" % number * chance.choice([1, 2, 5, 20, 200, 900]))
                for writer in writers.values():
                    await writer.flush()
                number = chance.choice(sorted(writers))
                info = await ledger.get_thread(writers[number].thread)
                assert info is not None
                seq = chance.randint(info.first - 1, info.last)
                await ledger.trim_thread(info.key, Checkpoint(seq=seq, body=b"secret%03d-" % number * 9))
                if len(writers) > 5 and chance.random() < 0.1:
                    secret = b"secret%03d-" % number
                    await ledger.erase_thread(writers.pop(number).thread)
                    assert files_with(secret, path) == []

    async def test_erasure_waits_for_a_reader_that_holds_the_old_pages(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            async with await ledger.acquire_lease(KEY, "run-1") as writer:
                await begin(writer)
                writer.append(b"violet")
                await writer.finish_run()
            with closing(sqlite3.connect(path, isolation_level=None)) as reader, unless_hung():
                reader.execute("BEGIN")
                assert reader.execute("SELECT count(*) FROM batch").fetchone() == (2,)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ledger.erase_thread, KEY)
                    while await ledger.get_thread(KEY):
                        await anyio.sleep(0.01)
                    reader.execute("COMMIT")
            assert files_with(b"violet", path) == []


class TestTrouble:
    async def test_a_file_that_is_no_database_is_a_configuration_error(self, path: Path) -> None:
        write(path, b"Dear diary, " * 1000)
        with pytest.raises(ConfigError):
            async with SqliteLedger(path):
                pass
        assert content(path) == b"Dear diary, " * 1000

    async def test_another_programs_database_is_left_alone(self, path: Path) -> None:
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE cookies (name TEXT)")
        before = content(path)
        with pytest.raises(ConfigError):
            async with SqliteLedger(path):
                pass
        assert content(path) == before

    async def test_a_newer_schema_is_refused(self, path: Path) -> None:
        async with SqliteLedger(path):
            pass
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")
        with pytest.raises(ConfigError):
            async with SqliteLedger(path):
                pass

    async def test_a_path_that_cannot_be_is_a_configuration_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError):
            async with SqliteLedger(tmp_path / "file" / "ledger.db"):
                pass

    async def test_a_failed_commit_fails_its_writers_and_their_readers(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger, ledger.tail(KEY, 1) as tail:
            async with await ledger.acquire_lease(KEY, "run-1") as writer:
                await begin(writer)
                _fail_appends(path)
                writer.append(b"lost")
                with pytest.raises(LedgerError):
                    await writer.flush()
                with pytest.raises(LedgerError):
                    writer.append(b"after the hole")
                with pytest.raises(LedgerError):  # Nothing more comes of the run; a resume gets its end.
                    await tail.next_batches()
                _heal(path)
            assert [run.key for run in await ledger.list_abandoned_runs()] == ["run-1"]
            async with await ledger.acquire_lease(KEY, "run-1") as writer:
                writer.append(b"closed")
                await writer.finish_run()
            assert lines_of(await ledger.read_batches(KEY, 0)) == [(1, b"started"), (2, b"closed")]

    async def test_one_bad_batch_does_not_fail_the_others_in_its_transaction(self, path: Path) -> None:
        other = KEY._replace(id="other")
        async with (
            SqliteLedger(path) as ledger,
            await ledger.acquire_lease(KEY, "run-1") as unlucky,
            await ledger.acquire_lease(other, "run-2") as lucky,
        ):
            await begin(unlucky)
            await begin(lucky)
            _fail_appends(path, "NEW.run = 'run-1'")
            unlucky.append(b"a")
            lucky.append(b"b")
            assert await lucky.flush() == 2
            with pytest.raises(LedgerError):
                await unlucky.flush()

    async def test_a_locked_file_is_a_ledger_error_and_passes(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ambient_runner.ledger.sqlite.connection.BUSY_TIMEOUT", 0.1)
        async with SqliteLedger(path) as ledger:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(LedgerError):
                    await ledger.acquire_lease(KEY, "run-1")
                other.execute("ROLLBACK")
            async with await ledger.acquire_lease(KEY, "run-1"):
                pass

    async def test_a_closed_store_refuses(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            pass
        with pytest.raises(LedgerError):
            await ledger.acquire_lease(KEY, "run-1")
        with pytest.raises(LedgerError):
            await ledger.get_thread(KEY)


def _fail_appends(path: Path, when: str = "1") -> None:
    """From now on the database refuses these batches, as a full disk would."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"CREATE TRIGGER broken BEFORE INSERT ON batch WHEN {when} BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )


def _heal(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER broken")


class TestDisk:
    async def test_entries_wait_for_the_disk_and_leases_do_not(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        statements: list[str] = []
        monkeypatch.setattr("ambient_runner.ledger.sqlite.committer.connect", _traced(statements))
        async with SqliteLedger(path) as ledger:
            async with await ledger.acquire_lease(KEY, "run-1") as writer:
                await begin(writer)
                writer.append(b"a")
                await writer.finish_run()
            await ledger.append_facts(KEY, [NOTE])
        synced = list(_transactions(statements))
        entries = [is_synced for is_synced, text in synced if "INSERT INTO batch" in text]
        leases = [is_synced for is_synced, text in synced if "INTO lease" in text or "FROM lease WHERE token" in text]
        assert entries == [True] * 3
        assert leases == [False, True]  # The second one ends with the run, in the transaction of its last entries.


def _traced(statements: list[str]) -> Callable[[Path], sqlite3.Connection]:
    def connect(path: Path) -> sqlite3.Connection:
        connection = open_connection(path)
        connection.set_trace_callback(statements.append)
        return connection

    return connect


def _transactions(statements: list[str]) -> Iterator[tuple[bool, str]]:
    """Each transaction that was committed: whether it waited for the disk, and its text."""
    is_synced, text = True, ""
    for statement in statements:
        if statement.startswith("PRAGMA synchronous"):
            is_synced = statement.endswith("FULL")
        elif statement == "COMMIT":
            yield is_synced, text
            text = ""
        else:
            text += statement


async def test_a_waiting_reader_receives_a_large_batch_before_it_is_published(tmp_path: Path) -> None:
    received: list[tuple[str, Batch]] = []

    class Reader:
        def prepare(self, batch: Batch) -> None:
            received.append(("prepare", batch))

        def try_send(self, batch: Batch) -> bool:
            received.append(("try_send", batch))
            return False

    async with SqliteLedger(tmp_path / "a.db") as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
        await begin(writer)
        async with ledger.tail(KEY, 1) as tail, anyio.create_task_group() as tasks:
            tasks.start_soon(tail.next_batches, Reader())
            await anyio.wait_all_tasks_blocked()
            for number in range(300):
                writer.append(b"%d" % number)
            await writer.flush()
    (first, prepared), (second, taken) = received
    assert (first, second) == ("prepare", "try_send")
    assert prepared is taken
    assert len(taken.lines) == 300


async def test_readers_get_the_events_of_a_batch_unless_its_joined_text_is_known(tmp_path: Path) -> None:
    async with SqliteLedger(tmp_path / "a.db") as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
        await begin(writer)
        async with ledger.tail(KEY, 1) as tail:
            writer.append_lazily(lambda: Encoded([b"1", b"2"], events=["both"]))
            writer.append(b"3")
            (mixed,) = await tail.next_batches()
            writer.append_lazily(lambda: Encoded([b"4"], JoinedText("m", "4"), ["delta"]))
            (text,) = await tail.next_batches()
        stored = (await ledger.read_batches(KEY, 1))[-1]
    assert mixed.events == ["both", b"3"]
    assert (text.events, stored.events) == ((), ())
