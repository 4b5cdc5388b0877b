"""Base64 in lines of a fixed length, as in mail, key files and the output of `base64`: joined, so that what a line break divides is found.

Only a text that has such lines is searched again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

__all__ = ["UnwrappedText", "has_long_line", "has_wrapped_lines", "unwrap_lines"]

_MIN_LINE_CHARS = 16
"""Characters of a line before a break, at least."""
_CHAR = "[A-Za-z0-9+/_-]"
_BREAK = r"(?:\r?\n|\\+r\\+n|\\+n)"
_LINE_END = rf"[\r\n\\](?<={_CHAR}{{{_MIN_LINE_CHARS}}}[\r\n\\])"
"""The character after a long line. It comes first: an expression that begins with what is before it is slow."""
_LONG_LINE, _LONG_LINE_ENCODED = re.compile(_LINE_END), re.compile(_LINE_END.encode())
_WRAPPED = re.compile(f"(?<!{_CHAR}){_CHAR}{{{_MIN_LINE_CHARS},}}+(?:{_BREAK}{_CHAR}++)++")
_LINE = re.compile(f"({_BREAK})?({_CHAR}++)")
_BETWEEN_BLOCKS = " "


class UnwrappedText:
    """Wrapped lines without their breaks. `text` has a space between lines that do not belong together."""

    def __init__(self, text: str, wrapped: list[re.Match[str]]) -> None:
        lines: list[tuple[int, str]] = []
        for block in wrapped:
            lines += [(line.start(2), line[2]) for line in _LINE.finditer(text, *block.span())]
            lines.append((block.end(), _BETWEEN_BLOCKS))
        self.text = "".join([line for _, line in lines])
        self._starts = list(accumulate([len(line) for _, line in lines], initial=0))
        self._shifts = [original - start for (original, _), start in zip(lines, self._starts, strict=False)]

    def find_original(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return the part of the wrapped text that a part of `text` stands for; None if no line break is in it."""
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, stop - 1) - 1
        return (start + self._shifts[first], stop + self._shifts[last]) if first < last else None


def has_wrapped_lines(encoded: bytes) -> bool:
    """Return True if an encoded event may have wrapped lines."""
    has_break = b"\\" in encoded or b"\n" in encoded or b"\r" in encoded  # Nearly no delta has one, and this is quick.
    return has_break and _LONG_LINE_ENCODED.search(encoded) is not None


def has_long_line(text: str) -> bool:
    """Return True if a text may have wrapped lines."""
    has_break = "\n" in text or "\r" in text or "\\" in text
    return has_break and _LONG_LINE.search(text) is not None


def unwrap_lines(text: str) -> UnwrappedText | None:
    """Return the wrapped lines of a text; None if it has none."""
    if not has_long_line(text):
        return None
    wrapped = list(_WRAPPED.finditer(text))
    return UnwrappedText(text, wrapped) if wrapped else None
