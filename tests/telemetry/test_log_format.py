"""Log lines: run, thread and agent on every line of a run, JSON, escaped control characters, and no secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import logging.handlers
import pickle
import queue
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from strands import tool

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.config import LogFormat, read_settings
from ambient_runner.ledger.log_context import log_context
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.logging import JsonFormatter, RunContextFilter, TextFormatter
from ambient_runner.protocol.events import Event
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import Run, current_run
from ambient_runner.runs.runner import Runner
from ambient_runner.telemetry.log_format import RedactingFormatter
from ambient_runner.telemetry.log_hooks import LogHandler
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.world import agent_of
from tests.machine_speed import HANG_SECONDS
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, said, user

FORMATTERS: list[type[RedactingFormatter]] = [TextFormatter, JsonFormatter]
SECRET = "hunter2-9fK2qLw7"
agent_log = logging.getLogger("some_framework.agent")


def record_of(message: object, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    details = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("x", logging.ERROR, "file.py", 1, message, args, details)


def message_of(line: str) -> str:
    """Return what a text line says after time, level and logger."""
    return line.partition("ERROR x: ")[2]


def raised(text: str) -> RuntimeError:
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        return error


@contextmanager
def logged(formatter: logging.Formatter) -> Generator[list[str]]:
    """Collect the lines of all loggers; complete after the block."""
    lines: list[str] = []
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        lines += stream.getvalue().splitlines()


async def log_everywhere(run: Run) -> None:
    """Log from the run's task, from a child task, from a task group and from a thread."""
    agent_log.info("from the agent")
    await asyncio.create_task(asyncio.to_thread(agent_log.info, "from a thread of a child task"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, agent_log.info, "from a thread of a task group")
    with isolate("testing"):
        raise RuntimeError("inside")


async def run_logging_agent(formatter: logging.Formatter) -> tuple[Run, list[str]]:
    runs: list[Run] = []

    async def script(run: Run) -> AsyncGenerator[Event, None]:
        runs.append(run)
        await log_everywhere(run)
        for event in said("m1", "hi"):
            yield event

    async with runner_of(ScriptedAgent(script)) as runner:
        with logged(formatter) as lines:
            await run_once(runner, user("u1"))
            agent_log.info("after the run")
    return runs[0], lines


async def test_every_line_of_a_run_carries_run_thread_and_agent() -> None:
    run, lines = await run_logging_agent(TextFormatter())
    context = f"[run={run.key} thread={run.thread.id} agent={run.agent}]"
    of_agent = [line.split(" INFO ")[1] for line in lines if "some_framework" in line]
    assert of_agent == [
        f"some_framework.agent {context}: from the agent",
        f"some_framework.agent {context}: from a thread of a child task",
        f"some_framework.agent {context}: from a thread of a task group",
        "some_framework.agent: after the run",
    ]
    assert [line for line in lines if f"ambient_runner.runs.isolate {context}: Failed while testing" in line] != []


async def test_json_lines_carry_them_as_members_and_one_record_is_one_line() -> None:
    run, lines = await run_logging_agent(JsonFormatter())
    entries = [json.loads(line) for line in lines]
    failed = next(entry for entry in entries if "testing" in entry["message"])
    context = {"run": run.key, "thread": run.thread.id, "agent": run.agent}
    assert {name: failed[name] for name in context} == context
    assert (failed["level"], failed["logger"], failed["message"]) == (
        "ERROR",
        "ambient_runner.runs.isolate",
        "Failed while testing",
    )
    assert failed["exception"].endswith("RuntimeError: inside")
    after = next(entry for entry in entries if entry["message"] == "after the run")
    assert sorted(after) == ["level", "logger", "message", "time"]


async def test_the_traceback_of_a_failed_run_is_its_exception_and_a_text_line_each() -> None:
    async def crashing(run: Run) -> AsyncGenerator[Event, None]:
        raise ConnectionError("no\nroute")
        yield

    for kind in FORMATTERS:
        async with runner_of(ScriptedAgent(crashing)) as runner:
            with logged(kind()) as lines:
                await run_once(runner, user("u1"))
        first = next(index for index, line in enumerate(lines) if "failed (agent_error)" in line)
        if kind is JsonFormatter:
            entry = json.loads(lines[first])
            assert entry["message"].endswith("failed (agent_error)")
            assert entry["exception"].startswith("Traceback")
            assert entry["exception"].endswith("ConnectionError: no\nroute")
        else:
            assert lines[first].endswith("failed (agent_error)")
            further = [line for line in lines[first + 1 :] if line.startswith("    | ")]
            assert (further[0], further[-2:]) == (
                "    | Traceback (most recent call last):",
                ["    | ConnectionError: no", "    | route"],
            )


async def test_a_bridges_own_lines_and_its_tools_carry_the_context() -> None:
    """Strands calls the tool in a thread; the bridge logs that a custom handler yielded what is no event."""

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        agent_log.info("looking up %s", city)
        return f"sunny in {city}"

    model = ScriptedModel(calls(call("c1", "weather", '{"city": "Oslo"}')), says("It is sunny."))
    behavior = ToolBehavior(custom_result_handler=lambda context: [{"type": "NO_EVENT"}])
    bridge = StrandsBridge(agent_of(model, weather), config=StrandsAgentConfig(tool_behaviors={"weather": behavior}))
    async with MemoryLedger() as ledger, Runner(ledger, {"agent": AgentHost("agent", bridge)}, SETTINGS) as runner:
        with logged(JsonFormatter()) as lines:
            await run_once(runner, user("u1", "weather?"))
    entries = [json.loads(line) for line in lines]
    by_logger = {
        entry["logger"]: (entry.get("thread"), entry.get("agent"), "run" in entry)
        for entry in entries
        if entry["logger"] in ("some_framework.agent", "ambient_runner.bridges.strands.tool_behaviors")
    }
    assert by_logger == dict.fromkeys(by_logger, (KEY.id, "agent", True))
    assert len(by_logger) == 2


async def test_a_handler_that_formats_elsewhere_keeps_the_context() -> None:
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(waiting)  # type: ignore[arg-type]
    handler.addFilter(RunContextFilter())
    agent_log.addHandler(handler)
    try:
        run, _ = await run_logging_agent(TextFormatter())
    finally:
        agent_log.removeHandler(handler)
    entry = json.loads(JsonFormatter().format(waiting.get_nowait()))
    assert (entry["run"], entry["thread"], entry["agent"]) == (run.key, run.thread.id, run.agent)


@pytest.mark.parametrize("kind", FORMATTERS)
async def test_the_secrets_of_a_run_are_redacted_in_a_handler_that_formats_elsewhere(
    kind: type[RedactingFormatter],
) -> None:
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(waiting)  # type: ignore[arg-type]
    handler.addFilter(RunContextFilter())

    async def script(run: Run) -> AsyncGenerator[Event, None]:
        run.secrets.add(["granted-token-1"])
        agent_log.error("using %s", "granted-token-1", exc_info=raised("no granted-token-1"))
        agent_log.error("about another run: granted-token-1", extra=log_context("r2", "t2", "agent"))
        for event in said("m1", "hi"):
            yield event

    agent_log.addHandler(handler)
    try:
        async with runner_of(ScriptedAgent(script)) as runner:
            await run_once(runner, user("u1"))
    finally:
        agent_log.removeHandler(handler)
    text = "\n".join(kind().format(waiting.get_nowait()) for _ in range(2))
    assert ("granted-token-1" in text, text.count("[redacted]")) == (False, 3)


async def test_a_record_of_a_run_can_be_sent_to_another_process_without_the_runs_secrets() -> None:
    sent: list[bytes] = []

    async def script(run: Run) -> AsyncGenerator[Event, None]:
        run.secrets.add(["granted-token-1"])
        record = record_of("hello")
        RunContextFilter().filter(record)
        sent.append(pickle.dumps(record))
        for event in said("m1", "hi"):
            yield event

    async with runner_of(ScriptedAgent(script)) as runner:
        await run_once(runner, user("u1"))
    assert b"granted-token-1" not in sent[0]
    assert f"thread={KEY.id} " in TextFormatter().format(pickle.loads(sent[0]))


HOSTILE = {
    "line break": ("a\n2026-01-01 00:00:00,000 INFO x: forged", r"a\n2026-01-01 00:00:00,000 INFO x: forged"),
    "carriage return": ("a\rb", r"a\rb"),
    "terminal escape": ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
    "c1": ("\x9b31m", r"\x9b31m"),
    "unicode line breaks": ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
    "writing direction": ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
    "lone surrogate": ("a\ud800b", r"a\ud800b"),
    "text of any language": ("Grüße, 世界, tab-free", "Grüße, 世界, tab-free"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_control_characters_in_arguments_are_escaped(text: str, shown: str) -> None:
    record = record_of("agent %s failed", text)
    assert message_of(TextFormatter().format(record)) == f"agent {shown} failed"
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"agent {text} failed"


def test_lines_after_the_first_are_marked_so_that_none_passes_for_a_log_line() -> None:
    forged = "2026-01-01 00:00:00,000 INFO x: forged"
    records = [
        record_of("failed", error=raised(f"no\n{forged}\n\x1b[2J")),
        record_of("library text\n%s" % forged),  # noqa: UP031
        record_of("run %s failed\n%s", f"r\n{forged}", f"Traceback\n{forged}"),
    ]
    for record in records:
        first, *further = TextFormatter().format(record).split("\n")
        assert " ERROR x: " in first
        assert further != []
        assert [line for line in further if not line.startswith("    | ")] == []
        assert "\x1b" not in "".join(further)


def test_a_block_of_lines_stays_readable_and_other_arguments_are_one_line() -> None:
    record = record_of("run %s failed (%s)\n%s", "r\n1", "code", "Traceback:\n  File x\nError: y\n")
    lines = TextFormatter().format(record).split("\n")
    assert [message_of(lines[0]), *lines[1:]] == [
        r"run r\n1 failed (code)",
        "    | Traceback:",
        "    |   File x",
        "    | Error: y",
    ]


async def test_a_thread_id_cannot_forge_the_context() -> None:
    run = await _current_run_with(thread="t1 agent=other] \x1b[2J")
    record = record_of("hello")
    record.__dict__.update(ambient_run=run.key, ambient_thread=run.thread.id, ambient_agent=run.agent)
    line = TextFormatter().format(record)
    assert f'thread="t1 agent=other] \\u001b[2J" agent={run.agent}]: hello' in line


async def _current_run_with(*, thread: str) -> Run:
    runs: list[Run] = []

    async def script(run: Run) -> AsyncGenerator[Event, None]:
        runs.append(current_run())
        for event in said("m1", "hi"):
            yield event

    async with runner_of(ScriptedAgent(script)) as runner:
        await run_once(runner, user("u1"), thread=thread)
    return runs[0]


@pytest.mark.parametrize("kind", FORMATTERS)
def test_no_secret_is_in_the_log_not_even_in_a_traceback(kind: type[RedactingFormatter]) -> None:
    record = record_of("tried %s", SECRET, error=raised(f"the password is {SECRET}"))
    line = kind((SECRET,)).format(record)
    assert ("hunter2" in line, "RuntimeError: the password is" in line) == (False, True)


@pytest.mark.parametrize("kind", FORMATTERS)
@pytest.mark.parametrize("attribute", ["exc_text", "stack_info"])
def test_a_formatted_exception_and_a_stack_are_redacted_and_forge_no_line(
    kind: type[RedactingFormatter], attribute: str
) -> None:
    """`exc_text` is what another handler's formatter has left on the record."""
    record = record_of("failed")
    record.__dict__[attribute] = f"x\n2026-01-01 00:00:00,000 INFO x: forged\x1b[2J {SECRET}"
    first, *further = kind((SECRET,)).format(record).split("\n")
    assert (first.isprintable(), "".join(further).isprintable()) == (True, True)
    assert [line for line in further if not line.startswith("    | ")] == []
    assert ("forged" in first + "".join(further), "hunter2" in first + "".join(further)) == (True, False)


@pytest.mark.parametrize("kind", FORMATTERS)
def test_a_secret_with_line_breaks_and_quotes_is_redacted_before_it_is_escaped(kind: type[RedactingFormatter]) -> None:
    key = '-----BEGIN KEY-----\n"abc\x1bdef"\n-----END KEY-----'
    line = kind((key,)).format(record_of("key %s;", key, error=raised(key)))
    assert ("BEGIN" in line, line.count("[redacted]")) == (False, 2)


@pytest.mark.parametrize("kind", FORMATTERS)
def test_a_secret_of_several_lines_is_redacted_in_a_message_without_arguments(kind: type[RedactingFormatter]) -> None:
    """Such a message arrives from a queue, where its arguments and its traceback are part of it."""
    line = kind(("BEGIN KEY\nabc\nEND KEY",)).format(record_of("key BEGIN KEY\nabc\nEND KEY;\nmore"))
    assert ("KEY" in line, "abc" in line, "key [redacted];" in line, "more" in line) == (False, False, True, True)


@pytest.mark.parametrize("kind", FORMATTERS)
def test_a_secret_in_the_name_of_a_logger_or_a_level_is_redacted(kind: type[RedactingFormatter]) -> None:
    record = record_of("hello")
    record.name, record.levelname = f"tool.{SECRET}", f"LEVEL-{SECRET}"
    line = kind((SECRET,)).format(record)
    assert ("hunter2" in line, line.count("[redacted]")) == (False, 2)


@pytest.mark.parametrize("kind", FORMATTERS)
def test_the_name_of_a_level_cannot_forge_a_line(kind: type[RedactingFormatter]) -> None:
    record = record_of("hello")
    record.levelname = "EVIL\n2026-01-01 00:00:00,000 INFO x: forged\x1b[2J"
    assert kind().format(record).isprintable()


@pytest.mark.parametrize("kind", FORMATTERS)
@pytest.mark.parametrize("secret", ['hunter2-"q\\uote"-é', "hunter2-\\-it's", 'hunter2-"it\'s"-\\-\n'])
@pytest.mark.parametrize("spell", [repr, ascii, lambda value: repr(value.encode()), lambda value: repr({"a": value})])
def test_a_secret_is_redacted_in_the_repr_of_a_value(
    kind: type[RedactingFormatter], secret: str, spell: Callable[[str], str]
) -> None:
    """A backslash is doubled by repr as by JSON, but quotes are not escaped in the same way."""
    record = record_of("%s | %s", spell(secret), spell(f"x'{secret}'y"))
    line = kind((secret,)).format(record)
    assert ("hunter2" in line, line.count("[redacted]")) == (False, 2)


@pytest.mark.parametrize("kind", FORMATTERS)
@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/threads/t/events?access_token=abc123&until=idle", "/threads/t/events?[hidden]"),
        ('/?my-password="x"', "/?[hidden]"),
        (f"/threads/{SECRET}/events?{SECRET}", "/threads/[redacted]/events?[hidden]"),
        (f"/threads/{SECRET.replace('u', '%75')}/a%20b?x=1?y", "/threads/[redacted]/a%20b?[hidden]"),
        ("/message_snapshot/a%20b%22%0a%C3%A9%ff", "/message_snapshot/a%20b%22%0a%C3%A9%ff"),
    ],
)
def test_an_access_log_has_neither_query_strings_nor_secrets_in_paths(
    kind: type[RedactingFormatter], is_prepared: bool, target: str, shown: str
) -> None:
    """A prepared record comes from a queue, where its arguments are part of its message."""
    record = record_of('%s - "%s %s HTTP/%s" %d', "127.0.0.1:5", "GET", target, "1.1", 200)
    record.name = "uvicorn.access"
    if is_prepared:
        record = logging.handlers.QueueHandler(queue.SimpleQueue()).prepare(record)
    line = kind((SECRET,)).format(record)
    message = json.loads(line)["message"] if kind is JsonFormatter else line.partition("uvicorn.access: ")[2]
    assert message == f'127.0.0.1:5 - "GET {shown} HTTP/1.1" 200'


@pytest.mark.parametrize("kind", FORMATTERS)
async def test_the_secrets_of_a_run_are_redacted_on_its_lines(kind: type[RedactingFormatter]) -> None:
    async def script(run: Run) -> AsyncGenerator[Event, None]:
        run.secrets.add(["granted-token-1"])
        agent_log.info("using %s", "granted-token-1")
        for event in said("m1", "hi"):
            yield event

    async with runner_of(ScriptedAgent(script)) as runner:
        with logged(kind()) as lines:
            await run_once(runner, user("u1"))
    text = "\n".join(lines)
    assert ("granted-token-1" in text, "using [redacted]" in text) == (False, True)


@pytest.mark.parametrize("kind", FORMATTERS)
def test_added_secrets_are_redacted_and_the_oldest_is_dropped(kind: type[RedactingFormatter]) -> None:
    formatter = kind()
    record = record_of("token-number-0 token-number-1000;")
    for number in range(1001):
        formatter.add_secrets([f"token-number-{number}"])
        if not number:
            first = formatter.format(record)
            assert "token-number-0 " not in first
    assert "token-number-0 [redacted];" in formatter.format(record)


CONFIGURE = """
import logging, sys
from ambient_runner.logging import configure_logging
configure_logging(format=sys.argv[1], level=sys.argv[2], secrets=["hunter2-9fK2qLw7"])
logging.getLogger("mine").warning("the key is %s\\nforged", "hunter2-9fK2qLw7")
logging.getLogger("httpx").info("chatter")
logging.getLogger("mine").debug("detail")
"""


@pytest.mark.parametrize(("format", "level", "count"), [("text", "info", 1), ("json", "info", 1), ("json", "debug", 3)])
def test_an_app_configures_the_log_of_its_process(format: LogFormat, level: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONFIGURE, format, level],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    lines = done.stderr.splitlines()
    assert len(lines) == count
    if format == "json":
        lines = [json.loads(line)["message"] for line in lines]
        assert lines[0] == "the key is [redacted]\nforged"
    else:
        assert lines[0].endswith(r" WARNING mine: the key is [redacted]\nforged")


STRAY = """
import logging, sys, threading, warnings
from ambient_runner.logging import configure_logging

class Unprintable:
    def __str__(self):
        raise RuntimeError("hunter2-9fK2qLw7")

class UnprintableText(str):
    __repr__ = __str__ = Unprintable.__str__

class Undeletable:
    def __del__(self):
        raise ValueError("in del: hunter2-9fK2qLw7")

def fail(*args):
    raise ValueError("in a thread: hunter2-9fK2qLw7")

configure_logging(format=sys.argv[1], secrets=["hunter2-9fK2qLw7"])
thread = threading.Thread(target=fail, name="worker-hunter2-9fK2qLw7")
thread.start()
thread.join()
quiet = threading.Thread(target=sys.exit)
quiet.start()
quiet.join()
warnings.warn("warned: hunter2-9fK2qLw7")
log = logging.getLogger("mine")
log.info("bad hunter2-9fK2qLw7 %d", "hunter2-9fK2qLw7")
log.info("too few: %s %s", "x")
log.info("%s", Unprintable())
log.info(Unprintable())
log.info(UnprintableText("x"))
Undeletable()
fail()
"""
STRAY_LINES = [
    ("ERROR", "ambient_runner.telemetry.log_hooks", "ValueError: in a thread: [redacted]"),
    ("WARNING", "py.warnings", "UserWarning: warned: [redacted]"),
    ("INFO", "mine", "TypeError: %d format"),
    ("INFO", "mine", "TypeError: not enough arguments for format string"),
    *[("INFO", "mine", "RuntimeError: [redacted]")] * 3,
    ("ERROR", "ambient_runner.telemetry.log_hooks", "ValueError: in del: [redacted]"),
    ("CRITICAL", "ambient_runner.telemetry.log_hooks", "ValueError: in a thread: [redacted]"),
]
"""Level, logger and text of what the script writes to standard error."""


def run_stray(format: LogFormat) -> list[str]:
    """Run the script and return the lines of its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", STRAY, format], capture_output=True, text=True, check=False, timeout=HANG_SECONDS
    )
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_warnings_uncaught_errors_and_bad_logging_calls_are_json_lines_too() -> None:
    entries = [json.loads(line) for line in run_stray("json")]
    assert [(entry["level"], entry["logger"]) for entry in entries] == [line[:2] for line in STRAY_LINES]
    for entry, (_, _, text) in zip(entries, STRAY_LINES, strict=True):
        assert text in entry["message"] + entry.get("exception", "")
    assert "hunter2" not in str(entries)


def test_warnings_uncaught_errors_and_bad_logging_calls_are_text_lines_too() -> None:
    lines = run_stray("text")
    prefix = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) (\S+): ")
    heads = [match for line in lines if (match := prefix.match(line))]
    assert [match.groups() for match in heads] == [line[:2] for line in STRAY_LINES]
    assert [line for line in lines if not prefix.match(line) and not line.startswith("    | ")] == []
    assert "hunter2" not in "".join(lines)


def test_a_bad_logging_call_names_its_place_and_keeps_the_context() -> None:
    stream = io.StringIO()
    handler = LogHandler(stream)
    handler.setFormatter(JsonFormatter())
    record = record_of("bad %d", "x")
    record.__dict__.update(log_context("r1", "t1", "agent"))
    handler.addFilter(RunContextFilter())
    handler.handle(record)
    entry = json.loads(stream.getvalue())
    assert (entry["run"], entry["thread"], entry["agent"], "file.py:1" in entry["message"]) == (
        "r1",
        "t1",
        "agent",
        True,
    )


def test_a_context_that_cannot_be_formatted_does_not_fail_a_logging_call() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    stream = io.StringIO()
    handler = LogHandler(stream)
    handler.setFormatter(JsonFormatter())
    record = record_of("hello")
    record.__dict__.update(ambient_run="r1", ambient_thread=Unprintable(), ambient_agent="agent")
    handler.handle(record)
    entry = json.loads(stream.getvalue())
    assert ("no text" in entry["message"], entry["run"]) == (True, "r1")


def test_a_line_that_cannot_be_redacted_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The error left the logging call, and ended the run that logged."""

    class Broken(TextFormatter):
        def _message(self, record: logging.LogRecord, redact: Callable[[str], str]) -> str:
            raise LookupError(record.getMessage())

    handler = LogHandler()
    handler.setFormatter(Broken())
    handler.handle(record_of("the password is %s", SECRET))
    assert capsys.readouterr().err == "A log line could not be formatted and is left out.\n"


def test_a_closed_standard_error_does_not_fail_a_logging_call() -> None:
    stream = io.StringIO()
    stream.close()
    handler = LogHandler(stream)
    handler.setFormatter(TextFormatter())
    handler.handle(record_of("hello"))


HOOKS = """
import logging, sys, threading, warnings
import ambient_runner.logging
from ambient_runner.logging import JsonFormatter, RunContextFilter, configure_logging
hooks = lambda: (sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning)
before = hooks()
handler = logging.StreamHandler()
handler.setFormatter(JsonFormatter())
handler.addFilter(RunContextFilter())
logging.getLogger().addHandler(handler)
configure_logging()
print(hooks() == before)
configure_logging(force=True)
print(any(now is was for now, was in zip(hooks(), before)))
"""


def test_the_hooks_of_an_app_stay_unless_it_has_its_log_configured() -> None:
    """As `configure_logging` does nothing for an app with handlers, it does not replace its hooks either."""
    done = subprocess.run(
        [sys.executable, "-c", HOOKS], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    assert done.stdout.split() == ["True", "False"]


def test_the_format_is_a_setting() -> None:
    settings: Any = read_settings(environ={"AMBIENT_LOG_FORMAT": "json"})
    assert (settings.log_format, read_settings(environ={}).log_format) == ("json", "text")


SERVE = """
import logging
from ambient_runner.config import read_settings
from ambient_runner.telemetry.log_format import log_to_stderr
secrets = log_to_stderr(read_settings(environ={"AMBIENT_LOG_FORMAT": "json"}))
secrets.copy_for_run().add(["granted-token-1"])
logging.getLogger("elsewhere").info("saw granted-token-1")
"""


def test_the_log_of_a_server_redacts_what_its_runs_were_granted_also_outside_of_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    [line] = done.stderr.splitlines()
    assert json.loads(line)["message"] == "saw [redacted]"
