"""Size of a conversation, for deciding where work on it is done. It is counted cheaply, and only until it is large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import ActivityMessage, AssistantMessage
from ambient_runner.protocol.limits import count_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Message

__all__ = ["measure_messages"]

_BYTES_PER_VALUE = 16
"""Bytes that a message, or a value in its metadata, counts for."""
_BYTES_PER_MODEL = 64
"""Bytes that a part or a tool call counts for."""
_CHARS_PER_BYTE = 16
"""Characters of a text that count as one byte: copying them takes less time than anything else."""


def measure_messages(messages: Sequence[Message], limit: int) -> int:
    """Return the size of messages, as bytes of JSON that takes about as long to convert. Counted until it exceeds `limit`."""
    size = len(messages) * _BYTES_PER_VALUE
    for message in messages:
        if size > limit:
            break
        content = message.content
        if type(content) is str:
            size += len(content) // _CHARS_PER_BYTE
        elif type(message) is ActivityMessage:
            size += count_values(content) * _BYTES_PER_VALUE
        elif content is not None:
            size += len(content) * _BYTES_PER_MODEL
        if type(message) is AssistantMessage and message.tool_calls is not None:
            size += len(message.tool_calls) * _BYTES_PER_MODEL
        if message.metadata is not None:
            size += count_values(message.metadata) * _BYTES_PER_VALUE
    return size
