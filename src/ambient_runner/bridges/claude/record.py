"""Where a conversation stands in the CLI's own files: which session, and after which of its entries each user message was answered.

A record is kept with the thread and in a file of the workspace, so that another process, or one without a server, goes on where the last
one ended. `place` compares it with the conversation: what was rewound is cut off, what the CLI never wrote is told again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ambient_runner.protocol.turns import UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.turns import Turn

__all__ = [
    "Answered",
    "Place",
    "Record",
    "answered",
    "file_for",
    "from_json",
    "last_user",
    "load",
    "place",
    "save",
    "to_json",
]

_KEPT = 32
"""How many of the newest answers can be gone back to."""


class Answered(NamedTuple):
    """A user message and the entry of a session that ends its answer; None while there is no end."""

    message: str
    session: str
    entry: str | None


Record = tuple[Answered, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where to go on: after an entry of a session, whatever else is in it, and the turns it does not hold up to there."""

    session: str | None = None
    entry: str | None = None
    untold: Sequence[Turn] = ()


def place(record: Record, history: Sequence[Turn]) -> Place:
    """The newest answer that the conversation still has, and what came after it."""
    users = {turn.id: at for at, turn in enumerate(history) if isinstance(turn, UserTurn)}
    for one in reversed(record):
        if one.entry is not None and one.message in users:
            after = next((at for at in users.values() if at > users[one.message]), len(history))
            return Place(session=one.session, entry=one.entry, untold=history[after:])
    return Place(untold=history)


def last_user(history: Sequence[Turn]) -> str | None:
    return next((turn.id for turn in reversed(history) if isinstance(turn, UserTurn)), None)


def answered(record: Record, message: str, session: str, entry: str | None) -> Record:
    """The record with this answer as its newest."""
    kept = [one for one in record if one.message != message]
    return (*kept, Answered(message, session, entry))[-_KEPT:]


def to_json(record: Record) -> dict[str, Any]:
    return {"claude": [list(one) for one in record]}


def from_json(value: Any) -> Record:
    """What `to_json` gave; anything else is no record."""
    rows: Any = cast("dict[str, Any]", value).get("claude") if isinstance(value, dict) else None
    found: list[Answered] = []
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        match row:
            case [str(message), str(session), str() | None as entry]:
                found.append(Answered(message, session, entry))
            case _:
                pass
    return tuple(found)


def file_for(folder: Path, thread: Sequence[str]) -> Path:
    """The thread's file in a workspace. Its name tells nothing and is the same in every process."""
    name = hashlib.sha256("\0".join(thread).encode()).hexdigest()[:32]
    return folder / ".claude" / f"ambient-{name}.json"


def load(path: Path) -> Record:
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return ()


def save(path: Path, record: Record) -> None:
    """Write the record so that a crash leaves the old one or the new one. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(to_json(record), file)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
