"""The agent's session of a thread: its id, directory and mode, and the user messages it has received.

It is stored with the thread. `ACPMemory.find_position` compares it with the conversation: a session with turns that were rewound is not
continued, and turns that it never received are sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.session_turns import MAX_RECEIVED, find_missing_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.turns import Turn

__all__ = ["ACPMemory", "SessionPosition"]


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
        return replace(self, received=(*self.received, message_id)[-MAX_RECEIVED:])

    def find_position(self, history: Sequence[Turn]) -> SessionPosition:
        """Return the session if the conversation still has everything it received, with the turns after that; else a new one."""
        missing_turns = find_missing_turns(self.received, history) if self.session else None
        if missing_turns is None:
            return SessionPosition(missing_turns=history)
        return SessionPosition(session=self.session, missing_turns=missing_turns)
