"""F28: two versions of the program on one SQLite file. The newer one has one more migration; the older one is this program."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

import ambient_runner
from ambient_runner.errors import ConfigError, LedgerError
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from tests.e2e.server import start
from tests.e2e.sse import Truncated, open_stream
from tests.e2e.talk import new_id, run, run_input
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
COUNTING = "count 100000 every 5ms"
_AMBIENT = "from ambient_runner.cli.main import main; main()"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "ambient.db"


@pytest.fixture(scope="module")
def newer_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this program with one more migration."""
    root = tmp_path_factory.mktemp("newer")
    package = Path(ambient_runner.__file__).parent
    shutil.copytree(package, root / "ambient_runner")
    migrations = root / "ambient_runner/ledger/sqlite/migrations"
    number = len(list(migrations.glob("*.sql"))) + 1
    (migrations / f"{number:04d}_newer.sql").write_text("CREATE TABLE newer (no INTEGER PRIMARY KEY);\n")
    return root


def run_newer(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of the newer program to its end."""
    return subprocess.run(
        [sys.executable, "-c", _AMBIENT, *arguments],
        env={**os.environ, "PYTHONPATH": str(program)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def migrate(store: Path) -> list[str]:
    """Migrate the file as a newer program would that cannot see the older one. Return what the file then contains."""
    with closing(sqlite3.connect(store, timeout=HANG_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute("CREATE TABLE newer (no INTEGER PRIMARY KEY)")
        connection.execute(f"PRAGMA user_version = {version + 1}")
        content = list(connection.iterdump())
        connection.execute("COMMIT")
    return content


def content_of(store: Path) -> list[str]:
    with closing(sqlite3.connect(store)) as connection:
        return list(connection.iterdump())


def schema_version(store: Path) -> int:
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


async def test_f28_m1_a_migration_names_the_living_older_servers_and_refuses(store: Path, newer_program: Path) -> None:
    options: Sequence[str] = ("serve", "demo", "--port", "0", "--store", f"sqlite:///{store}")
    with start(store) as first, start(store) as second:
        before = schema_version(store)
        refused = run_newer(newer_program, *options)
        assert refused.returncode == 2
        assert f"pid {first.pid} (since " in refused.stderr
        assert f"pid {second.pid} (since " in refused.stderr
        assert schema_version(store) == before
        with unless_hung():
            assert (await run(first.url, run_input(new_id("thread"), "hello")))[-1].type == "RUN_FINISHED"
        second.kill()
        refused = run_newer(newer_program, *options)
        assert refused.returncode == 2
        assert f"pid {second.pid} " not in refused.stderr
    listed = run_newer(newer_program, "threads", "list", "--store", f"sqlite:///{store}")
    assert listed.returncode == 0, listed.stderr
    assert schema_version(store) == before + 1


async def test_f28_m1_a_server_that_meets_a_newer_schema_writes_nothing_more(store: Path) -> None:
    thread = new_id("thread")
    with start(store) as server, unless_hung():
        async with (
            open_stream(f"{server.url}/", "POST", body=run_input(thread, COUNTING)) as of_run,
            open_stream(f"{server.url}/threads/{thread}/events") as of_thread,
            httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client,
        ):
            await of_run.until("TEXT_MESSAGE_CONTENT")
            await of_thread.until("TEXT_MESSAGE_CONTENT")
            migrated = migrate(store)
            for stream in (of_run, of_thread):
                with pytest.raises(Truncated):  # Half a run must not look like a whole one.
                    await stream.rest()
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "store_unavailable")
            assert (await client.get("/health")).status_code == 200
            for answer in (
                await client.post("/", json=run_input(new_id("thread"), "hello")),
                await client.get(f"/message_snapshot/{thread}"),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert server.stop() == 0
    assert content_of(store) == migrated


async def test_f28_m1_an_idle_server_notices_the_newer_schema(store: Path) -> None:
    with start(store) as server, unless_hung():
        migrate(store)
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
            while (await client.get("/ready")).status_code == 200:
                pass


async def test_f28_m1_a_store_with_a_newer_schema_is_reported_once(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each poll for changes found the file in its place, logged that the store can be used again, and then found the schema."""
    lease = 0.03
    async with SqliteLedger(store, lease=lease) as ledger:
        migrate(store)
        with unless_hung():
            while ledger.unavailable_reason() is None:
                await anyio.sleep(lease / 3)
        await anyio.sleep(10 * lease)  # Ten times as long as from one poll to the next, which nobody can wait for.
        assert ledger.unavailable_reason() is not None
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == ["CRITICAL"]


async def test_f28_m1_a_ledger_that_meets_a_newer_schema_refuses_reads_and_writes(store: Path) -> None:
    async with (
        SqliteLedger(store) as ledger,
        await ledger.acquire_lease(KEY, "run-1") as writer,
        await ledger.acquire_lease(KEY._replace(id="idle"), "run-2") as idle,
    ):
        await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)
        await idle.begin_run([STARTED], run_id="r", agent="demo", claim=None)
        assert ledger.unavailable_reason() is None
        migrated = migrate(store)
        writer.append(b"lost")
        with unless_hung(), pytest.raises(LedgerError):
            await writer.flush()
        assert ledger.unavailable_reason() is not None
        with pytest.raises(LedgerError), unless_hung():
            await idle.wait_for_stop()  # It had nothing to write.
        with pytest.raises(LedgerError):
            await ledger.get_thread(KEY)
        with pytest.raises(LedgerError):
            async with ledger.tail(KEY, 0):
                pass
        with pytest.raises(LedgerError):
            await ledger.append_facts(KEY, [Fact(owner="ambient.x", kind="note", body=b"{}")])
    assert content_of(store) == migrated


async def test_f28_m1_a_program_that_was_started_before_a_migration_does_not_register_after_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older program has checked the schema and has not registered yet: no migration can see it."""
    async with SqliteLedger(store):
        pass
    monkeypatch.setattr("ambient_runner.ledger.sqlite.committer.prepare_database", migrate)
    with pytest.raises(ConfigError), unless_hung():
        async with SqliteLedger(store):
            pass


async def test_f28_m1_a_newer_schema_is_a_configuration_error_that_says_what_to_do(store: Path) -> None:
    async with SqliteLedger(store):
        pass
    migrate(store)
    with pytest.raises(ConfigError, match="newer version"):
        async with SqliteLedger(store):
            pass
