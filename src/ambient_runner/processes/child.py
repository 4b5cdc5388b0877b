"""A child process whose output arrives in callbacks: its own environment, session and mark, and an end that leaves no process running.

There is no task and no stream: blocks of output go to `on_output` as the event loop reads them, which `JsonRpcPeer.feed` takes as they are.
`spawn.py` is for code that reads and writes with anyio's streams.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
from collections import deque
from itertools import islice
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

import anyio

from ambient_runner.processes.orphan_reaper import MARK, create_mark, kill_marked
from ambient_runner.processes.pipes import ExitWatch, InputPipe, OutputPipe
from ambient_runner.processes.spawn import kill_group, signal_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["ChildProcess"]

_MAX_STDERR_LINE = 1000  # characters
_MAX_PENDING_INPUT = 64 << 20
"""Bytes that wait for a process which does not read. Above, its output is not read either, so that answers to it cannot pile up."""
_EXIT_DELAY = 0.25
"""Seconds between the end of the output and the exit of a process that ends. One that takes longer has only closed its output."""
_TERMINATE_TIMEOUT = 1.0
"""Seconds between SIGTERM and SIGKILL."""
_KILL_TIMEOUT = 5.0
"""Seconds until a killed process that does not end is left alone."""
_SCAN_INTERVAL = 0.01  # seconds
_QUIET_SCANS = 2
_MAX_SCANS = 100
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-_])")


class ChildProcess:
    """A running process. Use `start` to create one, and `aclose` to end it with everything it has started."""

    def __init__(
        self,
        process: Popen[bytes],
        mark: str,
        *,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[], None],
        max_stderr_lines: int,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self._process = process
        self._mark = mark
        self._on_exit = on_exit
        self._exited = anyio.Event()
        self._is_paused = self._is_ending = self._is_draining = self._has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._tail = _StderrTail(max_stderr_lines)
        self._on_output = on_output
        self._stdin = InputPipe(process.stdin, self._update)
        self._stdout = OutputPipe(process.stdout, self._receive, self._expect_exit)
        self._stderr = OutputPipe(process.stderr, self._tail.feed, lambda: None)
        self._exit_watch = ExitWatch(process, self._handle_exit)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[], None],
        max_stderr_lines: int = 20,
    ) -> ChildProcess:
        """Start a process with exactly this environment and its mark, in a session of its own, without descriptors of this one.

        `on_output` gets blocks of its standard output. `on_exit` is called once, when the process has exited and its output has been
        delivered, or when it has closed its output. Neither is called before `start` has returned, and neither may raise. What an exited
        process has left running is killed.

        Raises: OSError, whose `filename` is the command or the directory that is missing.
        """
        mark = create_mark()
        process = _spawn(command, {**env, MARK: mark}, cwd)
        return cls(process, mark, on_output=on_output, on_exit=on_exit, max_stderr_lines=max_stderr_lines)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def is_alive(self) -> bool:
        return self.returncode is None

    @property
    def stderr(self) -> list[str]:
        """The last lines of its standard error, without control characters, each shortened to 1000 characters."""
        return self._tail.lines

    def write(self, data: bytes) -> None:
        """Send data to its standard input. It is dropped if the process has exited or closed its input."""
        self._stdin.write(data)
        if self._stdin.pending_bytes > _MAX_PENDING_INPUT:
            self._update()

    def close_input(self) -> None:
        """Close its standard input after everything written has been read."""
        self._stdin.end()

    def pause_output(self) -> None:
        """Stop reading its output. The process waits as soon as its pipe is full."""
        self._is_paused = True
        self._update()

    def resume_output(self) -> None:
        self._is_paused = False
        self._update()

    def terminate(self) -> None:
        """Ask the process and its group to end (SIGTERM)."""
        if self.is_alive:
            signal_group(self, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and everything it has started."""
        kill_group(self, self._mark)

    async def wait(self) -> int:
        """Wait for its exit and return its code. Its last output may still be under way."""
        await self._exited.wait()
        return self._process.returncode

    async def aclose(self, grace: float = 0.0) -> None:
        """Close its input and give it `grace` seconds to exit, then end it with everything it has started, and close its pipes.

        A process that is still there after that gets SIGTERM, and SIGKILL a second later. A cancellation is delayed until all is done.
        """
        with anyio.CancelScope(shield=True):
            try:
                await self._end(grace)
            except BaseException:  # The event loop shuts down, and cancels this task despite the shield.
                self.kill()
                raise
            finally:
                self._close_pipes()
                self._report_end()

    async def _end(self, grace: float) -> None:
        self._is_ending = True
        self._update()
        self.close_input()
        await self._wait_at_most(grace)
        self.terminate()
        await self._wait_at_most(_TERMINATE_TIMEOUT)
        await self._kill_all()
        await self._wait_at_most(_KILL_TIMEOUT)

    async def _wait_at_most(self, seconds: float) -> None:
        if self.is_alive and seconds:
            with anyio.move_on_after(seconds):
                await self._exited.wait()

    async def _kill_all(self) -> None:
        """Kill it and everything with its mark until nothing is left: a process that is starting another is easily missed."""
        if self.is_alive:
            signal_group(self, signal.SIGKILL)
        quiet_scans = 0
        for _ in range(_MAX_SCANS):
            quiet_scans = 0 if kill_marked(self._mark) else quiet_scans + 1
            if quiet_scans >= _QUIET_SCANS:
                return
            await anyio.sleep(_SCAN_INTERVAL)

    def _receive(self, data: bytes) -> None:
        # While it is paused, output is read only to let the process exit, and is dropped.
        if not self._is_paused:
            self._on_output(data)

    def _update(self) -> None:
        """Resume or pause reading the output. Once all output of an exited process has been read, report its end."""
        if self._is_ending or not (self._is_paused or self._stdin.pending_bytes > _MAX_PENDING_INPUT):
            self._stdout.resume()
        else:
            self._stdout.pause()
        if self._exited.is_set() and not self._has_ended and not self._is_draining:
            self._drain()

    def _drain(self) -> None:
        self._is_draining = True
        self._stdout.drain()
        self._stderr.drain()
        self._is_draining = False
        if self._stdout.is_closed or not self._stdout.is_paused:
            self._clean_up()
            self._report_end()

    def _expect_exit(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_EXIT_DELAY, self._report_end)

    def _handle_exit(self) -> None:
        self._exited.set()
        self._stdin.close()
        if self._has_ended:
            self._clean_up()
        self._update()

    def _clean_up(self) -> None:
        """Kill what an exited process has left running, and close the pipes that it may hold open."""
        kill_marked(self._mark)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def _report_end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_ended:
            self._has_ended = True
            self._on_exit()


