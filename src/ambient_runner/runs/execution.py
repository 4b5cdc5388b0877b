"""Execution of one run: push the agent's events into the pipeline, obey stop requests and timeouts, write the terminal event.

`runner.py` owns the run's task and its lease; this module knows no other runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import traceback
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import BridgeError, ConfigError, LeaseLost, LedgerError, RunnerError, UnknownThread
from ambient_runner.projections.redaction import Redactor
from ambient_runner.projections.thread_status import thread_status
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import EVENT_TYPES, RunError, RunFinished, Terminal, outcome_name
from ambient_runner.protocol.field_types import plain_text
from ambient_runner.runs.active import ActiveRun, Deadlines
from ambient_runner.runs.agent_events import validate_event
from ambient_runner.runs.approvals import show_digests
from ambient_runner.runs.containment import UncancellableTasks, run_agent_task
from ambient_runner.runs.framing import frame_agent, run_finished
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.large_work import MAX_BUSY_SECONDS
from ambient_runner.runs.middleware import MiddlewareEventCoercer, apply_middleware
from ambient_runner.runs.pipeline import CONDITIONALLY_WRITTEN, is_written
from ambient_runner.runs.run import describe_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = ["FINALIZE_TIMEOUT", "execute_run"]

logger = logging.getLogger(__name__)

FINALIZE_TIMEOUT = 10.0
"""Seconds a run has to write its terminal event."""
_ALWAYS_WRITTEN = frozenset(EVENT_TYPES) - CONDITIONALLY_WRITTEN - {RunFinished, RunError}
"""Types of which every event of an agent's stream is written."""
_YIELD_EVERY = 256
"""Number of events after which other tasks may run, even if the agent never awaits."""


async def execute_run(active: ActiveRun, middleware: Sequence[Middleware], uncancellable: UncancellableTasks) -> None:
    """Execute the run and write its terminal event, unless the ledger refuses it. Agent tasks that do not end go to `uncancellable`."""
    started_at = time.monotonic()
    try:
        terminal = await _execute_until_end(active, middleware, uncancellable)
    except anyio.get_cancelled_exc_class():
        active.cause = active.cause or "shutdown"
        await _write_terminal(active, active.terminal_event())
        _log_end(active, active.terminal_event(), started_at)
        raise
    if terminal is not None:
        await _write_terminal(active, terminal)
        _log_end(active, terminal, started_at)
    else:
        _notify_observers(active, RunError(message=LedgerError().message, code=LedgerError.code))


def _log_end(active: ActiveRun, terminal: Terminal, started_at: float) -> None:
    run, seconds = active.run, time.monotonic() - started_at
    _log_redaction_failure(active)
    _log_repairs(active)
    outcome = f"error {terminal.code}" if isinstance(terminal, RunError) else outcome_name(terminal)
    logger.info(
        "Run %s of agent %s on thread %s of %s ended: %s after %.1f s (runId %r)",
        run.key,
        run.agent,
        run.thread.id,
        run.thread.owner,
        outcome,
        seconds,
        run.input.run_id,
    )


def _log_redaction_failure(active: ActiveRun) -> None:
    """Log what failed and where. The text of the exception is left out: it may be what could not be redacted."""
    failure = active.pipeline.redaction_guard.error
    if failure is None or failure.__cause__ is None:
        return
    cause = failure.__cause__
    frames = traceback.extract_tb(cause.__traceback__)
    logger.error(
        "Run %s of agent %s on thread %s: an event could not be redacted (%s in %s, line %s). It was not written, and the run has ended.",
        active.run.key,
        active.run.agent,
        active.run.thread.id,
        type(cause).__name__,
        frames[-1].filename if frames else "unknown",
        frames[-1].lineno if frames else "unknown",
    )


def _log_repairs(active: ActiveRun) -> None:
    """Log each rule that the agent's events violated. What is closed for a run that was stopped or failed is not counted."""
    run, pipeline = active.run, active.pipeline
    for rule, count in pipeline.repair_counts.items():
        logger.warning(
            "Run %s of agent %s on thread %s: invalid events were repaired or dropped (rule %s, count %d, first event %s). "
            "Clients got a valid stream; the contract of ambient_runner.testing shows what to fix in the agent.",
            run.key,
            run.agent,
            run.thread.id,
            rule,
            count,
            pipeline.first_repaired_types[rule],
        )


