"""Which ids a run may use: a message or call id is unique in its thread, because clients append to an id they know.

`repair.py` asks here for the id of whatever an event starts or refers to. An id that is taken is replaced by `id~2`, `id~3`, … An id that
a client could not send back, because `inbound.py` would refuse it there, is replaced by one it can.
"""

from __future__ import annotations

import hashlib
import re
from itertools import count
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    Message,
    ReasoningMessage,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Kind = Literal["text", "reasoning", "result", "activity"]

MAX_ID = 256
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ROOM = 200
"""What is kept of an id that gets an ending of ours."""


def fit(id: str) -> str:  # noqa: A002  what it is
    """The id itself if a client may send it, else one that stands for it: always the same."""
    if 1 <= len(id) <= MAX_ID and not CONTROL.search(id):
        return id
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{CONTROL.sub('_', id[:_ROOM])}~{digest}"


def fitted(messages: list[Message]) -> list[Message]:
    """The messages under ids that fit, and their calls too. A message that has none is left to whoever knows which one is meant."""
    return [_fitted(message) for message in messages]


def _fitted(message: Message) -> Message:
    message_id = message.id and fit(message.id)
    if isinstance(message, AssistantMessage) and message.tool_calls:
        calls = [call if call.id == fit(call.id) else replace(call, id=fit(call.id)) for call in message.tool_calls]
        return replace(message, id=message_id, tool_calls=calls)
    if isinstance(message, ToolMessage):
        return replace(message, id=message_id, tool_call_id=fit(message.tool_call_id))
    return message if message_id == message.id else replace(message, id=message_id)


class Ids:
    """The ids of one run. `known` are those of earlier runs and of the run's input; `users` those of what users said."""

    def __init__(self, known: Collection[str] = (), users: Collection[str] = ()) -> None:
        self._known = {*known, *users}
        self._users = set(users)
        self._messages: dict[str, Kind] = {}
        self._over: set[str] = set()
        self._calls: set[str] = set()
        self._renamed_messages: dict[tuple[Kind, str], str] = {}
        self._renamed_calls: dict[str, str] = {}
        self._endings: dict[str, int] = {}
        """Which ending an id that is taken gets next: those before it have been given or found taken, and none becomes free."""

    def know(self, messages: Iterable[Message]) -> None:
        """Messages that belong to others from now on."""
        for message in messages:
            self._known.add(message.id)
            if isinstance(message, UserMessage):
                self._users.add(message.id)

    def is_users(self, message_id: str) -> bool:
        """Whether a user said that message. An agent may add to what other messages hold, and not to this one."""
        return message_id in self._users

    def message(self, kind: Kind, message_id: str) -> str:
        """The id under which this run knows a message."""
        return self._renamed_messages.get((kind, message_id)) or fit(message_id)

    def call(self, tool_call_id: str) -> str:
        """The id under which this run knows a call. One that was not started here keeps its own."""
        return self._renamed_calls.get(tool_call_id) or fit(tool_call_id)

    def entity(self, message_id: str) -> str:
        """The id of a message whose kind is not said: a reasoning message if there is one, else text."""
        return self._renamed_messages.get(("reasoning", message_id)) or self.message("text", message_id)

    def start_message(self, kind: Kind, message_id: str) -> str:
        """The id to start a message under: its own unless another message has it, or it was text that has ended."""
        current = self.message(kind, message_id)
        if self._messages.get(current) == kind and current not in self._over:
            return current
        if current not in self._messages and current not in self._known:
            self._messages[current] = kind
            return current
        renamed = self._renamed_messages[kind, message_id] = self._fresh(fit(message_id))
        self._messages[renamed] = kind
        return renamed

    def activity(self, message_id: str) -> str:
        """The id of an activity, which may have been there before: its own unless a user said something under it."""
        current = self.message("activity", message_id)
        if current in self._users:
            current = self._renamed_messages["activity", message_id] = self._fresh(current)
        self.note_message("activity", current)
        return current

    def end_text(self, message_id: str) -> None:
        """That message is over: text that starts under its id from now on is another one."""
        self._over.add(message_id)

    def start_result(self, message_id: str) -> str:
        """The id for the message that holds a result, which nothing else may have."""
        message_id = fit(message_id)
        taken = message_id in self._messages or message_id in self._known
        unique = self._fresh(message_id) if taken else message_id
        self._messages[unique] = "result"
        return unique

    def start_call(self, tool_call_id: str) -> str:
        """The id to start a call under: its own unless an earlier run has it."""
        started = fit(tool_call_id)
        if started in self._known:
            started = self._renamed_calls[tool_call_id] = self._fresh(started)
        self._calls.add(started)
        return started

    def note_message(self, kind: Kind, message_id: str) -> None:
        """A message that came to be without being started, such as the carrier of a call."""
        if message_id not in self._known:
            self._messages.setdefault(message_id, kind)

    def note_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.note_message(_kind_of(message), message.id)

    def _fresh(self, taken: str) -> str:
        candidates = ((n, fit(f"{taken}~{n}")) for n in count(self._endings.get(taken, 2)))
        ending, free = next((n, one) for n, one in candidates if not self._is_taken(one))
        self._endings[taken] = ending + 1
        return free

    def _is_taken(self, candidate: str) -> bool:
        return candidate in self._known or candidate in self._messages or candidate in self._calls


def _kind_of(message: Message) -> Kind:
    match message:
        case ReasoningMessage():
            return "reasoning"
        case ToolMessage():
            return "result"
        case ActivityMessage():
            return "activity"
        case _:
            return "text"
