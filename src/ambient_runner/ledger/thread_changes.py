"""The order in which threads change, and the cursors of lists that refer to it, for all stores. Pure.

A store numbers every change of a thread, erasures included, with a position that only grows. It is taken from the clock, in microseconds,
and is one more than the last if the clock has not moved on: so it does not count the changes of other owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.errors import InvalidCursor, StaleCursor
from ambient_runner.ledger.records import ChangedThreads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import ThreadInfo

__all__ = ["POSITIONS_PER_MS", "ChangeOrder", "collect_changes"]

POSITIONS_PER_MS = 1000
"""Positions per millisecond of the clock."""
_HOUR = 3_600_000 * POSITIONS_PER_MS
_MAX_DIGITS = 18
"""Digits of a position; more would not fit into 64 bits."""
_NOT_OURS = "The cursor is not one of this list. Send back a `cursor` or `next` of its answers, or leave it out to list from the newest."
_TOO_OLD = "Threads were deleted since that cursor, and this server no longer knows which. List the threads again."


class ChangeOrder(NamedTuple):
    """The order of all changes in one store, and the cursors that refer to it."""

    store: str
    """Random tag of the store: cursors of another one are refused."""
    newest: int
    """Position of the last change."""
    dropped: int
    """Erasures up to this position may be no longer known."""

    def to_cursor(self, position: int) -> str:
        return f"{self.store}.{position}"

    def parse_cursor(self, cursor: str) -> int:
        """Return the position of a cursor. Raises: InvalidCursor."""
        store, _, digits = cursor.partition(".")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
        if store != self.store or not is_number or int(digits) > self.newest:
            raise InvalidCursor(_NOT_OURS)
        return int(digits)

    def parse_change_cursor(self, cursor: str) -> int:
        """Return the position of a cursor from which changes are read. Raises: InvalidCursor, StaleCursor."""
        position = self.parse_cursor(cursor)
        if position < self.dropped:
            raise StaleCursor(_TOO_OLD)
        return position

    def caught_up(self, position: int) -> int:
        """Return the position of an owner who knows all changes, the last of them at `position`.

        It moves on with the store, so that it does not become older than the known erasures; by whole hours, because the moment of
        another owner's last change is not for everyone.
        """
        return max(position, self.dropped, self.newest - self.newest % _HOUR)


def collect_changes(
    order: ChangeOrder,
    after: int,
    threads: Sequence[tuple[int, ThreadInfo]],
    erased: Sequence[tuple[int, str]],
    limit: int,
) -> ChangedThreads:
    """Return the first `limit` changes after a position. Both lists are sorted by position and hold up to `limit + 1` items."""
    positions = sorted(position for position, _ in (*threads, *erased))
    last = positions[limit - 1] if len(positions) > limit else order.caught_up(positions[-1] if positions else after)
    changed = [info for position, info in threads if position <= last]
    known = {info.key.id for info in changed}
    gone = dict.fromkeys(name for position, name in erased if position <= last and name not in known)
    return ChangedThreads(threads=changed, erased=list(gone), cursor=order.to_cursor(last))
