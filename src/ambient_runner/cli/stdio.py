"""Standard input and output that may be closed, unreadable or gone: `<&-`, `>&-`, `| head`. All commands of `main.py` run with these rules.

Closed input has ended. Output that cannot be written ends the command with `OutputClosed`, wherever it prints.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["OutputClosed", "discard_output", "is_interactive", "read_line", "read_message", "use_standard_streams"]

_EXIT_BROKEN_PIPE = 141
"""The exit code of a program that SIGPIPE ends: 128 and its number."""


class OutputClosed(Exception):
    """Standard output cannot be written. `message` is empty if its reader has gone: then there is nothing to say, and nobody to read it."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        is_pipe = error.errno == errno.EPIPE
        self.exit_code = _EXIT_BROKEN_PIPE if is_pipe else 1
        self.message = "" if is_pipe else f"Standard output cannot be written: {error.strerror}."


class _GuardedOutput:
    """Standard output whose failures are `OutputClosed`: no other `OSError` can be taken for them. `stream` is None if it is closed."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream is None:
            raise OutputClosed(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        try:
            return self._stream.write(text)
        except OSError as error:
            raise OutputClosed(error) from error

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError as error:
            raise OutputClosed(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def use_standard_streams() -> Generator[None]:
    """Apply the rules of this module to `sys.stdin` and `sys.stdout`. Raises: OutputClosed."""
    _fill_closed_descriptors()
    if cast("TextIO | None", sys.stdin) is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  open as long as the process
    stream, guarded = sys.stdout, _GuardedOutput(sys.stdout)
    sys.stdout = cast("TextIO", guarded)
    try:
        yield
    finally:
        sys.stdout = stream
        guarded.flush()


def _fill_closed_descriptors() -> None:
    """Open the null device as every standard descriptor that is closed. The next file or socket would get its number otherwise."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def discard_output() -> None:
    """Discard what standard output still has buffered: Python would write it once more at its exit, and complain."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_interactive() -> bool:
    """Return True if a person types the input."""
    return sys.stdin.isatty()


def read_line(prompt: str) -> str:
    """Print the prompt, and return the next line of standard input. Raises: EOFError if it has ended or cannot be read."""
    try:
        return input(prompt)
    except OSError as error:
        raise EOFError from error


def read_message() -> str:
    """Return all of standard input. Raises: ConfigError if there is nothing, or no text."""
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigError("Standard input is not valid UTF-8 text.") from error
    except OSError as error:
        raise ConfigError(
            f"Standard input cannot be read, so there is no message: {error.strerror or error}."
        ) from error
    if not text:
        raise ConfigError("Standard input is empty or closed, so there is no message.")
    return text
