"""Values in streams: the characters between which deltas are not divided, and the values that are found however a stream is split.

Redaction holds back the run of token characters at the end of a text (`projections/redaction/held_deltas.py`).
"""

from __future__ import annotations

import re
import string

from ambient_runner.config.guessability import MIN_SECRET_LENGTH, is_guessable

__all__ = ["SPLIT_ADVICE", "TOKEN_CHARS", "TOKEN_RUN", "TOKEN_SYMBOLS", "is_split_by_streams"]

TOKEN_SYMBOLS = "!#$%&*+-./:=?@\\^_~"  # noqa: S105
TOKEN_CHARS = string.ascii_letters + string.digits + TOKEN_SYMBOLS
"""The characters that tokens, URLs, paths and escapes consist of."""
SPLIT_ADVICE = f"choose a value of ASCII letters, digits and {' '.join(TOKEN_SYMBOLS)} only"
TOKEN_RUN = re.compile(rf"[{re.escape(TOKEN_CHARS)}]{{{MIN_SECRET_LENGTH},}}+")
"""A run that is found in a stream however its text is split into deltas."""


def is_split_by_streams(value: str) -> bool:
    """Return True for a secret that consists of short runs of token characters: it is not found if an agent streams it in pieces."""
    runs: list[str] = TOKEN_RUN.findall(value)
    return len(value) >= MIN_SECRET_LENGTH and all(run != value and is_guessable(run) for run in runs)
