"""Paths at which no store can be opened: the error names the path and the next step."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.sqlite.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Callable


def make_directory(path: Path) -> Path:
    path.mkdir()
    return path


def make_foreign_database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (id)")
    return path


def make_text(path: Path) -> Path:
    path.write_text("This is a text. " * 100)
    return path


def take_device(_: Path) -> Path:
    return Path("/dev/null")


@pytest.mark.parametrize("make", [make_directory, make_foreign_database, make_text, take_device])
def test_a_path_that_is_no_store_is_named_with_what_to_do(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path / "a.db")
    with pytest.raises(ConfigError) as caught:
        prepare_database(path)
    assert str(path) in caught.value.message
    assert "--store" in caught.value.message
