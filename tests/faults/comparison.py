"""Compare what a client received with the ledger: lost, twice, out of order, or with other bytes.

Only frames with an id count: those are the frames of stored entries. Frames that the server makes for one reader have none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.sse import Frame

__all__ = ["Differences", "compare", "epoch_of", "position_of"]


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The cursors at which a client's list and the ledger differ. Truthy if there are any."""

    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    out_of_order: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    """Received with other bytes than the ledger has, or not in the ledger at all."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.twice or self.out_of_order or self.altered)


def compare(received: Sequence[Frame], stored: Sequence[Frame], *, after: str = "") -> Differences:
    """Compare a client's frames with the ledger after a cursor; from the beginning of the thread if it is empty."""
    expected = {frame.id: frame.raw for frame in stored if frame.id and position_of(frame.id) > position_of(after)}
    got = [frame for frame in received if frame.id]
    counts = Counter(frame.id for frame in got)
    return Differences(
        lost=tuple(cursor for cursor in expected if cursor not in counts),
        twice=tuple(cursor for cursor, count in counts.items() if count > 1),
        out_of_order=tuple(b.id for a, b in pairwise(got) if position_of(b.id) < position_of(a.id)),
        altered=tuple(frame.id for frame in got if expected.get(frame.id) != frame.raw),
    )


def epoch_of(cursor: str) -> str:
    """Return the tag of the thread that a cursor belongs to."""
    return cursor.rpartition(".")[0]


def position_of(cursor: str) -> int:
    """Return the number of an entry in its thread; 0 for an empty cursor."""
    return int(cursor.rpartition(".")[2] or 0)
