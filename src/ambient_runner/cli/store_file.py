"""The file of a store that a command reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.sqlite.connection import database_path

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.config import Settings

__all__ = ["require_store_file"]


def require_store_file(settings: Settings) -> Path | None:
    """Return the file of a SQLite store, None for another store. Raises: ConfigError if it does not exist: reading must not create it."""
    file = database_path(settings.store)
    if file is not None and not file.is_file():
        raise ConfigError(f"{file} does not exist. Name the store with --store, or run this where the server runs.")
    return file
