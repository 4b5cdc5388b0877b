"""The list of threads in a file: of an earlier version, of several processes, and with ten thousand threads in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import InvalidCursor
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey, ThreadLabels

if TYPE_CHECKING:
    from pathlib import Path

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
NOTE = Fact(owner="ambient.feedback", kind="thumb", body=b"note")
OPEN_RUN = 1 << 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def a_thread(ledger: SqliteLedger, key: ThreadKey, title: str = "") -> None:
    async with await ledger.acquire_lease(key, "run-1") as writer:
        await writer.begin_run([STARTED], run_id="client", agent="demo", claim=None, title=title)
        await writer.finish_run()


def create_file_of_version(path: Path, version: int) -> sqlite3.Connection:
    """Create a file with the schema of an earlier version."""
    directory = resources.files("ambient_runner.ledger.sqlite") / "migrations"
    files = sorted((file for file in directory.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    connection = sqlite3.connect(path)
    connection.create_function("sha256_hex", 1, str)
    connection.create_function("fold_case", 1, str.casefold)
    for file in files[:version]:
        connection.executescript(file.read_text(encoding="utf-8"))
    connection.execute(f"PRAGMA application_id = {0x414D4252}")
    connection.execute(f"PRAGMA user_version = {version}")
    return connection


async def test_threads_of_an_earlier_version_get_a_status_and_keep_their_order(path: Path) -> None:
    with closing(create_file_of_version(path, 3)) as connection:
        connection.executemany(
            "INSERT INTO thread (no, tenant, owner, id, agent, epoch, created, updated) "
            "VALUES (?, 'acme', ?, ?, 'demo', 'epoch-12', 1, ?)",
            [(3, "ann", "Alt", 20), (5, "ann", "running", 10), (9, "ann", "empty", 30), (11, "bob", "Alt", 20)],
        )
        connection.executemany(
            "INSERT INTO run (thread_no, key, run_id, first, last) VALUES (?, ?, 'r', ?, ?)",
            [(3, "k1", 1, 2), (5, "k2", 1, 2), (5, "k3", 3, OPEN_RUN), (None, "", 0, OPEN_RUN), (11, "k4", 1, 2)],
        )
        connection.commit()
    async with SqliteLedger(path) as ledger:
        infos = await ledger.list_threads("acme", "ann")
        assert [(info.key.id, info.title, info.archived, info.status, info.updated) for info in infos] == [
            ("empty", "", False, "finished", 30),
            ("Alt", "", False, "finished", 20),
            ("running", "", False, "running", 10),
        ]
        assert [info.key.id for info in await ledger.list_threads("acme", "ann", search="ALT")] == ["Alt"]
        assert [info.key.id for info in await ledger.list_threads("acme", "ann", before=infos[0].cursor, limit=1)] == ["Alt"]  # fmt: skip
        changed = await ledger.list_changed_threads("acme", "ann", after=infos[1].cursor)
        assert [info.key.id for info in changed.threads] == ["empty"]
        key = ThreadKey("acme", "ann", "Alt")
        async with await ledger.acquire_lease(key, "run-1") as writer:
            await writer.begin_run([STARTED], run_id="client", agent="demo", claim=None, title="Plan a trip")
        newest = (await ledger.list_threads("acme", "ann", limit=1))[0]
        assert (newest.key, newest.title, newest.status) == (key, "Plan a trip", "running")
        assert [info.key.id for info in await ledger.list_threads("acme", "ann", search="TRIP")] == ["Alt"]


async def test_a_cursor_is_good_in_every_process_and_after_a_restart(path: Path) -> None:
    async with SqliteLedger(path) as one, SqliteLedger(path) as two:
        cursor = (await one.list_changed_threads("acme", "ann", after=None)).cursor
        await a_thread(two, KEY, "Rome")
        await a_thread(one, KEY._replace(id="other"))
        changed = await one.list_changed_threads("acme", "ann", after=cursor)
        assert changed == await two.list_changed_threads("acme", "ann", after=cursor)
        assert [(info.key.id, info.title) for info in changed.threads] == [("trip", "Rome"), ("other", "")]
        await two.append_facts(KEY, [NOTE], labels=ThreadLabels(archived=True))
        await one.erase_thread(KEY._replace(id="other"))
    async with SqliteLedger(path) as three:
        rest = await three.list_changed_threads("acme", "ann", after=changed.cursor)
        assert ([(info.key.id, info.archived) for info in rest.threads], rest.erased) == ([("trip", True)], ["other"])


async def test_a_cursor_of_another_file_is_refused(path: Path) -> None:
    async with SqliteLedger(path) as ledger, SqliteLedger(path.with_name("other.db")) as other:
        await a_thread(ledger, KEY)
        await a_thread(other, KEY)
        foreign = (await other.list_threads("acme", "ann"))[0].cursor
        with pytest.raises(InvalidCursor):
            await ledger.list_threads("acme", "ann", before=foreign)
        with pytest.raises(InvalidCursor):
            await ledger.list_changed_threads("acme", "ann", after=foreign)


async def test_a_cursor_is_refused_by_an_older_copy_of_its_file(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        await a_thread(ledger, KEY)
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    async with SqliteLedger(path) as ledger:
        await a_thread(ledger, KEY._replace(id="later"))
        newer = (await ledger.list_threads("acme", "ann"))[0].cursor
    async with SqliteLedger(copy) as restored:
        with pytest.raises(InvalidCursor):
            await restored.list_changed_threads("acme", "ann", after=newer)


class Steps:
    """Counts how much work SQLite does: instructions of its virtual machine, which do not depend on how busy the machine is."""

    UNIT = 20

    def __init__(self) -> None:
        self.count = 0

    def connect(self, path: Path, *, reader: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=not reader)
        connection.set_progress_handler(self._count_step, self.UNIT)
        return connection

    def _count_step(self) -> int:
        self.count += self.UNIT
        return 0


def insert_threads(path: Path, count: int) -> None:
    """Insert threads as an older version left them, all of one owner."""
    with closing(create_file_of_version(path, 3)) as connection:
        connection.executemany(
            "INSERT INTO thread (tenant, owner, id, agent, epoch, created, updated) VALUES ('acme', 'ann', ?, 'demo', 'e', 1, ?)",
            [(f"thread-{number}", number) for number in range(1, count + 1)],
        )
        connection.commit()


@pytest.mark.parametrize(
    ("operation", "at_most"), [("page", 12_000), ("deep page", 12_000), ("poll", 100), ("change", 300)]
)
async def test_a_page_and_a_poll_cost_the_same_however_many_threads_there_are(
    path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, at_most: int
) -> None:
    """`python -m benchmarks threads` measures the times."""
    costs: list[int] = []
    for count in (200, 10_000):
        file = path.with_name(f"{count}.db")
        insert_threads(file, count)
        steps = Steps()
        async with SqliteLedger(file) as ledger:
            monkeypatch.setattr("ambient_runner.ledger.sqlite.read_pool.connect", steps.connect)
            page = await ledger.list_threads("acme", "ann")
            cursor = (await ledger.list_changed_threads("acme", "ann", after=None)).cursor
            if operation == "change":
                await ledger.append_facts(ThreadKey("acme", "ann", "thread-1"), [NOTE])
            steps.count = 0
            match operation:
                case "page":
                    assert len(await ledger.list_threads("acme", "ann")) == 100
                case "deep page":
                    assert len(await ledger.list_threads("acme", "ann", before=page[-1].cursor)) == 100
                case "poll":
                    assert (await ledger.list_changed_threads("acme", "ann", after=cursor)).threads == []
                case _:
                    assert len((await ledger.list_changed_threads("acme", "ann", after=cursor)).threads) == 1
            costs.append(steps.count)
    assert costs[1] <= 1.5 * costs[0] + 100
    assert costs[1] <= at_most
