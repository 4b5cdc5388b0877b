"""Where the log goes: standard error, with secrets taken out, tracebacks included."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ambient_runner.projections.redact import Redactor

if TYPE_CHECKING:
    from ambient_runner.config import Settings


_CHATTY = ("uvicorn.error", "google_adk", "google_genai", "strands", "httpx")
"""What these say at level `info` is for their own developers."""


class RedactingFormatter(logging.Formatter):
    """A line of the log as anyone may read it."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = Redactor(secrets)

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact_text(super().format(record))


def log_to_stderr(settings: Settings) -> None:
    """Set up logging for this process. The chatter of libraries is left out unless everything is wanted."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(settings.secrets))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    if settings.log_level == "info":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
