"""Where code that is not ours may fail in any way: `isolate` goes on without it, `foreign` says it as one of our errors."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.errors import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["foreign", "isolate"]

logger = logging.getLogger(__name__)


@contextmanager
def isolate(doing: str) -> Generator[None]:
    """Log whatever fails inside and go on. Cancellation passes through."""
    try:
        yield
    except Exception:
        logger.exception("Failed while %s", doing)


@contextmanager
def foreign(refusal: Callable[[Exception], RunnerError]) -> Generator[None]:
    """Raise what `refusal` makes of whatever fails inside, with that as its cause. Our own errors and cancellation pass through."""
    try:
        yield
    except RunnerError:
        raise
    except Exception as error:
        raise refusal(error) from error
