"""The entries of a thread that clients have seen, and the comparison of each client's list with all of them.

Retention drops entries while the soak runs, so the ledger at the end is not enough: the reference is everything that any client received.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.faults.comparison import epoch_of, position_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.sse import Frame

__all__ = ["Receipt", "ThreadRecord"]

_NUMBER = re.compile(rb'"delta":"(\d+) "')
_STARTED = b'{"type":"RUN_STARTED"'
_ENDED = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
_GAP = b'"ambient:gap"'


@dataclass
class Receipt:
    """The entries of a thread that one client received, over all its connections."""

    is_follower: bool = False
    """True if it reads from the beginning of the thread to its end, and not one run only."""
    seqs: array[int] = field(default_factory=lambda: array("Q"))
    cursor: str = ""
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Announced gaps: the entries after the first number, up to the second."""
    resumes: list[str] = field(default_factory=list[str])
    """The cursors, and servers, of its connections."""
    twice: int = 0
    out_of_order: int = 0
    has_finished: bool = False
    """True once a follower has read to the end of the thread."""

    def add(self, frame: Frame) -> None:
        if not frame.id:
            if _GAP in frame.data:
                gap = frame.event["value"]
                self.gaps.append((gap["after"], gap["before"]))
            return
        seq = position_of(frame.id)
        if self.seqs and seq <= self.seqs[-1]:
            is_known = self.seqs[bisect_left(self.seqs, seq)] == seq
            self.twice += is_known
            self.out_of_order += not is_known
            return
        self.seqs.append(seq)
        self.cursor = frame.id

    def has_gap(self, seq: int) -> bool:
        return any(after < seq <= before for after, before in self.gaps)


@dataclass
class ThreadRecord:
    """A thread of the soak, all that clients received of it, and the number of messages that were sent to it."""

    id: str
    epoch: str = ""
    """The thread's tag in its cursors. A request that is answered after the deletion begins another thread of the same id."""
    sent: int = 0
    is_erased: bool = False
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    entries: dict[int, int] = field(default_factory=dict[int, int])
    """A hash of the bytes of each entry, by its number."""
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    starts: set[int] = field(default_factory=set[int])
    ends: set[int] = field(default_factory=set[int])
    altered: int = 0

    def add(self, receipt: Receipt, frame: Frame) -> None:
        """Record a frame. An entry must have the same bytes for everyone."""
        if frame.id:
            self.epoch = self.epoch or epoch_of(frame.id)
            if self.is_erased and epoch_of(frame.id) != self.epoch:
                return
        receipt.add(frame)
        if not frame.id:
            return
        seq, digest = position_of(frame.id), hash(frame.raw)
        if self.entries.setdefault(seq, digest) != digest:
            self.altered += 1
        if frame.data.startswith(_STARTED):
            self.starts.add(seq)
        elif frame.data.startswith(_ENDED):
            self.ends.add(seq)
        elif found := _NUMBER.search(frame.data):
            self.numbers[seq] = int(found[1])

    def count_faults(self) -> Counter[str]:
        """Return what is wrong with the thread, by kind. Empty if nothing is."""
        wrong = Counter(altered=self.altered)
        for receipt in self.receipts:
            wrong["twice"] += receipt.twice
            wrong["out of order"] += receipt.out_of_order
            wrong["lost"] += sum(1 for _ in self._lost(receipt))
        wrong.update(self._count_run_faults())
        return +wrong

    def describe_losses(self) -> list[str]:
        """Return a line for each client that lost entries: which ones, and what it received around them."""
        found: list[str] = []
        for receipt in self.receipts:
            if lost := sorted(self._lost(receipt)):
                kind = "follower" if receipt.is_follower else "reader of one run"
                span = (receipt.seqs[0], receipt.seqs[-1]) if receipt.seqs else ()
                kinds = [self._kind_of(seq) for seq in lost[:5]]
                found.append(
                    f"{kind} lost {lost[:5]} {kinds} of {span}, gaps {receipt.gaps}, resumed after {receipt.resumes}"
                )
        return found

    def _kind_of(self, seq: int) -> str:
        if seq in self.starts:
            return "start"
        return "end" if seq in self.ends else str(self.numbers.get(seq, "other"))

    def _lost(self, receipt: Receipt) -> Iterator[int]:
        """Yield the entries that others received and this client should have received."""
        first = 0 if receipt.is_follower else receipt.seqs[0] if receipt.seqs else 1 << 63
        last = max(self.entries, default=0) if receipt.has_finished else (receipt.seqs[-1] if receipt.seqs else 0)
        received = set(receipt.seqs)
        for seq in self.entries:
            if first <= seq <= last and seq not in received and not receipt.has_gap(seq):
                yield seq

    def _count_run_faults(self) -> Counter[str]:
        """Check that every run has one start and one terminal event, that its numbers are complete, and that no message ran twice."""
        wrong = Counter[str]()
        is_open, number, is_unknown, has_unseen = False, 0, False, False
        for before, seq in pairwise((0, *sorted(self.entries))):
            if seq > before + 1 and self._is_unseen(before, seq):
                is_unknown = has_unseen = True
            if seq in self.starts:
                wrong["without a terminal event"] += is_open and not is_unknown
                is_open, number, is_unknown = True, 0, False
            elif seq in self.ends:
                wrong["second terminal event"] += not is_open and not is_unknown
                is_open, is_unknown = False, False
            elif seq in self.numbers and not is_unknown:
                wrong["lost"] += self.numbers[seq] - number - 1
                number = self.numbers[seq]
        wrong["without a terminal event"] += is_open and not is_unknown and not self.is_erased
        if not has_unseen and not self.is_erased:
            wrong["runs twice"] += max(0, len(self.starts) - self.sent)
            wrong["runs missing"] += max(0, self.sent - len(self.starts))
        return wrong

    def _is_unseen(self, before: int, seq: int) -> bool:
        """Return True if an announced gap covers what lies between two entries."""
        return any(after < seq - 1 and up_to > before for receipt in self.receipts for after, up_to in receipt.gaps)
