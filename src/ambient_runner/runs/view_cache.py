"""A cache of folded threads (ThreadViews), for new runs and for snapshots.

Folding a thread costs milliseconds, so the newest views of the threads that were used last are cached, up to a number of bytes, and only
advanced. Others are folded from the newest stored checkpoint on (`checkpoints.py`). A cached view belongs to one epoch of the thread. The
ledger is the truth; every view can be folded again from it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ambient_runner.errors import EntriesDropped, UnknownThread
from ambient_runner.ledger.batches import slice_batch
from ambient_runner.ledger.records import RUNTIME, Batch
from ambient_runner.ledger.thread_damage import report_decode_errors, report_thread_damage
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.projections.view_checkpoint import decode_part
from ambient_runner.protocol.events import is_terminal_line
from ambient_runner.runs.keyed_locks import KeyedLocks
from ambient_runner.runs.large_work import LARGE_BYTES, TimeSlice, run_in_thread_if_large

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import Checkpoint, CheckpointUpdate, ThreadInfo, ThreadKey
    from ambient_runner.projections.checkpoint_parts import StoredMessages

_MIN_SLICE_LINES = 16
"""Lines that are folded before the first look at the time. Most take microseconds, a patch of a wide state some milliseconds."""
_MESSAGES_AT_ONCE = 4_096
"""Messages of a checkpoint that are added before a look at the time: 2 milliseconds of work."""
_FOLD_LINES = 512
"""Lines of one run that are collected before they are folded into a view."""
_MAX_ENTRIES_TO_FOLD = 4_000
"""Entries after a view above which the fold begins at the newest checkpoint instead, if that is newer. Runs write one every few thousand
entries, and folding this many takes longer than reading one."""
_MAX_ATTEMPTS = 100
"""Times that a read is tried while retention drops what it reads. Each failure means that another run has ended meanwhile: on a busy
machine, with short runs, half of the attempts meet one."""

DEFAULT_CACHE_BYTES = 128 << 20
"""Bytes of cached views by default."""

T = TypeVar("T")


class ThreadEpoch(NamedTuple):
    """A thread and its epoch: after an erasure, the same key has another epoch."""

    key: ThreadKey
    epoch: str


async def require_thread(ledger: Ledger, key: ThreadKey) -> ThreadInfo:
    """Return the thread's row. Raises: UnknownThread, LedgerError."""
    info = await ledger.get_thread(key)
    if info is None:
        raise UnknownThread
    return info


async def read_despite_retention(ledger: Ledger, key: ThreadKey, read: Callable[[], Awaitable[T]]) -> T:
    """Return what `read` returns. It is called again if retention dropped entries between its reads, so it has to begin with the row.

    Raises: ThreadDamaged if entries are missing that retention has not dropped; whatever `read` raises.
    """
    before: ThreadInfo | None = None
    for _ in range(_MAX_ATTEMPTS - 1):
        with suppress(EntriesDropped):
            return await read()
        info = await ledger.get_thread(key)
        if info and before and (info.epoch, info.first) == (before.epoch, before.first):
            raise report_thread_damage(key, "entries are missing that retention has not dropped", agent=info.agent)
        before = info
    return await read()


async def load_view(
    ledger: Ledger, key: ThreadKey, *, until: int | None = None, epoch: str = "", base: ThreadView | None = None
) -> ThreadView:
    """Return the thread folded up to `until`, or to its end. An unknown thread is an empty view.

    `base` is a view of it that nobody else has yet: it is folded further unless a stored checkpoint is newer.

    Raises: EntriesDropped if the entries are no longer retained; UnknownThread if the thread with that epoch was erased; LedgerError.
    """
    checkpoint = await ledger.get_checkpoint(key, until, epoch=epoch)
    while True:
        if base is not None and (checkpoint is None or checkpoint.seq <= base.seq):
            view, base = base, None
        elif checkpoint is None:
            view = ThreadView()
        else:
            with report_decode_errors(key, f"the checkpoint at entry {checkpoint.seq}"):
                view = await _restore_checkpoint(checkpoint)
        try:
            await advance_view(ledger, key, view, until=until, epoch=epoch)
        except EntriesDropped:
            # Between the two reads a newer checkpoint may have replaced the entries. If there is none, `until` is no longer retained.
            newer = await ledger.get_checkpoint(key, until, epoch=epoch)
            if newer is None or (checkpoint is not None and newer.seq <= checkpoint.seq):
                raise
            checkpoint = newer
        else:
            return view


