"""The SDK of a bridge: its package, the versions it is tested with, and the error for a private name that a version lacks.

A bridge reads private attributes of its SDK in its own `sdk.py` and nowhere else. `make test-versions` runs the tests of each bridge with
the lowest and the newest version.
"""

from __future__ import annotations

import importlib.metadata
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.errors import BridgeUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = ["Sdk"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sdk:
    """A package and the first and the last of its versions that the bridge is tested with."""

    package: str
    lowest: str
    newest: str

    @contextmanager
    def private_names(self) -> Generator[None]:
        """Wrap reads and imports of private names. Raises: BridgeUnavailable when the installed version lacks one."""
        try:
            yield
        except AttributeError as error:
            raise self._missing_name(f"{type(error.obj).__name__}.{error.name}") from error
        except ImportError as error:
            raise self._missing_name(error.name or "a module") from error

    def check_names(self, owner: object, names: Iterable[str]) -> None:
        """Check that an object of the SDK has these private names. Raises: BridgeUnavailable when it lacks one."""
        with self.private_names():
            for name in names:
                getattr(owner, name)

    def _missing_name(self, name: str) -> BridgeUnavailable:
        installed = importlib.metadata.version(self.package)
        return BridgeUnavailable(
            f"{self.package} {installed} has no {name} as this bridge knows it. Install a version that it is tested with: "
            f"pip install '{self.package}>={self.lowest},<={self.newest}'"
        )
