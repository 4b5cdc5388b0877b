"""`ambient run`: one turn of a conversation in the terminal, interrupts included.

The runner has an event loop in a thread of its own. The main thread waits, prompts for answers and receives Ctrl-C. A failure is shown with
its cause, because the user of the terminal owns the machine; the ledger stores only the code and the message that any client may read.
"""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import typer
from anyio.from_thread import start_blocking_portal
from rich.console import Console

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.registry import load_agent
from ambient_runner.bridges.toolkit.turns import unanswered_tool_calls
from ambient_runner.bridges.user_errors import describe_error
from ambient_runner.cli.errors import EXIT_STOPPED
from ambient_runner.cli.serve import exit_despite_tasks
from ambient_runner.cli.stdio import OutputClosed
from ambient_runner.cli.terminal import Terminal
from ambient_runner.cli.text_format import to_single_line
from ambient_runner.errors import (
    BridgeError,
    InvalidInput,
    LedgerError,
    PendingInterrupts,
    RunnerError,
    ThreadBusy,
)
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.events import (
    Interrupted,
    ResumeEntry,
    RunAgentInput,
    RunError,
    RunFinished,
    UserMessage,
)
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.isolate import reraise_as
from ambient_runner.runs.run import Actor, Started, StartRequest
from ambient_runner.runs.view_cache import load_view
from ambient_runner.server.app import build_runtime
from ambient_runner.telemetry.log_format import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from anyio.from_thread import BlockingPortal

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event, Interrupt, Message
    from ambient_runner.runs.run import Middleware, Run, RunHandler
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.runtime import ServerRuntime

logger = logging.getLogger(__name__)

EXIT_UNANSWERED = 3
_STOP_SIGNALS = [number for number in signal.Signals if number.name in ("SIGTERM", "SIGHUP")]
"""Windows has no SIGHUP."""
_EXIT_CODES = {"success": 0, "interrupt": EXIT_UNANSWERED, "cancelled": EXIT_STOPPED, "error": 1}


def run_conversation(settings: Settings, agent: str, prompt: str, thread: str | None) -> int:
    """Send `prompt` to the agent, prompt for answers to its interrupts, and return the exit code."""
    # The terminal shows how the run ends; a log line about it would repeat that.
    secrets = log_to_stderr(replace(settings, log_level="warning") if settings.log_level == "info" else settings)
    name, bridge = load_agent(agent, settings.configured_agents)
    terminal = Terminal(Console(highlight=False))
    runtime = build_runtime(
        settings, {name: bridge}, secrets=secrets, middleware=[report_failures(terminal.set_failure_lines)]
    )
    with _stop_on_signals(), start_blocking_portal("asyncio") as portal:
        opened = portal.wrap_async_context_manager(_open_session(runtime, name, thread or f"cli-{uuid4().hex[:12]}"))
        with opened as session:
            code = _run_turns(portal, session, prompt, terminal)
            if code == EXIT_UNANSWERED:
                is_open = terminal.outcome == "interrupt" and settings.is_durable
                advice = _waiting_advice(agent, session) if is_open else _UNANSWERED_ADVICE
                typer.secho(to_single_line(f"The agent got no answer: {terminal.closed_reason}. {advice}"), err=True)
            if thread is None and settings.is_durable:
                typer.secho(to_single_line(f"Continue with --thread {session.key.id}"), err=True, dim=True)
        exit_despite_tasks(runtime.uncancellable_tasks, code)
        return code


