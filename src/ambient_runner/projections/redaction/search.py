"""The search for secrets in a text: one automaton for the needles of all values and the literals of all patterns.

An automaton is immutable and shared. A run that learns values has a small one of its own (`secrets.py`).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from ahocorasick_rs import BytesAhoCorasick, Implementation

from ambient_runner.projections.redaction.encoded_patterns import (
    EncodedLiteral,
    encoded_literals,
    find_encoded_patterns,
)
from ambient_runner.projections.redaction.known_values import KnownValues
from ambient_runner.projections.redaction.needles import MAX_NEEDLE_LENGTH, build_needles, take_outer_forms
from ambient_runner.projections.redaction.spans import Span
from ambient_runner.projections.redaction.wrapped_lines import (
    UnwrappedText,
    has_long_line,
    has_wrapped_lines,
    unwrap_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ambient_runner.config import PatternMatch, SecretPattern

__all__ = ["SecretSearch"]

_CHUNK_CHARS = 1 << 16
"""Characters that are searched at once: every match of a chunk is an object."""
_MAX_DFA_CHARS = 24_000
"""Characters of all needles up to which the automaton is a DFA: ten times faster on long texts, but it takes 10 MB and 20 ms to build for
this many, which are those of the patterns and some thirty values."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class SecretSearch:
    """Finds values in all their forms, and what patterns match."""

    def __init__(self, values: Iterable[str], patterns: Sequence[SecretPattern] = ()) -> None:
        needles = build_needles(values)
        outer_forms = take_outer_forms(needles)
        plain: dict[str, list[SecretPattern]] = {}
        encoded: dict[str, list[EncodedLiteral]] = {}
        for pattern in patterns:
            for literal in pattern.literals:
                plain.setdefault(literal, []).append(pattern)
            for encoded_literal in encoded_literals(pattern):
                encoded.setdefault(encoded_literal.text, []).append(encoded_literal)
        self._without_literals = [pattern for pattern in patterns if not pattern.literals]
        texts = list({**needles, **plain, **encoded})  # Needles first: an index below their number is one of a needle.
        self._needles = list(needles.values())
        self._outer_forms = {index: outer_forms[text] for index, text in enumerate(needles) if text in outer_forms}
        self._patterns = [plain.get(text, ()) for text in texts]
        self._encoded_literals = [encoded.get(text, ()) for text in texts]
        searched = [_replace_surrogates(text) for text in texts]
        is_small = sum(map(len, searched)) <= _MAX_DFA_CHARS
        implementation = Implementation.DFA if is_small else Implementation.ContiguousNFA
        # On UTF-8: one for `str` translates the position of every character, also if there is no match.
        self._automaton = BytesAhoCorasick([text.encode() for text in searched], implementation=implementation)
        self._line_automaton = BytesAhoCorasick(_encode_texts(searched), implementation=implementation)
        self.is_empty = not texts and not self._without_literals

    def find_spans(self, text: str) -> list[Span]:
        """Return every secret of the text, in no order; some overlap."""
        if len(text) <= _CHUNK_CHARS and self._is_clean(text):
            return []
        spans, literal_starts = self._find_values(text)
        spans += self._find_patterns(text, literal_starts)
        spans += self._find_encoded_patterns(text, literal_starts)
        if unwrapped := unwrap_lines(text):
            spans += self._find_across_lines(unwrapped)
        return spans

    def _is_clean(self, text: str) -> bool:
        """Return True if a text certainly contains no secret: nearly all deltas."""
        return not (self._without_literals or self._find_all(text) or has_long_line(text))

    def _find_values(self, text: str) -> tuple[list[Span], Mapping[int, list[int]]]:
        """Return the known values of a text, and the positions of what the automaton found by its index."""
        values = KnownValues(text)
        starts: defaultdict[int, list[int]] = defaultdict(list)
        needle_count = len(self._needles)
        for base, matches in self._find_matches(text):
            for index, start_in_chunk, _ in matches:
                start = base + start_in_chunk
                if index < needle_count:
                    values.add_needles(start, self._needles[index])
                    if index in self._outer_forms:
                        values.add_outer_forms(start, self._outer_forms[index])
                starts[index].append(start)
        return values.spans, starts

    def _find_patterns(self, text: str, literal_starts: Mapping[int, list[int]]) -> Iterator[Span]:
        """Yield what patterns match. All literals of a pattern are looked at together, in order."""
        found: dict[str, tuple[SecretPattern, list[list[int]]]] = {}
        for index, starts in literal_starts.items():
            for pattern in self._patterns[index]:
                found.setdefault(pattern.name, (pattern, []))[1].append(starts)
        for pattern, positions in found.values():
            starts = positions[0] if len(positions) == 1 else sorted(itertools.chain(*positions))
            yield from _pattern_spans(pattern, pattern.find_at(text, starts))
        for pattern in self._without_literals:
            yield from _pattern_spans(pattern, pattern.find_from(text))

    def _find_encoded_patterns(self, text: str, literal_starts: Mapping[int, list[int]]) -> Iterator[Span]:
        literals = [
            (literal, starts) for index, starts in literal_starts.items() for literal in self._encoded_literals[index]
        ]
        return find_encoded_patterns(text, literals)

    def _find_across_lines(self, unwrapped: UnwrappedText) -> Iterator[Span]:
        """Yield known values and encoded credentials that a line break divides."""
        spans, literal_starts = self._find_values(unwrapped.text)
        for start, stop, _ in (*spans, *self._find_encoded_patterns(unwrapped.text, literal_starts)):
            if original := unwrapped.find_original(start, stop):
                yield Span(*original)

    def may_contain_secret(self, line: bytes) -> bool:
        """Return True if an encoded event may contain a secret. May return True for a clean line, never False for one with a secret."""
        return bool(
            self._without_literals or self._line_automaton.find_matches_as_indexes(line) or has_wrapped_lines(line)
        )

    def _find_matches(self, text: str) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """Yield the matches of each chunk of the text, as index, start and end, with the position of the chunk."""
        for base in range(0, len(text), _CHUNK_CHARS):
            chunk = text[base : base + _CHUNK_CHARS + MAX_NEEDLE_LENGTH - 1] if len(text) > _CHUNK_CHARS else text
            if matches := self._find_all(chunk):
                yield base, [match for match in matches if match[1] < _CHUNK_CHARS]

    def _find_all(self, text: str) -> list[tuple[int, int, int]]:
        """Return all matches in a text, as index, start and end; some overlap."""
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            encoded = _replace_surrogates(text).encode()
        matches = self._automaton.find_matches_as_indexes(encoded, overlapping=True)
        return _to_characters(encoded, matches) if matches and len(encoded) != len(text) else matches


def _pattern_spans(pattern: SecretPattern, matches: Iterable[PatternMatch]) -> Iterator[Span]:
    return (Span(start, stop, pattern if is_open else None) for start, stop, is_open in matches)


def _replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced, character by character: an automaton works on UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def _to_characters(encoded: bytes, matches: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return matches with their positions in the text in place of those in its UTF-8."""
    positions: dict[int, int] = {}
    done, length = 0, 0
    for position in sorted({position for _, *both in matches for position in both}):
        length += len(encoded[done:position].decode())
        done, positions[position] = position, length
    return [(index, positions[start], positions[stop]) for index, start, stop in matches]


def _encode_texts(texts: Iterable[str]) -> list[bytes]:
    """Return the texts as they appear in an encoded event."""
    return list({msgspec.json.encode(text)[1:-1] for text in texts})
