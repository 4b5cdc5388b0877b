"""Text for traces: bounded in length and without secrets.

Traces leave the server, so this is stricter than the log: redaction sees whole texts, never single deltas, and a text is never cut inside
a secret.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ambient_runner.projections.redaction import Redactor, held_start

if TYPE_CHECKING:
    from ambient_runner.projections.redaction import Secrets

__all__ = ["MAX_TEXT", "BoundedText", "encode_json", "redact_and_truncate", "replace_surrogates"]

MAX_TEXT = 16_384
"""Maximum characters of one text in a trace."""
_BUFFER_SIZE = 2 * MAX_TEXT
_ELLIPSIS = "…"


class BoundedText:
    """A text that grows delta by delta. Characters beyond its buffer are dropped."""

    __slots__ = ("_left", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._left = _BUFFER_SIZE + 1  # one more than is shown, so that a cut is noticed

    def append(self, delta: str) -> None:
        if self._left > 0:
            self._pieces.append(delta if len(delta) <= self._left else delta[: self._left])
            self._left -= len(delta)

    def __str__(self) -> str:
        return "".join(self._pieces)


def redact_and_truncate(text: str, secrets: Secrets, limit: int = MAX_TEXT) -> str:
    """Return the text without secrets, cut to at most `limit` characters with an ellipsis at the end."""
    bounded = text
    if len(text) > _BUFFER_SIZE:
        bounded = text[:_BUFFER_SIZE]
        bounded = bounded[: held_start(bounded)]
    clean = replace_surrogates(Redactor(secrets).redact_text(bounded))
    return clean[: limit - 1] + _ELLIPSIS if len(clean) > limit or bounded is not text else clean


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced: one of them would fail the export of a whole batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def encode_json(value: object) -> str:
    """Return a value as one line of JSON; empty if it cannot be encoded."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return ""
