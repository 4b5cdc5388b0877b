"""Run a contract test in an event loop of its own, and fail instead of hanging: neither asyncio.run nor anyio.run ends if a task ignores
its cancellation.

It also finds code that blocks the loop, and async generators that stay open.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ambient_runner.bridges.user_errors import unwrap_group
from ambient_runner.runs.user_frames import describe_frame, find_user_frame, frames_of_thread, is_idle_loop, is_import

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from types import FrameType

_CANCEL_TIMEOUT = 2.0
"""Seconds a cancelled task has to end."""
_CLOSE_TIMEOUT = 5.0
"""Seconds an async generator without a reader has to close: the loop closes it after it was garbage-collected."""
_FIRST_CHECK_INTERVAL = 0.01
"""Seconds until it is looked at again; then twice as long each time."""
_stuck_tasks: list[asyncio.Task[Any]] = []
"""Tasks that did not end. They are kept: if they were garbage-collected, their errors would fail some later test."""


class ContractFailure(AssertionError):
    """A broken rule of a contract. Its text names the fault and what to do."""


def run_guarded(
    check: Callable[[LoopMonitor], Coroutine[Any, Any, None]], *, hang_timeout: float, block_timeout: float
) -> None:
    """Run `check` in a new event loop, with the monitor of that loop.

    Raises: whatever `check` raises; AssertionError if it broke a rule, blocked the loop for `block_timeout` seconds, did not end within
    `hang_timeout` seconds, or left a task that cannot be cancelled.
    """
    __tracebackhide__ = True
    loop = asyncio.new_event_loop()
    monitor = LoopMonitor(loop, block_timeout)
    stuck: list[str] = []
    try:
        error = loop.run_until_complete(_run_bounded(check(monitor), hang_timeout, monitor))
    finally:
        monitor.stop()
        stuck = _close_loop(loop)
    if error is not None and not isinstance(error, ContractFailure):
        raise error
    faults = [text for text in (monitor.report, str(error or ""), _describe_stuck(stuck)) if text]
    if faults:
        # A new error: its traceback has only the frame of the test.
        raise AssertionError("\n".join(faults)) from (error.__cause__ if error else None)


async def _run_bounded(
    work: Coroutine[Any, Any, None], hang_timeout: float, monitor: LoopMonitor
) -> BaseException | None:
    """Return the error of `work`, without the groups that task groups wrap it in."""
    monitor.start()
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=hang_timeout)
    if not task.done():
        places = sorted({place for other in asyncio.all_tasks() if (place := _find_user_line(_task_frames(other)))})
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_TIMEOUT)
        waiting = f" Tasks wait at {'; '.join(places)}." if places else ""
        return ContractFailure(f"The test did not end within {hang_timeout:g} s: something hangs.{waiting}")
    if task.cancelled():
        return ContractFailure(
            "The bridge cancelled the task that called it. Cancel only tasks that the bridge started."
        )
    error = task.exception()
    return None if error is None else unwrap_group(error)


def _close_loop(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Cancel all tasks and close the loop. Return descriptions of the tasks that did not end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT))
    stuck = [task for task in tasks if not task.done()]
    reports = [_describe_task(task) for task in stuck]
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # Retrieve it, or asyncio logs that it was never retrieved.
    for close in (loop.shutdown_asyncgens, loop.shutdown_default_executor):
        loop.run_until_complete(_wait_bounded(close()))
    _stuck_tasks.extend(stuck)
    loop.close()
    return reports


async def _wait_bounded(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=_CANCEL_TIMEOUT)
    task.cancel()


def _describe_stuck(tasks: list[str]) -> str:
    if not tasks:
        return ""
    return (
        f"{len(tasks)} task(s) did not end within {_CANCEL_TIMEOUT:g} s after they were cancelled: {', '.join(tasks)}. "
        "Raise asyncio.CancelledError again where you catch it, and do not catch BaseException."
    )


def _describe_task(task: asyncio.Task[Any]) -> str:
    """Return the task's line. Its name says less, and Python 3.13.0 names every task of a task factory None."""
    frames = _task_frames(task)
    return _find_user_line(frames) or (describe_frame(frames[-1]) if frames else task.get_name())