async def _execute_until_end(
    active: ActiveRun, middleware: Sequence[Middleware], uncancellable: UncancellableTasks
) -> Terminal | None:
    """Execute the run, and obey stop requests. Return None if the run can no longer be written."""
    stopper = _Stopper(active)
    active.writer.watch_for_stop(stopper.begin, active.fail)
    try:
        return await _drive_run(active, middleware, uncancellable)
    except LeaseLost:
        logger.warning(
            "Run %s on thread %s lost its lease; another process took over", active.run.key, active.run.thread.id
        )
    except LedgerError:
        logger.exception(
            "Run %s on thread %s cannot be written to the ledger; recovery will close it",
            active.run.key,
            active.run.thread.id,
        )
    finally:
        await stopper.end()
        await _notify_on_end(active)
    return None


async def _notify_on_end(active: ActiveRun) -> None:
    """Call the request's `on_end`, even during cancellation."""
    if active.on_end is not None:
        with (
            anyio.move_on_after(active.timeouts.grace, shield=True),
            isolate(f"calling on_end of {describe_run(active.run)}"),
        ):
            await active.on_end()


async def _drive_run(
    active: ActiveRun, middleware: Sequence[Middleware], uncancellable: UncancellableTasks
) -> Terminal:
    """Push every event of the agent. Return the run's terminal event."""
    terminal: Terminal | None = None
    try:
        with (
            Deadlines(active),
            active.pipeline.redaction_guard.report_to(partial(active.cancel, "redaction_failed")),
        ):
            applied = (*middleware, *active.agent.middleware)
            pipeline = active.pipeline
            framed = frame_agent(active.agent, pipeline.store_private, pipeline.count_repair, pipeline.busy)
            handler = apply_middleware(framed, applied)
            work = _consume_events(active, handler, MiddlewareEventCoercer(applied))
            terminal = await run_agent_task(work, active.cancel_requested, active.timeouts.grace, uncancellable)
    except LedgerError:
        raise
    except Exception as error:
        return active.terminal_event() if active.cause else _failure_event(error, active)
    if active.failure is not None:
        raise active.failure
    if active.cause is not None:
        return active.terminal_event()
    return terminal or run_finished(active.run)


