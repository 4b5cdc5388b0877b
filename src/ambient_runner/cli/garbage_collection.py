"""The garbage collector of `ambient serve`: a collection pauses all streams for as long as it scans, so it scans little at a time.

Objects of a run are freed by reference counting. What is left to the collector are the reference cycles of agents and their frameworks.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["GC_THRESHOLDS", "freeze_imported_modules", "freeze_loaded_agents"]

GC_THRESHOLDS = (5_000, 0, 249)
"""Thresholds of the three generations. A collection scans the 5,000 newest objects (1 to 3 ms), every second one 10,000; what survives is
scanned again after 2.5 million objects. A live stream has some 400 objects: those of 300 took 60 ms in the middle generation."""


@contextmanager
def freeze_imported_modules() -> Generator[None]:
    """Import without collections, and exclude what was imported from later ones: they took a tenth of the time to start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def freeze_loaded_agents() -> None:
    """Exclude agents, their modules and the app from garbage collection, and collect as a server with many streams needs it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
