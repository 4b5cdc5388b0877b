"""One run in this process, from its agent's first event to its terminal one: pushed into the pipeline, stopped when asked, ended well.

`runner.py` owns the run's task and its lease; here nobody knows of other runs.
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
from ambient_runner.runs.containment import LeftBehind, run_apart
from ambient_runner.runs.framing import finished, framed
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.pipeline import LOOKED_AT, is_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.runs.run import Middleware, RunHandler

__all__ = ["LAST_WORDS", "drive_to_end"]

logger = logging.getLogger(__name__)

LAST_WORDS = 10.0
"""Seconds a run has to write its terminal event once it ends."""
_TERMINALS = frozenset({RunFinished, RunError})
_YIELD_EVERY = 256
"""Events of an agent that does not pause, until others have their turn."""


async def drive_to_end(active: ActiveRun, middleware: Sequence[Middleware], left_behind: LeftBehind) -> None:
    """Drive the run and write how it ended, unless it can no longer be written. An agent that will not end is `left_behind`."""
    try:
        terminal = await _attended(active, middleware, left_behind)
    except anyio.get_cancelled_exc_class():
        active.cause = active.cause or "shutdown"
        await _end(active, active.terminal())
        raise
    if terminal is not None:
        await _end(active, terminal)
    else:
        _tell_observers(active, RunError(message=LedgerError().message, code=LedgerError.code))


async def _attended(active: ActiveRun, middleware: Sequence[Middleware], left_behind: LeftBehind) -> Terminal | None:
    """Drive the run while someone listens for stops; None when it can no longer be written."""
    terminal: Terminal | None = None
    try:
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(_obey_stops, active)
            terminal = await _drive(active, middleware, left_behind)
            watchers.cancel_scope.cancel()
    except* LeaseLost:
        logger.warning("A run lost its lease and is left to its new owner")
    except* LedgerError:
        logger.exception("A run could not be written; recovery will close it")
    finally:
        await _take_leave(active)
    return terminal


async def _take_leave(active: ActiveRun) -> None:
    """Tell whoever started the run that it is over, even while everything is being cancelled."""
    if active.on_end is not None:
        with anyio.move_on_after(active.timeouts.grace, shield=True), isolate("telling a door that a run is over"):
            await active.on_end()


async def _drive(active: ActiveRun, middleware: Sequence[Middleware], left_behind: LeftBehind) -> Terminal:
    """Push every event of the agent; gives the terminal event the run deserves."""
    terminal: Terminal | None = None
    try:
        with Deadlines(active):
            consuming = _consume(active, _handler(active, middleware))
            terminal = await run_apart(consuming, active.cut_short, active.timeouts.grace, left_behind)
    except LedgerError:
        raise
    except Exception as error:
        return active.terminal() if active.cause else _failure(error, active)
    if active.cause is not None:
        return active.terminal()
    return terminal or finished(active.run)


def _failure(error: Exception, active: ActiveRun) -> RunError:
    """What a client is told: our own errors by name, everything else as a code and a calm sentence. The log gets the rest.

    Middleware that has said the failure in its own words, and lets it pass, has the last word.
    """
    known = error if isinstance(error, RunnerError) else BridgeError()
    level, said = (
        (logging.WARNING, traceback.format_exception_only(error.__cause__ or error))
        if known.is_expected
        else (logging.ERROR, traceback.format_exception(error))
    )
    reason = Redactor(active.run.secrets).redact_text("".join(said))
    logger.log(level, "A run failed (%s)\n%s", known.code, reason)
    if isinstance(active.said, RunError):
        return active.said
    return RunError(message=known.message, code=known.code)


async def _consume(active: ActiveRun, handler: RunHandler) -> Terminal | None:
    writer, now = active.writer, time.monotonic
    push, full = active.pipeline.push, writer.full
    count = 0
    async with aclosing(handler(active.run)) as events:
        async for event in events:
            kind = type(event)
            if kind in _TERMINALS:
                active.said = active.said or cast("Terminal", event)
            elif kind not in LOOKED_AT or is_written(event):
                if push(event):
                    active.heard = now()
                    if full():
                        await writer.room()
            else:
                active.heard = now()
            count += 1
            if not count % _YIELD_EVERY:
                await (writer.room() if full() else asyncio.sleep(0))
    return active.said


def _handler(active: ActiveRun, middleware: Sequence[Middleware]) -> RunHandler:
    """The agent inside its own middleware, inside the server's."""
    handler = framed(active.agent, active.pipeline.keep)
    for wrap in reversed((*middleware, *active.agent.middleware)):
        handler = wrap(handler)
    return handler


async def _end(active: ActiveRun, terminal: Terminal) -> None:
    """Write the terminal event even while everything is being cancelled."""
    _tell_observers(active, terminal)
    with anyio.move_on_after(LAST_WORDS, shield=True):
        try:
            active.pipeline.end(terminal)
            await active.writer.finish()
        except LedgerError:
            logger.exception("The end of a run could not be written; recovery will close it")


async def _obey_stops(active: ActiveRun) -> None:
    """Wait for a stop request; ask the agent to end by itself, and cut it after the grace."""
    await active.writer.stop_requested()
    active.cause = active.cause or "stopped"
    active.run.stopping.set()
    with anyio.move_on_after(active.timeouts.grace), isolate("asking an agent to stop"):
        if await active.agent.interrupt(active.run):
            await active.done.wait()
    active.cut("stopped")


def _tell_observers(active: ActiveRun, terminal: Terminal) -> None:
    for tell in active.run.endings:
        with isolate("telling an observer how a run ended"):
            tell(terminal)
