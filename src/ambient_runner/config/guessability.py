"""Estimates of whether a value can be a secret: the guesses that it resists, and the evidence that it consists of words.

A guessable value is no secret: replacing it would hide ordinary words, and a client that sends guesses would see which of them is
replaced. Both estimates are coarse and err on the side of a secret.
"""

from __future__ import annotations

import math
import re
import string
from functools import lru_cache
from itertools import pairwise

__all__ = ["MIN_SECRET_BITS", "MIN_SECRET_LENGTH", "consists_of_words", "estimate_bits", "is_guessable"]

MIN_SECRET_LENGTH = 8
"""Characters below which no value is a secret."""
MIN_SECRET_BITS = 32
"""Bits below which a value is guessable: less than what a thousand guesses a second find in fifty days."""

_WORD_BITS, _WORD_LETTERS, _FURTHER_LETTER_BITS = 12.0, 10, 3.0
_LETTER_BITS, _MIXED_CASE_BITS, _DIGIT_BITS, _SYMBOL_BITS = 4.7, 5.7, 3.3, 5.0
_YEAR_BITS, _SEQUENCE_BITS, _REPEATED_BITS = 7.0, 4.0, 1.0
_MIN_WORD, _MIN_SEQUENCE = 4, 3
_CACHED_PARTS = 4096
_MAX_LENGTH = 256
"""Characters that are looked at: a longer value is not guessable for what follows."""

