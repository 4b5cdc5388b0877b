"""An error of code that is not ours, as its author wants to read it: what it says, and the line of their own it came from."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import cast

import ambient_runner

__all__ = ["said"]

_NOT_THEIRS = [
    Path(ambient_runner.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
]


def said(error: BaseException) -> str:
    """The error in one line, with the innermost line of its author's code where there is one: `ValueError: x (agent.py, line 2)`."""
    error = _alone(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({_shown(error.filename)}, line {error.lineno})"
    words = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if words else ''}{words}{_place(error)}"


def _alone(error: BaseException) -> BaseException:
    """The error in a group of one: task groups wrap whatever fails in them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _alone(group.exceptions[0]) if len(group.exceptions) == 1 else group


def _place(error: BaseException) -> str:
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    return f" ({_shown(theirs[-1].filename)}, line {theirs[-1].lineno})" if theirs else ""


def _is_theirs(file: str) -> bool:
    return not file.startswith("<") and not any(Path(file).is_relative_to(room) for room in _NOT_THEIRS)


def _shown(file: str) -> str:
    """Short where the file is below the current directory."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
