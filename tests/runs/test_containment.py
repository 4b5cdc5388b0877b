from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from ambient_runner.protocol.events import Cancelled, RunError, RunFinished
from ambient_runner.runs.run import Run
from tests.machine_speed import unless_hung
from tests.scripts import begun
from tests.world import KEY, ScriptedAgent, events_of, request, run_once, runner_of, said, user


async def _lost_subtask() -> None:
    subtask = asyncio.create_task(asyncio.sleep(60))
    subtask.cancel()
    await subtask


async def _own_cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _exit() -> None:
    raise SystemExit(3)


async def _interrupt() -> None:
    raise KeyboardInterrupt


async def _exit_of_a_subtask() -> None:
    await asyncio.create_task(_exit())


async def _exit_of_a_subtask_that_is_cancelled() -> None:
    async def exits_at_the_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await _exit()

    subtask = asyncio.create_task(exits_at_the_end())
    await asyncio.sleep(0)
    subtask.cancel()
    await subtask


async def _exit_in_a_thread() -> None:
    await asyncio.gather(asyncio.to_thread(sys.exit, 3))


async def _exit_in_a_task_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_exit)


async def _group() -> None:
    raise BaseExceptionGroup("bad", [SystemExit(3)])


_MISDEEDS = [
    _lost_subtask,
    _own_cancel,
    _exit,
    _exit_of_a_subtask,
    _exit_of_a_subtask_that_is_cancelled,
    _exit_in_a_thread,
    _exit_in_a_task_group,
    _interrupt,
    _group,
]


@pytest.mark.parametrize("misdeed", _MISDEEDS)
async def test_an_agent_that_cancels_itself_or_tries_to_end_the_process_fails_alone(misdeed: Any) -> None:
    release = anyio.Event()

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        if run.thread.id == "bad":
            await misdeed()
        await release.wait()
        for event in said("m1", "fine"):
            yield event

    async with runner_of(ScriptedAgent(talk)) as runner:
        with unless_hung():
            other = await runner.start(request(user("u1"), thread="good"))
            bad = await run_once(runner, user("u1"), thread="bad")
            release.set()
            good = await events_of(runner, other)
    assert isinstance(bad[-1], RunError)
    assert bad[-1].code == "agent_error"
    assert isinstance(good[-1], RunFinished)


async def test_an_agent_that_swallows_its_cancellation_is_detached_and_the_thread_continues() -> None:
    let_go = asyncio.Event()

    async def deaf(run: Run) -> AsyncGenerator[Any, None]:
        for event in said(f"m-{run.key}", "…"):
            yield event
        while run.input.messages[-1].id == "u1" and not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with runner_of(ScriptedAgent(deaf)) as runner:
        with unless_hung():
            started = await begun(runner, user("u1"))
            await runner.stop(KEY)
            ended = await events_of(runner, started)
            uncancellable = set(runner.uncancellable_tasks)
            again = await run_once(runner, user("u2"))
            let_go.set()
            await asyncio.wait(uncancellable)
    assert len(uncancellable) == 1
    assert isinstance(ended[-1], RunFinished)
    assert ended[-1].outcome == Cancelled()
    assert isinstance(again[-1], RunFinished)


async def test_a_child_process_that_anyio_waits_for_in_its_clean_up_is_ended_with_its_run() -> None:
    children: list[int] = []

    async def working(run: Run) -> AsyncGenerator[Any, None]:
        async with await anyio.open_process(["sleep", "600"]) as child:
            children.append(child.pid)
            for event in said("m1", "working"):
                yield event
            await child.wait()

    async with runner_of(ScriptedAgent(working)) as runner:
        started = await begun(runner, user("u1"))
        with unless_hung():
            await runner.stop(KEY)
            events = await events_of(runner, started)
        assert runner.uncancellable_tasks == set()
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == Cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)
