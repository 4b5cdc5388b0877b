"""The CLI as a child process: its own environment, its own process group, and an end that leaves no process running.

The SDK starts the CLI with the server's whole environment and does not end the commands it runs. This is its transport with another start
and another end; the protocol in between is the SDK's.
"""

from __future__ import annotations

from dataclasses import replace
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.text import TextReceiveStream, TextSendStream
from claude_agent_sdk import CLIConnectionError, CLINotFoundError

from ambient_runner.bridges.claude.launch_files import LaunchFiles
from ambient_runner.bridges.claude.sdk import SubprocessCLITransport, check_transport, spawn_detached
from ambient_runner.processes.orphan_reaper import create_mark
from ambient_runner.processes.spawn import end_process, kill_group, open_process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from anyio.abc import Process
    from claude_agent_sdk import ClaudeAgentOptions

__all__ = ["ManagedCli"]

_MAX_LINE_BYTES = 16 << 20
_STDERR_LINES = 20
_EXIT_TIMEOUT = 3.0
"""Seconds the CLI has to write its files before it is killed."""


class ManagedCli(SubprocessCLITransport):
    """The SDK's transport to a CLI with exactly this environment. `kill` ends it at once, `close` after it has written its files."""

    def __init__(self, options: ClaudeAgentOptions, environment: Mapping[str, str]) -> None:
        self.stderr: list[str] = []
        """The last lines of its standard error."""
        self.was_started = False
        self._mark = create_mark()
        self._variables = environment
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
                self._build_command(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._cwd,
                env=self._variables,
                mark=self._mark,
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
            kill_group(self._process, self._mark)

    async def close(self) -> None:
        """Wait a moment for the CLI to exit, then kill it and everything it has started."""
        process, self._process = self._process, None
        self._ready = False
        self._files.delete()
        if process is not None:
            with anyio.CancelScope(shield=True):
                await end_process(process, mark=self._mark, exit_timeout=self._exit_timeout)
                if self._stderr_task is not None:
                    await self._stderr_task.wait()

    def _add_stderr_line(self, line: str) -> None:
        self.stderr = [*self.stderr[1 - _STDERR_LINES :], line]


async def _empty_prompt() -> AsyncGenerator[dict[str, Any], None]:
    return
    yield {}
