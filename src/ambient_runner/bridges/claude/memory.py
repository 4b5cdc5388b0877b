"""Where a conversation stands in the CLI's own files: which session, and after which of its entries each user message was answered.

A record is kept with the thread and in a file of the workspace, so that another process, or one without a server, goes on where the last
one ended. `place` compares it with the conversation: what was rewound is cut off, what the CLI never wrote is told again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ambient_runner.bridges.toolkit.turns import UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.turns import Turn

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
_MOST_BYTES = 1 << 18
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""How the CLI names sessions and entries. Anything else could be an option of its command line, or fit other people's files."""


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
            case [str(message), str(session), None] if not session or _is_id(session):
                found.append(Answered(message, session, None))
            case [str(message), str(session), str(entry)] if _is_id(session) and _is_id(entry):
                found.append(Answered(message, session, entry))
            case _:
                pass
    return tuple(found)


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def file_for(folder: Path, thread: Sequence[str]) -> Path:
    """The thread's file in a workspace. Its name tells nothing and is the same in every process."""
    name = hashlib.sha256("\0".join(thread).encode()).hexdigest()[:32]
    return folder / ".claude" / f"ambient-{name}.json"


def load(path: Path) -> Record:
    """What `save` wrote. Whoever may write in the workspace may have put something else there: that is no record."""
    try:
        return from_json(json.loads(_read(path)))
    except (OSError, ValueError, RecursionError):
        return ()


def _read(path: Path) -> bytes:
    """A plain file of a reasonable size. Raises: OSError, ValueError. A pipe would be waited for, and never end."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise ValueError("this is no file that we wrote")
        return os.read(handle, _MOST_BYTES)
    finally:
        os.close(handle)


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
