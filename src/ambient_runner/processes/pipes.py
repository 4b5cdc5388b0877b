"""The pipes and the exit of a child process, as the event loop reports them: no task, no stream, no thread where the system has pidfds.

asyncio's own transports are not used, because uvloop's leave descriptors of the server open in the child, and give it sockets in place of
pipes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

__all__ = ["ExitWatch", "InputPipe", "OutputPipe"]

_MAX_BLOCK_BYTES = 1 << 18
"""Bytes that are read at once. After every read, other threads may run before this one."""
_MIN_BLOCK_BYTES = 1 << 12
_MAX_BLOCK_SECONDS = 0.005
"""Blocks that take longer to deliver become smaller: a process that floods short lines must not keep the event loop from others."""
_MAX_DRAINED_BLOCKS = 64


class OutputPipe:
    """Delivers what a process writes, in blocks. `on_end` is called when nobody can write any more."""

    def __init__(self, file: IO[bytes], on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self.is_closed = False
        self.is_paused = True
        self._file = file
        self._fd = file.fileno()
        self._on_data = on_data
        self._on_end = on_end
        self._block_bytes = _MAX_BLOCK_BYTES
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)
        _enlarge_pipe(self._fd)
        self.resume()

    def pause(self) -> None:
        if not self.is_paused and not self.is_closed:
            self.is_paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self.is_paused and not self.is_closed:
            self.is_paused = False
            self._loop.add_reader(self._fd, self._read)

    def drain(self) -> None:
        """Deliver what the pipe holds now, until it is paused. Of one that is filled without end, only some blocks."""
        for _ in range(_MAX_DRAINED_BLOCKS):
            if self.is_paused or self.is_closed or not self._read():
                return

    def close(self) -> None:
        if not self.is_closed:
            self.pause()
            self.is_closed = True
            self._file.close()

    def _read(self) -> bool:
        """Deliver one block. Return False if there is none."""
        try:
            data = os.read(self._fd, self._block_bytes)
        except BlockingIOError:
            return False
        if data:
            started = time.perf_counter()
            self._on_data(data)
            self._adapt_block_size(time.perf_counter() - started)
        else:
            self.close()
            self._on_end()
        return bool(data)

    def _adapt_block_size(self, seconds: float) -> None:
        if seconds > _MAX_BLOCK_SECONDS:
            self._block_bytes = max(_MIN_BLOCK_BYTES, self._block_bytes // 2)
        elif self._block_bytes < _MAX_BLOCK_BYTES and seconds < _MAX_BLOCK_SECONDS / 4:
            self._block_bytes *= 2


class InputPipe:
    """Takes what a process is to read. `on_empty` is called when all of it has been taken, or never will be."""

    def __init__(self, file: IO[bytes], on_empty: Callable[[], None]) -> None:
        self.pending_bytes = 0
        self._file = file
        self._fd = file.fileno()
        self._on_empty = on_empty
        self._pending: deque[memoryview] = deque()
        self._is_waiting = self._is_ending = self._is_closed = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)

    def write(self, data: bytes) -> None:
        """Send data, now or when the process reads. It is dropped if the process has closed its end, or `end` was called."""
        if self._is_ending or self._is_closed or not data:
            return
        self._pending.append(memoryview(data))
        self.pending_bytes += len(data)
        if len(self._pending) == 1:
            self._flush()

    def end(self) -> None:
        """Close the pipe after everything has been read."""
        self._is_ending = True
        if not self._pending:
            self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._wait_for_reader(is_waiting=False)
        self._is_closed = True
        self._file.close()
        self._pending.clear()
        self.pending_bytes = 0

    def _flush(self) -> None:
        try:
            while self._pending:
                self._advance(os.write(self._fd, self._pending[0]))
        except BlockingIOError:
            self._wait_for_reader(is_waiting=True)
            return
        except OSError:  # The process has closed its end.
            self.close()
        if self._is_ending:
            self.close()
        self._wait_for_reader(is_waiting=False)
        self._on_empty()

    def _wait_for_reader(self, *, is_waiting: bool) -> None:
        if is_waiting and not self._is_waiting:
            self._loop.add_writer(self._fd, self._flush)
        elif self._is_waiting and not is_waiting:
            self._loop.remove_writer(self._fd)
        self._is_waiting = is_waiting

    def _advance(self, written: int) -> None:
        self.pending_bytes -= written
        if written < len(self._pending[0]):
            self._pending[0] = self._pending[0][written:]
        else:
            self._pending.popleft()


class ExitWatch:
    """Calls `on_exit` in the event loop when the process has exited and its return code is known."""

    def __init__(self, process: Popen[bytes], on_exit: Callable[[], None]) -> None:
        self._process = process
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._pidfd = _open_pidfd(process.pid)
        if self._pidfd is None:
            threading.Thread(target=self._wait, name=f"wait-{process.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._check)

    def close(self) -> None:
        """Stop watching."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _check(self) -> None:
        if self._process.poll() is not None:
            self.close()
            self._on_exit()

    def _wait(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # The event loop is closed.
            self._loop.call_soon_threadsafe(self._on_exit)


def _enlarge_pipe(fd: int) -> None:
    """Let a pipe hold a whole block, where the system allows it: the process writes on while the loop is busy."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _MAX_BLOCK_BYTES)


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable at the exit of the process; None on systems without such."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
