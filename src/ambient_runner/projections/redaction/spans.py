"""The text that replaces a secret, and spans of a text that are replaced by it."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.config import SecretPattern

__all__ = ["REDACTED", "Span", "merge_spans", "replace_spans"]

REDACTED = "[redacted]"


class Span(NamedTuple):
    """A secret in a text."""

    start: int
    stop: int
    open_pattern: SecretPattern | None = None
    """The pattern, if the secret reaches the end of the text, and text that follows may continue it."""


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, with those that overlap joined."""
    merged: list[Span] = []
    for span in sorted(spans, key=itemgetter(0, 1)):
        if merged and span.start < merged[-1].stop:
            last = merged[-1]
            stop = max(last.stop, span.stop)
            merged[-1] = Span(last.start, stop, span.open_pattern or last.open_pattern)
        else:
            merged.append(span)
    return merged


def replace_spans(text: str, spans: Iterable[Span]) -> str:
    """Return the text with its merged spans replaced."""
    out: list[str] = []
    done = 0
    for start, stop, _ in spans:
        out += (text[done:start], REDACTED)
        done = stop
    return "".join((*out, text[done:]))
