"""Opening a store by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.ledger.base import Ledger

DEFAULT_LEASE_SECONDS = 10.0


def open_ledger(url: str, *, lease: float = DEFAULT_LEASE_SECONDS) -> Ledger:
    """The store a URL names, to be entered with `async with`.

    `sqlite:///file` is relative to the working directory, `sqlite:////file` absolute. `lease` is how many seconds
    a process may be silent before others take its threads over.
    Raises: ConfigError.
    """
    scheme, separator, rest = url.partition("://")
    opener = _SCHEMES.get(scheme) if separator else None
    if opener is None:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise ConfigError(f"There is no store for {scheme}:// URLs. Known are {known}.")
    if lease <= 0:
        raise ConfigError("The lease must be longer than 0 seconds.")
    return opener(url, rest, lease)


def _open_memory(url: str, rest: str, lease: float) -> Ledger:
    if rest:
        raise ConfigError("memory:// takes nothing behind it.")
    return MemoryLedger()


def _open_sqlite(url: str, rest: str, lease: float) -> Ledger:
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path.endswith("/") or ":memory:" in path:
        raise ConfigError("Name a file: sqlite:///relative/path.db or sqlite:////absolute/path.db.")
    return SqliteLedger(Path(path), url=url, lease=lease)


_SCHEMES: dict[str, Callable[[str, str, float], Ledger]] = {"memory": _open_memory, "sqlite": _open_sqlite}
