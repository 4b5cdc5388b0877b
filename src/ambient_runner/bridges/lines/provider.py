"""LinesProvider: one process for each turn, whose output is translated until the turn ends.

A turn ends with the exit of the process, with a line in its notify file, or with silence, as the settings say. The exit always ends it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ambient_runner.bridges.lines.config import PROMPT, SESSION
from ambient_runner.bridges.lines.end_conditions import NOTIFY_VARIABLE, NotifyFile
from ambient_runner.bridges.lines.errors import LinesFailed
from ambient_runner.errors import BridgeError, BridgeTimeout, BridgeUnavailable
from ambient_runner.processes.child import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ambient_runner.bridges.lines.config import LinesConfig
    from ambient_runner.bridges.lines.translate import Translator
    from ambient_runner.bridges.toolkit.provider import ProviderContext, StopReason
    from ambient_runner.protocol.events import Event

__all__ = ["LinesHandle", "LinesProvider"]

_EXIT_GRACE = 2.0
"""Seconds a process has to exit by itself after it has reported the end of its turn."""
_POLL_INTERVAL = 0.05
"""Seconds between two looks at the notify file."""
_QUIET_INTERVAL = 0.1
"""Seconds without output after which a process that has reported the end of its turn has printed everything."""
_LAST_OUTPUT_TIMEOUT = 2.0
"""Seconds that such a process may go on printing."""


class LinesHandle:
    """The process of one turn, and what it has printed."""

    def __init__(self, notify: NotifyFile | None) -> None:
        self.notify = notify
        self.is_cancelled = False
        self.has_closed_output = False
        self.has_printed = False
        self._process: ChildProcess | None = None
        self._unread: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = False
        self._last_output_at = time.monotonic()

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def silent_seconds(self) -> float:
        """Seconds since its last output; 0 while nobody reads it."""
        return 0.0 if self._is_paused else time.monotonic() - self._last_output_at

    async def start(self, command: Sequence[str], context: ProviderContext) -> None:
        """Start the process. Raises: OSError."""
        variables = {} if self.notify is None else {NOTIFY_VARIABLE: str(self.notify.path)}
        self._process = await ChildProcess.start(
            command,
            env={**context.environment, **variables},
            cwd=context.cwd,
            on_output=self._handle_output,
            on_exit=self._handle_exit,
        )

    def take_output(self) -> list[bytes]:
        blocks, self._unread = self._unread, []
        return blocks

    async def wait_for_change(self, seconds: float) -> None:
        """Wait for more output, for its end, or for the exit of a process that has closed its output."""
        with anyio.move_on_after(seconds):
            if self.has_closed_output:
                await self.process.wait()
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    def pause_output(self) -> None:
        self._is_paused = True
        self.process.pause_output()

    def resume_output(self) -> None:
        self._is_paused = False
        self._last_output_at = time.monotonic()
        self.process.resume_output()

    def cancel(self) -> None:
        self.is_cancelled = True
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()

    async def aclose(self) -> None:
        """End the process: one that has reported the end of its turn may exit by itself."""
        try:
            if self._process is not None:
                is_exiting = self.notify is not None and not self.is_cancelled
                await self._process.aclose(_EXIT_GRACE if is_exiting else 0.0)
        finally:
            if self.notify is not None:
                self.notify.close()

    def _handle_output(self, data: bytes) -> None:
        self._unread.append(data)
        self.has_printed = True
        self._last_output_at = time.monotonic()
        self._wake()

    def _handle_exit(self) -> None:
        self.has_closed_output = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LinesProvider:
    """A `ProviderAdapter` for one turn: `translator` gets its output."""

    def __init__(self, config: LinesConfig, translator: Translator) -> None:
        self._config = config
        self._translator = translator

    async def spawn(self, context: ProviderContext) -> LinesHandle:
        """Start the command with its prompt. Raises: BridgeUnavailable, LinesFailed."""
        command = _fill_command(context)
        handle = LinesHandle(await self._create_notify_file())
        try:
            await handle.start(command, context)
        except OSError as error:
            await handle.aclose()
            raise _start_error(context, error) from error
        if not _has_prompt_argument(context.command):
            handle.process.write(f"{context.prompt}\n".encode("utf-8", "replace"))
        handle.process.close_input()
        return handle

    async def decode_stream(self, handle: LinesHandle, sink: Callable[[Event], None]) -> StopReason:
        """Translate the output until the turn ends. Raises: LinesFailed, BridgeTimeout."""
        while not self._has_ended(handle):
            self._translate(handle, sink)
            await handle.wait_for_change(self._seconds_to_wait(handle))
        await self._translate_last_output(handle, sink)
        if handle.is_cancelled:
            return "cancelled"
        self._check_success(handle)
        return self._translator.stop_reason

    async def _create_notify_file(self) -> NotifyFile | None:
        if self._config.end != "notify":
            return None
        return await anyio.to_thread.run_sync(NotifyFile, self._config.notify)

    def _has_ended(self, handle: LinesHandle) -> bool:
        """Return True if the turn is over. Raises: BridgeTimeout if it has been silent for too long."""
        if handle.has_closed_output and (not handle.process.is_alive or self._config.end == "idle"):
            return True
        if handle.notify is not None and handle.notify.has_turn_end():
            return True
        if self._seconds_of_silence_left(handle) > 0:
            return False
        if self._ends_with_silence(handle):
            return True
        raise _with_stderr(
            handle,
            BridgeTimeout(f"The agent printed nothing for {self._config.turn_timeout:g} seconds and was stopped."),
        )

    def _ends_with_silence(self, handle: LinesHandle) -> bool:
        return self._config.end == "idle" and handle.has_printed

    def _seconds_of_silence_left(self, handle: LinesHandle) -> float:
        is_idle_end = self._ends_with_silence(handle)
        limit = self._config.idle_seconds if is_idle_end else self._config.turn_timeout
        return limit - handle.silent_seconds

    def _seconds_to_wait(self, handle: LinesHandle) -> float:
        left = self._seconds_of_silence_left(handle)
        return left if handle.notify is None else min(left, _POLL_INTERVAL)

    def _translate(self, handle: LinesHandle, sink: Callable[[Event], None]) -> None:
        for block in handle.take_output():
            for event in self._translator.feed(block):
                sink(event)

    async def _translate_last_output(self, handle: LinesHandle, sink: Callable[[Event], None]) -> None:
        """Translate what has been printed, also what is still under way from a process that runs on."""
        if handle.notify is not None:
            with anyio.move_on_after(_LAST_OUTPUT_TIMEOUT):
                while not handle.has_closed_output and handle.silent_seconds < _QUIET_INTERVAL:
                    self._translate(handle, sink)
                    await handle.wait_for_change(_QUIET_INTERVAL)
        self._translate(handle, sink)
        for event in self._translator.finish():
            sink(event)

    def _check_success(self, handle: LinesHandle) -> None:
        """Raise LinesFailed if the process has failed, or has reported that its turn did."""
        code, failure = handle.process.returncode, self._translator.failure
        if not code and failure is None:
            return
        error = LinesFailed()
        if failure is not None:
            error.add_note(f"The command reported: {failure}")
        if code:
            error.add_note(f"The command ended with code {code}.")
        raise _with_stderr(handle, error)


def _has_prompt_argument(command: Sequence[str]) -> bool:
    return any(PROMPT in word for word in command)


def _fill_command(context: ProviderContext) -> list[str]:
    """Return the command with its placeholders replaced. A prompt that begins like an option gets a space in front of it."""
    prompt = context.prompt.replace("\0", "")
    values = {PROMPT: f" {prompt}" if prompt.startswith("-") else prompt, SESSION: context.session_id}
    return [_fill_word(word, values) for word in context.command]


def _fill_word(word: str, values: dict[str, str]) -> str:
    """Return the word with its placeholders replaced, but not those that come with a value."""
    for placeholder, value in values.items():
        if placeholder in word:
            return value.join(_fill_word(part, values) for part in word.split(placeholder))
    return word


def _start_error(context: ProviderContext, error: OSError) -> BridgeError:
    if isinstance(error, FileNotFoundError) and error.filename == context.cwd:
        return BridgeUnavailable("The working directory of the agent does not exist any more.")
    return BridgeUnavailable(
        f"The command {context.command[0]} cannot be started. Install it, or correct `command` in the server's settings."
    )


def _with_stderr(handle: LinesHandle, error: BridgeError) -> BridgeError:
    """Return the error with the last lines of the command's standard error, for the log."""
    for line in handle.process.stderr:
        error.add_note(f"The command wrote: {line}")
    return error
