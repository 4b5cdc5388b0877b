"""Injects a random fault every few seconds, and lets retired threads be compared while none is under way."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from .faults import FAULTS
from .thread_comparison import compare_retired

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import World

__all__ = ["inject_faults"]

SHORTEST_PAUSE, LONGEST_PAUSE = 2.0, 4.0  # seconds between two faults
FAULTS_PER_ROUND = 8
"""Faults after which all are waited for, and threads are compared."""


async def inject_faults(world: World, until: float, report: Callable[[str], None]) -> None:
    """Inject faults until this time of the monotonic clock, each kind equally often; at least one, however slow the machine is."""
    order: list[str] = []
    while time.monotonic() < until or not world.faults:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(FAULTS_PER_ROUND):
                if not order:
                    order = world.random.sample(list(FAULTS), len(FAULTS))
                name = order.pop()
                tasks.create_task(_inject(world, name))
                report(name)
                await asyncio.sleep(world.random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
                if time.monotonic() >= until:
                    break
        report("comparing")
        await compare_retired(world)


async def _inject(world: World, name: str) -> None:
    if await FAULTS[name](world):
        world.faults[name] += 1
