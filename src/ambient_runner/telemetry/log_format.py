"""Log lines that can be followed: each line of a run carries run, thread and agent, without secrets and without control characters.

Two formatters, text for people and JSON for collectors, and the handler that `ambient serve` logs with. `ambient_runner.logging` is the
public name of what apps use. The run is looked up when a line is written: runs that log nothing pay nothing.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote, unquote

from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.runs.run import current_run_or_none
from ambient_runner.telemetry.log_hooks import LogHandler, install_log_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ambient_runner.config import LogFormat, LogLevel, Settings

__all__ = [
    "JsonFormatter",
    "RedactingFormatter",
    "RunContextFilter",
    "TextFormatter",
    "configure_logging",
    "log_to_stderr",
]

_Redact: TypeAlias = "Callable[[str], str]"

_CHATTY_LOGGERS = ("uvicorn.error", "claude_agent_sdk", "google_adk", "google_genai", "strands", "httpx")
"""Libraries whose level `info` is for their own developers."""
_REQUEST_LOGGERS = ("uvicorn.access", "uvicorn.error")
"""Loggers whose messages have the targets of requests. Clients put tokens into queries."""
_TARGET = re.compile(r"(?<= )/\S*")
_HIDDEN_QUERY = "[hidden]"
_MAX_ADDED_SECRETS = 1000
_CONTEXT_FIELDS = ("run", "thread", "agent")
_SECRETS_ATTRIBUTE = "_ambient_secrets"
_CONTINUATION = "    | "
"""Start of every line of a record but its first: no text can pass for a log line."""
# C0 and C1 control characters, Unicode line breaks, characters that change the writing direction, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN_VALUE = re.compile(r"[\w.:@/+-]+")


class RunContextFilter(logging.Filter):
    """Sets `ambient_run`, `ambient_thread` and `ambient_agent` on every record; empty strings outside of a run.

    Add it to a handler whose formatter is your own (`%(ambient_run)s`), or to one that formats in another thread, as QueueHandler does:
    our formatters then redact the secrets of the run there too. For a queue to another process, set our formatter on the QueueHandler.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        _add_run_context(record)
        return True


class _RunSecrets:
    """The secrets of a record's run, for a formatter in another thread. They are left out when the record is pickled."""

    __slots__ = ("secrets",)

    def __init__(self, secrets: Secrets | None = None) -> None:
        self.secrets = secrets

    def __reduce__(self) -> tuple[type[_RunSecrets], tuple[()]]:
        return _RunSecrets, ()


def _add_run_context(record: logging.LogRecord) -> None:
    run = current_run_or_none()
    if _SECRETS_ATTRIBUTE not in record.__dict__:
        record.__dict__[_SECRETS_ATTRIBUTE] = _RunSecrets(run.secrets if run else None)
    if "ambient_run" in record.__dict__:
        return
    values = (run.key, run.thread.id, run.agent) if run else ("", "", "")
    record.__dict__.update({f"ambient_{name}": value for name, value in zip(_CONTEXT_FIELDS, values, strict=True)})


def _run_secrets(record: logging.LogRecord) -> Secrets | None:
    """Return the secrets of the run that logged a record; None outside of a run."""
    _add_run_context(record)
    of_run: _RunSecrets = record.__dict__[_SECRETS_ATTRIBUTE]
    return of_run.secrets


def _run_context(record: logging.LogRecord) -> dict[str, str]:
    """Return run, thread and agent of a record; empty outside of a run."""
    _add_run_context(record)
    values = {name: str(record.__dict__.get(f"ambient_{name}", "")) for name in _CONTEXT_FIELDS}
    return values if values["run"] else {}


class RedactingFormatter(logging.Formatter):
    """Base of the two formatters: redacts `secrets`, those of the current run, and the newest thousand that were added."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = Secrets(secrets)
        self._added: dict[str, None] = {}
        self._current: Secrets | None = None
        """The secrets and the added ones; None until the next line after values were added."""
        self._lock = threading.Lock()

    def add_secrets(self, values: Iterable[str]) -> None:
        """Redact these too. The next log line pays for it, not the run that fetched them."""
        with self._lock:
            fresh = [value for value in values if value not in self._added]
            if not fresh:
                return
            self._added |= dict.fromkeys(fresh)
            for oldest in list(self._added)[:-_MAX_ADDED_SECRETS]:
                del self._added[oldest]
            self._current = None

    def _redaction_of(self, record: logging.LogRecord, context: Iterable[str], traceback: str) -> _Redact:
        """Return what redacts each text of a record. All are searched at once first: nearly all records are clean, and stay as they are."""
        with self._lock:
            own = self._current = self._current or self._add_to_secrets()
        of_run = _run_secrets(record)
        texts = (str(record.levelname), record.name, *context, record.getMessage(), traceback)
        # Most runs have no values of their own, and share the search of the server.
        has_secret = own.contains_secret(*texts) or (
            of_run is not None and of_run.searches != own.searches and of_run.contains_secret(*texts)
        )
        is_decoded = record.name.startswith(_REQUEST_LOGGERS)  # The targets of requests are searched decoded.
        if not has_secret and not is_decoded:
            return _keep_text
        redactors = [Redactor(secrets) for secrets in (own, of_run) if secrets]
        return lambda text: reduce(lambda clean, redactor: redactor.redact_text(clean), redactors, text)

    def _message(self, record: logging.LogRecord, redact: _Redact) -> str:
        """Return the record's message, redacted. A request line has no query, and its path is decoded to be searched."""
        message = record.getMessage()
        if record.name.startswith(_REQUEST_LOGGERS):
            message = _TARGET.sub(lambda match: _clean_target(match[0], redact), message)
        return redact(message)

    def _add_to_secrets(self) -> Secrets:
        secrets = self._secrets.copy_for_run()
        secrets.add(self._added)
        return secrets

    def _traceback(self, record: logging.LogRecord) -> str:
        """Return the record's traceback and stack; empty if it has none."""
        exception = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        stack = self.formatStack(record.stack_info) if record.stack_info else ""
        return "\n".join(filter(None, (exception, stack)))


