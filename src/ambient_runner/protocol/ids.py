"""Ids of messages and tool calls, unique in their thread: clients append to a message whose id they know.

`repair.py` asks here for the id of every entity that an event starts or refers to. An id in use is replaced by `id~2`, `id~3`, … An id that
`run_input.py` would refuse when a client sends it back is replaced by a valid one.
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
    from collections.abc import Callable, Collection, Iterable, Mapping

MessageKind = Literal["text", "reasoning", "result", "activity"]

MAX_ID_LENGTH = 256
CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SUFFIX = re.compile(r"~[1-9][0-9]*\Z")


def client_safe_id(id: str) -> str:  # noqa: A002
    """Return the id if a client may send it, else a valid id derived from it. Deterministic.

    Nothing is kept of an invalid id: redaction comes later, and would not find a secret that was cut or of which characters were replaced.
    """
    # Control characters are not printable. Some other characters are not either, so only then the id is searched.
    if 1 <= len(id) <= MAX_ID_LENGTH and (id.isprintable() or not CONTROL_CHARS.search(id)):
        return id
    return f"id-{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def original_id(id: str) -> str:  # noqa: A002
    """Return the id that an agent used for an entity whose id here is `id~2`, `id~3`, …; every other id unchanged."""
    return _SUFFIX.sub("", id) if "~" in id else id


def with_client_safe_ids(messages: list[Message]) -> list[Message]:
    """Return the messages with client-safe ids, tool calls included. An empty message id stays empty; the caller assigns it."""
    return [_with_client_safe_id(message) for message in messages]


def _with_client_safe_id(message: Message) -> Message:
    message_id = message.id and client_safe_id(message.id)
    if isinstance(message, AssistantMessage) and message.tool_calls:
        calls = [
            call if call.id == client_safe_id(call.id) else replace(call, id=client_safe_id(call.id))
            for call in message.tool_calls
        ]
        return replace(message, id=message_id, tool_calls=calls)
    if isinstance(message, ToolMessage):
        return replace(message, id=message_id, tool_call_id=client_safe_id(message.tool_call_id))
    return message if message_id == message.id else replace(message, id=message_id)


class IdAllocator:
    """Allocates the ids of one run.

    `known_ids`, and those for which `has_id` returns True, are in use by earlier runs and by the run's input; `user_message_ids` are those
    of user messages; `renamed_calls` are the ids of earlier runs' calls that got another id, by the id that the agent gave them.
    """

    def __init__(
        self,
        known_ids: Collection[str] = (),
        user_message_ids: Collection[str] = (),
        renamed_calls: Mapping[str, str] | None = None,
        *,
        has_id: Callable[[str], bool] | None = None,
    ) -> None:
        self._known_ids = {*known_ids, *user_message_ids}
        self._has_id = has_id
        """A thread has many ids, of which a run asks for few: they are not collected for it."""
        self._user_message_ids = set(user_message_ids)
        self._messages: dict[str, MessageKind] = {}
        self._ended_texts: set[str] = set()
        self._calls: set[str] = set()
        self._renamed_messages: dict[tuple[MessageKind, str], str] = {}
        self.renamed_calls = dict(renamed_calls or {})
        """Ids of calls whose id was in use, by the id that the agent gave them; of several with the same id, the newest."""
        self._next_suffixes: dict[str, int] = {}
        """Next number to append to an id in use. Lower numbers are all in use, and none becomes free again."""

    def reserve_messages(self, messages: Iterable[Message]) -> None:
        """Mark the ids of these messages as in use by others."""
        for message in messages:
            self._known_ids.add(message.id)
            if isinstance(message, UserMessage):
                self._user_message_ids.add(message.id)

    def is_user_message(self, message_id: str) -> bool:
        """Return True if the id names a user message, which an agent must not change."""
        return message_id in self._user_message_ids

    def may_be_text(self, message_id: str) -> bool:
        """Return False if the id names reasoning, an activity or a result of this run."""
        return self._messages.get(message_id, "text") == "text"

    def message_id(self, kind: MessageKind, message_id: str) -> str:
        """Return the client's id for a message of this run."""
        if not self._renamed_messages:  # As nearly always.
            return client_safe_id(message_id)
        return self._renamed_messages.get((kind, message_id)) or client_safe_id(message_id)

    def call_id(self, tool_call_id: str) -> str:
        """Return the client's id for a tool call. A call that this run did not start keeps its id, unless it is one of `renamed_calls`."""
        return self.renamed_calls.get(tool_call_id) or client_safe_id(tool_call_id)

    def entity_id(self, message_id: str) -> str:
        """Return the client's id for a message of unknown kind: that of a renamed reasoning message, else that of the text message."""
        return self._renamed_messages.get(("reasoning", message_id)) or self.message_id("text", message_id)

    def start_message(self, kind: MessageKind, message_id: str, current: str) -> str:
        """Return the id for a new message: its own, unless another message has it or it names text that has ended.

        `current` is what `message_id` returns.
        """
        if self._messages.get(current) == kind and current not in self._ended_texts:
            return current
        if current not in self._messages and not self._is_known(current):
            self._messages[current] = kind
            return current
        renamed = self._renamed_messages[kind, message_id] = self._unused_id(client_safe_id(message_id))
        self._messages[renamed] = kind
        return renamed

    def start_activity(self, message_id: str) -> str:
        """Return the id for an activity, which may already exist: its own, unless a user message has it."""
        current = self.message_id("activity", message_id)
        if current in self._user_message_ids:
            current = self._renamed_messages["activity", message_id] = self._unused_id(current)
        self.register_message("activity", current)
        return current

    def end_text(self, message_id: str) -> None:
        """Mark a text message as ended: text that starts with the same id later is a new message."""
        self._ended_texts.add(message_id)

    def start_result(self, message_id: str) -> str:
        """Return an id for a tool result message. It is never shared with another message."""
        message_id = client_safe_id(message_id)
        taken = message_id in self._messages or self._is_known(message_id)
        unique = self._unused_id(message_id) if taken else message_id
        self._messages[unique] = "result"
        return unique

    def start_call(self, tool_call_id: str) -> str:
        """Return the id for a new tool call: its own, unless an earlier run has it."""
        started = client_safe_id(tool_call_id)
        self.renamed_calls.pop(tool_call_id, None)
        if self._is_known(started):
            started = self.renamed_calls[tool_call_id] = self._unused_id(started)
        self._calls.add(started)
        return started

    def register_message(self, kind: MessageKind, message_id: str) -> None:
        """Record a message that exists without a start event, such as the parent message of a tool call."""
        if not self._is_known(message_id):
            self._messages.setdefault(message_id, kind)

    def register_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.register_message(_message_kind(message), message.id)

    def _is_known(self, name: str) -> bool:
        return name in self._known_ids or (self._has_id is not None and self._has_id(name))

    def _unused_id(self, taken: str) -> str:
        candidates = ((n, client_safe_id(f"{taken}~{n}")) for n in count(self._next_suffixes.get(taken, 2)))
        ending, free = next((n, candidate) for n, candidate in candidates if not self._is_taken(candidate))
        self._next_suffixes[taken] = ending + 1
        return free

    def _is_taken(self, candidate: str) -> bool:
        return self._is_known(candidate) or candidate in self._messages or candidate in self._calls


def _message_kind(message: Message) -> MessageKind:
    match message:
        case ReasoningMessage():
            return "reasoning"
        case ToolMessage():
            return "result"
        case ActivityMessage():
            return "activity"
        case _:
            return "text"
