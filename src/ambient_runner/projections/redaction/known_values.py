"""Known values in a text: a needle that was found there, extended to as much of its value as the text has.

A match grows by blocks that are all or nothing: one that grew by single characters would tell which guess is right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ambient_runner.config import TOKEN_CHARS
from ambient_runner.projections.redaction.needles import MAX_NEEDLE_LENGTH
from ambient_runner.projections.redaction.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.projections.redaction.needles import Needle, OuterForms

__all__ = ["KnownValues"]

_BLOCK_CHARS = 32
"""Characters of a long value that are compared at once."""
_NOT_TOKEN = re.compile(f"[^{re.escape(TOKEN_CHARS)}]")


class KnownValues:
    """The known values of one text. Needles are added in the order in which they end in it."""

    __slots__ = ("_last", "_stops", "_text", "spans")

    def __init__(self, text: str) -> None:
        self._text = text
        self._stops: dict[str, int] = {}
        """The end of the last match of each form: text before it is not compared again."""
        self._last = 0, 0
        self.spans: list[Span] = []

    def add_needles(self, start: int, needles: Iterable[Needle]) -> None:
        """Add the values of needles that were found at a position, unless the last match covers them."""
        for needle in needles:
            found = self._extend_match(start, needle)
            if found and (found[1] > self._last[1] or found[0] < self._last[0]):
                self._last = found
                self.spans.append(Span(*found))

    def add_outer_forms(self, start: int, outer_forms: Iterable[OuterForms]) -> None:
        """Add the forms around a needle that was found at a position."""
        for outer in outer_forms:
            if found := self._match_outer_forms(start - outer.offset, outer):
                self._last = found
                self.spans.append(Span(*found))

    def _extend_match(self, start: int, needle: Needle) -> tuple[int, int] | None:
        """Return a match, extended as far as the text equals the form that the needle is a part of; None before the last match of it.

        The rest of a token around the blocks is covered whatever it is, up to the length of a block: it may be a part of the next one.
        """
        form, offset = needle.form, needle.offset
        stop, last_stop = start + len(needle.text), self._stops.get(form, 0)
        if stop <= last_stop:
            return None
        form_start = start - offset
        if len(needle.text) < len(form):
            stop = form_start + _extend_forward(self._text, form, form_start, offset + len(needle.text))
            start = form_start + _extend_backward(self._text, form, form_start, offset, last_stop)
        self._stops[form] = stop
        if len(form) <= MAX_NEEDLE_LENGTH:
            return start, stop
        return _cover_token(self._text, start, stop, form_start, len(form))

    def _match_outer_forms(self, start: int, outer: OuterForms) -> tuple[int, int] | None:
        """Return the longest form that the text has at a position; None if there is none, or if the last match covers it."""
        if start < 0:
            return None
        last_start, last_stop = self._last
        window = self._text[start : start + outer.lengths[0]]
        for length in outer.lengths:
            if last_start <= start and start + length <= last_stop:
                return None
            if window[:length] in outer.forms:
                return start, start + length
        return None


def _extend_forward(text: str, form: str, form_start: int, reached: int) -> int:
    """Return the position of a form up to which the text has it, if it begins at `form_start` and the text has it before `reached`."""
    last_block = max(0, len(form) - _BLOCK_CHARS)  # It has as many characters as the others.
    while reached < len(form):
        block = min(reached // _BLOCK_CHARS * _BLOCK_CHARS, last_block)
        if not _has_block(text, form, form_start, block):
            break
        reached = min(block + _BLOCK_CHARS, len(form))
    return reached


def _extend_backward(text: str, form: str, form_start: int, reached: int, last_stop: int) -> int:
    """Return the position of a form from which on the text has it, if it has it after `reached`. Compare nothing before `last_stop`."""
    last_block = max(0, len(form) - _BLOCK_CHARS)
    while reached > 0 and form_start + reached > last_stop:
        block = min((reached - 1) // _BLOCK_CHARS * _BLOCK_CHARS, last_block)
        if not _has_block(text, form, form_start, block):
            break
        reached = block
    return reached


def _has_block(text: str, form: str, form_start: int, block: int) -> bool:
    """Return True if the text has the block of a form that begins at this position of it."""
    start = form_start + block
    return start >= 0 and text.startswith(form[block : block + _BLOCK_CHARS], start)


def _cover_token(text: str, start: int, stop: int, form_start: int, length: int) -> tuple[int, int]:
    """Return a match with the rest of the token that it is in, unless it is the beginning or the end of the form."""
    if stop < form_start + length:
        stop += _count_token_chars(text[stop : stop + _BLOCK_CHARS])
    if start > form_start:
        start -= _count_token_chars(text[max(0, start - _BLOCK_CHARS) : start][::-1])
    return start, stop


def _count_token_chars(text: str) -> int:
    """Return the length of the token that the text begins with."""
    other = _NOT_TOKEN.search(text)
    return other.start() if other else len(text)
