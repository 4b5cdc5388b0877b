"""What a server holds for runs: nothing, once they are over or wait for someone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from ambient_runner.bridges.agent_host import AgentHost
    from ambient_runner.runs.runner import Runner


def hosted_of(runner: Runner) -> AgentHost:
    """The only agent of the server."""
    return cast("AgentHost", runner.agents["agent"])


async def held_by(runner: Runner) -> list[Any]:
    """What the server holds for runs: places among the active ones, adapters at work, leases, tasks that would not end."""
    working = [slot for slot, kept in hosted_of(runner)._adapters.items() if kept.is_running]
    leases = [info.key for info in await runner.ledger.list_threads("default", "local", limit=1000) if info.active]
    return [*runner._active, *runner._by_thread, *working, *leases, *runner.uncancellable_tasks]


async def still_there(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Those that do not end by themselves."""
    return (await asyncio.wait(tasks, timeout=HANG_SECONDS))[1] if tasks else set()
