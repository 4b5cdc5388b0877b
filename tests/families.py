"""Which tests stay together when workers share the suite."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

__all__ = ["Families", "family"]

_JUDGED = re.compile(r"tests/(?:bridges/(\w+)/|e2e/test_(\w+)_streams\.py)")


def family(file: str) -> str:
    """A file is a family of its own, but for those of a bridge: the official clients judge the streams its tests left in the process."""
    found = _JUDGED.match(file)
    return f"tests/bridges/{found[1] or found[2]}" if found else file


class Families(LoadFileScheduling):
    """Gives a worker one family after the other, in the order they were found."""

    def _split_scope(self, nodeid: str) -> str:
        return family(super()._split_scope(nodeid))
