"""`AgentRuns`: the runs of an agent object without a server. `tests/compat/test_own_run.py` has those on a server."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from ag_ui.core import BaseEvent, RunAgentInput, RunErrorEvent

from ambient_runner.bridges.toolkit.agent_runs import AgentRuns
from ambient_runner.errors import BridgeTimeout, ThreadBusy
from ambient_runner.protocol.events import Custom


class FakeAdapter:
    """Yields one event, and records that it was closed or interrupted."""

    def __init__(self, thread_id: str, log: list[str]) -> None:
        self._thread_id, self._log = thread_id, log

    async def run(self, error: Exception | None = None) -> AsyncGenerator[Any, None]:
        yield Custom(name="at", value=self._thread_id)
        if error is not None:
            raise error

    async def interrupt(self) -> None:
        self._log.append(f"interrupt {self._thread_id}")

    async def aclose(self) -> None:
        self._log.append(f"close {self._thread_id}")


def runs_of(log: list[str], max_threads: int = 256) -> AgentRuns:
    return AgentRuns(
        "the agent",
        lambda run_input: FakeAdapter(run_input.thread_id, log),
        lambda run_input: run_input.thread_id,
        max_threads=max_threads,
    )


def run_input(thread_id: str) -> RunAgentInput:
    return RunAgentInput(
        thread_id=thread_id, run_id="r", state={}, messages=[], tools=[], context=[], forwarded_props={}
    )


async def collect(runs: AgentRuns, thread_id: str, error: Exception | None = None) -> list[BaseEvent]:
    return [event async for event in runs.stream(run_input(thread_id), lambda adapter: adapter.run(error))]


async def test_adapters_beyond_the_limit_are_closed_and_those_of_active_runs_are_not() -> None:
    log: list[str] = []
    runs = runs_of(log, max_threads=1)
    async with aclosing(runs.stream(run_input("a"), lambda adapter: adapter.run())) as active:
        await anext(active)
        await anext(active)
        await collect(runs, "b")
        await collect(runs, "c")
        assert log == ["close b"]
        await runs.interrupt("a")
        await runs.interrupt("b")
        assert log == ["close b", "interrupt a"]
    await runs.aclose()
    assert log == ["close b", "interrupt a", "close a", "close c"]


async def test_a_second_run_of_a_busy_thread_ends_with_an_error() -> None:
    runs = runs_of([])
    async with aclosing(runs.stream(run_input("a"), lambda adapter: adapter.run())) as active:
        await anext(active)
        await anext(active)
        refused = await collect(runs, "a")
    assert isinstance(refused[-1], RunErrorEvent)
    assert refused[-1].code == ThreadBusy.code
    assert [event.type.value for event in await collect(runs, "a")] == ["RUN_STARTED", "CUSTOM"]


async def test_a_failed_run_is_logged_and_ends_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """A failure of `ADKAgent.run` once left no line in the log."""
    with caplog.at_level(logging.ERROR):
        events = await collect(runs_of([]), "a", BridgeTimeout())
    assert [event.type.value for event in events] == ["RUN_STARTED", "CUSTOM", "RUN_ERROR"]
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("ERROR", True)]
