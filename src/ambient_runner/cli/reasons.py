"""Why a run failed, told to the person at the terminal: it is their own machine, and often their own line.

The thread keeps only the code and the calm sentence that any client may read. Nor does the log repeat it, unless everything is wanted.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.bridges.blame import said
from ambient_runner.errors import BridgeError, LedgerError, RunnerError
from ambient_runner.projections.redact import Redactor
from ambient_runner.protocol.events import RunError
from ambient_runner.runs.isolate import foreign

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Middleware, Run, RunHandler

logger = logging.getLogger(__name__)


def telling(tell: Callable[[str], None]) -> Middleware:
    """Middleware that ends a failing run with its sentence, and tells the reason beside it, without secrets."""

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            try:
                with foreign(lambda _error: BridgeError()):
                    async with aclosing(handler(run)) as events:
                        async for event in events:
                            yield event
            except LedgerError:
                raise  # the run cannot be written, and nothing is told beside it
            except RunnerError as error:
                logger.debug("A run failed (%s)", error.code, exc_info=error)
                if error.__cause__ is not None:
                    tell(Redactor(run.secrets).redact_text(said(error.__cause__)))
                yield RunError(message=error.message, code=error.code)

        return handle

    return wrap
