from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

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


async def warnings_of(script: Any, caplog: pytest.LogCaptureFixture, polls: int = 1000) -> list[str]:
    with caplog.at_level(logging.WARNING, logger="ambient_runner.runs.loop_monitor"), unless_hung():
        async with runner_of(ScriptedAgent(script)) as runner:
            with report_blocking_agents(THRESHOLD):
                await run_once(runner, user("u1"))
                # The monitor logs when it has seen the end of the block.
                for _ in range(polls):
                    await anyio.sleep(THRESHOLD / 2)
                    if caplog.records:
                        break
    return [record.getMessage() for record in caplog.records]


async def test_an_agent_that_blocks_the_event_loop_is_named_with_the_time(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = await warnings_of(blocking, caplog)
    assert message.startswith("Agent agent blocked the server for 0.")
    assert "thread t)" in message


async def test_an_agent_that_only_waits_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings_of(waiting, caplog, polls=4) == []
