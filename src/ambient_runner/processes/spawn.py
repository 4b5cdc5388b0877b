"""Child processes for code that reads and writes with anyio's streams: a start that is not lost, and an end that leaves no process running.

`child.py` is for output that arrives in callbacks.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio

from ambient_runner.processes.orphan_reaper import MARK, create_mark, kill_marked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

__all__ = ["StartedProcess", "end_process", "kill_group", "open_process", "signal_group"]

_KILL_TIMEOUT = 5.0
"""Seconds until a killed process that does not end is left alone."""


class StartedProcess(Protocol):
    """A child process that leads its own group: anyio's, or a `ChildProcess`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...


async def open_process(
    command: Sequence[str], *, env: Mapping[str, str], mark: str | None = None, **options: Any
) -> Process:
    """Start the process in a session of its own. `options` are those of `anyio.open_process`. Raises: OSError.

    Every process has a mark, by which the reaper finds it after a crash of this server. With one of the caller, `kill_group` also finds
    what has left its group. A cancellation is delayed until the process is returned, so that the caller can end it: asyncio kills one whose
    start is cancelled, but anyio then cancels its wait for it too.
    """
    variables = {**env, MARK: mark or create_mark()}
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(command, env=variables, start_new_session=True, **options)
    raise AssertionError("unreachable: a scope that is not cancelled swallows nothing")


async def end_process(process: Process, *, mark: str | None = None, exit_timeout: float = 0.0) -> None:
    """Close its input, give it the time to exit, then kill it, its group and everything with the mark, and release its pipes.

    A cancellation ends the time that it has to exit, nothing else.
    """
    try:
        if exit_timeout:
            await _wait_for_exit(process, exit_timeout)
    finally:  # Also when the event loop shuts down, which cancels this task despite a shield.
        kill_group(process, mark)
        with anyio.CancelScope(shield=True):
            await _release_pipes(process)


def kill_group(process: StartedProcess, mark: str | None = None) -> None:
    """Kill the process and its group, and with a mark everything that carries it.

    Without a mark the group is killed even if the process has exited, since processes it started may still run. Call it soon after the
    exit then: later the id of the group may be another's.
    """
    if process.returncode is None or mark is None:
        signal_group(process, signal.SIGKILL)
    if mark is not None:
        kill_marked(mark)


def signal_group(process: StartedProcess, number: signal.Signals) -> None:
    """Send a signal to the process group. One that is gone is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _wait_for_exit(process: Process, timeout: float) -> None:
    if process.stdin is not None:
        with suppress(OSError, anyio.ClosedResourceError):
            await process.stdin.aclose()
    with anyio.move_on_after(timeout):
        await process.wait()


async def _release_pipes(process: Process) -> None:
    try:
        with anyio.move_on_after(_KILL_TIMEOUT):
            await process.wait()
    finally:
        # Not only `aclose`: it waits for the end of the output, which a process that left the group may hold open.
        cast("Any", process)._process._transport.close()
    with anyio.move_on_after(_KILL_TIMEOUT):
        await process.aclose()
