"""Values that were granted to each owner recently, so that they stay secrets between runs.

A value that was rotated meanwhile, a patch of the state, feedback, and the first entries of the next run may repeat what an earlier run was
granted. The values are kept in this process only, for a day, and within limits: the oldest are dropped first.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["RecentGrants"]

MAX_AGE = 24 * 3600.0  # seconds
_MAX_VALUES = 64
"""Values of one owner."""
_MAX_BYTES = 1 << 18
"""Bytes of the values of one owner: as many as a source may return at once."""
_MAX_TOTAL_BYTES = 1 << 25
_MAX_OWNERS = 10_000

OwnerKey = tuple[str, str]
"""Tenant and owner."""


class RecentGrants:
    """The values granted to each owner within the last day."""

    def __init__(self, *, max_age: float = MAX_AGE, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_age = max_age
        self._clock = clock
        self._owners: OrderedDict[OwnerKey, OrderedDict[str, float]] = OrderedDict()
        """Time of the last grant by value, the oldest first; the owner whose last grant is the oldest is first."""
        self._bytes = 0

    def remember(self, tenant: str, owner: str, values: Iterable[str]) -> None:
        """Keep these values, and drop what is too old or too much."""
        values = list(values)
        if not values:
            return
        granted = self._owners.setdefault((tenant, owner), OrderedDict())
        self._owners.move_to_end((tenant, owner))
        for value in values:
            if value not in granted:
                self._bytes += _size(value)
            granted[value] = self._clock()
            granted.move_to_end(value)
        self._shrink(granted)
        self._evict_owners()

    def values_of(self, tenant: str, owner: str) -> list[str]:
        """Return the values that were granted to this owner within the last day."""
        self._evict_owners()
        granted = self._owners.get((tenant, owner))
        if granted is None:
            return []
        self._shrink(granted)
        return list(granted)

    def _shrink(self, granted: OrderedDict[str, float]) -> None:
        """Drop the oldest values of one owner until the rest is recent and within the limits."""
        size = sum(map(_size, granted))
        while granted and (
            len(granted) > _MAX_VALUES or size > _MAX_BYTES or self._is_old(next(iter(granted.values())))
        ):
            value, _ = granted.popitem(last=False)
            size -= _size(value)
            self._bytes -= _size(value)

    def _evict_owners(self) -> None:
        """Drop the owners who were granted nothing for a day, and those of the oldest grants if there is too much."""
        while self._owners:
            owner, granted = next(iter(self._owners.items()))
            is_stale = not granted or self._is_old(next(reversed(granted.values())))
            if not is_stale and len(self._owners) <= _MAX_OWNERS and self._bytes <= _MAX_TOTAL_BYTES:
                return
            self._bytes -= sum(map(_size, granted))
            del self._owners[owner]

    def _is_old(self, granted_at: float) -> bool:
        return self._clock() - granted_at >= self._max_age


def _size(value: str) -> int:
    return len(value.encode("utf-8", "surrogatepass"))
