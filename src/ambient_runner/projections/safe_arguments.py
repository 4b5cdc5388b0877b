"""Quotes of hidden values: which texts repeat them, in the forms in which an agent's question usually does. Pure.

A question repeats an argument in another case, in other whitespace, as a file name without its directory, or a number with separators.
`HiddenValues` recognizes these. It does not recognize a paraphrase.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.projections.json_values import parse_or_text

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HiddenValues"]

_MIN_LENGTH = 4
"""Characters from which on a value is found anywhere in a text."""
_MIN_WORD_LENGTH = 3
"""Characters from which on a value is found as a whole word."""
_CHUNK_LENGTH = 20
"""Characters of the pieces of a long value: a text that quotes only its beginning or a part of it has one."""
_PART_BORDERS = re.compile(r"[/\\@\n\r]+")
_WHITESPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"\d(?:[\d.,'\u2019_ \u00a0\u202f]*\d)?")
_ZERO_DECIMALS = re.compile(r"[.,]0{1,2}\Z")
_NOT_DIGITS = re.compile(r"\D+")


class HiddenValues:
    """Texts and numbers that are not shown. Falsy if there are none."""

    def __init__(self) -> None:
        self._anywhere: set[str] = set()
        """Without whitespace."""
        self._words: set[str] = set()
        self._digits: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._words or self._digits)

    def add(self, value: Any) -> None:
        """Hide all texts and numbers in a JSON value. Text that is JSON also has those of its value."""
        match value:
            case str():
                self._add_text(value)
                parsed = parse_or_text(value)
                if isinstance(parsed, dict | list):
                    self.add(parsed)
            case bool():
                return
            case int() | float():
                self._digits.add(_digits_of(_ZERO_DECIMALS.sub("", _plain_number(value))))
            case list():
                for item in cast("list[Any]", value):
                    self.add(item)
            case dict():
                for item in cast("dict[str, Any]", value).values():
                    self.add(item)
            case _:
                return

    def are_quoted_in(self, value: Any) -> bool:
        """Return True if a text or number repeats one of the values."""
        match value:
            case str():
                folded = value.casefold()
                return self._is_anywhere_in(folded) or self.are_words_of(value) or self._are_digits_in(folded)
            case bool():
                return False
            case int() | float():
                return self.are_quoted_in(_plain_number(value))
            case list():
                return any(map(self.are_quoted_in, cast("list[Any]", value)))
            case dict():
                members = cast("dict[str, Any]", value)
                return any(map(self.are_words_of, members)) or any(map(self.are_quoted_in, members.values()))
            case _:
                return False

    def are_words_of(self, name: str) -> bool:
        """Return True if one of the values is a whole word of a name."""
        folded = _WHITESPACE.sub(" ", name.casefold())
        return any(_has_word(folded, word) for word in self._words)

    def _is_anywhere_in(self, folded: str) -> bool:
        compact = _compact(folded)
        return any(text in compact for text in self._anywhere)

    def _are_digits_in(self, folded: str) -> bool:
        tokens = _NUMBER.findall(folded)
        numbers = {_digits_of(form) for token in tokens for form in (token, _ZERO_DECIMALS.sub("", token))}
        return any(
            digits == number or (len(digits) >= _MIN_LENGTH and digits in number)
            for digits in self._digits
            if len(digits) >= _MIN_WORD_LENGTH
            for number in numbers
        )

    def _add_text(self, text: str) -> None:
        folded = text.casefold()
        for form in (
            folded,
            repr(folded)[1:-1],
            json.dumps(folded)[1:-1],
            json.dumps(folded, ensure_ascii=False)[1:-1],
        ):
            compact = _compact(form)
            if len(compact) >= _MIN_LENGTH:
                self._anywhere.add(compact)
            self._anywhere.update(_chunks(compact))
        self._words.update(_words_in(folded))
        if _NUMBER.fullmatch(folded.strip()):
            self._digits.add(_digits_of(_ZERO_DECIMALS.sub("", folded.strip())))


def _words_in(folded: str) -> Iterator[str]:
    """Yield the value itself, the parts of a path, an address and lines, and file names without their extension."""
    whole = _WHITESPACE.sub(" ", folded.strip())
    if len(whole) >= _MIN_WORD_LENGTH:
        yield whole
    for piece in _PART_BORDERS.split(folded):
        part = _WHITESPACE.sub(" ", piece.strip())
        stem = part.rpartition(".")[0]
        # What ends with a colon is the scheme of a URL, or a label.
        yield from (word for word in (part, stem) if len(word) >= _MIN_LENGTH and not word.endswith(":"))


def _chunks(compact: str) -> Iterator[str]:
    last = len(compact) - _CHUNK_LENGTH
    return (compact[at : at + _CHUNK_LENGTH] for at in range(0, last + 1, _CHUNK_LENGTH) if last >= _CHUNK_LENGTH)


def _has_word(text: str, word: str) -> bool:
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(word) : at + len(word) + 1]
        if not _continues(before, word[0]) and not _continues(after, word[-1]):
            return True
        at = text.find(word, at + 1)
    return False


def _continues(neighbour: str, end: str) -> bool:
    return neighbour.isalnum() and end.isalnum()


def _compact(folded: str) -> str:
    return _WHITESPACE.sub("", folded)


def _plain_number(value: float) -> str:
    """Return a number in decimal notation. An exponent would not be recognized."""
    text = str(value)
    return format(value, "f") if "e" in text else text


def _digits_of(text: str) -> str:
    return _NOT_DIGITS.sub("", text)
