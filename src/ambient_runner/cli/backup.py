"""`ambient backup`: copies a SQLite store to a file while servers may write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ambient_runner.cli.arguments import require_store_file
from ambient_runner.errors import ConfigError
from ambient_runner.ledger.sqlite.backup import backup_database

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.config import Settings

_MIB = 1024 * 1024


def backup_store(settings: Settings, target: Path) -> None:
    """Copy the database of the store to a new file. Raises: ConfigError, LedgerError."""
    source = require_store_file(settings)
    if source is None:
        raise ConfigError(f"{settings.store_label} is not a SQLite store. Use the backup tools of its database.")
    backup_database(source, target)
    typer.echo(f"Wrote {target} ({target.stat().st_size / _MIB:.1f} MiB). Serve it with --store sqlite:///{target}")
