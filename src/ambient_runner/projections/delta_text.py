"""The text of many deltas, read from their lines together. Pure.

Most lines of a thread are deltas that differ in nothing but their text. The encoder writes `delta` last, so what follows it is one JSON
string and a brace: without their quotes, the strings of many lines are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ambient_runner.ledger.base import Text
from ambient_runner.protocol.events import TextMessageContent, decode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pieces_at"]

_PLAIN = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"'
_DELTA = b'","delta":'
_decode_text = msgspec.json.Decoder(str).decode


def pieces_at(lines: Sequence[bytes], at: int) -> tuple[Text, int] | None:
    """The text whose pieces begin at this line, and where they end; None when the line is something else, or more than that."""
    first = lines[at]
    if not first.startswith(_PLAIN):
        return None
    event = decode_event(first)
    assert isinstance(event, TextMessageContent)
    head = first[: first.index(_DELTA) + len(_DELTA)]
    end, inside = _end_of(head, lines, at), len(head) + 1
    text = b"".join([line[inside:-2] for line in lines[at:end]])
    return Text(event.message_id, _decode_text(b'"%b"' % text)), end


def _end_of(head: bytes, lines: Sequence[bytes], at: int) -> int:
    """Where the lines that begin with `head` end. Mostly all do, so many are looked at together, and fewer once that fails."""
    step = 256
    end = at
    while end < len(lines) and lines[end].startswith(head):
        ahead = lines[end : end + step]
        if b"\n".join(ahead).count(b"\n" + head) == len(ahead) - 1:
            end += len(ahead)
        else:
            step //= 4
    return end
