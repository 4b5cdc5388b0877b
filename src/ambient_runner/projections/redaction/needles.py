"""Needles: the short strings that are searched for, and the longer text around each that is secret with it.

A form of up to 64 characters is a needle itself. Of a longer one, a piece every 256 characters is, and a match is extended by blocks as
far as the text equals the form: a key file of 100 KB costs no more than its pieces. Deltas are cut between tokens (`held_deltas.py`), so of
a form with other characters the tokens are needles too: they are found in a stream however it is split. A text that contains many
needles is none: it is looked for where one of them is found. So few needles end at one position of a text, whatever the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ahocorasick_rs import AhoCorasick, Implementation

from ambient_runner.config import TOKEN_RUN, consists_of_words, estimate_bits, is_guessable
from ambient_runner.projections.redaction.credential_parts import is_ordinary_setting, secret_parts
from ambient_runner.projections.redaction.encodings import Variants, encoded_forms
from ambient_runner.projections.redaction.spans import REDACTED

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

__all__ = ["MAX_NEEDLE_LENGTH", "Needle", "OuterForms", "build_needles", "take_outer_forms"]

MAX_NEEDLE_LENGTH = 64
"""Characters of a needle, at most."""
_PIECE_LENGTH, _PIECE_DISTANCE, _LONG_DISTANCE = 32, 256, 1024
"""Characters of a piece of a long form, from one piece to the next, and the same in the encoded forms of a long value."""
_MAX_ALL_VARIANTS, _LONG_VALUE, _FILE_LENGTH = 3072, 512, 4096
"""Characters up to which a value has all variants of its forms; from which encoded forms have fewer needles; from which it is a file."""
_MAX_OF_SYMBOLS = 96
"""Characters up to which a value has all variants although it consists of symbols: escapes multiply its length."""
_MAX_PARTS, _MANY_PARTS = 16, 64
"""Parts of a credential up to which they may have all variants, and from which they have one."""
_MAX_CHECKED_RUN = 32
"""Characters of a run up to which it may be guessable."""
_MAX_NESTED = 4
"""Needles that another one may contain. A user may be granted values that are all beginnings of each other."""
_MIN_BITS = 10
"""Bits below which no value is searched for: one character repeated, or a sequence such as 12345678."""


class Needle(NamedTuple):
    """A string to search for: the part of `form` that begins at `offset`."""

    text: str
    form: str
    offset: int


class OuterForms(NamedTuple):
    """Forms that contain a needle at `offset` and are looked for where it is found."""

    offset: int
    forms: set[str]
    lengths: list[int]
    """The lengths of the forms, the longest first."""


def build_needles(values: Iterable[str]) -> dict[str, list[Needle]]:
    """Return the needles of these credentials by their text."""
    found: dict[str, list[Needle]] = {}
    for part, variants in _choose_variants(values).items():
        if part in REDACTED or estimate_bits(part, enough=_MIN_BITS) < _MIN_BITS:
            continue
        distance = _LONG_DISTANCE if len(part) > _LONG_VALUE or variants is Variants.ONE else 0
        for form in encoded_forms(part, variants):
            for needle in _split_form(form, distance if form != part else 0):
                found.setdefault(needle.text, []).append(needle)
    return found


def _choose_variants(values: Iterable[str]) -> dict[str, Variants]:
    """Return the parts of these credentials, each with the variants it is searched for in: the more characters and parts, the fewer."""
    chosen: dict[str, Variants] = {}
    for value in values:
        parts = secret_parts(value)
        for part in parts:
            variants = _variants_of(part, len(parts))
            chosen[part] = max(variants, chosen.get(part, variants))
    return chosen


def _variants_of(part: str, part_count: int) -> Variants:
    if len(part) > _FILE_LENGTH or part_count > _MANY_PARTS:
        return Variants.ONE
    longest = _MAX_OF_SYMBOLS if _consists_of_symbols(part) else _MAX_ALL_VARIANTS
    return Variants.ALL if len(part) <= longest and part_count <= _MAX_PARTS else Variants.FEW


def _consists_of_symbols(text: str) -> bool:
    return 2 * sum(char.isascii() and char.isalnum() for char in text) < len(text)


def take_outer_forms(needles: dict[str, list[Needle]]) -> dict[str, list[OuterForms]]:
    """Remove the forms that contain many needles. Return them by the needle at which they are looked for."""
    texts = sorted((text for text in needles if _is_encodable(text)), key=len)
    automaton = AhoCorasick(texts, store_patterns=False, implementation=Implementation.NoncontiguousNFA)
    found: dict[str, dict[int, set[str]]] = {}
    for text in texts:
        if any(needle.form != text for needle in needles[text]):
            continue
        matches = automaton.find_matches_as_indexes(text, overlapping=True)[::-1]  # The first position of each wins.
        inner = {texts[index]: start for index, start, _ in matches if texts[index] != text and texts[index] in needles}
        if len(inner) > _MAX_NESTED:
            longest = max(inner, key=len)
            found.setdefault(longest, {}).setdefault(inner[longest], set()).add(text)
            del needles[text]
    return {
        text: [
            OuterForms(offset, forms, sorted({len(form) for form in forms}, reverse=True))
            for offset, forms in by_offset.items()
        ]
        for text, by_offset in found.items()
    }


def _is_encodable(text: str) -> bool:
    """Return False for lone surrogates, which an automaton refuses."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _split_form(form: str, distance: int) -> Iterator[Needle]:
    """Yield the needles of a form. Runs that begin less than `distance` after the last needle have none of their own."""
    if len(form) <= MAX_NEEDLE_LENGTH:
        yield Needle(form, form, 0)
    next_start, has_run = 0, False
    for run in TOKEN_RUN.finditer(form):
        if run.end() <= next_start or _is_ordinary(run[0], form):
            continue
        has_run = True
        if run[0] == form and len(form) <= MAX_NEEDLE_LENGTH:
            return
        for start in range(max(run.start(), next_start), run.end(), distance or _PIECE_DISTANCE):
            if (first := _find_piece(form, start, run)) is not None:
                next_start = first + distance
                yield Needle(form[first : min(first + _PIECE_LENGTH, run.end())], form, first)
    if not has_run and len(form) > MAX_NEEDLE_LENGTH:
        yield Needle(form[:MAX_NEEDLE_LENGTH], form, 0)


def _find_piece(form: str, start: int, run: re.Match[str]) -> int | None:
    """Return the first position from `start` on of a piece that stands in no other text, such as zeros. None if there is none nearby.

    A piece that consists of words, such as a URL's host, is returned only if the others do too.
    """
    of_words: int | None = None
    for at in range(start, min(start + _PIECE_DISTANCE, run.end()), _PIECE_LENGTH):
        first = max(run.start(), min(at, run.end() - _PIECE_LENGTH))
        piece = form[first : first + _PIECE_LENGTH]
        if estimate_bits(piece, enough=_MIN_BITS) < _MIN_BITS:
            continue
        if not consists_of_words(piece):
            return first
        of_words = first if of_words is None else of_words
    return of_words


def _is_ordinary(run: str, form: str) -> bool:
    """Return True for a run that may stand in any text, such as a word of a passphrase."""
    return run != form and ((len(run) <= _MAX_CHECKED_RUN and is_guessable(run)) or is_ordinary_setting(run))
