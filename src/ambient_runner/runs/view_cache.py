"""Folded threads, kept ready: what a new run stands on, and what snapshots are made of.

Folding a long thread costs, so the newest view of each recent thread is kept and only brought up to date. A kept view belongs to one life
of the thread (its epoch); nothing here is ever the truth, the ledger is.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import anyio

from ambient_runner.errors import StaleCursor
from ambient_runner.ledger.base import RUNTIME, Batch
from ambient_runner.projections.thread_view import ThreadView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.ledger.base import Ledger, ThreadKey

_KEPT = 64
_FOLD_AT = 512


class Life(NamedTuple):
    """One life of a thread: between two erasures of the same id."""

    key: ThreadKey
    epoch: str


async def load_view(ledger: Ledger, key: ThreadKey, *, until: int | None = None, epoch: str = "") -> ThreadView:
    """The thread folded up to `until`, or to its end. An unknown thread is an empty view.

    Raises: StaleCursor when what is needed is no longer retained; UnknownThread when that life of the thread is over; LedgerError.
    """
    checkpoint = await ledger.checkpoint(key, until)
    view = ThreadView.from_checkpoint(checkpoint.seq, checkpoint.body) if checkpoint else ThreadView()
    await advance(ledger, key, view, until=until, epoch=epoch)
    return view


async def advance(
    ledger: Ledger, key: ThreadKey, view: ThreadView, *, until: int | None = None, epoch: str = ""
) -> None:
    """Fold what was written after the view, a mebibyte at a time. Raises: as `load_view`."""
    while until is None or view.seq < until:
        batches = await ledger.read(key, view.seq, until=until, epoch=epoch)
        if (batches and batches[0].first != view.seq + 1) or (not batches and until is not None):
            raise StaleCursor
        if not batches:
            return
        for batch in batches:
            view.apply(batch)


def _seq(view: ThreadView) -> int:
    return view.seq


class _Growing:
    """The view of a run that goes on, and lines that follow it. They are folded many at a time: one by one they cost more."""

    def __init__(self, view: ThreadView) -> None:
        self._view = view
        self._next = view.seq + 1
        self._run: str = ""
        self._lines: list[bytes] = []

    def add(self, batch: Batch) -> None:
        if batch.first != self._next:
            return
        folds_at_once = batch.owner != RUNTIME or batch.text is not None
        if folds_at_once or batch.run != self._run or len(self._lines) >= _FOLD_AT:
            self._fold(len(self._lines))
            self._run = batch.run
        if folds_at_once:
            self._view.apply(batch)
        else:
            self._lines += batch.lines
        self._next = batch.last + 1

    def up_to(self, seq: int) -> ThreadView:
        """As far as it is known, and not beyond `seq` unless it has been folded further."""
        self._fold(min(len(self._lines), seq - self._view.seq))
        return self._view

    def _fold(self, count: int) -> None:
        if count <= 0:
            return
        lines, self._lines = self._lines[:count], self._lines[count:]
        first = self._view.seq + 1
        self._view.apply(Batch(first=first, owner=RUNTIME, kind="", run=self._run, ts=0, lines=lines))


class Views:
    """The newest views of recent threads of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[Life, ThreadView] = OrderedDict()
        self._growing: dict[Life, _Growing] = {}
        self._locks: dict[Life, anyio.Lock] = {}

    async def at(self, life: Life, seq: int) -> ThreadView:
        """The thread as of `seq`. Do not change it: others may hold the same view."""
        async with self._one_at_a_time(life):
            kept = self._kept.get(life)
            if kept is not None and kept.seq == seq:
                self._kept.move_to_end(life)
                return kept
            base = self._base(life, kept, seq)
            if base is None:
                view = await load_view(self._ledger, life.key, until=seq, epoch=life.epoch)
            else:
                view = base.copy()
                await advance(self._ledger, life.key, view, until=seq, epoch=life.epoch)
            if kept is None or view.seq >= kept.seq:
                self._keep(life, view)
            return view

    def follow(self, life: Life, view: ThreadView) -> None:
        """A run begins on this view. What `grow` brings of it is folded as it comes, so that its snapshot is ready at its end."""
        self._growing[life] = _Growing(view.copy())

    def grow(self, life: Life, batch: Batch) -> None:
        """A reader has this batch in its hands. The first one to bring it counts."""
        growing = self._growing.get(life)
        if growing is not None:
            growing.add(batch)

    def unfollow(self, life: Life) -> None:
        self._growing.pop(life, None)

    def _base(self, life: Life, kept: ThreadView | None, seq: int) -> ThreadView | None:
        """The newest view that is not beyond `seq`."""
        growing = self._growing.get(life)
        known = [kept, growing.up_to(seq) if growing else None]
        return max((view for view in known if view is not None and view.seq <= seq), key=_seq, default=None)

    def is_past(self, life: Life, seq: int) -> bool:
        """Whether the kept view is already beyond `seq`, so that it cannot serve."""
        kept = self._kept.get(life)
        return kept is not None and kept.seq > seq

    def forget(self, key: ThreadKey) -> None:
        for life in [life for life in self._kept if life.key == key]:
            del self._kept[life]

    @asynccontextmanager
    async def _one_at_a_time(self, life: Life) -> AsyncGenerator[None, None]:
        """A hundred readers of one run need its snapshot at the same moment; one of them folds it."""
        lock = self._locks.setdefault(life, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().locked:
                self._locks.pop(life, None)

    def _keep(self, life: Life, view: ThreadView) -> None:
        self._kept[life] = view
        self._kept.move_to_end(life)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


class Replay:
    """One reader's way through the past: the thread as of one snapshot after another, each fold going on from the last."""

    def __init__(self, views: Views, ledger: Ledger, life: Life) -> None:
        self._views = views
        self._ledger = ledger
        self._life = life
        self._own: ThreadView | None = None

    async def at(self, seq: int) -> ThreadView:
        """The thread as of `seq`, shared with other readers where possible. Do not change it."""
        if not self._views.is_past(self._life, seq):
            return await self._views.at(self._life, seq)
        if self._own is None or self._own.seq > seq:
            self._own = await load_view(self._ledger, self._life.key, until=seq, epoch=self._life.epoch)
        else:
            await advance(self._ledger, self._life.key, self._own, until=seq, epoch=self._life.epoch)
        return self._own
