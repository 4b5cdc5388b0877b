"""The CLI as a child process of ours: its own environment, its own process group, and an end that leaves nobody behind.

The SDK starts the CLI with everything in the server's environment and leaves the commands it runs to themselves. This is its transport with
another beginning and another end; the talking in between is the SDK's.
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
from claude_agent_sdk._internal._task_compat import spawn_detached
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from ambient_runner.bridges.claude.launch_files import Handed
from ambient_runner.bridges.claude.orphan_reaper import MARK, end_marked, watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from anyio.abc import Process
    from claude_agent_sdk import ClaudeAgentOptions

__all__ = ["OwnedCli"]

_LONGEST_LINE = 16 << 20
_LAST_LINES = 20
_PATIENCE = 3.0
"""Seconds the CLI has to write its files when nobody needs it any more."""
_REAPING = 5.0


class OwnedCli(SubprocessCLITransport):
    """The SDK's transport to a CLI that has exactly this environment. `kill` ends it at once, `close` when it has written its files."""

    def __init__(self, options: ClaudeAgentOptions, environment: Mapping[str, str]) -> None:
        self.stderr: list[str] = []
        """What it wrote last."""
        self.was_started = False
        self._mark = f"{watch()}{uuid4().hex}"
        self._variables = {**environment, MARK: self._mark}
        self._handed = Handed()
        self._patience = 0.0
        told = replace(options, max_buffer_size=options.max_buffer_size or _LONGEST_LINE, stderr=self._note)
        super().__init__(prompt=_nothing(), options=told)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def has_started(self) -> None:
        """From here on it has something to write before it ends."""
        self.was_started = True
        self._patience = _PATIENCE
        self._handed.take_back()

    async def connect(self) -> None:
        """Start the CLI. Raises: CLINotFoundError, CLIConnectionError."""
        if self._cli_path is None:
            self._cli_path = await anyio.to_thread.run_sync(self._find_cli)
        try:
            self._options = self._handed.put(self._options)
            self._process = process = await self._opened()
        except BaseException:
            self._handed.take_back()
            raise
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin_stream = TextSendStream(process.stdin)
        self._stdout_stream = TextReceiveStream(process.stdout)
        self._stderr_stream = TextReceiveStream(process.stderr, errors="replace")
        self._stderr_task = spawn_detached(self._handle_stderr())
        self._ready = True

    async def _opened(self) -> Process:
        try:
            return await anyio.open_process(
                self._build_command(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._cwd,
                env=self._variables,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            if error.filename == self._cwd:
                raise CLIConnectionError(f"The working directory {self._cwd} does not exist.") from error
            raise CLINotFoundError("There is no Claude CLI at", self._cli_path) from error
        except OSError as error:
            raise CLIConnectionError(f"The Claude CLI at {self._cli_path} cannot be started.") from error

    def kill(self) -> None:
        """End the CLI and everything it has started, now."""
        self._patience = 0.0
        if self._process is not None:
            _end(self._process.pid, self._mark, leader=self._process.returncode is None)

    async def close(self) -> None:
        """Let the CLI end by itself for a moment, then end it, and with it whatever it has started."""
        with anyio.CancelScope(shield=True):
            process, self._process = self._process, None
            self._ready = False
            self._handed.take_back()
            if process is None:
                return
            with suppress(OSError, anyio.ClosedResourceError):
                assert process.stdin is not None
                await process.stdin.aclose()
            with anyio.move_on_after(self._patience):
                await process.wait()
            _end(process.pid, self._mark, leader=process.returncode is None)
            with anyio.move_on_after(_REAPING):
                await process.aclose()
            if self._stderr_task is not None:
                await self._stderr_task.wait()

    def _note(self, line: str) -> None:
        self.stderr = [*self.stderr[1 - _LAST_LINES :], line]


async def _nothing() -> AsyncGenerator[dict[str, Any], None]:
    return
    yield {}


def _end(pid: int, mark: str, *, leader: bool) -> None:
    """Kill the process, its group, and everything that carries the mark."""
    if leader:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    end_marked(mark)
