"""Where the log goes: standard error, with secrets taken out, tracebacks included."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ambient_runner.projections.redaction import Redactor, Secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.config import Settings


_CHATTY = ("uvicorn.error", "claude_agent_sdk", "google_adk", "google_genai", "strands", "httpx")
"""What these say at level `info` is for their own developers."""


_MOST_LEARNED = 1000


class RedactingFormatter(logging.Formatter):
    """A line of the log as anyone may read it. Of what runs learn to be secret it knows the newest thousand."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._secrets = tuple(secrets)
        self._learned: dict[str, None] = {}
        self._redactor: Redactor | None = None

    def add_secrets(self, values: Iterable[str]) -> None:
        """Take these out too. What that costs is paid by the next line of the log, not by the run."""
        self._learned |= dict.fromkeys(values)
        for oldest in list(self._learned)[:-_MOST_LEARNED]:
            del self._learned[oldest]
        self._redactor = None

    def format(self, record: logging.LogRecord) -> str:
        if self._redactor is None:
            self._redactor = Redactor([*self._secrets, *self._learned])
        return self._redactor.redact_text(super().format(record))


def log_to_stderr(settings: Settings) -> Secrets:
    """Set up logging for this process; gives the secrets of its runs, which tell the log what they learn.

    The chatter of libraries is left out unless everything is wanted.
    """
    formatter = RedactingFormatter(settings.secrets)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    if settings.log_level == "info":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
    return Secrets(settings.secrets, formatter.add_secrets)