class _StderrTail:
    """The last lines of a process's standard error, each bounded."""

    def __init__(self, max_lines: int) -> None:
        self._max_lines = max_lines
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._rest = b""

    @property
    def lines(self) -> list[str]:
        last = [text] if (text := _clean_line(self._rest)) else []
        return list(deque([*self._lines, *last], maxlen=self._max_lines))

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        texts = (text for line in reversed(lines) if (text := _clean_line(line)))
        self._lines.extend(reversed(list(islice(texts, self._max_lines))))
        self._rest = rest[: 4 * _MAX_STDERR_LINE]


def _clean_line(line: bytes) -> str:
    text = _ESCAPE_SEQUENCE.sub("", line[: 4 * _MAX_STDERR_LINE].decode("utf-8", "replace"))
    return "".join(char if char.isprintable() else " " for char in text).strip()[:_MAX_STDERR_LINE]


def _spawn(command: Sequence[str], variables: Mapping[str, str], cwd: str | Path | None) -> Popen[bytes]:
    if cwd is not None and not Path(cwd).is_dir():
        number = errno.ENOTDIR if Path(cwd).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(cwd))
    try:
        return Popen(  # noqa: S603 - the operator or the profile chose the command; there is no shell
            command,
            bufsize=0,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
    except ValueError as error:  # NUL characters, names with `=`, halves of surrogate pairs
        raise OSError(errno.EINVAL, "The command or its environment cannot be passed on", command[0]) from error
