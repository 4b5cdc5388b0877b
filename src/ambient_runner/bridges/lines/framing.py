"""The output of a command, as lines of bytes or as text for people, from blocks that end anywhere. Pure."""

from __future__ import annotations

import codecs
import re

__all__ = ["LineBuffer", "TextBuffer"]

_MAX_LINE_BYTES = 16 << 20
_MAX_ESCAPE = 64  # characters
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_LINE_END = re.compile(r"\r\n?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class LineBuffer:
    """Splits blocks into lines. A line that is too long is skipped and counted, with its bytes."""

    def __init__(self, max_line_bytes: int = _MAX_LINE_BYTES) -> None:
        self.oversized = self.oversized_bytes = 0
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this block."""
        *lines, rest = data.split(b"\n")
        if lines:
            self._keep(lines[0])
            lines[0] = self.take_rest()
        self._keep(rest)
        return [line for line in lines if self._is_within_bounds(line)]

    def take_rest(self) -> bytes:
        """Return the line that has begun; nothing if it is too long."""
        line = b"" if self._is_skipping else bytes(self._rest)
        self._rest, self._is_skipping = bytearray(), False
        return line

    def _keep(self, part: bytes) -> None:
        if self._is_skipping:
            self.oversized_bytes += len(part)
            return
        self._rest += part
        if len(self._rest) > self._max_line_bytes:
            self._skip(len(self._rest))
            self._rest, self._is_skipping = bytearray(), True

    def _is_within_bounds(self, line: bytes) -> bool:
        if len(line) <= self._max_line_bytes:
            return True
        self._skip(len(line))
        return False

    def _skip(self, size: int) -> None:
        self.oversized += 1
        self.oversized_bytes += size


class TextBuffer:
    """Decodes text for people: without escape sequences and control characters, without blank lines in front and blanks at its end."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._rest = ""
        """A part of an escape sequence, or blanks that may be the end."""
        self._has_text = False

    def feed(self, data: bytes, *, is_last: bool = False) -> str:
        """Return the text that can be shown now. The last block gives up what is still incomplete."""
        text = self._rest + self._decode(data, is_last)
        begun = _begun_escape(text)
        shown = _ESCAPE_SEQUENCE.sub("", text.removesuffix(begun))
        if not self._has_text:
            shown = shown.lstrip("\r\n")
        kept = shown.rstrip(" \t\r\n")
        self._rest = "" if is_last else shown[len(kept) :] + begun
        cleaned = _CONTROL.sub("", _LINE_END.sub("\n", kept))
        self._has_text = self._has_text or bool(cleaned)
        return cleaned


def _begun_escape(text: str) -> str:
    """Return the beginning of an escape sequence at the end of the text; empty if there is none."""
    start = text.rfind("\x1b", max(0, len(text) - _MAX_ESCAPE))
    return "" if start < 0 or _ESCAPE_SEQUENCE.match(text, start) else text[start:]
