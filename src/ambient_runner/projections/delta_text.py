"""Deltas of the same message or tool call, joined from their lines without decoding each of them. Pure.

Most lines of a thread are deltas that differ only in their text. The encoder writes `delta` last, so a line ends in one JSON string and a
brace: without their quotes, the strings of many lines can be joined and decoded as one. Deltas of several messages may alternate: with
nothing else between them, each message gets its text in one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import Delta, decode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["join_deltas_at"]

_DELTA_PREFIXES = (
    b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"',
    b'{"type":"TOOL_CALL_ARGS","toolCallId":"',
    b'{"type":"REASONING_MESSAGE_CONTENT","messageId":"',
)
"""Beginnings of deltas with no other fields than an id and a text."""
_DELTA_MEMBER = b'","delta":"'
_FEW_LINES, _MANY_LINES = 16, 256
"""Lines that are compared one by one, and the most lines that are compared at once if there are more."""


def join_deltas_at(lines: Sequence[bytes], at: int) -> tuple[list[Delta], int] | None:
    """Return one delta per message or call for the deltas from this line on, and the index after the last of them.

    None if the line is not a delta with only an id and a text.
    """
    if not lines[at].startswith(_DELTA_PREFIXES):
        return None
    texts: dict[bytes, list[bytes]] = {}
    end = at
    while end < len(lines) and (first := lines[end]).startswith(_DELTA_PREFIXES):
        head = first[: first.index(_DELTA_MEMBER) + len(_DELTA_MEMBER)]
        inside = len(head)
        parts = texts.setdefault(head, [])
        parts.append(first[inside:-2])
        end += 1
        if end < len(lines) and lines[end].startswith(head):
            start, end = end, _find_end(head, lines, end)
            parts += [line[inside:-2] for line in lines[start:end]]
    return [_join_texts(head, parts) for head, parts in texts.items()], end


def _join_texts(head: bytes, parts: Sequence[bytes]) -> Delta:
    """Return the delta whose line begins with `head` and has all these texts."""
    event = decode_event(b'%b%b"}' % (head, b"".join(parts)))
    assert isinstance(event, Delta)
    return event


def _find_end(head: bytes, lines: Sequence[bytes], at: int) -> int:
    """Return the index of the first line from `at` on that lacks the prefix `head`. A text is a few deltas, or hundreds."""
    end, few = at, min(len(lines), at + _FEW_LINES)
    while end < few and lines[end].startswith(head):
        end += 1
    return end if end < few else _find_far_end(head, lines, end)


def _find_far_end(head: bytes, lines: Sequence[bytes], at: int) -> int:
    """Return the same as `_find_end`. Compares several lines at once, more while all match, and fewer after a mismatch."""
    end, step, grows = at, _FEW_LINES, True
    while step and end < len(lines):
        ahead = lines[end : end + step]
        # No line contains a line break: each one that the prefix follows is the start of the next line.
        if ahead[0].startswith(head) and b"\n".join(ahead).count(b"\n" + head) == len(ahead) - 1:
            end += len(ahead)
            step = min(4 * step, _MANY_LINES) if grows else step
        else:
            step, grows = step // 4, False
    return end
