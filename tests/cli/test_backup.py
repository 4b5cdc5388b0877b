"""`ambient backup`: a copy of a live store that has everything that was committed."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ambient_runner.ledger import open_ledger
from ambient_runner.ledger.records import Fact, ThreadKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = ThreadKey("default", "local", "t1")


async def count_entries(store: Path) -> int:
    async with open_ledger(f"sqlite:///{store}") as ledger:
        info = await ledger.get_thread(KEY)
        return 0 if info is None else info.last


def test_a_backup_of_a_live_store_has_what_a_copy_of_the_file_lacks(
    ambient: Callable[..., Any], tmp_path: Path
) -> None:
    source, copied, target = (tmp_path / name for name in ("threads.db", "copied.db", "backup.db"))
    ambient("run", "demo", "say hi", "--thread", "t1")
    before = anyio.run(count_entries, source)

    async def back_up_while_open() -> tuple[int, str, str]:
        async with open_ledger(f"sqlite:///{source}") as ledger:
            await ledger.append_facts(KEY, [Fact(owner="test", kind="note", body=b"{}")] * 3)
            shutil.copy(source, copied)
            return await anyio.to_thread.run_sync(lambda: ambient("backup", str(target)))

    code, out, _ = anyio.run(back_up_while_open)
    assert (code, "backup.db" in out) == (0, True)
    assert (anyio.run(count_entries, target), anyio.run(count_entries, copied)) == (before + 3, before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_backup_overwrites_no_file(ambient: Callable[..., Any], tmp_path: Path) -> None:
    ambient("run", "demo", "say hi")
    (tmp_path / "mine").write_text("keep me")
    assert ambient("backup", "mine")[0] == 2
    assert (tmp_path / "mine").read_text() == "keep me"


@pytest.mark.parametrize("options", [["--store", "memory://"], ["--store", "sqlite:///missing.db"]])
def test_a_store_that_cannot_be_copied_is_refused_and_leaves_no_file(
    ambient: Callable[..., Any], tmp_path: Path, options: list[str]
) -> None:
    assert ambient("backup", "copy.db", *options)[0] == 2
    assert not (tmp_path / "copy.db").exists()
    assert not (tmp_path / "missing.db").exists()


def test_a_name_that_sqlite_could_read_as_a_uri_is_a_file_name(ambient: Callable[..., Any], tmp_path: Path) -> None:
    """`file:copy.db` was checked and protected, and `copy.db` was written."""
    ambient("run", "demo", "say hi", "--thread", "t1")
    assert ambient("backup", "file:copy.db")[0] == 0
    target = tmp_path / "file:copy.db"
    assert (stat.S_IMODE(target.stat().st_mode), (tmp_path / "copy.db").exists()) == (0o600, False)
    assert anyio.run(count_entries, target) > 0


def test_a_store_whose_name_sqlite_could_read_as_a_uri_is_the_named_file(
    ambient: Callable[..., Any], tmp_path: Path
) -> None:
    ambient("run", "demo", "say hi", "--store", "sqlite:///file:threads.db")
    assert ((tmp_path / "file:threads.db").stat().st_size > 0, (tmp_path / "threads.db").exists()) == (True, False)


def test_a_file_that_is_no_store_is_not_backed_up(ambient: Callable[..., Any], tmp_path: Path) -> None:
    """An empty file and the database of another program were copied as if they were stores."""
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("no database at all " * 100)
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE addresses (name)")
    for source in ("empty.db", "foreign.db", "text.db"):
        code, out, err = ambient("backup", "copy.db", "--store", f"sqlite:///{source}")
        assert (code, out, source in err, (tmp_path / "copy.db").exists()) == (2, "", True, False)


def test_a_backup_onto_a_full_disk_leaves_no_file_and_names_the_target(
    ambient: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of the copy was left behind, and the message was about the disk of the store."""

    def fill_disk(reader: sqlite3.Connection, target: Path) -> None:
        target.with_name(f"{target.name}-journal").touch()  # SQLite cannot remove it if the roll back fails
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    ambient("run", "demo", "say hi")
    monkeypatch.setattr("ambient_runner.ledger.sqlite.backup._copy_pages", fill_disk)
    before = sorted(tmp_path.iterdir())
    code, out, err = ambient("backup", "full.db")
    assert (code, out, "full.db" in err) == (1, "", True)
    assert sorted(tmp_path.iterdir()) == before
