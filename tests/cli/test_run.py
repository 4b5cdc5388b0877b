"""`ambient run` on the user's own machine: how to go on, what was left out, and why a run failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ambient_runner import Settings
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.ledger import open_ledger
from ambient_runner.protocol.events import RunAgentInput, UserMessage
from ambient_runner.runs.run import Actor, StartRequest
from ambient_runner.runs.runner import Runner
from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

AMBIENT = str(Path(sys.executable).with_name("ambient"))

AGENT = """
import os

from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import Custom, RunError

os.environ["LATE_PASSWORD"] = "tr0ub4dor-7Kq2vX"

class NoMilk(BridgeError):
    "There is no milk. Buy some."
    code = "NO_MILK"

async def fails(input):
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Well, "}
    helper()

def helper():
    raise ValueError("no such customer: hunter2-9fK2qLw7")

async def fails_as_known(input):
    try:
        helper()
    except ValueError as error:
        raise NoMilk from error
    yield

async def ends_with_an_error(input):
    yield {"type": "RUN_ERROR", "message": "a text of some exception"}

async def is_hostile(input):
    hostile = "\\x1b]0;owned\\x07 \\x9b2J \\u202egnp.exe"
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": hostile}
    yield {"type": "STEP_STARTED", "stepName": hostile}
    error = SyntaxError("x\\n2026-01-01 00:00:00,000 INFO x: forged" + hostile)
    error.filename = "f.py"
    raise error

async def says_a_late_secret(input):
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": os.environ["LATE_PASSWORD"] + " "}
    raise ValueError(os.environ["LATE_PASSWORD"])

async def says_too_much(input):
    yield {"type": "CUSTOM", "name": "x", "value": "x" * (9 << 20)}
