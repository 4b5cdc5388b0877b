"""The search for secrets in a text: one automaton for the needles of all values and the literals of all patterns.

An automaton is immutable and shared. A run that learns values has a small one of its own (`secrets.py`).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, Implementation

from ambient_runner.config import TOKEN_CHARS
from ambient_runner.projections.redaction.encoded_patterns import EncodedLiteral, encoded_literals, find_encoded
from ambient_runner.projections.redaction.needles import (
    MAX_NEEDLE_LENGTH,
    Needle,
    OuterForms,
    build_needles,
    take_outer_forms,
)
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
_BLOCK_CHARS = 32
"""Characters of a long value that are compared at once."""
_NOT_TOKEN = re.compile(f"[^{re.escape(TOKEN_CHARS)}]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SecretSearch:
    """Finds values in all their forms, and what patterns match."""

    def __init__(self, values: Iterable[str], patterns: Sequence[SecretPattern] = ()) -> None:
        needles = build_needles(values)
        outer_forms = take_outer_forms(needles)
        literals: dict[str, list[SecretPattern | EncodedLiteral]] = {}
        for pattern in patterns:
            for literal in pattern.literals:
                literals.setdefault(literal, []).append(pattern)
            for encoded in encoded_literals(pattern):
                literals.setdefault(encoded.text, []).append(encoded)
        self._without_literals = [pattern for pattern in patterns if not pattern.literals]
        texts = [_replace_surrogates(text) for text in {**needles, **literals}]
        self._needles = list(needles.values())
        self._outer_forms = {index: outer_forms[text] for index, text in enumerate(needles) if text in outer_forms}
        self._literals = [literals.get(text, []) for text in texts]
        self._automaton = AhoCorasick(texts, store_patterns=False, implementation=Implementation.ContiguousNFA)
        self._encoded = BytesAhoCorasick(_encode_texts(texts), implementation=Implementation.ContiguousNFA)
        self.is_empty = not texts and not self._without_literals

    def find_spans(self, text: str) -> list[Span]:
        """Return every secret of the text, in no order; some overlap."""
        if len(text) <= _CHUNK_CHARS and self._is_clean(text):
            return []
        spans, literal_starts = self._search_texts(text)
        plain: defaultdict[str, list[list[int]]] = defaultdict(list)
        patterns: dict[str, SecretPattern] = {}
        for index, starts in literal_starts.items():
            for literal in self._literals[index]:
                if not isinstance(literal, EncodedLiteral):
                    patterns[literal.name] = literal
                    plain[literal.name].append(starts)
        for name, found in plain.items():  # All literals of a pattern are looked at together, in order.
            starts = found[0] if len(found) == 1 else sorted(itertools.chain(*found))
            spans += _pattern_spans(patterns[name], patterns[name].find_at(text, starts))
        spans += self._find_encoded(text, literal_starts)
        if unwrapped := unwrap_lines(text):
            spans += self._find_across_lines(unwrapped)
        for pattern in self._without_literals:
            spans += _pattern_spans(pattern, pattern.find_from(text))
        return spans

    def _is_clean(self, text: str) -> bool:
        """Return True if a text certainly contains no secret: nearly all deltas."""
        return not (self._without_literals or self._find_all(text) or has_long_line(text))

    def _search_texts(self, text: str) -> tuple[list[Span], Mapping[int, list[int]]]:
        """Return the known values of a text, and the positions of literals by their index."""
        spans: list[Span] = []
        literal_starts: defaultdict[int, list[int]] = defaultdict(list)
        covered: dict[str, int] = {}
        last = Span(0, 0)
        needle_count = len(self._needles)
        for base, matches in self._find_matches(text):
            for index, start, _ in matches:
                if index < needle_count:
                    for needle in self._needles[index]:
                        found = _extend_match(text, base + start, needle, covered)
                        if found and (found[1] > last.stop or found[0] < last.start):
                            last = Span(*found)
                            spans.append(last)
                    for outer in self._outer_forms.get(index, ()):
                        found = _match_outer_forms(text, base + start, outer, last)
                        if found:
                            last = Span(*found)
                            spans.append(last)
                literal_starts[index].append(base + start)
        return spans, literal_starts

    def _find_encoded(self, text: str, literal_starts: Mapping[int, list[int]]) -> Iterator[Span]:
        literals = [
            (literal, starts)
            for index, starts in literal_starts.items()
            for literal in self._literals[index]
            if isinstance(literal, EncodedLiteral)
        ]
        return find_encoded(text, literals)

    def _find_across_lines(self, unwrapped: UnwrappedText) -> Iterator[Span]:
        """Yield known values and encoded credentials that a line break divides."""
        spans, literal_starts = self._search_texts(unwrapped.text)
        for start, stop, _ in (*spans, *self._find_encoded(unwrapped.text, literal_starts)):
            if original := unwrapped.find_original(start, stop):
                yield Span(*original)

    def may_contain_secret(self, line: bytes) -> bool:
        """Return True if an encoded event may contain a secret. May return True for a clean line, never False for one with a secret."""
        return bool(self._without_literals or self._encoded.find_matches_as_indexes(line) or has_wrapped_lines(line))

    def _find_matches(self, text: str) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """Yield the matches of each chunk of the text, as index, start and end, with the position of the chunk."""
        for base in range(0, len(text), _CHUNK_CHARS):
            chunk = text[base : base + _CHUNK_CHARS + MAX_NEEDLE_LENGTH - 1] if len(text) > _CHUNK_CHARS else text
            if matches := self._find_all(chunk):
                yield base, [match for match in matches if match[1] < _CHUNK_CHARS]

    def _find_all(self, text: str) -> list[tuple[int, int, int]]:
        try:
            return self._automaton.find_matches_as_indexes(text, overlapping=True)
        except UnicodeEncodeError:
            return self._automaton.find_matches_as_indexes(_replace_surrogates(text), overlapping=True)


def _pattern_spans(pattern: SecretPattern, matches: Iterable[PatternMatch]) -> Iterator[Span]:
    return (Span(start, stop, pattern if is_open else None) for start, stop, is_open in matches)


def _extend_match(text: str, start: int, needle: Needle, covered: dict[str, int]) -> tuple[int, int] | None:
    """Return the match of a needle, extended block by block as far as the text equals the form that the needle is a part of.

    A block is all or nothing: a match that grew by single characters would tell which guess is right. The rest of a token around the blocks
    is covered whatever it is, up to the length of a block: it may be a part of the next one. `covered` has the end of the last match of
    each form: text before it is not compared again. Returns None for a match before that end.
    """
    form, offset = needle.form, needle.offset
    stop, before = start + len(needle.text), covered.get(form, 0)
    if stop <= before:
        return None
    shift = start - offset  # Position in the text of the form's first character.
    last_block = max(0, len(form) - _BLOCK_CHARS)  # It has as many characters as the others.
    reached = offset + len(needle.text)
    while reached < len(form):
        first = min(reached // _BLOCK_CHARS * _BLOCK_CHARS, last_block)
        if shift + first < 0 or not text.startswith(form[first : first + _BLOCK_CHARS], shift + first):
            break
        reached = min(first + _BLOCK_CHARS, len(form))
    covered[form] = stop = shift + reached
    reached = offset
    while reached > 0 and shift + reached > before:
        first = min((reached - 1) // _BLOCK_CHARS * _BLOCK_CHARS, last_block)
        if shift + first < 0 or not text.startswith(form[first : first + _BLOCK_CHARS], shift + first):
            break
        reached = first
    start = shift + reached
    return _cover_token(text, start, stop, shift, len(form)) if len(form) > MAX_NEEDLE_LENGTH else (start, stop)


def _match_outer_forms(text: str, start: int, outer: OuterForms, last: Span) -> tuple[int, int] | None:
    """Return the longest form around a needle that the text has there; None if there is none, or if the last match covers it."""
    first = start - outer.offset
    if first < 0:
        return None
    is_before = first < last.start
    window = text[first : first + outer.lengths[0]]
    for length in outer.lengths:
        if first + length <= last.stop and not is_before:
            return None
        if window[:length] in outer.forms:
            return first, first + length
    return None


def _cover_token(text: str, start: int, stop: int, form_start: int, length: int) -> tuple[int, int]:
    """Return a match with the rest of the token that it is in, unless it is the beginning or the end of the form."""
    if stop < form_start + length:
        stop += _count_token_chars(text[stop : stop + _BLOCK_CHARS])
    if start > form_start:
        start -= _count_token_chars(text[max(0, start - _BLOCK_CHARS) : start][::-1])
    return start, stop


def _count_token_chars(text: str) -> int:
    """Return the length of the token run that the text begins with."""
    other = _NOT_TOKEN.search(text)
    return other.start() if other else len(text)


def _replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced, character by character: an automaton works on UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def _encode_texts(texts: Iterable[str]) -> list[bytes]:
    """Return the texts as they appear in an encoded event."""
    return list({msgspec.json.encode(text)[1:-1] for text in texts})
