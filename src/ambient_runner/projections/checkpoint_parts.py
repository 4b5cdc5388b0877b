"""The messages of a thread as its newest checkpoint stores them: in parts, which a later checkpoint repeats if they have not changed. Pure.

Conversations grow at their end, so a checkpoint writes the messages since the last one and not the whole conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ambient_runner.protocol.events import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StoredCheckpoint", "StoredMessages", "decode_messages", "encode_messages", "find_kept_parts"]

decode_messages = msgspec.json.Decoder(list[Message]).decode
encode_messages = msgspec.json.Encoder().encode


class StoredMessages(NamedTuple):
    """A part of a checkpoint: consecutive messages, and the seq of the checkpoint they were first written with."""

    seq: int
    messages: tuple[Message, ...]


class StoredCheckpoint(NamedTuple):
    """The checkpoint that a view was read from, or that was written from it."""

    seq: int
    size: int
    """Bytes of its body, which every checkpoint writes anew."""
    parts: tuple[StoredMessages, ...]


def find_kept_parts(
    messages: Sequence[Message], known: Sequence[StoredMessages], stored: Sequence[int]
) -> tuple[StoredMessages, ...]:
    """Return the parts that these messages begin with, of those that are stored."""
    at = 0
    kept: list[StoredMessages] = []
    for part, seq in zip(known, stored, strict=False):
        end = at + len(part.messages)
        if part.seq != seq or tuple(messages[at:end]) != part.messages:
            break
        kept.append(part)
        at = end
    return tuple(kept)
