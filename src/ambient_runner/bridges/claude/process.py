"""The CLI as a child process: its own environment, its own process group, and an end that leaves no process running.

The SDK starts the CLI with the server's whole environment and does not end the commands it runs. This is its transport with another start
and another end; the protocol in between is the SDK's.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace
from subprocess import PIPE
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
from anyio.streams.text import TextReceiveStream, TextSendStream
from claude_agent_sdk import CLIConnectionError, CLINotFoundError

from ambient_runner.bridges.claude.launch_files import LaunchFiles
from ambient_runner.bridges.claude.orphan_reaper import MARK, ensure_reaper, kill_marked
from ambient_runner.bridges.claude.sdk import SubprocessCLITransport, check_transport, spawn_detached
from ambient_runner.runs.process import open_process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from anyio.abc import Process
    from claude_agent_sdk import ClaudeAgentOptions

__all__ = ["ManagedCli"]

_MAX_LINE_BYTES = 16 << 20
_STDERR_LINES = 20
_EXIT_TIMEOUT = 3.0
"""Seconds the CLI has to write its files before it is killed."""
_CLOSE_TIMEOUT = 5.0  # seconds


class ManagedCli(SubprocessCLITransport):
    """The SDK's transport to a CLI with exactly this environment. `kill` ends it at once, `close` after it has written its files."""

    def __init__(self, options: ClaudeAgentOptions, environment: Mapping[str, str]) -> None:
        self.stderr: list[str] = []
        """The last lines of its standard error."""
        self.was_started = False
        self._mark = f"{ensure_reaper()}{uuid4().hex}"
        self._variables = {**environment, MARK: self._mark}
        self._files = LaunchFiles()
        self._exit_timeout = 0.0
        limit = options.max_buffer_size or _MAX_LINE_BYTES
        super().__init__(
            prompt=_empty_prompt(), options=replace(options, max_buffer_size=limit, stderr=self._add_stderr_line)
        )
        check_transport(self)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def mark_started(self) -> None:
        """Record that it has started: from now on it has something to write before it ends."""
        self.was_started = True
        self._exit_timeout = _EXIT_TIMEOUT
        self._files.delete()

    async def connect(self) -> None:
        """Start the CLI. Raises: CLINotFoundError, CLIConnectionError."""
        if self._cli_path is None:
            self._cli_path = await anyio.to_thread.run_sync(self._find_cli)
        try:
            self._options = self._files.write(self._options)
            self._process = process = await self._open_process()
        except BaseException:
            self._files.delete()
            raise
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin_stream = TextSendStream(process.stdin)
        self._stdout_stream = TextReceiveStream(process.stdout)
        self._stderr_stream = TextReceiveStream(process.stderr, errors="replace")
        self._stderr_task = spawn_detached(self._handle_stderr())
        self._ready = True

    async def _open_process(self) -> Process:
        try:
            return await open_process(
                self._build_command(), stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=self._cwd, env=self._variables
            )
        except FileNotFoundError as error:
            if error.filename == self._cwd:
                raise CLIConnectionError(f"The working directory {self._cwd} does not exist.") from error
            raise CLINotFoundError("No Claude CLI at", self._cli_path) from error
        except OSError as error:
            raise CLIConnectionError(f"The Claude CLI at {self._cli_path} cannot be started.") from error

    def kill(self) -> None:
        """Kill the CLI and everything it has started."""
        self._exit_timeout = 0.0
        if self._process is not None:
            _kill_all(self._process.pid, self._mark, leader=self._process.returncode is None)

    async def close(self) -> None:
        """Wait a moment for the CLI to exit, then kill it and everything it has started."""
        process, self._process = self._process, None
        self._ready = False
        self._files.delete()
        if process is not None:
            with anyio.CancelScope(shield=True):
                await self._end_process(process)

    async def _end_process(self, process: Process) -> None:
        assert process.stdin is not None
        try:
            with suppress(OSError, anyio.ClosedResourceError):
                await process.stdin.aclose()
            with anyio.move_on_after(self._exit_timeout):
                await process.wait()
        finally:  # Also when the event loop shuts down, which cancels this task despite the shield.
            _kill_all(process.pid, self._mark, leader=process.returncode is None)
        with anyio.move_on_after(_CLOSE_TIMEOUT):
            await process.aclose()
        if self._stderr_task is not None:
            await self._stderr_task.wait()

    def _add_stderr_line(self, line: str) -> None:
        self.stderr = [*self.stderr[1 - _STDERR_LINES :], line]


async def _empty_prompt() -> AsyncGenerator[dict[str, Any], None]:
    return
    yield {}


def _kill_all(pid: int, mark: str, *, leader: bool) -> None:
    """Kill the process, its group and everything with the mark."""
    if leader:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    kill_marked(mark)