class TextFormatter(RedactingFormatter):
    """Lines for people: time, level, logger, `[run=… thread=… agent=…]`, message. Further lines, as of a traceback, start with `|`."""

    def format(self, record: logging.LogRecord) -> str:
        run_context, traceback = _run_context(record), self._traceback(record)
        redact = self._redaction_of(record, run_context.values(), traceback)
        context = " ".join(f"{name}={_quote(redact(value))}" for name, value in run_context.items())
        level, name = _escape(redact(str(record.levelname))), _escape(redact(record.name))
        origin = f"{name} [{context}]" if context else name
        message, details = self._split_message(record, redact)
        first = f"{self.formatTime(record)} {level} {origin}: {_escape(message)}"
        further = "\n".join(filter(None, (details, redact(traceback))))
        return "\n".join([first, *(_CONTINUATION + _escape(line) for line in further.split("\n") if line)])

    def _split_message(self, record: logging.LogRecord, redact: _Redact) -> tuple[str, str]:
        """Return the record's redacted message, which becomes one line, and the lines after it.

        Lines come from a message without arguments, or from the last argument of a format string that ends in a line break and `%s`. All
        other arguments are one line: their line breaks are escaped.
        """
        if not record.args:
            message, _, details = self._message(record, redact).partition("\n")
            return message, details
        if isinstance(record.msg, str) and record.msg.endswith("\n%s") and isinstance(record.args, tuple):
            return redact(record.msg[:-3] % record.args[:-1]), redact(str(record.args[-1]))
        return self._message(record, redact), ""


class JsonFormatter(RedactingFormatter):
    """A JSON object per line: `time` (UTC), `level`, `logger`, `message`; `run`, `thread`, `agent` in a run; `exception` on failure."""

    def format(self, record: logging.LogRecord) -> str:
        context, traceback = _run_context(record), self._traceback(record)
        redact = self._redaction_of(record, context.values(), traceback)
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time.replace("+00:00", "Z")}
        fields |= {"level": redact(str(record.levelname)), "logger": redact(record.name)}
        fields["message"] = self._message(record, redact)
        values = {**context, "exception": traceback}
        fields |= {name: redact(value) for name, value in values.items() if value}
        line = json.dumps(fields, ensure_ascii=False)
        return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _keep_text(text: str) -> str:
    return text


def _clean_target(target: str, redact: _Redact) -> str:
    path, mark, _ = target.partition("?")
    decoded = unquote(path)
    redacted = redact(decoded)
    shown = path if redacted == decoded else quote(redacted, safe="/[]")
    return f"{shown}?{_HIDDEN_QUERY}" if mark else shown


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _quote(value: str) -> str:
    """Return a value of the context; in quotes if it could pass for more than one."""
    return value if _PLAIN_VALUE.fullmatch(value) else _escape(json.dumps(value, ensure_ascii=False))


def configure_logging(
    format: LogFormat = "text",  # noqa: A002  as logging.basicConfig
    level: LogLevel = "info",
    *,
    secrets: Iterable[str] = (),
    force: bool = False,
) -> None:
    """Log to standard error as `ambient serve` does, with run, thread and agent on every line of a run.

    Like `logging.basicConfig`, it does nothing if the root logger has handlers, unless `force` replaces them. Warnings, uncaught exceptions
    of the process and its threads, and failed logging calls are log lines too: `sys.excepthook`, `sys.unraisablehook` and
    `threading.excepthook` are replaced, so set hooks of your own after the call. `secrets` are redacted on
    every line, besides those of the run; `Settings.secrets` has the ones found in the environment. At level `info`, libraries log
    warnings only.
    """
    _install_handler(_make_formatter(format, secrets), level, force=force)


def log_to_stderr(settings: Settings) -> Secrets:
    """Set up the log of this process. Return the secrets for its runs: values added to them are redacted on every line."""
    formatter = _make_formatter(settings.log_format, settings.secrets)
    _install_handler(formatter, settings.log_level, force=False)
    return Secrets(settings.secrets, formatter.add_secrets, patterns=settings.secret_patterns)


def _make_formatter(format: LogFormat, secrets: Iterable[str]) -> RedactingFormatter:  # noqa: A002
    return JsonFormatter(secrets) if format == "json" else TextFormatter(secrets)


def _install_handler(formatter: logging.Formatter, level: LogLevel, *, force: bool) -> None:
    handler = LogHandler()
    handler.setFormatter(formatter)
    handler.addFilter(RunContextFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=force)
    if handler in logging.getLogger().handlers:
        install_log_hooks()
    if level == "info":
        for name in _CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
