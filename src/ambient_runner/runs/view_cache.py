"""A cache of folded threads (ThreadViews), for new runs and for snapshots.

Folding a long thread is expensive, so the newest view of each recent thread is cached and only advanced. A cached view belongs to one
epoch of the thread. The ledger is the truth; every view can be folded again from it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import anyio

from ambient_runner.errors import StaleCursor
from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.projections.thread_view import ThreadView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadKey

_MAX_VIEWS = 64
"""Views that are cached."""
_TERMINAL_PREFIXES = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
_FOLD_LINES = 512
"""Lines of one run that are collected before they are folded into a view."""


class ThreadEpoch(NamedTuple):
    """A thread and its epoch: after an erasure, the same key has another epoch."""

    key: ThreadKey
    epoch: str


async def load_view(ledger: Ledger, key: ThreadKey, *, until: int | None = None, epoch: str = "") -> ThreadView:
    """Return the thread folded up to `until`, or to its end. An unknown thread is an empty view.

    Raises: StaleCursor if the entries are no longer retained; UnknownThread if the thread with that epoch was erased; LedgerError.
    """
    checkpoint = await ledger.get_checkpoint(key, until)
    view = ThreadView.from_checkpoint(checkpoint.seq, checkpoint.body) if checkpoint else ThreadView()
    await advance_view(ledger, key, view, until=until, epoch=epoch)
    return view


async def advance_view(
    ledger: Ledger, key: ThreadKey, view: ThreadView, *, until: int | None = None, epoch: str = ""
) -> None:
    """Fold the entries after the view, a mebibyte at a time. Raises: as `load_view`."""
    while until is None or view.seq < until:
        batches = await ledger.read_batches(key, view.seq, until=until, epoch=epoch)
        if (batches and batches[0].first != view.seq + 1) or (not batches and until is not None):
            raise StaleCursor
        if not batches:
            return
        for batch in batches:
            view.apply(batch)


def _view_seq(view: ThreadView) -> int:
    return view.seq


class _LiveView:
    """The view of a thread with an active run, and lines that follow it. They are folded many at a time: one by one they cost more."""

    def __init__(self, view: ThreadView) -> None:
        self.before_run = view
        """The view when the run began. It does not change."""
        self._view = view.copy()
        self._next = view.seq + 1
        self._run: str = ""
        self._ts = 0
        """Commit time of the first of the lines. The view needs that of a run's first and last batch only."""
        self._lines: list[bytes] = []

    def add_batch(self, batch: Batch) -> None:
        if batch.first != self._next:
            return
        fold_now = batch.owner != RUNTIME or batch.text is not None
        ends_run = not fold_now and batch.lines[-1].startswith(_TERMINAL_PREFIXES)
        if fold_now or ends_run or batch.run != self._run or len(self._lines) >= _FOLD_LINES:
            self._fold_lines(len(self._lines))
            self._run = batch.run
        if not self._lines:
            self._ts = batch.ts
        if fold_now:
            self._view.apply(batch)
        else:
            self._lines += batch.lines
        self._next = batch.last + 1

    def fold_up_to(self, seq: int) -> ThreadView:
        """Return the view folded as far as lines are known, not beyond `seq` unless it was already folded further."""
        self._fold_lines(min(len(self._lines), seq - self._view.seq))
        return self._view

    def _fold_lines(self, count: int) -> None:
        if count <= 0:
            return
        lines, self._lines = self._lines[:count], self._lines[count:]
        first = self._view.seq + 1
        self._view.apply(Batch(first=first, owner=RUNTIME, kind="", run=self._run, ts=self._ts, lines=lines))


