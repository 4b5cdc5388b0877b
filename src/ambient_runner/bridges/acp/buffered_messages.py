"""Messages of an agent that wait for a run, in order. While nobody takes them, the agent's output is paused, so that they stay few.

An agent goes on between runs: while a person decides about one of its requests, another of its tools may print for hours.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ambient_runner.errors import BridgeError

__all__ = ["ENDED", "AgentOutput", "MessageBuffer", "QueuedPrompt", "TextChunks", "TurnEnd", "Update", "is_late"]

ENDED = object()
"""The last message of a process: it is gone."""

_MAX_MESSAGES = 1024
_MAX_CHUNKS_SIZE = 4096
"""Characters of waiting chunks from which further ones are not added to them."""
_MAX_BYTES = 32 << 20
"""Bytes of output since the buffer was last empty."""


@dataclass(frozen=True, slots=True)
class Update:
    """A `session/update` of the agent, or another notification under its method."""

    value: Mapping[str, Any]
    child_session: str | None = None
    """The id of the session of a subagent, if it is from one."""
    is_late: bool = False
    """True for text that came after its turn was asked to end. Only the run of that turn shows it."""


@dataclass(frozen=True, slots=True)
class BridgeEvent:
    """An event of the bridge itself, for clients: `acp:` and its name. No update of the agent becomes one (`translate.py`)."""

    name: str
    value: Mapping[str, Any]


@dataclass(slots=True)
class TextChunks:
    """Chunks of one text that wait together. They become one delta: an agent writes faster than a store."""

    kind: str
    message_id: Any
    texts: list[str]
    size: int
    is_late: bool = False
    """As that of an Update."""

    @property
    def update(self) -> dict[str, Any]:
        """All chunks as one `update`."""
        content = {"type": "text", "text": "".join(self.texts)}
        return {"sessionUpdate": self.kind, "content": content, "messageId": self.message_id}


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The response to a prompt: the turn has ended, or failed."""

    result: Mapping[str, Any]
    error: BridgeError | None = None


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt for when the turn has ended. `user_id` is the id of the user message it contains."""

    blocks: Sequence[dict[str, Any]]
    user_id: str | None = None


def is_late(message: Any) -> bool:
    """Return True for text that a cancelled turn has sent since it was asked to end."""
    return isinstance(message, TextChunks | Update) and message.is_late


class AgentOutput(Protocol):
    """The output of a process, which can be paused."""

    @property
    def received_bytes(self) -> int: ...

    def pause_output(self) -> None: ...

    def resume_output(self) -> None: ...


class MessageBuffer:
    """Messages of one process. `output` is paused while there are too many."""

    def __init__(self, output: AgentOutput) -> None:
        self._output = output
        self._messages: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = False
        self._is_discarding = False
        self._bytes_before = 0
        """Bytes of output that had come when the buffer was last empty."""

    def put(self, message: Any) -> None:
        self._messages.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if not self._is_paused and not self._is_discarding and self._is_full:
            self._is_paused = True
            self._output.pause_output()

    def put_update(self, update: Any) -> None:
        """Add a message that may be dropped if nobody waits for it: see `discard_excess`."""
        if not (self._is_discarding and self._is_full):
            self.put(update)

    def put_chunk(self, kind: str, message_id: Any, text: str, *, is_late: bool = False) -> None:
        """Add a chunk of text, to the one before if that waits too."""
        last = self._messages[-1] if self._messages else None
        if (
            type(last) is TextChunks
            and last.kind == kind
            and last.message_id == message_id
            and last.is_late == is_late
            and last.size < _MAX_CHUNKS_SIZE
        ):
            last.texts.append(text)
            last.size += len(text)
        else:
            self.put_update(TextChunks(kind, message_id, [text], len(text), is_late))

    def take(self) -> Any:
        """Return the next message; None if there is none."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        if not self._messages:
            self._bytes_before = self._output.received_bytes
        if self._is_paused and len(self._messages) < _MAX_MESSAGES // 2 and not self._is_full:
            self._resume()
        return message

    def take_all(self) -> Iterator[Any]:
        """Yield what has arrived so far, without waiting."""
        for _ in range(len(self._messages)):
            yield self.take()

    def skip(self) -> None:
        """Leave out a message that has come. Its bytes do not count, unless others wait."""
        if not self._messages:
            self._bytes_before = self._output.received_bytes

    def revise(self, change: Callable[[Any], Any]) -> int:
        """Replace every message by what `change` returns for it; drop it for None. Return the number of dropped ones."""
        before = len(self._messages)
        changed = (change(message) for message in self._messages)
        self._messages = deque(message for message in changed if message is not None)
        self.skip()
        return before - len(self._messages)

    def drop_late(self) -> None:
        """Drop late text that no run has taken: the run of its turn has ended."""
        for message in list(self.take_all()):
            if not is_late(message):
                self.put(message)

    async def get(self, seconds: float) -> Any:
        """Return the next message; None if none comes in time. Only one caller may wait."""
        if not self._messages:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                with anyio.move_on_after(seconds):
                    await self._waiter
            finally:
                self._waiter = None
        return self.take()

    def discard_excess(self, *, is_discarding: bool) -> None:
        """Drop updates that are too many instead of pausing the output: an agent that cannot write does not end its turn."""
        self._is_discarding = is_discarding
        if is_discarding and self._is_paused:
            self._resume()

    @property
    def _is_full(self) -> bool:
        return len(self._messages) >= _MAX_MESSAGES or self._output.received_bytes - self._bytes_before >= _MAX_BYTES

    def _resume(self) -> None:
        self._is_paused = False
        self._output.resume_output()
