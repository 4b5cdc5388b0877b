"""The messages of a thread as its newest checkpoint stores them: in parts, which a later checkpoint repeats if they have not changed. Pure.

Conversations grow at their end, so a checkpoint writes the messages since the last one and not the whole conversation. Now and then it
writes the last parts again as one: reading and decoding a few large parts takes less time than many small ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ambient_runner.protocol.events import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "StoredCheckpoint",
    "StoredMessages",
    "decode_messages",
    "drop_small_parts",
    "encode_messages",
    "find_kept_parts",
]

_SMALL_PART_BYTES = 32 << 10
_MIN_REWRITTEN_PARTS = 32
"""Small parts at the end from which on their messages, and the new ones, are written as one part."""

decode_messages = msgspec.json.Decoder(list[Message]).decode
encode_messages = msgspec.json.Encoder().encode


class StoredMessages(NamedTuple):
    """A part of a checkpoint: consecutive messages, and the seq of the checkpoint they were first written with."""

    seq: int
    messages: tuple[Message, ...]
    size: int
    """Bytes of their JSON."""


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


def drop_small_parts(kept: tuple[StoredMessages, ...]) -> tuple[StoredMessages, ...]:
    """Return the parts without the small ones at their end, if these are many: they are written again as one."""
    large = len(kept)
    while large and kept[large - 1].size < _SMALL_PART_BYTES:
        large -= 1
    return kept if len(kept) - large < _MIN_REWRITTEN_PARTS else kept[:large]
