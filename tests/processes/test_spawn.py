"""Processes of anyio's streams: one way to end them, with everything they have started."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import suppress
from dataclasses import dataclass
from subprocess import PIPE

import anyio
import psutil
from anyio.abc import Process

from ambient_runner.processes.orphan_reaper import create_mark
from ambient_runner.processes.spawn import end_process, kill_group, open_process, signal_group
from tests.machine_speed import promised_within, unless_hung
from tests.processes.recorder import ENVIRONMENT, gone, marked, python

CHILD_IN_GROUP = "import os, time\nif not os.fork(): os.write(1, b'up'); time.sleep(600)\n"
CHILD_OUTSIDE = "import os, time\nif not os.fork(): os.setsid(); os.write(1, b'up'); time.sleep(600)\n"


async def start(code: str, mark: str | None = None) -> Process:
    """Return a process that has written to its output."""
    process = await open_process(python(code), env=ENVIRONMENT, mark=mark, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    with unless_hung():
        await process.stdout.receive()
    return process


def descendants(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


async def test_an_end_kills_the_process_and_its_group() -> None:
    process = await start(CHILD_IN_GROUP + "time.sleep(600)")
    left = descendants(process)
    with unless_hung():
        await end_process(process)
    assert (len(left), process.returncode) == (1, -signal.SIGKILL)
    await gone(*left)


async def test_an_end_gives_the_time_to_exit_after_the_input_has_ended() -> None:
    process = await start("import sys; print('up', flush=True); sys.stdin.read(); sys.exit(7)")
    with unless_hung():
        await end_process(process, exit_timeout=100)
    assert process.returncode == 7


async def test_a_process_that_does_not_use_its_time_to_exit_is_killed() -> None:
    process = await start("import time; print('up', flush=True); time.sleep(600)")
    with unless_hung():
        await end_process(process, exit_timeout=0.05)
    assert process.returncode == -signal.SIGKILL


async def test_the_group_of_a_process_that_has_exited_ends_too() -> None:
    process = await start(CHILD_IN_GROUP + "input()")
    leader, left = psutil.Process(process.pid), descendants(process)
    with unless_hung():
        assert process.stdin is not None
        await process.stdin.send(b"\n")
        await gone(leader)
        await end_process(process)
    await gone(*left)


async def test_what_has_left_the_group_ends_by_the_mark() -> None:
    mark = create_mark()
    process = await start(CHILD_OUTSIDE + "time.sleep(600)", mark)
    left = descendants(process)
    with unless_hung():
        await end_process(process, mark=mark)
    await gone(*left)
    assert not marked()


async def test_what_keeps_the_output_open_does_not_keep_the_end() -> None:
    process = await start(CHILD_OUTSIDE + "time.sleep(600)")
    left = descendants(process)
    with promised_within(12):
        await end_process(process)
    for one in left:
        assert one.status() != psutil.STATUS_ZOMBIE
        one.kill()


async def test_a_cancellation_ends_the_time_to_exit_and_nothing_else() -> None:
    process = await start("import time; print('up', flush=True); time.sleep(600)")
    with unless_hung(), anyio.CancelScope() as scope:
        scope.cancel()
        await end_process(process, exit_timeout=100)
    assert process.returncode == -signal.SIGKILL


async def test_a_shutdown_of_the_event_loop_during_an_end_leaves_nothing_open() -> None:
    process = await start("import time; print('up', flush=True); time.sleep(600)")
    ending = asyncio.create_task(end_process(process, exit_timeout=100))
    await anyio.sleep(0.05)
    ending.cancel()
    with unless_hung(), suppress(asyncio.CancelledError):
        await ending
    assert process.returncode == -signal.SIGKILL
    del process, ending
    gc.collect()  # What was not closed is a ResourceWarning.


async def test_a_group_that_is_gone_is_no_error() -> None:
    process = await start("print('up', flush=True)")
    with unless_hung():
        await process.wait()
        await end_process(process)
    kill_group(process)
    kill_group(process, create_mark())
    signal_group(process, signal.SIGTERM)


@dataclass
class Exited:
    """A process that has exited, and whose id another group has by now."""

    pid: int
    returncode: int | None = 0


async def test_the_group_of_a_marked_process_that_has_exited_is_left_alone() -> None:
    other = await start("import time; print('up', flush=True); time.sleep(600)")
    kill_group(Exited(other.pid), create_mark())
    assert psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE
    with unless_hung():
        await end_process(other)
