"""The agent's session of a thread: its id, the directory it belongs to, and the user messages it has received.

It is stored with the thread. A session with turns that were rewound is not continued, and turns that it never received are sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.session_turns import find_missing_turns, received_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.turns import NewInput, Turn

__all__ = ["LinesMemory"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesMemory:
    """Memory of one thread."""

    session: str = ""
    cwd: str = ""
    """The directory that the session works in."""
    received: tuple[str, ...] = ()
    """Ids of the newest user messages that the session has, in order."""
    has_failed: bool = False
    """True if the last turn of the session failed. One that fails twice is given up."""

    @classmethod
    def from_stored(cls, value: Any) -> LinesMemory:
        """Return the memory that `to_stored` serialized; an empty one for anything else."""
        stored = as_object(as_object(value).get("lines"))
        match stored:
            case {"session": str(session), "cwd": str(cwd), "received": list()}:
                received = tuple(item for item in cast("list[Any]", stored["received"]) if isinstance(item, str))
                has_failed = stored.get("hasFailed") is True
                return cls(session=session, cwd=cwd, received=received, has_failed=has_failed)
            case _:
                return cls()

    def to_stored(self) -> dict[str, Any]:
        session = {"session": self.session, "cwd": self.cwd, "received": list(self.received)}
        return {"lines": {**session, "hasFailed": self.has_failed}}

    def find_missing_turns(self, history: Sequence[Turn], cwd: str) -> Sequence[Turn] | None:
        """Return the turns that the session does not have; None if there is no session that can be continued here."""
        if not self.session or self.cwd != cwd:
            return None
        return find_missing_turns(self.received, history)

    @classmethod
    def after_turn(cls, session: str, cwd: str, new_input: NewInput) -> LinesMemory:
        """Return the memory after a turn that ended normally: its session has the whole conversation. Empty without a session."""
        newest = [new_input.user] if new_input.user is not None else []
        received = received_ids([*new_input.history, *newest])
        return cls(session=session, cwd=cwd, received=received) if session else cls()

    def after_failure(self) -> LinesMemory:
        """Return the memory after a turn that failed: the next one continues the session once more, and brings this one."""
        return LinesMemory() if self.has_failed else replace(self, has_failed=True)
