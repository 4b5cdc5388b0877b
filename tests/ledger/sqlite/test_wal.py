"""WAL checkpoints: their thread must not be the one that meets a fault of the file, because it cannot tell anybody."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.ledger.sqlite.connection import connect
from ambient_runner.ledger.sqlite.schema import prepare_database
from ambient_runner.ledger.sqlite.wal import CHECKPOINT_BYTES, WalCheckpointer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_file_damaged_before_the_first_checkpoint_is_left_to_the_next_transaction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread opened its own connection once it ran, and logged that the WAL would grow if the file was damaged by then."""
    path = tmp_path / "ambient.db"
    prepare_database(path)
    checkpointer = WalCheckpointer(path)
    path.write_bytes(b"\xff" * path.stat().st_size)
    checkpointer.start()
    checkpointer.add_written(CHECKPOINT_BYTES)
    checkpointer.close()
    assert caplog.records == []


def test_a_checkpoint_moves_what_was_committed_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ambient.db"
    prepare_database(path)
    checkpointer = WalCheckpointer(path)
    with closing(connect(path)) as connection:
        before = path.stat().st_size
        connection.execute("CREATE TABLE filler AS SELECT zeroblob(100000) AS content")
        assert path.stat().st_size == before
        checkpointer.add_written(CHECKPOINT_BYTES)
        checkpointer.start()
        while path.stat().st_size == before:
            assert checkpointer.is_alive()
        checkpointer.close()
