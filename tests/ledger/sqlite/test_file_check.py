from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import StoreUnusable
from ambient_runner.ledger.sqlite.file_check import OpenedFile

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

CHECKS = 3_000
THREADS = 4


@pytest.fixture
def switching_threads() -> Generator[None]:
    """Let threads interrupt one another nearly everywhere."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switching_threads")
def test_a_file_that_grows_is_never_taken_for_a_truncated_one(tmp_path: Path) -> None:
    """Of two threads that checked it, one had read the smaller size and found it below the other's: the server refused its store."""
    path = tmp_path / "ambient.db"
    path.touch()
    opened = OpenedFile(path)
    opened.remember()
    failures: list[StoreUnusable] = []

    def check() -> None:
        try:
            for _ in range(CHECKS):
                with path.open("ab") as file:
                    file.write(b"x")
                opened.check_files()
        except StoreUnusable as error:
            failures.append(error)

    threads = [threading.Thread(target=check) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
