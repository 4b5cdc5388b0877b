"""`ambient backup` copies a SQLite store to a file while servers may write to it; `ambient db new-epoch` follows a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ambient_runner.cli.store_file import require_store_file
from ambient_runner.errors import ConfigError
from ambient_runner.ledger.sqlite.backup import backup_database, renew_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.config import Settings

_MIB = 1024 * 1024


def backup_store(settings: Settings, target: Path) -> None:
    """Copy the database of the store to a new file. Raises: ConfigError, LedgerError."""
    backup_database(_require_sqlite_file(settings), target)
    typer.echo(f"Wrote {target} ({target.stat().st_size / _MIB:.1f} MiB). Serve it with --store sqlite:///{target}")


def invalidate_cursors(settings: Settings) -> None:
    """Make all cursors of a restored store invalid. Raises: ConfigError, LedgerError."""
    count = renew_epochs(_require_sqlite_file(settings))
    threads = "1 thread" if count == 1 else f"{count} threads"
    typer.echo(
        f"Gave {threads} a new epoch. Clients with older cursors get 409 stale_cursor and start again. Now start the server."
    )


def _require_sqlite_file(settings: Settings) -> Path:
    """Return the file of the store. Raises: ConfigError if it does not exist, or the store is another one."""
    file = require_store_file(settings)
    if file is None:
        raise ConfigError(f"{settings.store_label} is not a SQLite store. Use the backup tools of its database.")
    return file
