"""Execution of one run: push the agent's events into the pipeline, obey stop requests and timeouts, write the terminal event.

`runner.py` owns the run's task and its lease; this module knows no other runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import anyio

from ambient_runner.errors import BridgeError, LeaseLost, LedgerError, RunnerError
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.events import RunError, RunFinished, Terminal
from ambient_runner.runs.active import ActiveRun, Deadlines
from ambient_runner.runs.containment import UncancellableTasks, run_agent_task
from ambient_runner.runs.framing import frame_agent, run_finished
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.pipeline import CONDITIONALLY_WRITTEN, is_written
from ambient_runner.runs.run import describe_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.runs.run import Middleware, RunHandler

__all__ = ["FINALIZE_TIMEOUT", "execute_run"]

logger = logging.getLogger(__name__)

FINALIZE_TIMEOUT = 10.0
"""Seconds a run has to write its terminal event."""
_TERMINALS = frozenset({RunFinished, RunError})
_YIELD_EVERY = 256
"""Events of an agent that never awaits after which other tasks get a turn."""


async def execute_run(active: ActiveRun, middleware: Sequence[Middleware], uncancellable: UncancellableTasks) -> None:
    """Execute the run and write its terminal event, unless the ledger refuses it. Agent tasks that do not end go to `uncancellable`."""
    started_at = time.monotonic()
    try:
        terminal = await _execute_with_stop_watch(active, middleware, uncancellable)
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
    outcome = f"error {terminal.code}" if isinstance(terminal, RunError) else _outcome_name(terminal)
    logger.info(
        "Agent %s of %s on thread %s: %s after %.1f s", run.agent, run.thread.owner, run.thread.id, outcome, seconds
    )


def _outcome_name(terminal: RunFinished) -> str:
    return "success" if terminal.outcome is None else str(terminal.outcome.__struct_config__.tag)


async def _execute_with_stop_watch(
    active: ActiveRun, middleware: Sequence[Middleware], uncancellable: UncancellableTasks
) -> Terminal | None:
    """Execute the run while a task waits for stop requests. Return None if the run can no longer be written."""
    terminal: Terminal | None = None
    try:
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(_watch_for_stop, active)
            terminal = await _drive_run(active, middleware, uncancellable)
            watchers.cancel_scope.cancel()
    except* LeaseLost:
        logger.warning(
            "Run %s on thread %s lost its lease; another process took over", active.run.key, active.run.thread.id
        )
    except* LedgerError:
        logger.exception(
            "Run %s on thread %s cannot be written to the ledger; recovery will close it",
            active.run.key,
            active.run.thread.id,
        )
    finally:
        await _notify_on_end(active)
    return terminal


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
        with Deadlines(active):
            work = consume_events(active, _wrap_handler(active, middleware))
            terminal = await run_agent_task(work, active.cancel_requested, active.timeouts.grace, uncancellable)
    except LedgerError:
        raise
    except Exception as error:
        return active.terminal_event() if active.cause else _failure_event(error, active)
    if active.cause is not None:
        return active.terminal_event()
    return terminal or run_finished(active.run)


def _failure_event(error: Exception, active: ActiveRun) -> RunError:
    """Return the RUN_ERROR for clients: our own errors by code and message, others as a generic one. The details are logged.

    A RUN_ERROR that middleware yielded before the failure passed it takes precedence.
    """
    known = error if isinstance(error, RunnerError) else BridgeError()
    level, lines = (
        (logging.WARNING, traceback.format_exception_only(error.__cause__ or error))
        if known.is_expected
        else (logging.ERROR, traceback.format_exception(error))
    )
    reason = Redactor(active.run.secrets).redact_text("".join(lines))
    logger.log(level, "Run %s on thread %s failed (%s)\n%s", active.run.key, active.run.thread.id, known.code, reason)
    if isinstance(active.reported_terminal, RunError):
        return active.reported_terminal
    return RunError(message=known.message, code=known.code)


async def consume_events(active: ActiveRun, handler: RunHandler) -> Terminal | None:
    """Push every event of the handler into the pipeline. `loop_monitor.py` recognises this frame and reads its `active`."""
    writer, pipeline = active.writer, active.pipeline
    push, full = pipeline.push, writer.is_full
    count = 0
    async with aclosing(handler(active.run)) as events:
        async for event in events:
            kind = type(event)
            if kind in _TERMINALS:
                active.reported_terminal = active.reported_terminal or cast("Terminal", event)
            elif kind not in CONDITIONALLY_WRITTEN or is_written(event):
                if push(event) and full():
                    await writer.wait_for_capacity()
            else:
                pipeline.touch()
            count += 1
            if not count % _YIELD_EVERY:
                await (writer.wait_for_capacity() if full() else asyncio.sleep(0))
    return active.reported_terminal


def _wrap_handler(active: ActiveRun, middleware: Sequence[Middleware]) -> RunHandler:
    """Return the agent's handler inside its own middleware, inside the server's."""
    handler = frame_agent(active.agent, active.pipeline.store_private)
    for wrap in reversed((*middleware, *active.agent.middleware)):
        handler = wrap(handler)
    return handler


async def _write_terminal(active: ActiveRun, terminal: Terminal) -> None:
    """Write the terminal event, even during cancellation."""
    _notify_observers(active, terminal)
    with anyio.move_on_after(FINALIZE_TIMEOUT, shield=True):
        try:
            active.pipeline.end_run(terminal)
            await active.writer.finish_run()
        except LedgerError:
            logger.exception(
                "The terminal event of %s cannot be written; recovery will close the run", describe_run(active.run)
            )


async def _watch_for_stop(active: ActiveRun) -> None:
    """Wait for a stop request; ask the agent to stop, and cancel it after the grace period."""
    await active.writer.wait_for_stop()
    active.cause = active.cause or "stopped"
    active.run.stopping.set()
    with anyio.move_on_after(active.timeouts.grace), isolate(f"asking the agent to stop {describe_run(active.run)}"):
        if await active.agent.interrupt(active.run):
            await active.done.wait()
    active.cancel("stopped")


def _notify_observers(active: ActiveRun, terminal: Terminal) -> None:
    for notify in active.run.on_terminal:
        with isolate(f"notifying an observer of the end of {describe_run(active.run)}"):
            notify(terminal)
