"""Frames of running code: those of a thread, and the line in them that is the user's own, not Python's, a package's or ours."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = [
    "describe_frame",
    "find_own_frame",
    "find_user_frame",
    "format_stack",
    "frames_of_thread",
    "is_idle_loop",
    "is_import",
    "is_user_code",
    "shorten_path",
]

_OWN_PACKAGE = Path(__file__).parents[1]
_NOT_USER_CODE = [
    _OWN_PACKAGE,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
]
_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
_CONVERTERS = [directory / package for directory in _INSTALLED for package in ("pydantic", "msgspec", "ag_ui")]
"""Packages that do a part of our own work: they convert and encode events."""
_IDLE_FILES = frozenset({"selectors.py", "windows_events.py"})
"""Files of the standard library in which an event loop waits for I/O: it is idle there, not blocked."""
_MAX_FRAMES = 30
"""Frames of a formatted stack, the innermost ones."""


def frames_of_thread(thread: int) -> list[FrameType]:
    """Return the frames of a running thread, outermost first; none if it has ended."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def find_user_frame(frames: list[FrameType]) -> FrameType | None:
    """Return the innermost frame of the user's code; None if there is none."""
    return next((frame for frame in reversed(frames) if is_user_code(frame.f_code.co_filename)), None)


def find_own_frame(frames: list[FrameType]) -> FrameType | None:
    """Return the innermost frame of this package if the thread executes it; None if it executes an agent, a framework or other code."""
    for frame in reversed(frames):
        file = frame.f_code.co_filename
        if not _is_helper_code(file):
            return frame if _is_below(file, _OWN_PACKAGE) else None
    return None


def _is_helper_code(file: str) -> bool:
    """Return True for code that works for its caller: of Python itself, or of a package that converts events."""
    if _is_below(file, _OWN_PACKAGE):
        return False
    if _is_below(file, *_INSTALLED):
        return _is_below(file, *_CONVERTERS)
    return not is_user_code(file)


def _is_below(file: str, *directories: Path) -> bool:
    return any(Path(file).is_relative_to(directory) for directory in directories)


def describe_frame(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({shorten_path(frame.f_code.co_filename)}, line {frame.f_lineno})"


def format_stack(frames: list[FrameType]) -> str:
    """Return the innermost frames with their lines of code, as a traceback shows them."""
    stack = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames[-_MAX_FRAMES:])
    return "".join(stack.format()).rstrip()


def is_idle_loop(frames: list[FrameType]) -> bool:
    """Return True if the thread's event loop waits for I/O, or the thread has ended."""
    return not frames or Path(frames[-1].f_code.co_filename).name in _IDLE_FILES


def is_import(frames: list[FrameType]) -> bool:
    """Return True if a module is being imported: a process does that once."""
    return any(frame.f_code.co_filename.startswith("<frozen importlib") for frame in frames)


def is_user_code(file: str) -> bool:
    """Return True if the file belongs neither to Python, nor to an installed package, nor to this one."""
    return not file.startswith("<") and not _is_below(file, *_NOT_USER_CODE)


def shorten_path(file: str) -> str:
    """Return the path relative to the current directory if the file is below it."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