async def _restore_checkpoint(checkpoint: Checkpoint) -> ThreadView:
    """Return the view of a checkpoint. Other tasks may run meanwhile when that takes long. Raises: LedgerError."""
    view = await run_in_thread_if_large(
        len(checkpoint.body), ThreadView.from_checkpoint, checkpoint.seq, checkpoint.body
    )
    parts: list[StoredMessages] = []
    time_slice = TimeSlice()
    for part in checkpoint.parts:
        await time_slice.yield_if_spent()
        stored = decode_part(part)
        for at in range(0, len(stored.messages), _MESSAGES_AT_ONCE):
            await time_slice.yield_if_spent()
            view.transcript.add_messages(stored.messages[at : at + _MESSAGES_AT_ONCE])
        parts.append(stored)
    if view.checkpoint is not None:
        view.checkpoint = view.checkpoint._replace(parts=tuple(parts))
    return view


async def advance_view(
    ledger: Ledger, key: ThreadKey, view: ThreadView, *, until: int | None = None, epoch: str = ""
) -> None:
    """Fold the entries after the view, a mebibyte at a time. Raises: as `load_view`."""
    while until is None or view.seq < until:
        batches = await ledger.read_batches(key, view.seq, until=until, epoch=epoch)
        if (batches and batches[0].first != view.seq + 1) or (not batches and until is not None):
            raise EntriesDropped
        if not batches:
            return
        with report_decode_errors(key, f"an entry after {view.seq}"):
            await _fold_batches(view, batches)


async def _fold_batches(view: ThreadView, batches: Iterable[Batch]) -> None:
    """Fold batches into a view that nobody else has yet. Other tasks may run meanwhile when that takes long."""
    time_slice = TimeSlice()
    for batch in batches:
        await fold_batch(view, batch, time_slice)


async def fold_batch(view: ThreadView, batch: Batch, time_slice: TimeSlice) -> None:
    """Fold one batch into a view that nobody else has yet. Other tasks may run meanwhile when the time slice is spent."""
    if batch.text is None and not batch.events and (len(batch.lines) > _MIN_SLICE_LINES or batch.size > LARGE_BYTES):
        await _fold_in_parts(view, batch, time_slice)
    else:
        view.apply(batch)
        await time_slice.yield_if_spent()


async def _fold_in_parts(view: ThreadView, batch: Batch, time_slice: TimeSlice) -> None:
    at, line_count = 0, _MIN_SLICE_LINES
    while at < len(batch.lines):
        piece = slice_batch(batch, batch.first + at, batch.first + at + line_count - 1)
        await run_in_thread_if_large(_longest_line(piece), view.apply, piece)
        at += line_count
        line_count = _MIN_SLICE_LINES if await time_slice.yield_if_spent() else line_count * 2


def _longest_line(batch: Batch) -> int:
    """Return the size of the longest line of a batch; 0 if all are short."""
    return max(map(len, batch.lines)) if batch.size > LARGE_BYTES and batch.text is None else 0


