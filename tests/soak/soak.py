"""One soak: servers, clients and faults for so many minutes, and the comparison at the end."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from .chats import Chat
from .injector import inject_faults
from .servers import start_servers, stop_servers
from .thread_comparison import compare_retired
from .world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["run_soak"]

CHATS = 8
_SAMPLE_INTERVAL = 1.0  # seconds
_FINAL_SHARE = 0.05
"""Share of the time that is left for clients to end, and for the last comparison."""
_MIN_FINAL_SECONDS = 10.0
"""Seconds that are left for it at least."""


async def run_soak(
    store: Path,
    *,
    seconds: float,
    seed: int,
    chats: int = CHATS,
    report: Callable[[World, str], None] = lambda world, text: None,
) -> World:
    """Run the soak. Starting the servers and comparing threads are a part of its time."""
    until = time.monotonic() + seconds - max(_MIN_FINAL_SECONDS, seconds * _FINAL_SHARE)
    servers = await start_servers(store)
    world = World(seed=seed, servers=servers, random=random.Random(seed))
    world.chats = [Chat(world, number) for number in range(chats)]
    try:
        async with asyncio.TaskGroup() as tasks:
            sampler = tasks.create_task(_take_samples(world))
            async with asyncio.TaskGroup() as clients:
                for chat in world.chats:
                    clients.create_task(chat.run())
                try:
                    await inject_faults(world, until, lambda text: report(world, text))
                finally:
                    world.is_over = True
            report(world, "comparing the last threads")
            await compare_retired(world)
            sampler.cancel()
    finally:
        await stop_servers(servers)
    return world


async def _take_samples(world: World) -> None:
    while True:
        for server in world.servers:
            server.take_sample()
        await asyncio.sleep(_SAMPLE_INTERVAL)