"""
LINE = next(at for at, line in enumerate(AGENT.splitlines(), 1) if "no such customer" in line)


@pytest.fixture(autouse=True)
def agent(project: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    project(failing_agent=AGENT)
    monkeypatch.setenv("CUSTOMER_PASSWORD", "hunter2-9fK2qLw7")


def child(tmp_path: Path, *arguments: str, **settings: str) -> tuple[int, str, str]:
    """The command in a process of its own, whose log goes where a person sees it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AMBIENT_")}
    ended = subprocess.run(
        [AMBIENT, *arguments, "--thread", "t1"],
        cwd=tmp_path,
        env=clean | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_the_id_of_a_new_thread_is_printed_once(ambient: Callable[..., Any]) -> None:
    code, out, err = ambient("run", "demo", "say hello")
    thread = re.fullmatch(r"Continue with --thread (cli-[0-9a-f]+)\n", err)
    assert (code, out, bool(thread)) == (0, "hello\n", True)
    assert thread is not None
    _, out, err = ambient("run", "demo", "say again", "--thread", thread[1])
    assert (out, err) == ("again\n", "")
    assert ambient("threads", "show", thread[1])[1].count("user:") == 2


def test_a_thread_that_is_gone_afterwards_is_not_named(ambient: Callable[..., Any]) -> None:
    assert ambient("run", "demo", "say hello", "--store", "memory://") == (0, "hello\n", "")


def test_why_an_agent_failed_is_said_with_its_own_line_and_without_ours(tmp_path: Path) -> None:
    code, out, err = child(tmp_path, "run", "mine=failing_agent:fails", "hi")
    assert (code, out) == (1, "Well, \n[error] The agent failed. (agent_error)\n")
    assert err == f"ValueError: no such customer: [redacted] (failing_agent.py, line {LINE})\n"


def test_a_secret_that_the_module_adds_to_the_environment_is_not_printed(tmp_path: Path) -> None:
    """As `load_dotenv()` does: the environment was searched before the module was imported."""
    code, out, err = child(tmp_path, "run", "mine=failing_agent:says_a_late_secret", "hi")
    assert (code, out) == (1, "[redacted] \n[error] The agent failed. (agent_error)\n")
    assert err.startswith("ValueError: [redacted] (failing_agent.py")


def test_the_texts_of_an_agent_control_no_terminal_and_forge_no_line(tmp_path: Path) -> None:
    """In a pipe, escape codes passed through: `ambient run … | tee log` ends in a terminal too."""
    code, out, err = child(tmp_path, "run", "mine=failing_agent:is_hostile", "hi")
    assert (code, out.count("gnp.exe"), "forged" in err) == (1, 2, True)
    assert ([char for char in out + err if not char.isprintable() and char != "\n"], err.count("\n")) == ([], 1)


def test_a_known_failure_is_its_sentence_and_its_reason(tmp_path: Path) -> None:
    code, out, err = child(tmp_path, "run", "mine=failing_agent:fails_as_known", "hi")
    assert (code, out) == (1, "[error] There is no milk. Buy some. (NO_MILK)\n")
    assert err == f"ValueError: no such customer: [redacted] (failing_agent.py, line {LINE})\n"


def test_the_traceback_is_in_the_log_for_who_wants_everything(tmp_path: Path) -> None:
    _, _, err = child(tmp_path, "run", "mine=failing_agent:fails", "hi", AMBIENT_LOG_LEVEL="debug")
    assert ("Traceback (most recent call last)" in err, "hunter2" in err) == (True, False)


def test_an_agent_that_ends_with_its_own_error_is_reported_in_one_line(tmp_path: Path) -> None:
    code, out, err = child(tmp_path, "run", "mine=failing_agent:ends_with_an_error", "hi")
    assert (code, out) == (1, "[error] The agent failed. (agent_error)\n")
    assert (len(err.splitlines()), "a text of some exception" in err) == (1, True)


def test_the_cause_is_printed_and_not_stored_in_the_thread(ambient: Callable[..., Any]) -> None:
    ambient("run", "mine=failing_agent:fails", "hi", "--thread", "t1")
    _, kept, _ = ambient("threads", "export", "t1")
    assert ("RUN_ERROR" in kept, "agent_error" in kept, "no such customer" in kept) == (True, True, False)


def test_dropped_events_are_reported(ambient: Callable[..., Any]) -> None:
    code, out, _ = ambient("run", "mine=failing_agent:says_too_much", "hi", "--thread", "t1")
    assert (code, out) == (0, "[left out] CUSTOM: too_large\n")


def test_a_busy_thread_is_refused_in_one_line_that_names_it(ambient: Callable[..., Any], tmp_path: Path) -> None:
    """The refusal passed through the task groups of the server, and was printed as the traceback of an exception group."""

    async def run_while_busy() -> tuple[int, str, str]:
        settings = Settings(store=f"sqlite:///{tmp_path / 'threads.db'}")
        run_input = RunAgentInput(thread_id="t1", run_id="r", messages=[UserMessage(id="m", content="hang")])
        async with (
            open_ledger(settings.store) as ledger,
            Runner(ledger, {"demo": AgentHost("demo", DemoBridge())}, settings) as runner,
        ):
            await runner.start(StartRequest(agent="demo", actor=Actor(), input=run_input))
            try:
                return await anyio.to_thread.run_sync(lambda: ambient("run", "demo", "say hi", "--thread", "t1"))
            finally:
                await runner.stop(Actor().thread_key("t1"))

    code, out, err = anyio.run(run_while_busy)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert ("t1" in err, "--thread" in err, "AMBIENT_ON_BUSY=queue" in err, "GET " in err) == (True, True, True, False)


def test_a_message_that_is_too_large_is_refused_in_one_line(ambient: Callable[..., Any]) -> None:
    code, out, err = ambient("run", "demo", "-", "--thread", "t1", stdin="x" * (9 << 20))
    assert (code, out, len(err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("run", "demo", "-"), "\udcff\udcfe"),
        (("run", "demo", "\udcff"), ""),
        (("run", "demo", "hi", "--thread", "\udcff"), ""),
        (("threads", "show", "\udcff"), ""),
        (("threads", "list", "--owner", "\udcff"), ""),
    ],
)
def test_text_that_is_not_utf8_is_refused_in_one_line(
    ambient: Callable[..., Any], arguments: tuple[str, ...], stdin: str
) -> None:
    """Python decodes such bytes to lone surrogates, which no store can encode."""
    ambient("run", "demo", "say hi")
    code, out, err = ambient(*arguments, stdin=stdin)
    assert (code, out, len(err.splitlines()), "UTF-8" in err) == (2, "", 1, True)


