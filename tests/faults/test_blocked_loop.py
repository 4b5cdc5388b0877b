"""F18: an agent blocks the event loop. Leases hold, other streams continue afterwards, and the log says what blocks."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.server import Child, start
from tests.e2e.talk import ending, events_of, history, numbers, one_run, run, run_input, text_of
from tests.faults.metrics import read_metrics
from tests.machine_speed import HANG_SECONDS, unless_hung

AGENT = "blocker=blocking_agent:agent"
LEASE = 1.0  # seconds
BLOCK = 3  # seconds: several leases


def start_server(directory: Path) -> Child:
    env = {"AMBIENT_LEASE": str(LEASE)}
    return start(directory / "ambient.db", "demo", AGENT, env=env, cwd=Path(__file__).parent)


async def block(url: str, text: str, thread: str = "blocked") -> list[dict[str, Any]]:
    return events_of(await run(f"{url}/agents/blocker", run_input(thread, text)))


def reports_in(child: Child) -> list[str]:
    """Return the log's reports of blocks, each with its continuation lines."""
    records = re.split(r"\n(?!    \| )", child.output)
    return [record for record in records if "has blocked the server" in record]


async def test_f18_m7_a_blocked_loop_is_reported_once_with_its_stack_and_loses_nothing(tmp_path: Path) -> None:
    """Every other stream stood still for as long, and nothing said why."""
    streams: dict[str, list[dict[str, Any]]] = {}
    with unless_hung(), start_server(tmp_path) as child, start_server(tmp_path) as other:

        async def count(thread: str) -> None:
            streams[thread] = events_of(await run(child.url, run_input(thread, "count 100 every 10ms")))

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(count, f"t{number}")
            blocked = await block(child.url, f"sleep {BLOCK}")
        reports = reports_in(child)
        await block(child.url, "sleep 2 times 2", "often")
        metrics = await read_metrics(child.url)
        # The other process looks for abandoned runs all the time: a lease that had lapsed would have ended these.
        stored = [events_of(await history(other.url, thread)) for thread in (*streams, "blocked")]
        again = await block(other.url, "sleep 0", "again")
    assert [ending(one_run(events)) for events in (*stored, blocked, again)] == ["success"] * 6
    assert [text_of(events) for events in streams.values()] == [numbers(100)] * 3
    (report,) = reports
    assert len(reports_in(child)) == 3
    assert "Agent blocker" in report
    assert "call_slow_library" in report.partition("\n")[0]
    assert "blocking_agent.py" in report.partition("\n")[0]
    assert "thread blocked" in report
    assert "asyncio.to_thread" in report
    assert "time.sleep(seconds)" in report
    assert "in agent" in report
    assert metrics["ambient_loop_blocked_seconds_count"] == 3
    assert BLOCK < metrics["ambient_loop_blocked_seconds_sum"] < HANG_SECONDS
    assert reports_in(other) == []


async def test_f18_m7_the_report_comes_while_the_loop_is_blocked(tmp_path: Path) -> None:
    """It may never end: then a report at the end would never come."""
    with unless_hung(), start_server(tmp_path) as child:
        async with anyio.create_task_group() as group:

            async def post() -> None:
                with pytest.raises((OSError, EOFError)):
                    await block(child.url, f"sleep {HANG_SECONDS}")

            group.start_soon(post)
            while not reports_in(child):
                await anyio.sleep(0.05)
            child.kill()
    assert len(reports_in(child)) == 1


async def test_f18_m7_code_that_keeps_the_interpreter_lock_is_reported_too(tmp_path: Path) -> None:
    with unless_hung(), start_server(tmp_path) as child:
        events = await block(child.url, "search")
    assert ending(one_run(events)) == "success"
    assert "search_backwards" in "".join(reports_in(child))


async def test_f18_m7_a_process_that_was_stopped_is_not_reported(tmp_path: Path) -> None:
    with unless_hung(), start_server(tmp_path) as child:
        async with anyio.create_task_group() as group:
            done: list[str] = []

            async def count() -> None:
                done.append(ending(events_of(await run(child.url, run_input("t", "count 100 every 10ms")))))

            group.start_soon(count)
            child.signal(signal.SIGSTOP)
            await anyio.sleep(2)  # The fault itself lasts for so long.
            child.signal(signal.SIGCONT)
        metrics = await read_metrics(child.url)
    assert done
    assert reports_in(child) == []
    assert metrics["ambient_loop_blocked_seconds_count"] == 0
