"""Wakes the requests of this process that wait for a thread to become free. Loop-side only, as `fanout.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ambient_runner.ledger.records import ThreadKey


class ReleaseNotifier:
    """Wakes the tasks that wait for a thread to become free."""

    def __init__(self) -> None:
        self._waiting: dict[ThreadKey, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def notify(self, key: ThreadKey) -> None:
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(None)

    def notify_all(self) -> None:
        for key in self._waiting:
            self.notify(key)

    async def wait_until_free(
        self, key: ThreadKey, is_free: Callable[[], Awaitable[bool]], check_interval: float
    ) -> None:
        """Wait until `is_free` returns True.

        It is called on every notification, and every `check_interval` seconds: a dead process sends none.
        """
        loop = asyncio.get_running_loop()
        while True:
            future: asyncio.Future[None] = loop.create_future()
            waiting = self._waiting.setdefault(key, set())
            waiting.add(future)
            timer = loop.call_later(check_interval, _resolve_future, future)
            try:
                if await is_free():
                    return
                await future
            finally:
                timer.cancel()
                waiting.discard(future)
                if not waiting and self._waiting.get(key) is waiting:
                    del self._waiting[key]


def _resolve_future(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
