"""M14: a backup is restored. A cursor from after the backup must not lead to other events than those the client has seen."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import ConfigError, StaleCursor
from ambient_runner.ledger import SqliteLedger, ThreadKey
from ambient_runner.ledger.sqlite.backup import backup_database, renew_epochs
from ambient_runner.server.app import create_app
from tests.machine_speed import HANG_SECONDS
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body

AMBIENT = str(Path(sys.executable).with_name("ambient"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "ambient.db"


async def run_messages(store: Path, *texts: str, threads: tuple[str, ...] = ("t",)) -> str:
    """Run the demo agent on threads of the store. Return the cursor of the last event."""
    cursor = ""
    settings = replace(SETTINGS, store=f"sqlite:///{store}", history="server")
    async with client_of(create_app(settings, {"demo": DemoBridge()})) as client:
        for thread in threads:
            for text in texts:
                answer = await client.post("/", json=run_body(text, thread=thread, message=text))
                cursor = [name for name, _ in frames(answer) if name][-1]
    assert cursor
    return cursor


async def resume(store: Path, cursor: str) -> tuple[int, str]:
    """Resume the thread after a cursor. Return the status, and the code of the refusal."""
    settings = replace(SETTINGS, store=f"sqlite:///{store}", history="server")
    async with client_of(create_app(settings, {"demo": DemoBridge()})) as client:
        answer = await client.get("/threads/t/events", params={"after": cursor, "until": "idle"})
        return (200, "") if answer.status_code == 200 else error_of(answer)


def restore(store: Path, backup: Path) -> None:
    for suffix in ("-wal", "-shm"):
        store.with_name(f"{store.name}{suffix}").unlink(missing_ok=True)
    backup.replace(store)


def run_new_epoch(store: Path) -> subprocess.CompletedProcess[str]:
    command = [AMBIENT, "db", "new-epoch", "--store", f"sqlite:///{store}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)


async def test_m14_an_old_cursor_is_stale_after_a_restore(store: Path) -> None:
    kept = await run_messages(store, "say one")
    backup_database(store, store.with_name("backup.db"))
    lost = await run_messages(store, "say two", "say three")
    restore(store, store.with_name("backup.db"))
    done = run_new_epoch(store)
    assert (done.returncode, "1 thread" in done.stdout) == (0, True), done.stderr
    newer = await run_messages(store, "say four", "say five", "say six")
    assert int(newer.partition(".")[2]) > int(lost.partition(".")[2])  # The thread has grown past the lost cursor.
    assert await resume(store, kept) == (409, "stale_cursor")
    assert await resume(store, lost) == (409, "stale_cursor")
    assert await resume(store, newer) == (200, "")


async def test_m14_every_thread_gets_an_epoch_of_its_own_and_keeps_its_entries(store: Path) -> None:
    names = ("t", "u", "v")
    await run_messages(store, "say one", threads=names)

    async def read() -> dict[str, tuple[str, list[bytes]]]:
        async with SqliteLedger(store) as ledger:
            found = {info.key.id: info for info in await ledger.list_all_threads()}
            return {
                name: (info.epoch, [line for batch in await ledger.read_batches(info.key, 0) for line in batch.lines])
                for name, info in found.items()
            }

    before = await read()
    assert renew_epochs(store) == 3
    after = await read()
    assert len({epoch for epoch, _ in (*before.values(), *after.values())}) == 6
    assert {name: lines for name, (_, lines) in before.items()} == {name: lines for name, (_, lines) in after.items()}


async def test_m14_a_client_that_follows_the_list_of_threads_has_to_list_them_again(store: Path) -> None:
    await run_messages(store, "say one")
    key = ThreadKey("default", "local", "t")
    async with SqliteLedger(store) as ledger:
        cursor = (await ledger.list_changed_threads(key.tenant, key.owner, after=None)).cursor
    renew_epochs(store)
    async with SqliteLedger(store) as ledger:
        with pytest.raises(StaleCursor):
            await ledger.list_changed_threads(key.tenant, key.owner, after=cursor)
        newest = (await ledger.list_changed_threads(key.tenant, key.owner, after=None)).cursor
        assert (await ledger.list_changed_threads(key.tenant, key.owner, after=newest)).threads == []


async def test_m14_new_epochs_are_refused_while_a_server_uses_the_file(store: Path) -> None:
    await run_messages(store, "say one")
    async with SqliteLedger(store):
        with pytest.raises(ConfigError, match="pid"):
            renew_epochs(store)
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM worker").fetchone() == (0,)


@pytest.mark.parametrize("content", [b"", b"Dear diary, " * 1000])
def test_m14_a_file_that_is_no_store_is_left_alone(store: Path, content: bytes) -> None:
    store.write_bytes(content)
    with pytest.raises(ConfigError):
        renew_epochs(store)
    assert store.read_bytes() == content