class LoopMonitor(threading.Thread):
    """Finds code that blocks the event loop. `report` is empty or describes the first block that was found.

    A thread schedules a callback on the loop; if it is late, the stack of the loop's thread shows the code. Imports are no fault: a process
    imports a module once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        super().__init__(name="ambient-contract-monitor", daemon=True)
        self.report = ""
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._timeout = timeout
        self._stopped = threading.Event()
        self._was_paused = False
        """True if blocking was allowed at some time since the last callback was scheduled."""
        self._is_paused = False

    @contextmanager
    def pause(self) -> Generator[None]:
        """Allow code to block: what creates a bridge may load a model or compile a graph."""
        self._is_paused = self._was_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self.report and not self._stopped.wait(self._timeout / 4):
            beat = threading.Event()
            started_at = time.monotonic()
            self._was_paused = self._is_paused
            try:
                self._loop.call_soon_threadsafe(beat.set)
            except RuntimeError:  # the loop is closed
                return
            if not beat.wait(self._timeout) and not self._was_paused:
                if self._stopped.is_set():  # The loop had ended: it calls nothing any more.
                    return
                self._follow_block(beat, started_at)

    def _follow_block(self, beat: threading.Event, started_at: float) -> None:
        frames = frames_of_thread(self._loop_thread)
        if is_idle_loop(frames) or is_import(frames):
            return
        place = describe_frame(find_user_frame(frames) or frames[-1])
        while not beat.wait(self._timeout / 4) and not self._stopped.is_set():
            pass
        self.report = (
            f"The bridge blocks the event loop: {place} did not return for {time.monotonic() - started_at:.1f} s. All runs of a server "
            "wait meanwhile. Run blocking code in a thread (await asyncio.to_thread(…)), or make `run` a plain generator."
        )


@contextmanager
def track_generators() -> Generator[WeakSet[AsyncGenerator[Any, Any]]]:
    """Collect the async generators that start in this thread."""
    started: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
    hook = sys.get_asyncgen_hooks().firstiter

    def add(generator: AsyncGenerator[Any, Any]) -> None:
        started.add(generator)
        if hook is not None:
            hook(generator)

    sys.set_asyncgen_hooks(firstiter=add)
    try:
        yield started
    finally:
        sys.set_asyncgen_hooks(firstiter=hook)


async def find_open_generators(started: WeakSet[AsyncGenerator[Any, Any]]) -> list[str]:
    """Return descriptions of the generators that stay open. One that nothing refers to any more is closed by the loop, soon."""
    deadline, interval = time.monotonic() + _CLOSE_TIMEOUT, _FIRST_CHECK_INTERVAL
    while (frames := _open_frames(started)) and time.monotonic() < deadline:
        gc.collect()  # Each time: what was still in use may be part of a reference cycle by now.
        await asyncio.sleep(interval)
        interval *= 2
    return sorted(describe_frame(frame) for frame in frames)


def _open_frames(generators: WeakSet[AsyncGenerator[Any, Any]]) -> list[FrameType]:
    return [frame for generator in list(generators) if (frame := getattr(generator, "ag_frame", None)) is not None]


def _task_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a suspended task, outermost first."""
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame, following = _suspended_at(awaited)
        if frame is not None:
            frames.append(frame)
        awaited = following
    return frames


def _suspended_at(awaited: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of something that is awaited, if it has one, and what it awaits itself."""
    if inspect.iscoroutine(awaited):
        return awaited.cr_frame, awaited.cr_await
    if inspect.isasyncgen(awaited):
        return awaited.ag_frame, awaited.ag_await
    if inspect.isgenerator(awaited):
        return awaited.gi_frame, awaited.gi_yieldfrom
    # A step of an async generator, or the wrapper of a guarded coroutine, does not say what it steps.
    targets = [target for target in _referents(awaited) if inspect.isasyncgen(target) or inspect.iscoroutine(target)]
    return None, targets[0] if targets else None


def _referents(awaited: Any) -> list[Any]:
    if type(awaited).__name__ in {"async_generator_asend", "async_generator_athrow", "coroutine_wrapper"}:
        return gc.get_referents(awaited)
    members: dict[str, Any] = getattr(awaited, "__dict__", {})
    return list(members.values())


def _find_user_line(frames: list[FrameType]) -> str:
    """Return the innermost line of the user's code; empty if there is none."""
    frame = find_user_frame(frames)
    return describe_frame(frame) if frame else ""