async def _fold_to(ledger: Ledger, thread: ThreadEpoch, view: ThreadView | None, seq: int) -> ThreadView:
    """Return the thread as of `seq`: the view, folded further, or the newest checkpoint if there is no view or it is far behind.

    Raises: as `load_view`.
    """
    if view is not None and seq - view.seq <= _MAX_ENTRIES_TO_FOLD:
        # Retention, also that of another process, may have dropped the entries between; then the checkpoint has them.
        with suppress(EntriesDropped):
            await advance_view(ledger, thread.key, view, until=seq, epoch=thread.epoch)
            return view
    return await load_view(ledger, thread.key, until=seq, epoch=thread.epoch, base=view)


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
        if (
            batch.text is not None
            and batch.run == self._run
            and len(batch.lines) < _MIN_SLICE_LINES
            and 0 < len(self._lines) < _FOLD_LINES
        ):  # One more short text of the run: what follows would do the same, with more checks.
            self._lines += batch.lines
            self._next = batch.last + 1
            return
        if _longest_line(batch) > LARGE_BYTES:
            self._next = 0  # Folded in a thread by those who need it, from the ledger.
            batch.events = ()
            return
        is_text = batch.text is not None
        is_decoded = is_text or bool(batch.events)
        fold_now = batch.owner != RUNTIME or (is_decoded and len(batch.lines) >= _MIN_SLICE_LINES)
        ends_run = not is_text and not fold_now and is_terminal_line(batch.lines[-1])
        if fold_now or ends_run or batch.run != self._run or len(self._lines) >= _FOLD_LINES:
            self._fold_lines(len(self._lines))
            self._run = batch.run
        if not self._lines:
            self._ts = batch.ts
        if fold_now:
            self._view.apply(batch)
        else:
            self._lines += batch.lines
        batch.events = ()  # Nobody else folds them, and the batch may be retained for readers.
        self._next = batch.last + 1

    def fold_up_to(self, seq: int) -> ThreadView:
        """Return the view folded as far as lines are known, not beyond `seq` unless it was already folded further."""
        self._fold_lines(min(len(self._lines), seq - self._view.seq))
        return self._view

    def fold_all(self) -> ThreadView:
        """Return the view folded as far as lines are known."""
        self._fold_lines(len(self._lines))
        return self._view

    def adopt_checkpoint(self, view: ThreadView) -> None:
        """Count the checkpoint of this view as stored."""
        self._view.checkpoint, self._view.folded_bytes = view.checkpoint, 0

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

    def __init__(self, ledger: Ledger, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """`max_bytes` bounds what the cached views take, as they estimate it. The thread that was used last stays in any case."""
        self._ledger = ledger
        self._cached = _BoundedViews(max_bytes)
        self._before_run = _BoundedViews(max_bytes // 8)
        """Views before the active runs of other processes, for clients that connect during such a run."""
        self._live: dict[ThreadEpoch, _LiveView] = {}
        self._locks = KeyedLocks[ThreadEpoch]()
        """Many readers of one run need its snapshot at the same moment, and one of them folds it."""

    async def view_at(self, thread: ThreadEpoch, seq: int) -> ThreadView:
        """Return the thread as of `seq`. Do not change it: others may hold the same view."""
        async with self._locks.lock(thread):
            cached = self._cached.get(thread)
            if cached is not None and cached.seq == seq:
                return cached
            base = self._base_view(thread, cached, seq)
            view = await _fold_to(self._ledger, thread, base.copy() if base else None, seq)
            if cached is None or view.seq >= cached.seq:
                self._cached.put(thread, view)
            return view

    async def view_from(self, thread: ThreadEpoch, seq: int) -> ThreadView:
        """Return the thread as of `seq`, or as of a later entry if that is cached. Do not change it."""
        cached = self._cached.get(thread)
        return cached if cached is not None and cached.seq >= seq else await self.view_at(thread, seq)

    async def view_before_run(self, thread: ThreadEpoch, seq: int) -> ThreadView:
        """Return the thread as of `seq`, the entry before the active run, of any process. Do not change it.

        The newest view may be beyond that entry, so this one is kept beside it: the thread is not folded again for every client.
        """
        async with self._locks.lock(thread):
            live = self._live.get(thread)
            known = (self._before_run.get(thread), self._cached.get(thread), live.before_run if live else None)
            base = max((view for view in known if view is not None and view.seq <= seq), key=_view_seq, default=None)
            if base is None or base.seq < seq:
                base = await _fold_to(self._ledger, thread, base.copy() if base else None, seq)
            if live is None:
                self._before_run.put(thread, base)
            return base

    async def make_checkpoint(self, thread: ThreadEpoch, seq: int) -> CheckpointUpdate:
        """For the Runner, which holds the lease: return the checkpoint as of `seq`. The views from now on count it as stored."""
        view = await self.view_at(thread, seq)
        # A view that starts from no checkpoint keeps no stored part, whichever there are.
        stored = await self._ledger.list_checkpoint_parts(thread.key) if view.checkpoint else ()
        update = view.update_checkpoint(stored)
        if live := self._live.get(thread):
            live.adopt_checkpoint(view)
        return update

    def track(self, thread: ThreadEpoch, view: ThreadView) -> None:
        """For the Runner: track the view of a thread whose run begins on it, until `untrack`."""
        self._live[thread] = _LiveView(view)

    def extend(self, thread: ThreadEpoch, batch: Batch) -> None:
        """For `ReaderViews`: extend the tracked view by a batch. A batch that is already part of it, or leaves a gap, is ignored."""
        live = self._live.get(thread)
        if live is not None:
            live.add_batch(batch)

    def untrack(self, thread: ThreadEpoch) -> None:
        """For the Runner: the run has ended. Cache what readers contributed, so that the next run need not read the ledger."""
        live = self._live.pop(thread, None)
        cached = self._cached.peek(thread)
        if live is not None and cached is not None:
            view = live.fold_all()
            if view.seq > cached.seq:
                self._cached.put(thread, view)

    def _base_view(self, thread: ThreadEpoch, cached: ThreadView | None, seq: int) -> ThreadView | None:
        """Return the newest view that is not beyond `seq`."""
        live = self._live.get(thread)
        known = [cached, live.fold_up_to(seq) if live else None]
        return max((view for view in known if view is not None and view.seq <= seq), key=_view_seq, default=None)

    def is_past(self, thread: ThreadEpoch, seq: int) -> bool:
        """Return True if the cached view is already beyond `seq`, so that it cannot be used."""
        cached = self._cached.peek(thread)
        return cached is not None and cached.seq > seq

    def evict_thread(self, key: ThreadKey) -> None:
        for views in (self._cached, self._before_run):
            views.evict_thread(key)


class _BoundedViews:
    """Views of threads within a number of bytes. Those that were used longest ago go first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._views: OrderedDict[ThreadEpoch, tuple[ThreadView, int]] = OrderedDict()
        """Each with its estimated bytes when it was put."""
        self._bytes = 0

    def get(self, thread: ThreadEpoch) -> ThreadView | None:
        """Return the view of a thread, which counts as a use."""
        if thread not in self._views:
            return None
        self._views.move_to_end(thread)
        return self._views[thread][0]

    def peek(self, thread: ThreadEpoch) -> ThreadView | None:
        found = self._views.get(thread)
        return found[0] if found else None

    def put(self, thread: ThreadEpoch, view: ThreadView) -> None:
        self._drop(thread)
        size = view.estimated_bytes
        self._views[thread] = (view, size)
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._views) > 1:
            self._drop(next(iter(self._views)))

    def evict_thread(self, key: ThreadKey) -> None:
        for thread in [thread for thread in self._views if thread.key == key]:
            self._drop(thread)

    def _drop(self, thread: ThreadEpoch) -> None:
        self._bytes -= self._views.pop(thread, (None, 0))[1]


class ReaderViews:
    """One reader's access to the ViewCache: it reads views, and contributes the batches it has received.

    A reader that replays a thread asks for one snapshot after another; each is folded from the previous one.
    """

    def __init__(self, cache: ViewCache, ledger: Ledger, thread: ThreadEpoch, known: ThreadView | None = None) -> None:
        """`known` is the view that the reader begins with. It is not changed."""
        self._cache = cache
        self._ledger = ledger
        self._thread = thread
        self._own: ThreadView | None = None
        self._known = known

    def contribute(self, batch: Batch) -> None:
        """Extend the Runner's view of the active run by a batch that this reader received."""
        self._cache.extend(self._thread, batch)

    def release(self) -> None:
        """Forget the views that this reader has read. One that waits for new entries finds the next view in the cache."""
        self._own = self._known = None

    async def view_at(self, seq: int, batches: Sequence[Batch] = ()) -> ThreadView:
        """Return the thread as of `seq`, shared with other readers where possible. Do not change it, and use it before the next call.

        `batches` are those that the reader has just received: they need not be read again, and retention may have dropped them meanwhile.
        Raises: EntriesDropped, UnknownThread, LedgerError.
        """
        if self._cache.is_past(self._thread, seq):
            self._known = await self._read_own_view(seq, batches)
            return self._known
        try:
            self._known = await self._cache.view_at(self._thread, seq)
        except EntriesDropped:
            self._known = await self._fold_received(seq, batches)
            if self._known is None:
                raise
        return self._known

    async def _read_own_view(self, seq: int, batches: Sequence[Batch]) -> ThreadView:
        """Return the thread as of an entry that the cached view is beyond."""
        self._own = await self._fold_received(seq, batches) or await self._read_stored_view(seq)
        return self._own

    async def _read_stored_view(self, seq: int) -> ThreadView:
        base = self._own if self._own is not None and self._own.seq <= seq else None
        return await _fold_to(self._ledger, self._thread, base, seq)

    async def _fold_received(self, seq: int, batches: Sequence[Batch]) -> ThreadView | None:
        """Return the newest view that this reader knows, advanced by what it has received; None if they do not meet."""
        known = self._known
        if (
            known is None
            or known.seq > seq
            or not batches
            or batches[0].first > known.seq + 1
            or batches[-1].last < seq
        ):
            return None
        view = known if known is self._own else known.copy()
        if view.seq < seq:
            new = (batch for batch in batches if batch.last > view.seq and batch.first <= seq)
            await _fold_batches(view, (slice_batch(batch, view.seq + 1, seq) for batch in new))
        return view
