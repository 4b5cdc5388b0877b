"""Everything Python itself writes to standard error becomes log records: warnings, uncaught exceptions, and failed logging calls.

Otherwise these lines have no format, no run, and secrets in them. `log_format.py` installs the handler and the hooks, only in a process
whose log it configures.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LogHandler", "install_log_hooks"]

logger = logging.getLogger(__name__)

_UNFORMATTABLE = "A log line could not be formatted and is left out."


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error. A logging call that cannot be formatted becomes a line that names its place and its error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Write a line about the error that is being handled. It is lost if standard error is closed.

        If that line cannot be formatted either, redaction may be what fails: then nothing of the record is written.
        """
        if not logging.raiseExceptions:
            return
        line = _UNFORMATTABLE
        with suppress(Exception):
            line = self.format(_describe_failed_call(record))
        with suppress(OSError, ValueError):
            self.stream.write(line + self.terminator)
            self.flush()


def _describe_failed_call(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record, of the same run, for one that cannot be formatted. It leaves the arguments out: their `str` may be what fails."""
    error = "".join(traceback.format_exception_only(sys.exception())).strip()
    template = repr(record.msg) if type(record.msg) is str else f"an object of type {type(record.msg).__name__}"
    message = "The logging call at %s:%d failed with %s. Its message is %s."
    args = (record.pathname, record.lineno, error, template)
    described = logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, message, args, None)
    context = {name: value for name, value in record.__dict__.items() if "ambient_" in name}
    described.__dict__.update({name: value for name, value in context.items() if _is_printable(value)})
    return described


def _is_printable(value: object) -> bool:
    """Return False for an object whose `str` may be code of the app, and may be what failed."""
    return type(value) is str or type(value).__module__.startswith("ambient_runner.")


def install_log_hooks() -> None:
    """Log warnings, and the exceptions that end this process or a thread, or that Python ignores. Replaces the hooks for them."""
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught_exception
    threading.excepthook = _log_thread_exception
    sys.unraisablehook = _log_unraisable_exception


def _log_uncaught_exception(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    logger.critical("The process ends because of an uncaught %s.", kind.__name__, exc_info=(kind, error, where))


def _log_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:  # As Python does: it ends the thread, and is no failure.
        return
    name = args.thread.name if args.thread else "unknown"
    logger.error("Thread %s ended with an uncaught %s.", name, args.exc_type.__name__, exc_info=args.exc_value)


def _log_unraisable_exception(unraisable: sys.UnraisableHookArgs) -> None:
    place = unraisable.err_msg or "Exception ignored in"
    logger.error("%s: %r", place, unraisable.object, exc_info=unraisable.exc_value)