@contextmanager
def _stop_on_signals() -> Generator[None]:
    """Let SIGTERM, and the SIGHUP of a terminal that is closed, stop the run as Ctrl-C does."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    numbers = _STOP_SIGNALS if is_main_thread else ()  # No other thread can handle signals.
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_turns(portal: BlockingPortal, session: TerminalSession, prompt: str, terminal: Terminal) -> int:
    view = portal.call(session.load_view)
    terminal.add_earlier_calls(unanswered_tool_calls(view.transcript.messages()))
    _answer_interrupts(portal, session, terminal, _open_interrupts(view))
    message = UserMessage(id=f"user-{uuid4().hex}", content=prompt)
    _answer_interrupts(portal, session, terminal, _run_turn(portal, session, terminal, [message], []))
    code = _EXIT_CODES[terminal.outcome]
    return EXIT_UNANSWERED if code == 0 and terminal.is_closed else code


_UNANSWERED_ADVICE = (
    "Run it in a terminal, write the answers to standard input, or let a permission rule or the agent's mode decide."
)


def _waiting_advice(agent: str, session: TerminalSession) -> str:
    """Return what to do about a thread that waits for an answer. Interrupts of a live process end with it, and so with the command."""
    if session.has_live_interrupts:
        lapse = (
            "The agent's process ends with this command, so its interrupts lapse; in its next run the agent asks again."
        )
        return f"{lapse} {_UNANSWERED_ADVICE} Continue with: ambient run {agent} MESSAGE --thread {session.key.id}"
    return f"The thread waits. Answer in a terminal: ambient run {agent} MESSAGE --thread {session.key.id}"


def _answer_interrupts(
    portal: BlockingPortal, session: TerminalSession, terminal: Terminal, interrupts: list[Interrupt]
) -> None:
    """Prompt for answers and resume until no interrupt is open or no more answers come. An agent may interrupt repeatedly.

    If the answers are refused, or the run fails on them, and the interrupts are still open, they are prompted for again.
    """
    refused = 0
    while interrupts and not terminal.is_closed:
        answers = terminal.ask_for_answers(interrupts, is_retry=refused > 0)
        if refused and terminal.is_closed:
            return
        interrupts, is_refused = _resume(portal, session, terminal, interrupts, answers)
        refused = refused + 1 if is_refused else 0
        terminal.limit_refusals(refused)


def _resume(
    portal: BlockingPortal,
    session: TerminalSession,
    terminal: Terminal,
    interrupts: list[Interrupt],
    answers: list[ResumeEntry],
) -> tuple[list[Interrupt], bool]:
    """Show the run that gets the answers. Return the interrupts that are open then, and True if the answers were refused."""
    try:
        following = _run_turn(portal, session, terminal, [], answers)
    except InvalidInput as error:
        typer.echo(to_single_line(error.message))
        return interrupts, True
    if terminal.outcome == "error" and all(answer.status == "resolved" for answer in answers):
        return _open_interrupts(portal.call(session.load_view)), True
    return following, False


def _open_interrupts(view: ThreadView) -> list[Interrupt]:
    return [waiting.interrupt for waiting in view.open_interrupts.values()]


def _run_turn(
    portal: BlockingPortal,
    session: TerminalSession,
    terminal: Terminal,
    messages: list[Message],
    resume: list[ResumeEntry],
) -> list[Interrupt]:
    """Show one run and return the interrupts it ended with. Ctrl-C stops the run; a second Ctrl-C exits without waiting."""
    with terminal.show_spinner():
        run_future = portal.start_task_soon(session.stream_run, messages, resume, terminal.show_event)
        try:
            return run_future.result()
        except KeyboardInterrupt:
            portal.call(session.stop)
            return run_future.result()
        except OutputClosed:
            portal.call(session.stop)
            raise


@dataclass(slots=True)
class TerminalSession:
    """A conversation with one agent on one thread."""

    ledger: Ledger
    runner: Runner
    agent: str
    key: ThreadKey

    @property
    def has_live_interrupts(self) -> bool:
        """True while an interrupt is open that lapses with the agent's process."""
        host = self.runner.agents[self.agent]
        return isinstance(host, AgentHost) and host.is_waiting(self.key)

    async def stream_run(
        self, messages: list[Message], resume: list[ResumeEntry], show: Callable[[Event], None]
    ) -> list[Interrupt]:
        """Start a run, pass every event to `show`, and return the interrupts it leaves open."""
        started = await self._start_run(messages, resume)
        interrupts: list[Interrupt] = []
        async with aclosing(follow_run(self.ledger, started)) as events:
            async for event in events:
                show(event)
                if isinstance(event, RunFinished) and isinstance(event.outcome, Interrupted):
                    interrupts = event.outcome.interrupts
        return interrupts

    async def _start_run(self, messages: list[Message], resume: list[ResumeEntry]) -> Started:
        run_input = RunAgentInput(
            thread_id=self.key.id,
            run_id=f"run-{uuid4().hex}",
            messages=messages,
            protocol_version="1.0",
            resume=resume or None,
        )
        actor = Actor(tenant=self.key.tenant, owner=self.key.owner)
        try:
            return await self.runner.start(StartRequest(agent=self.agent, actor=actor, input=run_input))
        except ThreadBusy as error:
            waiting = ", or set AMBIENT_ON_BUSY=queue to wait here" if self.runner.settings.on_busy == "reject" else ""
            raise ThreadBusy(
                f"Thread {self.key.id} already has a run. Wait for it to end, choose another thread with --thread{waiting}."
            ) from error
        except PendingInterrupts as error:
            raise PendingInterrupts(
                f"Thread {self.key.id} still waits for an answer, so your message was not sent. "
                "Run the command again to answer first."
            ) from error

    async def stop(self) -> None:
        """Stop the run. One that has ended meanwhile stays as it is, with its interrupts."""
        await self.ledger.request_stop(self.key, "Stopped in the terminal.")

    async def load_view(self) -> ThreadView:
        """Return the thread as of its last entry."""
        return await load_view(self.ledger, self.key)


@asynccontextmanager
async def _open_session(runtime: ServerRuntime, name: str, thread: str) -> AsyncGenerator[TerminalSession]:
    actor = Actor()
    async with runtime.running():
        runner = await runtime.ensure_runner()
        yield TerminalSession(runner.ledger, runner, name, actor.thread_key(thread))


def report_failures(on_failure: Callable[[list[str]], None]) -> Middleware:
    """Return middleware that ends a failing run with RUN_ERROR and passes the lines of its redacted cause to `on_failure`."""

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            try:
                with reraise_as(lambda _error: BridgeError()):
                    async with aclosing(handler(run)) as events:
                        async for event in events:
                            yield event
            except LedgerError:
                raise  # the run cannot be written, so there is no terminal event to explain
            except RunnerError as error:
                logger.debug("Run %s on thread %s failed (%s)", run.key, run.thread.id, error.code, exc_info=error)
                # As one text: a secret can have several lines.
                on_failure(Redactor(run.secrets).redact_text("\n".join(_cause_lines(error))).split("\n"))
                yield RunError(message=error.message, code=error.code)

        return handle

    return wrap


def _cause_lines(error: RunnerError) -> list[str]:
    """Return the cause of an error and its notes, such as the last lines that the agent's process wrote to standard error.

    A cause without a text, such as the end of a connection, says less than the notes.
    """
    notes = [line for note in getattr(error, "__notes__", ()) for line in str(note).splitlines()]
    cause = error.__cause__
    lines = [describe_error(cause), *notes] if cause is not None and (str(cause) or not notes) else notes
    return [to_single_line(line) for line in lines]
