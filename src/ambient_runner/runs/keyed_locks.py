"""Locks by key, for work that only one task at a time may do for each thread. A lock exists only while it is used."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable

__all__ = ["KeyedLocks"]

Key = TypeVar("Key", bound="Hashable")


class KeyedLocks(Generic[Key]):
    """One lock per key."""

    def __init__(self) -> None:
        self._locks: dict[Key, anyio.Lock] = {}

    @asynccontextmanager
    async def lock(self, key: Key) -> AsyncGenerator[None, None]:
        # Without a pause if it is free: what a caller reads next may change in one.
        lock = self._locks.setdefault(key, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().locked:
                self._locks.pop(key, None)
