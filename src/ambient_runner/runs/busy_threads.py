"""Find the runs whose agents execute code in worker threads. Nothing can end such a thread, and the process waits for it at its exit.

It reads the stacks of the threads, so a call into a thread costs nothing. `asyncio.to_thread`, `anyio.to_thread`, LangChain's
`run_in_executor` and our `iterate_in_thread` all run in a copy of the caller's context, which is found in one of their frames.
"""

from __future__ import annotations

import sys
import threading
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ambient_runner.runs.run import run_of_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ambient_runner.runs.run import Run

__all__ = ["BusyThread", "find_busy_threads"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BusyThread:
    """A thread that executes code of a run."""

    name: str
    run: Run
    location: str
    """File and line of the innermost Python function."""


def find_busy_threads() -> list[BusyThread]:
    """Return the threads other than this one that execute code of a run at this moment."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        BusyThread(name=names.get(ident, str(ident)), run=run, location=f"{top.f_code.co_filename}:{top.f_lineno}")
        for ident, top in sys._current_frames().items()  # pyright: ignore[reportPrivateUsage]
        if ident != threading.get_ident() and (run := _run_of_stack(top)) is not None
    ]


def _run_of_stack(top: FrameType) -> Run | None:
    frame: FrameType | None = top
    while frame is not None:
        for context in _contexts_of_frame(frame):
            run = run_of_context(context)
            if run is not None:
                return run
        frame = frame.f_back
    return None


def _contexts_of_frame(frame: FrameType) -> Iterator[Context]:
    """Yield the contexts among the frame's variables, and those of work items of an executor: `partial(context.run, function)`."""
    variables = dict(frame.f_locals)
    for value in (*variables.values(), getattr(variables.get("self"), "fn", None)):
        bound: Any = getattr(value.func, "__self__", None) if isinstance(value, partial) else value
        if isinstance(bound, Context):
            yield bound
