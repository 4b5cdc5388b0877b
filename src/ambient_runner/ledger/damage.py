"""Reports of threads whose stored data contradicts itself: one line in the log, and the error for those who read or write the thread."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.errors import ThreadDamaged

if TYPE_CHECKING:
    from collections.abc import Generator

    from ambient_runner.ledger.records import ThreadKey

__all__ = ["report_damage", "report_decode_errors"]

logger = logging.getLogger(__name__)


def report_damage(key: ThreadKey, finding: str, *, agent: str = "") -> ThreadDamaged:
    """Log that the thread is damaged, and what was found. Return the error to raise."""
    logger.error(
        "Thread %s of %s is damaged: %s. "
        "Continue in a new thread; `ambient threads export` shows what can still be read",
        key.id,
        key.owner,
        finding,
        extra={"ambient_run": "", "ambient_thread": key.id, "ambient_agent": agent},
    )
    return ThreadDamaged()


@contextmanager
def report_decode_errors(key: ThreadKey) -> Generator[None]:
    """Report the thread as damaged if an entry or a checkpoint cannot be decoded in the `with` block. Raises: ThreadDamaged."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise report_damage(key, "an entry or a checkpoint cannot be decoded") from error
