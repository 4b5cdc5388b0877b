"""The one place where something may fail without harming a run: hooks, exporters, an adapter's own clean-up."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

logger = logging.getLogger(__name__)


@contextmanager
def isolate(doing: str) -> Generator[None]:
    """Log whatever fails inside and go on. Cancellation passes through."""
    try:
        yield
    except Exception:
        logger.exception("Failed while %s", doing)
