"""Guards around foreign code that may raise anything: `isolate` logs and continues, `reraise_as` raises one of our errors."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.errors import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["isolate", "reraise_as"]

logger = logging.getLogger(__name__)


@contextmanager
def isolate(doing: str) -> Generator[None]:
    """Log any exception raised inside and continue. Cancellation passes through."""
    try:
        yield
    except Exception:
        logger.exception("Failed while %s", doing)


@contextmanager
def reraise_as(convert: Callable[[Exception], RunnerError]) -> Generator[None]:
    """Raise `convert(error)` for any exception raised inside, which becomes its cause. Our own errors and cancellation pass through."""
    try:
        yield
    except RunnerError:
        raise
    except Exception as error:
        raise convert(error) from error
