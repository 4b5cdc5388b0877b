"""Patterns inside base64 and hex: the literal that a credential begins with is found there too; the text around it is decoded and matched.

Nothing is decoded unless a literal was found, so images and other data cost no more than text. What surrounds the literals is decoded once
for each way in which bytes can be aligned, and searched as one text: the cost of a text that consists of literals is linear.
"""

from __future__ import annotations

import binascii
import re
import string
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.projections.redaction.encodings import base64_within, chars_before
from ambient_runner.projections.redaction.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ambient_runner.config import SecretPattern

__all__ = ["EncodedLiteral", "encoded_literals", "find_encoded_patterns"]

_WINDOW_GROWTH = 8
"""Factor by which more is decoded of a credential that is longer than what decides that it is one."""
_MIN_CREDENTIAL_BYTES = 18
"""Bytes of the shortest credential of a pattern, less those at its ends that base64 splits."""
_REST_OF_RUN = re.compile("[A-Za-z0-9+/_=-]*+")
_RUN_CHARS = string.ascii_letters + string.digits + "+/_-"
_MAX_CHARS_BEFORE = 512
"""Characters of a run before the secret in it that are replaced too: the first line of a key."""
_BETWEEN_RUNS = b"\0"
"""A byte that no credential contains."""


class _Encoding(NamedTuple):
    """Base64 or hex: groups of `group_chars` characters stand for `group_bytes` bytes."""

    run: re.Pattern[str]
    """A run of the encoding's characters that is long enough for a credential."""
    group_chars: int
    group_bytes: int

    def chars_of(self, byte_count: int) -> int:
        """Return the number of characters that contain this many bytes."""
        return -(-byte_count * self.group_chars // self.group_bytes)

    def decode(self, chars: str) -> bytes:
        """Decode a run. The bits of an incomplete last byte are lost."""
        if self.group_bytes == 1:
            return bytes.fromhex(chars[: len(chars) & ~1])
        whole = chars[:-1] if len(chars) % 4 == 1 else chars
        return binascii.a2b_base64((whole + "=" * (-len(whole) % 4)).replace("-", "+").replace("_", "/"))


def _encoding(alphabet: str, group_chars: int, group_bytes: int) -> _Encoding:
    shortest = _MIN_CREDENTIAL_BYTES * group_chars // group_bytes
    return _Encoding(re.compile(f"{alphabet}{{{shortest},}}+"), group_chars, group_bytes)


_BASE64, _HEX = _encoding("[A-Za-z0-9+/_-]", 4, 3), _encoding("[0-9A-Fa-f]", 2, 1)


class EncodedLiteral(NamedTuple):
    """A literal of a pattern in base64, after `bytes_before` bytes of a group of three, or in hex if that is None."""

    text: str
    pattern: SecretPattern
    bytes_before: int | None


def encoded_literals(pattern: SecretPattern) -> Iterator[EncodedLiteral]:
    """Yield the literals of a pattern as they begin in base64, in base64url and in hex."""
    if not pattern.has_fixed_start:
        return
    for literal in pattern.literals:
        data = literal.encode()
        for before in range(3):
            yield from (EncodedLiteral(text, pattern, before) for text in base64_within(data, before))
        yield from (EncodedLiteral(text, pattern, None) for text in (data.hex(), data.hex().upper()))


def find_encoded_patterns(text: str, literals: Iterable[tuple[EncodedLiteral, Sequence[int]]]) -> Iterator[Span]:
    """Yield the encoded credentials of a text in which these literals were found, each at its positions, in order."""
    aligned: defaultdict[tuple[bool, int], defaultdict[str, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    patterns: dict[str, SecretPattern] = {}
    for literal, starts in literals:
        patterns[literal.pattern.name] = literal.pattern
        is_hex = literal.bytes_before is None
        for offset, literal_bytes in _byte_positions(_HEX if is_hex else _BASE64, literal.bytes_before or 0, starts):
            aligned[is_hex, offset][literal.pattern.name].append(literal_bytes)
    for (is_hex, offset), by_pattern in aligned.items():
        found = [(patterns[name], sorted(chain(*positions))) for name, positions in by_pattern.items()]
        yield from _AlignedText(text, _HEX if is_hex else _BASE64, offset).find_patterns(found)


def _byte_positions(encoding: _Encoding, before: int, starts: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield where the literal is in the decoded text, for each position of the text at which decoding may begin."""
    chars, size = encoding.group_chars, encoding.group_bytes
    partial = chars_before(before)
    groups = [start - partial for start in starts]
    for offset in range(chars):
        found = [group // chars * size + before for group in groups if group % chars == offset and group >= 0]
        if found:
            yield offset, found


class _Run(NamedTuple):
    """A decoded run of characters."""

    first_byte: int
    data: bytes
    stop: int
    """Position at which it ends in the text."""
    is_cut: bool
    """True if only a part of it was decoded."""


class _DecodedRuns:
    """Runs that are searched as one text."""

    def __init__(self, runs: Iterable[_Run]) -> None:
        self._runs = list(runs)
        lengths = (len(run.data) + len(_BETWEEN_RUNS) for run in self._runs)
        self._starts = list(accumulate(lengths, initial=0))
        self.text = _BETWEEN_RUNS.join([run.data for run in self._runs]).decode("latin-1")

    def positions_of(self, literal_bytes: Sequence[int]) -> Iterator[int]:
        """Yield the positions of these bytes in the decoded text, without those that no run contains."""
        literal = 0
        for run, start in zip(self._runs, self._starts, strict=False):
            shift, stop = start - run.first_byte, run.first_byte + len(run.data)
            literal = bisect_left(literal_bytes, run.first_byte, literal)
            first, literal = literal, bisect_left(literal_bytes, stop, literal)
            yield from [at + shift for at in literal_bytes[first:literal]]

    def run_at(self, position: int) -> tuple[_Run, int]:
        """Return the run at a position of the decoded text, and its start there."""
        index = bisect_right(self._starts, position) - 1
        return self._runs[index], self._starts[index]


class _AlignedText(NamedTuple):
    """A text whose groups of characters begin at `offset`. Positions of bytes count from there."""

    text: str
    encoding: _Encoding
    offset: int

    def find_patterns(self, literals: Sequence[tuple[SecretPattern, Sequence[int]]]) -> Iterator[Span]:
        """Yield the credentials of patterns whose literals begin at these bytes, in order."""
        windows = chain.from_iterable(_windows(literal_bytes, pattern) for pattern, literal_bytes in literals)
        all_bytes = literals[0][1] if len(literals) == 1 else sorted(chain(*(found for _, found in literals)))
        decoded = _DecodedRuns(
            run for start, stop in _merge_windows(windows) for run in self._decode_between(start, stop, all_bytes)
        )
        for pattern, literal_bytes in literals:
            if starts := list(decoded.positions_of(literal_bytes)):
                yield from self._find_pattern(pattern, decoded, starts)

    def _find_pattern(self, pattern: SecretPattern, decoded: _DecodedRuns, starts: Sequence[int]) -> Iterator[Span]:
        reached = 0
        for start, stop, _ in pattern.find_at(decoded.text, starts):
            run, run_start = decoded.run_at(start)
            shift, is_open = run.first_byte - run_start, stop == run_start + len(run.data)
            if start + shift < reached:
                continue
            if pattern.is_in_lines:
                whole = self._span_of_lines(pattern, start + shift)
                reached = (whole.stop - self.offset) // self.encoding.group_chars * self.encoding.group_bytes
                yield whole
                continue
            reached = stop + shift
            if is_open and run.is_cut:
                run, reached, is_open = self._match_longer(pattern, start + shift, reached)
            yield self._span_of(start + shift, reached, pattern if is_open and run.stop == len(self.text) else None)

    def _span_of_lines(self, pattern: SecretPattern, first_byte: int) -> Span:
        """Return the run that contains a byte, and the lines that continue it: nothing of them is decoded."""
        start = self._span_of(first_byte, first_byte, None).start
        run = _REST_OF_RUN.match(self.text, start)
        stop, is_open = pattern.match_rest(self.text, run.end() if run else start)
        before = self.text[max(0, start - _MAX_CHARS_BEFORE) : start]
        start -= len(before) - len(before.rstrip(_RUN_CHARS))
        return Span(start, stop, pattern if is_open or stop == len(self.text) else None)

    def _match_longer(self, pattern: SecretPattern, start: int, stop: int) -> tuple[_Run, int, bool]:
        """Decode more of the run until it contains the whole credential. Return it, and the end of the credential."""
        length = pattern.decided_within
        while True:
            length *= _WINDOW_GROWTH
            run = next(self._decode_between(start, start + length, (start,)))
            found = next(pattern.find_at(run.data.decode("latin-1"), (start - run.first_byte,)), None)
            if found is None:  # More of it looks like a placeholder.
                return run, stop, False
            stop = run.first_byte + found.stop
            if not (found.is_open and run.is_cut):
                return run, stop, found.is_open

    def _decode_between(self, first_byte: int, stop_byte: int, literal_bytes: Sequence[int]) -> Iterator[_Run]:
        """Decode the runs between two positions of bytes, from the group of the first one on, that contain one of the literals."""
        chars, size = self.encoding.group_chars, self.encoding.group_bytes
        end = self.offset + self.encoding.chars_of(stop_byte)
        literal = bisect_left(literal_bytes, first_byte)
        for run in self.encoding.run.finditer(self.text, self.offset + first_byte // size * chars, end):
            run_start, stop = run.span()
            first_group = -((self.offset - run_start) // chars)
            literal = bisect_left(literal_bytes, first_group * size, literal)
            start = self.offset + first_group * chars
            if literal < len(literal_bytes) and literal_bytes[literal] // size * chars < stop - self.offset:
                data = self.encoding.decode(self.text[start:stop])
                yield _Run(first_group * size, data, stop, is_cut=stop == end)

    def _span_of(self, first_byte: int, stop_byte: int, pattern: SecretPattern | None) -> Span:
        chars, size = self.encoding.group_chars, self.encoding.group_bytes
        return Span(self.offset + first_byte * chars // size, self.offset + self.encoding.chars_of(stop_byte), pattern)


def _windows(literal_bytes: Sequence[int], pattern: SecretPattern) -> Iterator[tuple[int, int]]:
    """Yield the parts of the decoded text that decide whether credentials of a pattern begin at these bytes."""
    first = literal_bytes[0]
    for one, other in pairwise(literal_bytes):
        if other - one > pattern.decided_within:
            yield first, one + pattern.decided_within
            first = other
    yield first, literal_bytes[-1] + pattern.decided_within


def _merge_windows(windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield windows in order, with those that overlap joined."""
    last: tuple[int, int] | None = None
    for start, stop in sorted(windows):
        if last is None:
            last = start, stop
        elif start <= last[1] + _BASE64.group_bytes:
            last = last[0], max(last[1], stop)
        else:
            yield last
            last = start, stop
    if last:
        yield last
