from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ambient_runner.runs import loop_monitor
from ambient_runner.runs.loop_monitor import report_blocking_agents
from ambient_runner.runs.run import Run
from tests.machine_speed import unless_hung
from tests.world import ScriptedAgent, run_once, runner_of, said, user

THRESHOLD = 0.05  # seconds
BLOCK = 0.5  # seconds


async def blocking(run: Run) -> AsyncIterator[Any]:
    yield said("m1", "one")[0]
    time.sleep(BLOCK)  # noqa: ASYNC251  the mistake that has to be found
    for event in said("m1", "one")[1:]:
        yield event


async def waiting(run: Run) -> AsyncIterator[Any]:
    await anyio.sleep(4 * THRESHOLD)
    for event in said("m1", "one"):
        yield event


async def warnings_of(script: Any, caplog: pytest.LogCaptureFixture, polls: int = 1000, count: int = 1) -> list[str]:
    with caplog.at_level(logging.WARNING, logger="ambient_runner.runs.loop_monitor"), unless_hung():
        async with runner_of(ScriptedAgent(script)) as runner:
            with report_blocking_agents(THRESHOLD):
                await run_once(runner, user("u1"))
                # The monitor logs when it has seen the end of the block.
                for _ in range(polls):
                    await anyio.sleep(THRESHOLD / 2)
                    if len(caplog.records) >= count:
                        break
    return [record.getMessage() for record in caplog.records]


async def test_an_agent_that_blocks_the_event_loop_is_named_with_the_time(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = await warnings_of(blocking, caplog)
    assert message.startswith("Agent agent blocked the server for 0.")
    assert "thread t)" in message


async def blocking_in_a_task(run: Run) -> AsyncIterator[Any]:
    async def block() -> None:
        await anyio.lowlevel.checkpoint()
        time.sleep(BLOCK)  # noqa: ASYNC251  the mistake that has to be found

    await asyncio.create_task(block())
    for event in said("m1", "one"):
        yield event


async def blocking_in_a_task_group(run: Run) -> AsyncIterator[Any]:
    async def block() -> None:
        time.sleep(BLOCK)  # noqa: ASYNC251  the mistake that has to be found

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(block)
    for event in said("m1", "one"):
        yield event


@pytest.mark.parametrize("script", [blocking_in_a_task, blocking_in_a_task_group])
async def test_an_agent_that_blocks_in_a_task_of_its_framework_is_named(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """LangGraph, ADK, Strands and pydantic-ai run nodes and tools in tasks of their own: none of them was reported."""
    (message,) = await warnings_of(script, caplog)
    assert message.startswith("Agent agent blocked the server for 0.")
    assert "thread t)" in message


async def test_a_block_is_reported_while_it_lasts_and_when_it_ends_with_the_runs_context(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_monitor, "_LONG_BLOCK", 2 * THRESHOLD)
    logged_during: list[str] = []

    async def blocking_long(run: Run) -> AsyncIterator[Any]:
        time.sleep(BLOCK)  # noqa: ASYNC251  the mistake that has to be found
        logged_during.extend(record.getMessage() for record in caplog.records)
        for event in said("m1", "one"):
            yield event

    await warnings_of(blocking_long, caplog, count=2)
    assert [message.startswith("Agent agent has blocked the server for 0.") for message in logged_during] == [True]
    first, last = caplog.records
    assert last.getMessage().startswith("Agent agent blocked the server for 0.")
    for record in (first, last):
        assert (record.__dict__["ambient_thread"], record.__dict__["ambient_agent"]) == ("t", "agent")
        assert record.__dict__["ambient_run"] in record.getMessage()


def test_a_long_block_is_reported_before_clients_give_up() -> None:
    assert loop_monitor._LONG_BLOCK <= 5  # pyright: ignore[reportPrivateUsage]


async def test_an_agent_that_only_waits_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings_of(waiting, caplog, polls=4) == []
