from __future__ import annotations

import asyncio
import logging
import sysconfig
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import ambient_runner
from ambient_runner.runs.loop_monitor import report_blocked_loop
from ambient_runner.runs.run import Run
from ambient_runner.runs.user_frames import is_user_code, shorten_path
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
            with report_blocked_loop(THRESHOLD):
                await run_once(runner, user("u1"))
                for _ in range(polls):
                    await anyio.sleep(THRESHOLD / 2)
                    if len(caplog.records) >= count:
                        break
    return [record.getMessage() for record in caplog.records]


async def test_an_agent_that_blocks_the_event_loop_is_named_with_the_time(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = await warnings_of(blocking, caplog)
    assert message.startswith("Agent agent has blocked the server for 0.")
    assert f"in blocking ({shorten_path(__file__)}, line " in message
    assert "thread t)" in message
    assert "time.sleep(BLOCK)" in message


def blocking_function(file: Path) -> Any:
    """Return a function that blocks, as if it were defined in this file."""
    names: dict[str, Any] = {"time": time}
    exec(compile(f"def convert(): time.sleep({BLOCK})", str(file), "exec"), names)
    return names["convert"]


@pytest.mark.parametrize(
    ("directory", "is_own"),
    [(Path(ambient_runner.__file__).parent, True), (Path(sysconfig.get_path("purelib")) / "some_agent", False)],
    ids=["ours", "a package"],
)
async def test_the_time_our_own_code_takes_is_not_called_blocking_code_of_the_agent(
    directory: Path, is_own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The report advised the user to run our conversion of a large event in a thread."""
    block = blocking_function(directory / "module.py")

    async def script(run: Run) -> AsyncIterator[Any]:
        block()
        for event in said("m1", "one"):
            yield event

    (message,) = await warnings_of(script, caplog)
    assert message.startswith("Agent agent has blocked the server for 0.") is not is_own
    assert ("asyncio.to_thread" in message) is not is_own
    assert ("Send less in one event" in message) is is_own
    assert ("in convert (" in message) is is_own
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
    assert message.startswith("Agent agent has blocked the server for 0.")
    assert "thread t)" in message


async def test_a_block_is_reported_once_while_it_lasts_with_the_runs_context(caplog: pytest.LogCaptureFixture) -> None:
    logged_during: list[str] = []

    async def blocking_long(run: Run) -> AsyncIterator[Any]:
        time.sleep(BLOCK)  # noqa: ASYNC251  the mistake that has to be found
        logged_during.extend(record.getMessage() for record in caplog.records)
        for event in said("m1", "one"):
            yield event

    await warnings_of(blocking_long, caplog)
    (record,) = caplog.records
    assert logged_during == [record.getMessage()]
    assert (record.__dict__["ambient_thread"], record.__dict__["ambient_agent"]) == ("t", "agent")
    assert record.__dict__["ambient_run"] in record.getMessage()


async def test_code_that_is_not_an_agents_is_reported_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """An app's own handlers share the loop, and so does the server's code: nothing said which of them blocked it."""
    with caplog.at_level(logging.WARNING, logger="ambient_runner.runs.loop_monitor"), unless_hung():
        with report_blocked_loop(THRESHOLD):
            await anyio.sleep(THRESHOLD)
            time.sleep(BLOCK)  # noqa: ASYNC251  the mistake that has to be found
    (record,) = caplog.records
    assert record.getMessage().startswith("The server has been blocked for 0.")
    assert shorten_path(__file__) in record.getMessage()


async def calculating(run: Run) -> AsyncIterator[Any]:
    sum(range(30_000_000))  # One call, of about half a second.
    for event in said("m1", "one"):
        yield event


async def test_a_call_that_keeps_the_interpreter_lock_until_it_ends_is_reported_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The monitor's thread got its turn when the loop was free again, and said nothing."""
    messages = await warnings_of(calculating, caplog)
    assert messages
    assert all("blocked" in message for message in messages)


def test_the_command_itself_is_no_code_of_the_user() -> None:
    """`ambient` was named as the place that blocks where our own code does."""
    assert not is_user_code(str(Path(sysconfig.get_path("scripts")) / "ambient"))
    assert is_user_code(__file__)


async def test_an_agent_that_only_waits_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings_of(waiting, caplog, polls=4) == []
