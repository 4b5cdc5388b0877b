from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.ledger.sqlite.connection import connect
from ambient_runner.ledger.sqlite.schema import prepare_database
from ambient_runner.ledger.sqlite.workers import Worker

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

LEASE = 30.0


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def expiry(connection: sqlite3.Connection) -> list[float]:
    return [expires for (expires,) in connection.execute("SELECT expires FROM worker")]


def test_leases_are_renewed_only_when_a_third_of_their_time_is_over(tmp_path: Path) -> None:
    prepare_database(tmp_path / "ambient.db")
    clock = Clock()
    worker = Worker(LEASE, clock)
    with closing(connect(tmp_path / "ambient.db")) as connection:
        worker.register(connection)
        found: list[list[float]] = []
        for seconds in (9.0, 2.0):
            clock.now += seconds
            worker.renew_leases_if_due(connection)
            found.append(expiry(connection))
    assert found == [[1_000.0 + LEASE], [1_011.0 + LEASE]]


def test_leases_are_renewed_if_the_row_is_gone_or_of_another_clock(tmp_path: Path) -> None:
    prepare_database(tmp_path / "ambient.db")
    worker = Worker(LEASE, Clock())
    found: list[list[float]] = []
    with closing(connect(tmp_path / "ambient.db")) as connection:
        worker.register(connection)
        for change in ("DELETE FROM worker", "UPDATE worker SET expires = 9000"):
            connection.execute(change)
            worker.renew_leases_if_due(connection)
            found.append(expiry(connection))
    assert found == [[1_000.0 + LEASE], [1_000.0 + LEASE]]
