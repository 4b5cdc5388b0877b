"""`ambient backup`: a copy of a live store that has everything that was committed."""

from __future__ import annotations

import shutil
import stat
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
