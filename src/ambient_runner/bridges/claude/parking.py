"""How many processes of a bridge may wait for people. Each holds its memory meanwhile, so their number is limited."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.bridges.claude.session import Session

__all__ = ["ParkingLot"]


class ParkingLot:
    """The processes that wait, and how many questions each has open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parked: dict[Session, int] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def enter(self, session: Session) -> bool:
        """Whether there is room for a question of this process."""
        if session not in self._parked and len(self._parked) >= self._limit:
            return False
        self._parked[session] = self._parked.get(session, 0) + 1
        return True

    def leave(self, session: Session) -> None:
        self._parked[session] -= 1
        if not self._parked[session]:
            del self._parked[session]
