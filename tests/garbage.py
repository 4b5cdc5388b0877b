"""Reference cycles that code under test leaves behind: only the garbage collector frees them, in a pause of the whole server."""

from __future__ import annotations

import gc
from collections import Counter

__all__ = ["find_garbage"]


def find_garbage() -> Counter[str]:
    """Return the types of the objects that only the collector can free, and free them."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(type(found).__qualname__ for found in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
