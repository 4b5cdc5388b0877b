"""The search for secrets in a text: one automaton for the needles of all values and the literals of all patterns.

An automaton is immutable and shared. A run that learns values has a small one of its own (`secrets.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, Implementation

from ambient_runner.config import TOKEN_CHARS
from ambient_runner.projections.redaction.encoded_patterns import EncodedLiteral, encoded_literals
from ambient_runner.projections.redaction.needles import MAX_NEEDLE_LENGTH, Needle, build_needles
from ambient_runner.projections.redaction.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ambient_runner.config import PatternMatch, SecretPattern

__all__ = ["SecretSearch"]

_CHUNK_CHARS = 1 << 18
"""Characters that are searched at once: every match of a chunk is an object."""
_BLOCK_CHARS = 32
"""Characters of a long value that are compared at once."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class SecretSearch:
    """Finds values in all their forms, and what patterns match."""

    def __init__(self, values: Iterable[str], patterns: Sequence[SecretPattern] = ()) -> None:
        needles = build_needles(values)
        literals: dict[str, list[SecretPattern | EncodedLiteral]] = {}
        for pattern in patterns:
            for literal in pattern.literals:
                literals.setdefault(literal, []).append(pattern)
            for encoded in encoded_literals(pattern):
                literals.setdefault(encoded.text, []).append(encoded)
        self._without_literals = [pattern for pattern in patterns if not pattern.literals]
        texts = [_replace_surrogates(text) for text in {**needles, **literals}]
        self._needles = list(needles.values())
        self._literals = [literals.get(text, []) for text in texts]
        self._automaton = AhoCorasick(texts, store_patterns=False, implementation=Implementation.ContiguousNFA)
        self._encoded = BytesAhoCorasick(_encode_texts(texts), implementation=Implementation.ContiguousNFA)
        self.is_empty = not texts and not self._without_literals

    def find_spans(self, text: str) -> list[Span]:
        """Return every secret of the text, in no order; some overlap."""
        spans: list[Span] = []
        literal_starts: dict[int, list[int]] = {}
        covered: dict[str, int] = {}
        for base, matches in self._find_matches(text):
            for index, start, stop in [match for match in matches if match[0] < len(self._needles)]:
                for needle in self._needles[index]:
                    spans += _extend_match(text, base + start, base + stop, needle, covered)
            for index in {match[0] for match in matches}:
                if self._literals[index]:
                    literal_starts.setdefault(index, []).extend(
                        [base + match[1] for match in matches if match[0] == index]
                    )
        for index, starts in literal_starts.items():
            for literal in self._literals[index]:
                spans += _find_pattern(text, literal, starts)
        for pattern in self._without_literals:
            spans += _pattern_spans(pattern, pattern.find_from(text))
        return spans

    def may_contain_secret(self, line: bytes) -> bool:
        """Return True if an encoded event may contain a secret. May return True for a clean line, never False for one with a secret."""
        return bool(self._without_literals or self._encoded.find_matches_as_indexes(line))

    def _find_matches(self, text: str) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """Yield the matches of each chunk of the text, as index, start and end, with the position of the chunk."""
        for base in range(0, len(text), _CHUNK_CHARS):
            chunk = text[base : base + _CHUNK_CHARS + MAX_NEEDLE_LENGTH - 1] if len(text) > _CHUNK_CHARS else text
            try:
                matches = self._automaton.find_matches_as_indexes(chunk, overlapping=True)
            except UnicodeEncodeError:
                matches = self._automaton.find_matches_as_indexes(_replace_surrogates(chunk), overlapping=True)
            if matches:
                yield base, [match for match in matches if match[1] < _CHUNK_CHARS]


def _find_pattern(text: str, literal: SecretPattern | EncodedLiteral, starts: Sequence[int]) -> Iterator[Span]:
    if isinstance(literal, EncodedLiteral):
        return literal.find_at(text, starts)
    return _pattern_spans(literal, literal.find_at(text, starts))


def _pattern_spans(pattern: SecretPattern, matches: Iterable[PatternMatch]) -> Iterator[Span]:
    return (Span(start, stop, pattern if is_open else None) for start, stop, is_open in matches)


def _extend_match(text: str, start: int, stop: int, needle: Needle, covered: dict[str, int]) -> Iterator[Span]:
    """Yield the match of a needle, extended block by block as far as the text equals the form that the needle is a part of.

    A block is all or nothing: a match that grew by single characters would tell which guess is right. The rest of a token around the blocks
    is covered whatever it is, up to the length of a block: it may be a part of the next one. `covered` has the end of the last match of
    each form: text before it is not compared again.
    """
    if stop <= covered.get(needle.form, 0):
        return
    shift = start - needle.offset  # Position in the text of the form's first character.
    last_block = (len(needle.form) - 1) // _BLOCK_CHARS
    block = (needle.offset + stop - start - 1) // _BLOCK_CHARS
    while block <= last_block and (reached := _match_block(text, shift, needle.form, block)):
        stop = max(stop, reached[1])
        block += 1
    block = needle.offset // _BLOCK_CHARS
    while (
        block >= 0
        and start > covered.get(needle.form, 0)
        and (reached := _match_block(text, shift, needle.form, block))
    ):
        start = min(start, reached[0])
        block -= 1
    covered[needle.form] = stop
    if len(needle.form) > MAX_NEEDLE_LENGTH:
        start, stop = _cover_token(text, start, stop, shift, len(needle.form))
    yield Span(start, stop)


def _cover_token(text: str, start: int, stop: int, form_start: int, length: int) -> tuple[int, int]:
    """Return a match with the rest of the token that it is in, unless it is the beginning or the end of the form."""
    if stop < form_start + length:
        after = text[stop : stop + _BLOCK_CHARS]
        stop += len(after) - len(after.lstrip(TOKEN_CHARS))
    if start > form_start:
        before = text[max(0, start - _BLOCK_CHARS) : start]
        start -= len(before) - len(before.rstrip(TOKEN_CHARS))
    return start, stop


def _match_block(text: str, shift: int, form: str, block: int) -> tuple[int, int] | None:
    """Return the part of the text that equals a block of the form. The last block has as many characters as the others."""
    first = max(0, min(block * _BLOCK_CHARS, len(form) - _BLOCK_CHARS))
    content = form[first : first + _BLOCK_CHARS]
    start = shift + first
    return (start, start + len(content)) if start >= 0 and text.startswith(content, start) else None


def _replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced, character by character: an automaton works on UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def _encode_texts(texts: Iterable[str]) -> list[bytes]:
    """Return the texts as they appear in an encoded event."""
    return list({msgspec.json.encode(text)[1:-1] for text in texts})