class ViewCache:
    """The newest views of recent threads of one ledger. The Runner owns it; readers use it through `ReaderViews`.

    The Runner tracks the view of a thread while a run is active, but does not read what the run writes. Readers do: the first one that
    receives a batch extends the tracked view by it, so that the snapshot at the end of the run needs no read of the ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._cached: OrderedDict[ThreadEpoch, ThreadView] = OrderedDict()
        self._before_run: OrderedDict[ThreadEpoch, ThreadView] = OrderedDict()
        """Views before the active runs of other processes, for clients that connect during such a run."""
        self._live: dict[ThreadEpoch, _LiveView] = {}
        self._locks: dict[ThreadEpoch, anyio.Lock] = {}

    async def view_at(self, thread: ThreadEpoch, seq: int) -> ThreadView:
        """Return the thread as of `seq`. Do not change it: others may hold the same view."""
        async with self._lock_thread(thread):
            cached = self._cached.get(thread)
            if cached is not None and cached.seq == seq:
                self._cached.move_to_end(thread)
                return cached
            base = self._base_view(thread, cached, seq)
            if base is None:
                view = await load_view(self._ledger, thread.key, until=seq, epoch=thread.epoch)
            else:
                view = base.copy()
                await advance_view(self._ledger, thread.key, view, until=seq, epoch=thread.epoch)
            if cached is None or view.seq >= cached.seq:
                _put_newest(self._cached, thread, view)
            return view

    async def view_before_run(self, thread: ThreadEpoch, seq: int) -> ThreadView:
        """Return the thread as of `seq`, the entry before the active run, of any process. Do not change it.

        The newest view may be beyond that entry, so this one is kept beside it: the thread is not folded again for every client.
        """
        async with self._lock_thread(thread):
            live = self._live.get(thread)
            known = (self._before_run.get(thread), self._cached.get(thread), live.before_run if live else None)
            base = max((view for view in known if view is not None and view.seq <= seq), key=_view_seq, default=None)
            if base is None:
                base = await load_view(self._ledger, thread.key, until=seq, epoch=thread.epoch)
            elif base.seq < seq:
                base = base.copy()
                await advance_view(self._ledger, thread.key, base, until=seq, epoch=thread.epoch)
            if live is None:
                _put_newest(self._before_run, thread, base)
            return base

    def track(self, thread: ThreadEpoch, view: ThreadView) -> None:
        """For the Runner: track the view of a thread whose run begins on it, until `untrack`."""
        self._live[thread] = _LiveView(view)

    def extend(self, thread: ThreadEpoch, batch: Batch) -> None:
        """For `ReaderViews`: extend the tracked view by a batch. A batch that is already part of it, or leaves a gap, is ignored."""
        live = self._live.get(thread)
        if live is not None:
            live.add_batch(batch)

    def untrack(self, thread: ThreadEpoch) -> None:
        self._live.pop(thread, None)

    def _base_view(self, thread: ThreadEpoch, cached: ThreadView | None, seq: int) -> ThreadView | None:
        """Return the newest view that is not beyond `seq`."""
        live = self._live.get(thread)
        known = [cached, live.fold_up_to(seq) if live else None]
        return max((view for view in known if view is not None and view.seq <= seq), key=_view_seq, default=None)

    def is_past(self, thread: ThreadEpoch, seq: int) -> bool:
        """Return True if the cached view is already beyond `seq`, so that it cannot be used."""
        cached = self._cached.get(thread)
        return cached is not None and cached.seq > seq

    def evict_thread(self, key: ThreadKey) -> None:
        for views in (self._cached, self._before_run):
            for thread in [thread for thread in views if thread.key == key]:
                del views[thread]

    @asynccontextmanager
    async def _lock_thread(self, thread: ThreadEpoch) -> AsyncGenerator[None, None]:
        """Lock a thread: many readers of one run need its snapshot at the same moment, and one of them folds it."""
        lock = self._locks.setdefault(thread, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().locked:
                self._locks.pop(thread, None)


def _put_newest(views: OrderedDict[ThreadEpoch, ThreadView], thread: ThreadEpoch, view: ThreadView) -> None:
    """Cache the view of a thread, and drop the one that was used longest ago if there are too many."""
    views[thread] = view
    views.move_to_end(thread)
    if len(views) > _MAX_VIEWS:
        views.popitem(last=False)


class ReaderViews:
    """One reader's access to the ViewCache: it reads views, and contributes the batches it has received.

    A reader that replays a thread asks for one snapshot after another; each is folded from the previous one.
    """

    def __init__(self, cache: ViewCache, ledger: Ledger, thread: ThreadEpoch) -> None:
        self._cache = cache
        self._ledger = ledger
        self._thread = thread
        self._own: ThreadView | None = None

    def contribute(self, batch: Batch) -> None:
        """Extend the Runner's view of the active run by a batch that this reader received."""
        self._cache.extend(self._thread, batch)

    async def view_at(self, seq: int) -> ThreadView:
        """Return the thread as of `seq`, shared with other readers where possible. Do not change it."""
        if not self._cache.is_past(self._thread, seq):
            return await self._cache.view_at(self._thread, seq)
        if self._own is None or self._own.seq > seq:
            self._own = await load_view(self._ledger, self._thread.key, until=seq, epoch=self._thread.epoch)
        else:
            await advance_view(self._ledger, self._thread.key, self._own, until=seq, epoch=self._thread.epoch)
        return self._own
