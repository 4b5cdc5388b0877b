"""Describe an error of the user's code in one line: its type, its text and the line of the user's code that raised it."""

from __future__ import annotations

import traceback
from typing import cast

from ambient_runner.runs.user_frames import is_user_code, shorten_path

__all__ = ["describe_error", "unwrap_group"]


def describe_error(error: BaseException) -> str:
    """Return the error in one line, with the innermost line of the user's code if there is one: `ValueError: x (agent.py, line 2)`."""
    error = unwrap_group(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({shorten_path(error.filename)}, line {error.lineno})"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{_user_line(error)}"


def unwrap_group(error: BaseException) -> BaseException:
    """Return the only error of a group of one: task groups wrap whatever fails in them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return unwrap_group(group.exceptions[0]) if len(group.exceptions) == 1 else group


def _user_line(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)]
    return f" ({shorten_path(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
