"""Texts on their way into a trace: so much of them is kept, and no secret.

A trace leaves the house, so this is stricter than a log: redaction sees whole texts, never single deltas, and what is cut off is cut before
a secret that would be halved.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ambient_runner.projections.redaction import Redactor

if TYPE_CHECKING:
    from ambient_runner.projections.redaction import Secrets

__all__ = ["LIMIT", "Words", "plain", "shown", "writable"]

LIMIT = 16_384
"""Characters of one text in a trace."""
_ROOM = 2 * LIMIT
_CUT = "…"


class Words:
    """A text that grows delta by delta. Beyond its room nothing is kept."""

    __slots__ = ("_left", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._left = _ROOM + 1  # one more than is shown, so that a cut is noticed

    def add(self, delta: str) -> None:
        if self._left > 0:
            self._pieces.append(delta if len(delta) <= self._left else delta[: self._left])
            self._left -= len(delta)

    def __str__(self) -> str:
        return "".join(self._pieces)


def shown(text: str, secrets: Secrets, limit: int = LIMIT) -> str:
    """The text without secrets and at most `limit` characters of it, with a mark where it was cut."""
    kept = text
    if len(text) > _ROOM:
        kept = text[:_ROOM]
        kept = kept[: secrets.held_from(kept)]
    clean = writable(Redactor(secrets).redact_text(kept))
    return clean[: limit - 1] + _CUT if len(clean) > limit or kept is not text else clean


def writable(text: str) -> str:
    """The text as UTF-8 can hold it: one lone surrogate would cost the whole batch it is sent in."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def plain(value: object) -> str:
    """A value as one line of JSON; empty when it is none."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return ""
