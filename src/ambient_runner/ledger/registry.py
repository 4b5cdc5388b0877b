"""Opening a store by its URL. The scheme selects an entry point of the group `ambient_runner.stores`.

Built-in stores and those of other packages are found the same way. An entry point is named after a URL scheme and refers to an
`OpenStore` (`base.py`).
"""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError
from ambient_runner.ledger.base import Ledger, StoreSettings

if TYPE_CHECKING:
    from ambient_runner.ledger.base import OpenStore

__all__ = ["STORE_GROUP", "open_ledger"]

STORE_GROUP = "ambient_runner.stores"

# The same as in pyproject.toml. An editable install keeps the entry points it was installed with; ours must not depend on its age.
_BUILT_IN = (
    EntryPoint(name="memory", value="ambient_runner.ledger.memory:open_memory_store", group=STORE_GROUP),
    EntryPoint(name="sqlite", value="ambient_runner.ledger.sqlite.ledger:open_sqlite_store", group=STORE_GROUP),
)
_SIMILARITY = 0.6
"""Similarity, from 0 to 1, from which on a known scheme is suggested."""
_LEDGER_METHODS = sorted(
    name
    for name, member in vars(Ledger).items()
    if inspect.isfunction(member) and (not name.startswith("_") or name in {"__aenter__", "__aexit__"})
)


def open_ledger(url: str, *, lease: float | None = None, patience: float | None = None) -> Ledger:
    """Return the store of a URL, to be opened with `async with`.

    `sqlite:///file` is relative to the working directory, `sqlite:////file` absolute. `lease` is the number of seconds a process may be
    silent before others take over its threads, `patience` the seconds for which runs wait while the store cannot be written.
    Raises: ConfigError.
    """
    defaults = StoreSettings()
    settings = StoreSettings(
        lease=defaults.lease if lease is None else lease,
        patience=defaults.patience if patience is None else patience,
    )
    if settings.lease <= 0:
        raise ConfigError("The lease must be longer than 0 seconds.")
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigError("A store is named by a URL, such as sqlite:///.ambient/ambient.db or memory://.")
    point = _find_entry_point(scheme)
    return _check_ledger(point, _load_store(point)(url, settings))


def _find_entry_point(scheme: str) -> EntryPoint:
    """Return the entry point of a scheme. Raises: ConfigError if there is none, or if two packages provide different ones."""
    points = [*_BUILT_IN, *entry_points(group=STORE_GROUP)]
    targets = {point.value: point for point in points if point.name == scheme}
    if not targets:
        schemes = sorted({f"{point.name}://" for point in points})
        hint = did_you_mean(f"{scheme}://", schemes, _SIMILARITY)
        raise ConfigError(f"There is no store for {scheme}:// URLs.{hint} Known: {', '.join(schemes)}.")
    if len(targets) > 1:
        raise ConfigError(
            f"Several stores are installed for {scheme}:// URLs: {', '.join(sorted(targets))}. Uninstall all but one."
        )
    return next(iter(targets.values()))


def _load_store(point: EntryPoint) -> OpenStore:
    """Import the function that opens the store. Raises: ConfigError if it cannot be imported or called."""
    try:
        opener = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{_describe_store(point)} cannot be imported: {error}.") from error
    if not _accepts_settings(opener):
        raise ConfigError(
            f"{_describe_store(point)} must be a function of two arguments: the URL and the StoreSettings."
        )
    return cast("OpenStore", opener)


def _accepts_settings(opener: Any) -> bool:
    """Return True if the object can be called with a URL and settings."""
    if not callable(opener):
        return False
    try:
        inspect.signature(opener).bind("", StoreSettings())
    except TypeError:
        return False
    except ValueError:  # a callable of an extension module that does not tell its signature
        return True
    return True


def _check_ledger(point: EntryPoint, opened: object) -> Ledger:
    """Return what a store's function returned. Raises: ConfigError if it is not a Ledger."""
    if inspect.iscoroutine(opened):
        opened.close()  # or Python warns that it was never awaited
        raise ConfigError(
            f"{_describe_store(point)} is a coroutine function. Make it a plain function that returns a Ledger."
        )
    if isinstance(opened, type):
        raise ConfigError(f"{_describe_store(point)} returned the class {opened.__name__}. Return an object of it.")
    missing = [name for name in _LEDGER_METHODS if not callable(getattr(opened, name, None))]
    if missing:
        raise ConfigError(
            f"{_describe_store(point)} returned {type(opened).__name__}, which is not a Ledger: it has no {', '.join(missing[:3])}"
            f"{' …' if len(missing) > 3 else ''}."
        )
    return cast("Ledger", opened)


def _describe_store(point: EntryPoint) -> str:
    return f"The store for {point.name}:// URLs, {point.value},"
