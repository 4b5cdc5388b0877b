"""Patterns inside base64 and hex: the literal that a credential begins with is found there too; the text around it is decoded and matched.

Nothing is decoded unless the literal was found, so images and other data cost no more than text.
"""

from __future__ import annotations

import base64
import math
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.projections.redaction.encodings import base64_within, chars_before
from ambient_runner.projections.redaction.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ambient_runner.config import SecretPattern

__all__ = ["EncodedLiteral", "encoded_literals"]

_BASE64, _HEX = "[A-Za-z0-9+/_-]", "(?:[0-9A-Fa-f]{2})"
_WINDOW_GROWTH = 8
"""Factor by which more is decoded of a credential that is longer than what decides that it is one."""
_MANY_LITERALS = 64
"""Occurrences from which those in short runs are left out before any is decoded: a text may consist of literals."""
_MIN_BYTES = 18
"""Bytes of the shortest credential of a pattern, less those at its ends that base64 splits."""
_TO_STANDARD = str.maketrans("-_", "+/")


@cache
def _compile_run(window: int, *, is_hex: bool) -> re.Pattern[str]:
    return re.compile(f"{_HEX}{{1,{window // 2}}}+" if is_hex else f"{_BASE64}{{1,{window}}}+")


@cache
def _compile_long_run(literal: str, *, is_hex: bool) -> re.Pattern[str]:
    """Return an expression for the literal in a run that is long enough for a credential. Occurrences may overlap."""
    alphabet, length = ("[0-9A-Fa-f]", 2 * _MIN_BYTES) if is_hex else (_BASE64, _MIN_BYTES * 8 // 6)
    rest = f"{re.escape(literal[1:])}{alphabet}{{{max(0, length - len(literal))}}}"
    return re.compile(f"{re.escape(literal[0])}(?={rest})")


class EncodedLiteral(NamedTuple):
    """A literal of a pattern in base64, after `bytes_before` bytes of a group of three, or in hex if that is None."""

    text: str
    pattern: SecretPattern
    bytes_before: int | None

    def find_at(self, text: str, literal_starts: Sequence[int]) -> Iterator[Span]:
        """Yield the encoded credentials of a text in which the literal was found at these positions, in order."""
        if len(literal_starts) > _MANY_LITERALS:
            long_runs = _compile_long_run(self.text, is_hex=self.is_hex).finditer(text, literal_starts[0])
            literal_starts = [found.start() for found in long_runs]
        stop = 0
        for at in literal_starts:
            start = at - chars_before(self.bytes_before or 0)
            if start >= stop and (span := self._match_at(text, start)):
                stop = span.stop
                yield span

    @property
    def is_hex(self) -> bool:
        return self.bytes_before is None

    def _match_at(self, text: str, start: int) -> Span | None:
        """Return the credential whose group of bytes begins at `start`."""
        width, first = (2, 0) if self.bytes_before is None else (4 / 3, self.bytes_before)
        window = math.ceil(self.pattern.decided_within * width)
        while True:
            run = _compile_run(window, is_hex=self.is_hex).match(text, start)
            if run is None:
                return None
            data = bytes.fromhex(run[0]) if self.is_hex else _decode_base64(run[0])
            found = next(self.pattern.find_at(data.decode("latin-1"), (first,)), None)
            if found is None:
                return None
            if not found.is_open or len(run[0]) < window - 1:
                break
            window *= _WINDOW_GROWTH  # It goes on.
        stop = start + math.ceil(found.stop * width)
        is_open = found.is_open and run.end() == len(text)
        return Span(start + int(found.start * width), stop, self.pattern if is_open else None)


def encoded_literals(pattern: SecretPattern) -> Iterator[EncodedLiteral]:
    """Yield the literals of a pattern as they begin in base64, in base64url and in hex."""
    if not pattern.has_fixed_start:
        return
    for literal in pattern.literals:
        data = literal.encode()
        for before in range(3):
            yield from (EncodedLiteral(text, pattern, before) for text in base64_within(data, before))
        yield from (EncodedLiteral(text, pattern, None) for text in (data.hex(), data.hex().upper()))


def _decode_base64(run: str) -> bytes:
    """Decode base64 or base64url without padding. The bits of an incomplete last byte are lost."""
    whole = run[:-1] if len(run) % 4 == 1 else run
    return base64.b64decode((whole + "=" * (-len(whole) % 4)).translate(_TO_STANDARD))
