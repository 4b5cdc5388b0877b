from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ambient_runner.bridges.toolkit import iterate_in_thread
from ambient_runner.runs.busy_threads import find_busy_threads
from ambient_runner.runs.run import Run
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.world import ScriptedAgent, events_of, request, runner_of, said, user


async def _iterate(work: Callable[[], None]) -> None:
    async for _ in iterate_in_thread(iter(work, None)):
        raise AssertionError


async def _call_instrumented(work: Callable[[], None]) -> None:
    """Call like `asyncio.to_thread` after OpenTelemetry instrumented threads, as Strands does on import: the work item is wrapped."""
    work_item = partial(copy_context().run, work)

    def wrapped() -> None:
        work_item()

    await asyncio.get_running_loop().run_in_executor(None, wrapped)


_CALLS = [asyncio.to_thread, anyio.to_thread.run_sync, _iterate, _call_instrumented]


@pytest.mark.parametrize("call", _CALLS)
async def test_a_thread_that_executes_code_of_a_run_is_found_with_its_run_until_it_returns(call: Any) -> None:
    entered, release = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        release.wait(HANG_SECONDS)

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        await call(block)
        for event in said("m1", "done"):
            yield event

    with unless_hung():
        async with runner_of(ScriptedAgent(talk)) as runner:
            started = await runner.start(request(user("u1")))
            await anyio.to_thread.run_sync(entered.wait)
            # The stack of a thread that is not yet waiting may be incomplete, and the thread in which anyio copied the context may not have
            # returned yet.
            while len(during := find_busy_threads()) != 1:
                await anyio.lowlevel.checkpoint()
            release.set()
            await events_of(runner, started)
            while find_busy_threads():
                await anyio.lowlevel.checkpoint()
    assert [(busy.run.key, busy.run.agent, busy.run.thread.id) for busy in during] == [(started.run, "agent", "t")]
    assert "threading.py:" in during[0].location
