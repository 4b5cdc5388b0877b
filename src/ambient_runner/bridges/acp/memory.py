"""The agent's session of a thread: its id, directory and mode, and the user messages it has received.

It is stored with the thread. `ACPMemory.find_position` compares it with the conversation: a session with turns that were rewound is not
continued, and turns that it never received are sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.turns import UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.turns import Turn

__all__ = ["ACPMemory", "SessionPosition", "user_ids"]

_MAX_RECEIVED = 64
"""Number of the newest received messages that are compared with the conversation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPosition:
    """Position to continue from: a session of the agent, empty for a new one. `missing_turns` are those it does not have."""

    session: str = ""
    missing_turns: Sequence[Turn] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ACPMemory:
    """Memory of one thread."""

    session: str = ""
    cwd: str = ""
    """The directory that the thread is bound to."""
    received: tuple[str, ...] = ()
    """Ids of the newest user messages that the session has, in order."""

    @classmethod
    def from_stored(cls, value: Any) -> ACPMemory:
        """Return the memory that `to_stored` serialized; an empty one for anything else."""
        stored = as_object(as_object(value).get("acp"))
        match stored:
            case {"session": str(session), "cwd": str(cwd), "received": list()}:
                received = cast("list[Any]", stored["received"])
                return cls(session=session, cwd=cwd, received=tuple(item for item in received if isinstance(item, str)))
            case _:
                return cls()

    def to_stored(self) -> dict[str, Any]:
        return {"acp": {"session": self.session, "cwd": self.cwd, "received": list(self.received)}}

    def add_received(self, message_id: str | None) -> ACPMemory:
        """Return the memory with one more received message."""
        if message_id is None or (self.received and self.received[-1] == message_id):
            return self
        return replace(self, received=(*self.received, message_id)[-_MAX_RECEIVED:])

    def find_position(self, history: Sequence[Turn]) -> SessionPosition:
        """Return the session if the conversation still has everything it received, with the turns after that; else a new one."""
        users = user_ids(history)
        last = self.received[-1] if self.received else None
        if not self.session or last is None or last not in users:
            return SessionPosition(missing_turns=history)
        known = users[: users.index(last) + 1]
        if known[-len(self.received) :] != list(self.received)[-len(known) :]:
            return SessionPosition(missing_turns=history)
        return SessionPosition(session=self.session, missing_turns=_turns_after(history, users, len(known)))


def user_ids(history: Sequence[Turn]) -> list[str]:
    """Return the ids of the user messages."""
    return [turn.id for turn in history if isinstance(turn, UserTurn)]


def _turns_after(history: Sequence[Turn], users: Sequence[str], count: int) -> Sequence[Turn]:
    """Return the turns from the user message number `count` on."""
    if count >= len(users):
        return ()
    first = next(index for index, turn in enumerate(history) if isinstance(turn, UserTurn) and turn.id == users[count])
    return history[first:]
