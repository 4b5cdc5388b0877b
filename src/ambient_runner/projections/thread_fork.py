"""The copy that a forked thread begins with: its fact, and the messages of the source that are copied. Pure.

`runs/fork.py` reads the source; `thread_view.py` folds the fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import InvalidInput, UnknownMessage
from ambient_runner.protocol.events import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    MessagesSnapshot,
    TextPart,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FORK_MARKER", "ForkOrigin", "ForkedFact", "ThreadFork", "messages_before", "texts_only"]

FORK_MARKER = MessagesSnapshot(messages=[], metadata={"ambient": {"forked": True}})
"""Stored right after the RUN_STARTED of a fork's first run. It is folded when it is read, as every snapshot marker, into two snapshots:
without the messages of that run, and with them. The official clients keep their order of known messages, so one that has the new message
already would place the copied ones behind it."""


class ForkOrigin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The thread that was copied, up to this message."""

    thread_id: str
    message_id: str


class ForkedFact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of the fact: `{"from": {"threadId", "messageId"}, "epoch", "messages": [...], "state": ..., "clientCallIds": [...]}`."""

    origin: ForkOrigin = msgspec.field(name="from")
    epoch: str
    """That of the copied thread: after its erasure, another may have its id."""
    messages: list[Message]
    state: Any
    client_call_ids: list[str] = []
    """Those of the copied tool calls whose tools are a client's."""


class ThreadFork(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the fact that a ThreadView keeps, besides the messages and the state."""

    origin: ForkOrigin
    epoch: str
    copied_count: int
    """Number of messages that were copied."""


def messages_before(messages: Sequence[Message], message_id: str) -> list[Message]:
    """Return the messages before a user message, without those of the server's set-up, which are about another workspace.

    Raises: UnknownMessage; InvalidInput if it is not a user message.
    """
    at = next((at for at, message in enumerate(messages) if message.id == message_id), None)
    if at is None:
        raise UnknownMessage
    if not isinstance(messages[at], UserMessage):
        raise InvalidInput("`before` must be the id of a user message: a fork takes its place.")
    return [message for message in messages[:at] if not isinstance(message, DeveloperMessage)]


def texts_only(messages: Sequence[Message]) -> list[Message]:
    """Return what another agent gets of a conversation: the texts of the user and the assistant, under their ids."""
    return [text for message in messages if (text := _text_of(message)) is not None]


def _text_of(message: Message) -> Message | None:
    if message.subagent_run_id is not None:
        return None
    match message:
        case UserMessage(content=str()):
            return replace(message, encrypted_value=None) if message.content else None
        case UserMessage(content=parts):
            texts = [TextPart(text=part.text) for part in parts if isinstance(part, TextPart)]
            return replace(message, content=texts, encrypted_value=None) if texts else None
        case AssistantMessage(content=str(text)) if text:
            return AssistantMessage(id=message.id, content=text, name=message.name)
        case _:
            return None
