"""The agent's session of a thread: its id, directory and mode, and the user messages it has received.

It is stored with the thread. `ACPMemory.find_position` compares it with the conversation: a session with turns that were rewound is not
continued, and turns that it never received are sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.session_turns import MAX_RECEIVED, find_missing_turns
from ambient_runner.bridges.toolkit.turns import UserTurn

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
    refused: tuple[str, ...] = ()
    """Ids of the newest user messages that the agent has refused. It has forgotten them, and does not get them again."""

    @classmethod
    def from_stored(cls, value: Any) -> ACPMemory:
        """Return the memory that `to_stored` serialized; an empty one for anything else."""
        stored = as_object(as_object(value).get("acp"))
        match stored:
            case {"session": str(session), "cwd": str(cwd), "received": list()}:
                received, refused = _texts_in(stored["received"]), _texts_in(stored.get("refused"))
                return cls(session=session, cwd=cwd, received=received, refused=refused)
            case _:
                return cls()

    def to_stored(self) -> dict[str, Any]:
        refused = {"refused": list(self.refused)} if self.refused else {}
        return {"acp": {"session": self.session, "cwd": self.cwd, "received": list(self.received), **refused}}

    def add_received(self, message_id: str | None) -> ACPMemory:
        """Return the memory with one more received message."""
        if message_id is None or (self.received and self.received[-1] == message_id):
            return self
        return replace(self, received=(*self.received, message_id)[-MAX_RECEIVED:])

    def add_refused(self, message_ids: Collection[str], *, is_all_forgotten: bool) -> ACPMemory:
        """Return the memory after a refusal of the turn with these messages. If the session has forgotten everything, it is given up."""
        refused = [message_id for message_id in self.received if message_id in message_ids]
        session = "" if is_all_forgotten else self.session
        return replace(self, session=session, refused=(*self.refused, *refused)[-MAX_RECEIVED:])

    def without_refused(self, turns: Sequence[Turn]) -> list[Turn]:
        """Return the turns without refused user messages and the answers to them."""
        kept: list[Turn] = []
        is_refused = False
        for turn in turns:
            is_refused = turn.id in self.refused if isinstance(turn, UserTurn) else is_refused
            if not is_refused:
                kept.append(turn)
        return kept

    def find_position(self, history: Sequence[Turn]) -> SessionPosition:
        """Return the session if the conversation still has everything it received, with the turns after that; else a new one."""
        missing_turns = find_missing_turns(self.received, history) if self.session else None
        if missing_turns is None:
            return SessionPosition(missing_turns=history)
        return SessionPosition(session=self.session, missing_turns=missing_turns)


def _texts_in(value: Any) -> tuple[str, ...]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))
