"""Applies the outcome of a commit to the readers and writers of this process. Loop-side only, shared by all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.errors import LeaseLost
from ambient_runner.ledger.release_notifier import ReleaseNotifier

if TYPE_CHECKING:
    import asyncio

    from ambient_runner.errors import LedgerError
    from ambient_runner.ledger.buffered_writer import BufferedWriter
    from ambient_runner.ledger.commit_jobs import CommitOutcome, ExternalChanges, PublishedBatch
    from ambient_runner.ledger.fanout import ChannelRegistry
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["OutcomeSettler"]


class OutcomeSettler:
    """The readers and writers of this process. It passes to each of them what was committed or refused, and what others have changed."""

    def __init__(self, channels: ChannelRegistry) -> None:
        self.channels = channels
        self.release_notifier = ReleaseNotifier()
        self.writers: dict[int, BufferedWriter] = {}
        """The writers of this process, by their tokens."""

    def prepare_batches(self, published: list[PublishedBatch]) -> None:
        for key, epoch, batch in published:
            if batch is not None:
                self.channels.prepare(key, epoch, batch)

    def settle(self, outcome: CommitOutcome) -> None:
        """Publish first, then resolve futures, so that a caller who awaited a commit finds it published."""
        if outcome.unusable is not None:
            self._end_all(outcome.unusable)
        if outcome.changes is not None:
            self._apply_changes(outcome.changes)
        for key, epoch, batch in outcome.published:
            if batch is None:
                self._end_epoch(key, epoch)
            else:
                self.channels.publish(key, epoch, batch)
        for append, newest in outcome.committed:
            if append.end_status is not None:
                self.writers.pop(append.writer.token, None)  # Its lease is released: it can no longer lose it.
            append.writer.mark_committed(append.entry_count, append.size, newest)
        for append, error in outcome.refused:
            append.writer.mark_failed(error)
            if not isinstance(error, LeaseLost):  # Nothing more will come of its run, until a recovery can be written.
                self.channels.fail_thread(append.writer.thread, append.writer.epoch, error)
        for job, result, error in outcome.answers:
            _resolve_job(job.future, result, error)

    def _end_all(self, error: LedgerError) -> None:
        """End all readers and writers: the store can no longer be used."""
        self.channels.fail_readers(error)
        for writer in self.writers.values():
            writer.mark_failed(error)
        self.release_notifier.notify_all()

    def _end_epoch(self, key: ThreadKey, epoch: str) -> None:
        """End readers and writers of a thread that was erased."""
        self.channels.end_readers(key, epoch)
        for writer in self.writers.values():
            if writer.thread == key and writer.epoch == epoch:
                writer.mark_failed(LeaseLost())

    def _apply_changes(self, changes: ExternalChanges) -> None:
        for key, epoch in changes.erased:
            self._end_epoch(key, epoch)
        for key, epoch, last in changes.grown:
            self.channels.update_last(key, epoch, last)
        for token, reason in changes.stops:
            if writer := self.writers.get(token):
                writer.signal_stop(reason)
        for token in self.writers.keys() - changes.held_leases:
            self.writers[token].mark_failed(LeaseLost())
        self.release_notifier.notify_all()


def _resolve_job(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