@pytest.mark.parametrize("command", [("run", "demo", "hi", "--thread"), ("threads", "show"), ("threads", "export")])
@pytest.mark.parametrize("thread", ["", "x" * 600, "two\nlines", ".", ".."])
def test_a_thread_id_that_http_refuses_is_refused_here_too(
    ambient: Callable[..., Any], tmp_path: Path, command: tuple[str, ...], thread: str
) -> None:
    code, out, err = ambient(*command, thread)
    assert (code, out, len(err.splitlines()), "thread" in err) == (2, "", 1, True)
    assert not (tmp_path / "threads.db").exists()


APPROVAL = """
async def run(input):
    answer = input.resume[0] if input.resume else None
    if answer is None:
        yield {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "send_mail"}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"to": "a"}'}
        yield {"type": "TOOL_CALL_END", "toolCallId": "c1"}
        request = {"action_requests": [{"name": "send_mail"}, {"name": "send_mail"}]}
        interrupt = {"id": "i1", "reason": "input_required", "metadata": {"value": request}}
        outcome = {"type": "interrupt", "interrupts": [interrupt]}
        yield {"type": "RUN_FINISHED", "threadId": input.thread_id, "runId": input.run_id, "outcome": outcome}
        return
    decisions = answer.payload["decisions"]
    yield {"type": "TOOL_CALL_RESULT", "messageId": "m1", "toolCallId": "c1", "content": f"sent {len(decisions)}"}
"""
APPROVE = '{"decisions": [{"type": "approve"}, {"type": "approve"}]}'


