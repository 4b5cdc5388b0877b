"""The errors that a command reports in one line, also where a task group has wrapped them."""

from __future__ import annotations

from typing import cast

from ambient_runner.cli.stdio import OutputClosed
from ambient_runner.errors import RunnerError

__all__ = ["EXIT_STOPPED", "find_error"]

EXIT_STOPPED = 130
"""Exit code after Ctrl-C; of `ambient run` also after SIGTERM or SIGHUP."""


def find_error(error: BaseException) -> RunnerError | OutputClosed | KeyboardInterrupt | None:
    """Return the first of our errors or Ctrl-C in an exception group at any depth, or the error itself; None if there is any other error.

    Whatever fails inside the server's task groups leaves them as a group.
    """
    if isinstance(error, RunnerError | OutputClosed | KeyboardInterrupt):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [find_error(inner) for inner in group.exceptions]
    return None if None in found else found[0]
