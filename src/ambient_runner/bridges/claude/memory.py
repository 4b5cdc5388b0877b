"""The position of a conversation in the CLI's files: the session, and the entry that ends the answer to each user message.

It is stored with the thread and in a file of the workspace, so that another process, also without a server, continues where the last one
ended. `ClaudeMemory.find_position` compares it with the conversation: rewound turns are cut off, turns the CLI never wrote are sent again.
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

import anyio

from ambient_runner.bridges.toolkit.held_elsewhere import holder_record
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.turns import UserTurn
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.bridges.toolkit.turns import Turn
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Event

__all__ = [
    "AnsweredMessage",
    "ClaudeMemory",
    "ClaudeMemoryStore",
    "SessionPosition",
    "last_user_id",
    "memory_path",
    "read_memory_file",
    "write_memory_file",
]

_MAX_ANSWERS = 32
"""Number of the newest answers that a rewind can go back to."""
_MAX_FILE_BYTES = 1 << 18
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Format of the CLI's ids of sessions and entries. Anything else could be an option of its command line, or match other files."""


class AnsweredMessage(NamedTuple):
    """A user message and the entry of a session that ends its answer; `entry` is None while the answer has no end."""

    message: str
    session: str
    entry: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPosition:
    """Position to continue from: after an entry of a session. `missing_turns` are those the session does not have up to there."""

    session: str | None = None
    entry: str | None = None
    missing_turns: Sequence[Turn] = ()


@dataclass(frozen=True, slots=True)
class ClaudeMemory:
    """Memory of one thread: the user messages that were answered, the newest last."""

    answers: tuple[AnsweredMessage, ...] = ()

    @classmethod
    def from_stored(cls, value: Any) -> ClaudeMemory:
        """Return the memory that `to_stored` serialized; an empty one for anything else."""
        rows: Any = as_object(value).get("claude")
        answers: list[AnsweredMessage] = []
        for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
            match row:
                case [str(message), str(session), None] if not session or _is_cli_id(session):
                    answers.append(AnsweredMessage(message, session, None))
                case [str(message), str(session), str(entry)] if _is_cli_id(session) and _is_cli_id(entry):
                    answers.append(AnsweredMessage(message, session, entry))
                case _:
                    pass
        return cls(tuple(answers))

    def to_stored(self) -> dict[str, Any]:
        return {"claude": [list(answer) for answer in self.answers]}

    @property
    def session_ids(self) -> set[str]:
        """Ids of the CLI sessions that have an answer."""
        return {answer.session for answer in self.answers if answer.session}

    def add_answer(self, message: str, session: str, entry: str | None) -> ClaudeMemory:
        """Return the memory with this answer as its newest."""
        others = [answer for answer in self.answers if answer.message != message]
        return ClaudeMemory((*others, AnsweredMessage(message, session, entry))[-_MAX_ANSWERS:])

    def find_position(self, history: Sequence[Turn]) -> SessionPosition:
        """Return the position after the newest answer that the conversation still has, and the turns after it."""
        user_indexes = {turn.id: index for index, turn in enumerate(history) if isinstance(turn, UserTurn)}
        for answer in reversed(self.answers):
            if answer.entry is not None and answer.message in user_indexes:
                answered = user_indexes[answer.message]
                next_user = next((index for index in user_indexes.values() if index > answered), len(history))
                return SessionPosition(session=answer.session, entry=answer.entry, missing_turns=history[next_user:])
        return SessionPosition(missing_turns=history)


class ClaudeMemoryStore:
    """Loads and saves the memory of one thread. `directory` is its workspace; `track_thread` gets what exists outside of the ledger."""

    def __init__(self, directory: str, track_thread: Callable[[ThreadKey, Path | None, ClaudeMemory], None]) -> None:
        self.memory = ClaudeMemory()
        self._directory = directory
        self._track_thread = track_thread

    async def load(self, context: RunContext) -> None:
        """Load the memory from the thread, else from the workspace, else keep that of the run before."""
        path = self._path_for(context)
        memory = ClaudeMemory() if context.run is None else ClaudeMemory.from_stored(context.run.memory)
        if not memory.answers and path is not None:
            memory = await anyio.to_thread.run_sync(read_memory_file, path)
        self.memory = memory if memory.answers else self.memory

    async def save(
        self,
        context: RunContext,
        message_id: str | None,
        session: str | None = None,
        entry: str | None = None,
        *,
        is_waiting: bool = False,
    ) -> list[Event]:
        """Save that `entry` of the session ends the answer to the message. Return the event that stores it with the thread.

        With `is_waiting`, a CLI process of this server process waits for an answer: the thread records that too.
        """
        if message_id is None:
            return []
        self.memory = self.memory.add_answer(message_id, session or "", entry)
        path = self._path_for(context)
        if path is not None:
            with isolate(f"saving the position of thread {context.run_input.thread_id} in its Claude session"):
                await anyio.to_thread.run_sync(write_memory_file, path, self.memory)
        if context.run is not None:
            self._track_thread(context.run.thread, path, self.memory)
        holder = holder_record() if is_waiting else {}
        return memory_events({**self.memory.to_stored(), **holder})

    def _path_for(self, context: RunContext) -> Path | None:
        if not self._directory:
            return None
        thread = context.run.thread if context.run is not None else None
        key = (context.run_input.thread_id,) if thread is None else (thread.tenant, thread.owner, thread.id)
        return memory_path(Path(self._directory), key)


def last_user_id(history: Sequence[Turn]) -> str | None:
    return next((turn.id for turn in reversed(history) if isinstance(turn, UserTurn)), None)


def _is_cli_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def memory_path(directory: Path, thread: Sequence[str]) -> Path:
    """Return the path of the thread's file in a workspace. Its name reveals nothing and is the same in every process."""
    name = hashlib.sha256("\0".join(thread).encode()).hexdigest()[:32]
    return directory / ".claude" / f"ambient-{name}.json"


def read_memory_file(path: Path) -> ClaudeMemory:
    """Return the memory that `write_memory_file` wrote; an empty one for anything else: anyone may replace a file of the workspace."""
    try:
        return ClaudeMemory.from_stored(json.loads(_read_plain_file(path)))
    except (OSError, ValueError, RecursionError):
        return ClaudeMemory()


def _read_plain_file(path: Path) -> bytes:
    """Read a regular file of a reasonable size. Raises: OSError, ValueError. Reading a pipe could block forever."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise ValueError(f"{path} is not a regular file of at most {_MAX_FILE_BYTES} bytes")
        return os.read(handle, _MAX_FILE_BYTES)
    finally:
        os.close(handle)


def write_memory_file(path: Path, memory: ClaudeMemory) -> None:
    """Write the memory atomically: a crash leaves the old one or the new one. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(memory.to_stored(), file)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
