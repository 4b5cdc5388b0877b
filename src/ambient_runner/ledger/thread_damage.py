"""Reports of threads whose stored data contradicts itself: one line in the log, and the error for those who read or write the thread."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.errors import ThreadDamaged
from ambient_runner.ledger.log_context import log_context

if TYPE_CHECKING:
    from collections.abc import Generator

    from ambient_runner.ledger.records import ThreadKey

__all__ = ["DECODE_ERRORS", "report_decode_errors", "report_thread_damage"]

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)

logger = logging.getLogger(__name__)


def report_thread_damage(key: ThreadKey, finding: str, *, agent: str = "") -> ThreadDamaged:
    """Log that the thread is damaged, and what was found. Return the error to raise."""
    logger.error(
        "Thread %s of %s is damaged: %s. "
        "Continue in a new thread; `ambient threads export` shows what can still be read",
        key.id,
        key.owner,
        finding,
        extra=log_context("", key.id, agent),
    )
    return ThreadDamaged()


@contextmanager
def report_decode_errors(key: ThreadKey, part: str) -> Generator[None]:
    """Report the thread as damaged if this part of it cannot be decoded in the `with` block. Raises: ThreadDamaged."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise report_thread_damage(key, f"{part} cannot be decoded") from error