def _failure_event(error: Exception, active: ActiveRun) -> RunError:
    """Return the RUN_ERROR for clients: our own errors by code and message, others as a generic one. The details are logged.

    A RUN_ERROR that middleware yielded before the exception reached the Runner takes precedence.
    """
    match error:
        case ConfigError():  # Its text is for operators.
            known = BridgeError()
        # A subclass may have a code and a message of any type.
        case RunnerError() if isinstance(error.code, str) and isinstance(error.message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            known = error
        case _:
            known = BridgeError()
    _log_failure(error, known, active.run)
    if isinstance(active.reported_terminal, RunError):
        return active.reported_terminal
    return RunError(message=plain_text(known.message), code=plain_text(known.code))


def _log_failure(error: Exception, known: RunnerError, run: Run) -> None:
    """Log the failure with its traceback, or with its cause alone if it is expected.

    The exception is the record's text and not its `exc_info`: any formatter of the app prints it, and it is redacted for all of them.
    """
    level, lines = (
        (logging.WARNING, traceback.format_exception_only(error.__cause__ or error))
        if known.is_expected
        else (logging.ERROR, traceback.format_exception(error))
    )
    if not logger.isEnabledFor(level):
        return
    message = "Run %s of agent %s on thread %s failed (%s)"
    values = (run.key, run.agent, run.thread.id, known.code)
    path, line, function, _ = logger.findCaller()
    record = logger.makeRecord(logger.name, level, path, line, message, values, None, function)
    record.exc_text = Redactor(run.secrets).redact_text("".join(lines)).rstrip()
    logger.handle(record)


async def _consume_events(active: ActiveRun, handler: RunHandler, coerce: Callable[[object], Event]) -> Terminal | None:
    """Push the handler's events that are written into the pipeline. Return its terminal event, if any."""
    writer, pipeline = active.writer, active.pipeline
    push, full, busy = pipeline.push, writer.is_full, pipeline.busy
    count = 0
    async with aclosing(handler(active.run)) as events:
        async for event in events:
            if type(event) in _ALWAYS_WRITTEN:
                is_appended = push(event)
            else:
                with busy:
                    event = _select_written(active, coerce(event))
                is_appended = event is None or push(event)
            if is_appended:
                if full():
                    await writer.wait_for_capacity()
                if busy.seconds > MAX_BUSY_SECONDS:
                    await busy.yield_if_spent()
            count += 1
            if not count % _YIELD_EVERY:
                await (writer.wait_for_capacity() if full() else asyncio.sleep(0))
    return active.reported_terminal


def _select_written(active: ActiveRun, event: Event) -> Event | None:
    """Return the event if it must be pushed. The first terminal event is recorded instead: the Runner writes it."""
    if isinstance(event, RunFinished | RunError):
        active.reported_terminal = active.reported_terminal or validate_event(event)
        return None
    if type(event) in CONDITIONALLY_WRITTEN and not is_written(event):
        active.pipeline.release_correction(event)
        active.pipeline.touch()
        return None
    return event


async def _write_terminal(active: ActiveRun, terminal: Terminal) -> None:
    """Write the terminal event, even during cancellation."""
    terminal = show_digests(active.run, terminal, active.pipeline.find_call)
    _notify_observers(active, terminal)
    patience = 0.0 if active.cause == "shutdown" else active.store_patience
    with anyio.move_on_after(FINALIZE_TIMEOUT + patience, shield=True) as active.finalizing:
        try:
            checkpoint = await active.checkpoint.prepare() if active.checkpoint else None
            view = await _view_before_end(active)
            for _ in active.pipeline.end_in_slices(terminal):
                await asyncio.sleep(0)
            view.apply_event(active.run.key, active.pipeline.terminal_event or terminal)
            await active.writer.finish_run(thread_status(view), checkpoint=checkpoint)
        except (LeaseLost, UnknownThread):
            logger.warning(
                "The terminal event of %s is not written: its thread was deleted, or another process took it over",
                describe_run(active.run),
            )
        except LedgerError:
            logger.exception(
                "The terminal event of %s cannot be written; recovery will close the run", describe_run(active.run)
            )


async def _view_before_end(active: ActiveRun) -> ThreadView:
    """Return a view from which the status of the thread after the terminal event follows. Most runs need no read for it.

    Raises: LedgerError; UnknownThread if the thread was erased.
    """
    if active.load_view is None:
        return ThreadView()
    return (await active.load_view(await active.writer.flush())).copy()


class _Stopper:
    """Asks the agent to stop once someone requests that, in a task that exists only then: most runs are never asked."""

    def __init__(self, active: ActiveRun) -> None:
        self._active = active
        # `agent.interrupt` runs in the run's context: it finds its run, and is contained.
        self._context = contextvars.copy_context()
        self._asking: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False

    def begin(self, _reason: str) -> None:
        if self._task is None and not self._has_ended:
            self._active.cause = self._active.cause or "stopped"
            self._active.run.stopping.set()
            self._task = self._context.run(asyncio.create_task, self._stop_agent())

    async def end(self) -> None:
        """End the stop task: the agent has ended, or is about to.

        The scope ends it. A cancelled task would keep its exception, whose frames refer to the run and back to the task: only the garbage
        collector could free them.
        """
        self._has_ended = True
        if self._task is not None:
            if self._asking is not None:
                self._asking.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({self._task})

    async def _stop_agent(self) -> None:
        """Ask the agent to stop, and cancel it after the grace period."""
        active = self._active
        with anyio.CancelScope() as self._asking:
            if self._has_ended:
                return
            asking = f"asking the agent to stop {describe_run(active.run)}"
            with anyio.move_on_after(active.timeouts.grace), isolate(asking):
                if await active.agent.interrupt(active.run):
                    await active.done.wait()
            active.cancel("stopped")


def _notify_observers(active: ActiveRun, terminal: Terminal) -> None:
    for notify in active.run.on_terminal:
        with isolate(f"notifying an observer of the end of {describe_run(active.run)}"):
            notify(terminal)
