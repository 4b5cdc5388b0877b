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

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]++")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})++")
_MANY_LITERALS = 64
"""Occurrences from which those in short runs are left out before any is decoded: a text may consist of literals."""
_MIN_BYTES = 18
"""Bytes of the shortest credential of a pattern, less those at its ends that base64 splits."""
_TO_STANDARD = str.maketrans("-_", "+/")


@cache
def _compile_long_run(literal: str, *, is_hex: bool) -> re.Pattern[str]:
    """Return an expression for the literal in a run that is long enough for a credential. Occurrences may overlap."""
    alphabet, length = ("[0-9A-Fa-f]", 2 * _MIN_BYTES) if is_hex else ("[A-Za-z0-9+/_-]", _MIN_BYTES * 8 // 6)
    rest = f"{re.escape(literal[1:])}{alphabet}{{{max(0, length - len(literal))}}}"
    return re.compile(f"{re.escape(literal[0])}(?={rest})")


class EncodedLiteral(NamedTuple):
    """A literal of a pattern in base64, after `bytes_before` bytes of a group of three, or in hex if that is None."""

    text: str
    pattern: SecretPattern
    bytes_before: int | None

    def find_at(self, text: str, literal_starts: Sequence[int]) -> Iterator[Span]:
        """Yield the encoded credentials of a text in which the literal was found at these positions, in order.

        A run of base64 or hex is decoded once for each way in which it can be divided into groups.
        """
        is_hex = self.bytes_before is None
        alphabet, group = (_HEX, 2) if is_hex else (_BASE64, 4)
        decoded_until: dict[int, int] = {}
        if len(literal_starts) > _MANY_LITERALS:
            long_runs = _compile_long_run(self.text, is_hex=is_hex).finditer(text, literal_starts[0])
            literal_starts = [found.start() for found in long_runs]
        for at in literal_starts:
            start = at - chars_before(self.bytes_before or 0)
            run = alphabet.match(text, start) if start >= decoded_until.get(start % group, 0) else None
            if run is not None:
                decoded_until[start % group] = run.end()
                data = bytes.fromhex(run[0]) if is_hex else _decode_base64(run[0])
                yield from self._find_in(data, run, 2 if is_hex else 4 / 3)

    def _find_in(self, data: bytes, run: re.Match[str], width: float) -> Iterator[Span]:
        """`width` is the number of characters of a byte."""
        is_last = run.end() == len(run.string)
        for start, stop, is_open in self.pattern.find_from(data.decode("latin-1"), self.bytes_before or 0):
            last = run.start() + math.ceil(stop * width)
            yield Span(run.start() + int(start * width), last, self.pattern if is_last and is_open else None)


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
    rest = len(run) % 4
    return base64.b64decode(
        (run[: -1 if rest == 1 else None] + "==="[: -len(run) % 4] * (rest != 1)).translate(_TO_STANDARD)
    )
