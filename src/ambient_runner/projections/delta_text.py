"""The joined text of consecutive deltas, decoded from their lines in one step. Pure.

Most lines of a thread are deltas that differ only in their text. The encoder writes `delta` last, so a line ends in one JSON
string and a brace: without their quotes, the strings of many lines can be joined and decoded as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ambient_runner.ledger.records import TextRun
from ambient_runner.protocol.events import TextMessageContent, decode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["join_deltas_at"]

_DELTA_PREFIX = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"'
_DELTA_MEMBER = b'","delta":'
_decode_text = msgspec.json.Decoder(str).decode


def join_deltas_at(lines: Sequence[bytes], at: int) -> tuple[TextRun, int] | None:
    """Return the text of the deltas from this line on, and the index after the last of them; None if the line is not a plain text delta."""
    first = lines[at]
    if not first.startswith(_DELTA_PREFIX):
        return None
    event = decode_event(first)
    assert isinstance(event, TextMessageContent)
    head = first[: first.index(_DELTA_MEMBER) + len(_DELTA_MEMBER)]
    end, inside = _find_end(head, lines, at), len(head) + 1
    text = b"".join([line[inside:-2] for line in lines[at:end]])
    return TextRun(event.message_id, _decode_text(b'"%b"' % text)), end


def _find_end(head: bytes, lines: Sequence[bytes], at: int) -> int:
    """Return the index of the first line from `at` that lacks the prefix `head`. Compares 256 lines at once, and fewer after a mismatch."""
    step = 256
    end = at
    while end < len(lines) and lines[end].startswith(head):
        ahead = lines[end : end + step]
        if b"\n".join(ahead).count(b"\n" + head) == len(ahead) - 1:
            end += len(ahead)
        else:
            step //= 4
    return end