_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|(.)\1*", re.DOTALL)
_YEAR = re.compile(r"(?:19|20)\d\d")
_ROWS = (string.ascii_lowercase, string.digits + "0", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_SEQUENCES = frozenset(
    part
    for row in (*_ROWS, *(row[::-1] for row in _ROWS))
    for first in range(len(row))
    for part in (row[first:stop] for stop in range(first + _MIN_SEQUENCE, len(row) + 1))
)
_FOLLOWERS = dict(
    zip(
        string.ascii_lowercase,
        """
        bcdfgiklmnprstuvwxyz acdeijlmoprstuy acdehiklmnoprstuvy abcdefgijlmnoprstuvxy abcdefghiklmnopqrstuvwxy
        adefilnoprstuy aefghilmnorstuv abdeilmnorstuy abcdefgklmnopqrstvxz aeosu adeilnpstuw abcdefgiklmnopstuvy
        abcdeiklmnopstuy abcdefghijklmnoprstuvwy abcdefgijklmnoprstuvwxy acdefhiklmnoprstuwy u abcdefghiklmnoprstuvwy
        acdefghiklmnopqrstuwy abcdefhilmnoprstuvwy abcdefgilmnoprst aeiop adefhilnorst aceilpty bcdefilmnopstw aeio
        """.split(),  # noqa: SIM905
        strict=True,
    )
)
"""The letters that often follow a letter in English and technical words: 400 pairs of 676, in 19 of 20 words of 4 to 14 letters."""

_SOFTWARE_NAMES = frozenset(
    """
    clickhouse cockroachdb couchdb dockerhub elasticsearch influxdb jenkins keycloak kubernetes localhost mariadb mongodb mssql mysql
    opensearch phpmyadmin postgres postgresql prometheus rabbitmq sonarqube sqlserver timescaledb vaultwarden wordpress zookeeper
    """.split()  # noqa: SIM905
)
"""Names that are passwords in many compose files, and that have pairs of letters which words do not have."""
_LOOKALIKES = str.maketrans("@4310$5!7", "aaeiossit")
"""Symbols and digits that people write for letters."""
_LOOKALIKE = re.compile(r"(?<=[a-z])[@4310$5!7]{1,2}(?=[a-z])")
_DISGUISED_WORD = re.compile(r"[A-Z]?[a-z@4310$5!7]{4,11}[^A-Za-z]{0,5}")

_MIN_WORD_EVIDENCE = 20.0
"""Bits of evidence for words from which a token is a name: of a million random tokens, less than one is taken for a name."""
_FOLLOWS, _FOLLOWS_RARELY = 0.7, -3.8
_BOTH_LOWER, _ONE_UPPER, _BOTH_UPPER, _IS_DIGIT = 1.7, -1.8, -4.6, -3.0
"""Logarithms of how much more often this is so of two letters, or of a character, in names than in random letters and digits."""
_LETTER_RUN = re.compile(r"[A-Za-z]{2,}+")
_LOWER, _DIGIT = re.compile(r"[a-z]"), re.compile(r"[0-9]")


def is_guessable(value: str) -> bool:
    return _has_few_bits(value) or (
        _DISGUISED_WORD.fullmatch(value) is not None and _has_few_bits(_with_letters(value))
    )


def _has_few_bits(value: str) -> bool:
    return estimate_bits(value, enough=MIN_SECRET_BITS) < MIN_SECRET_BITS


def _with_letters(value: str) -> str:
    """Return the value with letters for the symbols and digits between them: `password!` for `P@ssw0rd!`."""
    return _LOOKALIKE.sub(lambda match: match[0].translate(_LOOKALIKES), value.lower())


def estimate_bits(value: str, *, enough: float = math.inf) -> float:
    """Return the estimated entropy of a value in bits: words, years, sequences and repetitions count little, other characters in full.

    What follows after `enough` bits is not counted.
    """
    value = _repeated_unit(value[:_MAX_LENGTH])
    has_both_cases = value != value.lower() and value != value.upper()
    seen: set[str] = set()
    bits = 0.0
    for match in _PARTS.finditer(value):
        part = match[0].lower()
        bits += _REPEATED_BITS if part in seen else _part_bits(part, has_both_cases)
        if bits >= enough:
            break
        seen.add(part)
    return bits


def _repeated_unit(value: str) -> str:
    """Return the unit that the value repeats; the value itself if it repeats none."""
    period = (value + value).find(value, 1)
    return value[:period] if 0 < period < len(value) else value


@lru_cache(maxsize=_CACHED_PARTS)
def _part_bits(part: str, has_both_cases: bool) -> float:
    if not part[0].isascii() or not part[0].isalnum():
        return _SYMBOL_BITS
    if part in _SEQUENCES:
        return _SEQUENCE_BITS
    if part[0].isdigit():
        return _YEAR_BITS if _YEAR.fullmatch(part) else _DIGIT_BITS * len(_repeated_unit(part))
    if part in _SOFTWARE_NAMES:
        return _WORD_BITS
    if len(part) >= _MIN_WORD and all(second in _FOLLOWERS[first] for first, second in pairwise(part)):
        return _WORD_BITS + _FURTHER_LETTER_BITS * max(0, len(part) - _WORD_LETTERS)
    return (_MIXED_CASE_BITS if has_both_cases else _LETTER_BITS) * len(_repeated_unit(part))


def consists_of_words(token: str) -> bool:
    """Return True for letters and digits that are words rather than random, as in the names of code, although they resist guesses."""
    token = token[:_MAX_LENGTH]
    most = (_FOLLOWS + _BOTH_LOWER) * len(_LOWER.findall(token)) + _IS_DIGIT * len(_DIGIT.findall(token))
    if most < _MIN_WORD_EVIDENCE:
        return False
    pairs = [pair for run in _LETTER_RUN.findall(token) for pair in pairwise(run)]
    by_letters = sum(_letters_evidence(*pair) for pair in pairs)
    by_case = sum(_case_evidence(*pair) for pair in pairs) + _IS_DIGIT * len(_DIGIT.findall(token))
    return by_letters >= 0 and by_letters + by_case >= _MIN_WORD_EVIDENCE


def _letters_evidence(first: str, second: str) -> float:
    if second.isupper():  # Another word begins.
        return 0
    return _FOLLOWS if second in _FOLLOWERS[first.lower()] else _FOLLOWS_RARELY


def _case_evidence(first: str, second: str) -> float:
    if first.islower() and second.islower():
        return _BOTH_LOWER
    return _BOTH_UPPER if first.isupper() and second.isupper() else _ONE_UPPER