def test_an_answer_that_fails_the_run_is_prompted_for_again(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(approval=APPROVAL)
    code, out, _ = ambient("run", "mine=approval:run", "hi", "--thread", "t1", stdin=f"y\n{APPROVE}\n")
    assert (code, out.count("[error]")) == (0, 1)
    assert '[tool] send_mail {"to": "a"}\n[result] sent 2\n' in out


def test_after_an_answer_that_fails_the_end_of_the_input_leaves_the_interrupt_open(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(approval=APPROVAL)
    code, out, err = ambient("run", "mine=approval:run", "hi", "--thread", "t1", stdin="y\n")
    assert (code, out.count("[error]"), "Traceback" in err) == (1, 1, False)
    code, out, _ = ambient("run", "mine=approval:run", "hi", "--thread", "t1", stdin=f"{APPROVE}\n{APPROVE}\n")
    assert (code, "[result] sent 2" in out) == (0, True)


def test_a_message_is_not_sent_while_an_earlier_interrupt_waits(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(approval=APPROVAL)
    ambient("run", "mine=approval:run", "hi", "--thread", "t1", stdin="y\n")
    code, out, err = ambient("run", "mine=approval:run", "hi again", "--thread", "t1", stdin="y\n")
    assert (code, out.count("[error]"), "Traceback" in err, "t1" in err) == (1, 1, False, True)
    assert ambient("threads", "show", "t1")[1].count("user:") == 1


UNANSWERED = """
async def run(input):
    entry = input.resume[0] if input.resume else None
    number = 1 if entry is None else int(entry.interrupt_id[1:]) + 1
    if number < 3:
        interrupts = [{"id": f"i{number}", "reason": "confirmation", "message": f"May I do {number}?"}]
        outcome = {"type": "interrupt", "interrupts": interrupts}
        yield {"type": "RUN_FINISHED", "threadId": input.thread_id, "runId": input.run_id, "outcome": outcome}
        return
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Done."}
"""


def test_an_interrupt_that_is_cancelled_because_the_input_has_ended_has_its_own_exit_code(
    ambient: Callable[..., Any],
) -> None:
    """The run ended well, and a script took that for a yes."""
    code, out, err = ambient("run", "demo", "approve deploy", "--thread", "t1", stdin="")
    assert (code, "No answer: cancelled." in out, "standard input" in err) == (3, True, True)
    assert ambient("run", "demo", "say hi", "--thread", "t1")[0] == 0


def test_a_thread_that_still_waits_when_the_input_has_ended_has_its_own_exit_code(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(unanswered=UNANSWERED)
    code, _, err = ambient("run", "mine=unanswered:run", "hi", "--thread", "t1", stdin="")
    assert (code, "ambient run mine=unanswered:run MESSAGE --thread t1" in err) == (3, True)
    code, out, _ = ambient("run", "mine=unanswered:run", "hi", "--thread", "t1", stdin="y\ny\ny\n")
    assert (code, out.count("Done.")) == (0, 2)


REFUSING = """
from ambient_runner import PlatformBridge
from ambient_runner.errors import InvalidInput
from unanswered import run as _run

class Adapter:
    def run(self, input):
        return _run(input)

    async def interrupt(self):
        pass

class Bridge(PlatformBridge):
    def capabilities(self):
        from ambient_runner.bridges.base import FrameworkCapabilities
        return FrameworkCapabilities()

    def create_adapter(self, ctx):
        return Adapter()

    def check_run(self, run):
        if any(entry.payload == {"approved": False} for entry in run.input.resume or ()):
            raise InvalidInput("Say yes.")
"""


def test_an_answer_that_is_refused_is_prompted_for_again(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(unanswered=UNANSWERED, refusing=REFUSING)
    code, out, _ = ambient("run", "mine=refusing:Bridge", "hi", "--thread", "t1", stdin="n\ny\ny\n")
    assert (code, "Say yes." in out, out.count("Done.")) == (0, True, 1)


def test_after_an_answer_that_is_refused_the_end_of_the_input_leaves_the_interrupt_open(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(unanswered=UNANSWERED, refusing=REFUSING)
    code, out, _ = ambient("run", "mine=refusing:Bridge", "hi", "--thread", "t1", stdin="n\n")
    assert (code, "still open" in out) == (3, True)


def test_a_result_after_a_restart_has_the_name_and_the_arguments_of_its_call(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(approval=APPROVAL)
    ambient("run", "mine=approval:run", "hi", "--thread", "t1", stdin="y\n")
    _, out, _ = ambient("run", "mine=approval:run", "hi", "--thread", "t1", stdin=f"{APPROVE}\n")
    assert '[tool] send_mail {"to": "a"}\n[result] sent 2\n' in out


def test_an_agent_of_the_file_runs_although_the_variable_names_another(
    ambient: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ambient.toml").write_text('[agents.helper]\nbridge = "demo"\n')
    monkeypatch.setenv("AMBIENT_AGENTS", "x=demo")
    assert ambient("run", "helper", "say hi")[:2] == (0, "hi\n")


REVIEWED = """
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says

def send_mail(to: str) -> str:
    "Sends a mail."
    return f"sent to {to}"

model = ScriptedModel(calls(call("c1", "send_mail", '{"to": "ann"}')), says("Done."))
review = HumanInTheLoopMiddleware(interrupt_on={"send_mail": {"allowed_decisions": ["approve", "edit", "reject"]}})
graph = create_agent(model, [send_mail], middleware=[review], checkpointer=InMemorySaver())
"""


@pytest.mark.parametrize(
    ("lines", "result"), [("y\n\n\n", "sent to ann"), ('y\n{"to": "bob"}\n\n', "bob"), ("n\n\ntoo late\n", "too late")]
)
def test_a_call_reviewed_by_langchains_middleware_is_answered_in_the_terminal(
    ambient: Callable[..., Any], project: Callable[..., None], lines: str, result: str
) -> None:
    project(reviewed=REVIEWED)
    code, out, _ = ambient("run", "mine=reviewed:graph", "hi", stdin=lines)
    assert (code, out.count("[error]")) == (0, 0)
    assert "approved [y/n]" in out
    assert result in out.partition("[result]")[2]
    assert "Done." in out
