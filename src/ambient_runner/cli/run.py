"""`ambient run`: one turn of a conversation in the terminal, interrupts included.

The runner lives on an event loop in a thread of its own. The main thread waits, asks and is where Ctrl-C arrives. A failure is shown with
its reason, since the person at the terminal owns the machine; the thread stores only the code and the sentence that any client may read.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import typer
from anyio.from_thread import start_blocking_portal
from rich.console import Console

from ambient_runner.bridges.registry import load_agent
from ambient_runner.bridges.user_errors import said
from ambient_runner.cli.interrupt_form import Field, answer_to, question_of
from ambient_runner.cli.render import Ended, Piece, Screen, harmless, plain, styled
from ambient_runner.errors import BridgeError, LedgerError, NothingRunning, RunnerError
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.events import (
    Interrupt,
    Interrupted,
    ResumeEntry,
    RunAgentInput,
    RunError,
    RunFinished,
    UserMessage,
)
from ambient_runner.runs.event_reader import run_events
from ambient_runner.runs.isolate import foreign
from ambient_runner.runs.run import Actor, Started, StartRequest
from ambient_runner.runs.view_cache import load_view
from ambient_runner.server.app import service_of
from ambient_runner.telemetry.log_format import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from anyio.from_thread import BlockingPortal

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Ledger, ThreadKey
    from ambient_runner.protocol.events import Event, Message
    from ambient_runner.runs.run import Middleware, Run, RunHandler
    from ambient_runner.runs.runner import Runner
    from ambient_runner.server.runtime import Service

logger = logging.getLogger(__name__)

STOPPED = 130
_CODES = {"success": 0, "interrupt": 0, "cancelled": STOPPED, "error": 1}


def converse(settings: Settings, agent: str, prompt: str, thread: str | None) -> int:
    """Say `prompt` to the agent, answer what it asks, and give the exit code."""
    secrets = log_to_stderr(settings)
    name, bridge = load_agent(agent)
    terminal = Terminal(Console(highlight=False))
    service = service_of(settings, {name: bridge}, secrets=secrets, middleware=[telling(terminal.hear)])
    with start_blocking_portal("asyncio") as portal:
        opened = portal.wrap_async_context_manager(_open(service, name, thread or f"cli-{uuid4().hex[:12]}"))
        with opened as talk:
            code = _turns(portal, talk, prompt, terminal)
            if thread is None and settings.is_durable:
                typer.secho(f"Go on with --thread {talk.key.id}", err=True, dim=True)
            return code


def _turns(portal: BlockingPortal, talk: Talk, prompt: str, terminal: Terminal) -> int:
    _settle(portal, talk, terminal, portal.call(talk.open_questions))
    message = UserMessage(id=f"user-{uuid4().hex}", content=prompt)
    _settle(portal, talk, terminal, _turn(portal, talk, terminal, [message], []))
    return _CODES[terminal.outcome]


def _settle(portal: BlockingPortal, talk: Talk, terminal: Terminal, asked: list[Interrupt]) -> None:
    """Ask and resume until nothing is left open, or nobody is there any more: an agent may ask again and again."""
    while asked and not terminal.is_closed:
        asked = _turn(portal, talk, terminal, [], terminal.ask(asked))


def _turn(
    portal: BlockingPortal, talk: Talk, terminal: Terminal, messages: list[Message], resume: list[ResumeEntry]
) -> list[Interrupt]:
    """One run on the screen; gives the questions it ended with. Ctrl-C stops it; a second one leaves it behind."""
    with terminal.waiting():
        playing = portal.start_task_soon(talk.play, messages, resume, terminal.show)
        try:
            return playing.result()
        except KeyboardInterrupt:
            portal.call(talk.stop)
            return playing.result()


@dataclass(slots=True)
class Talk:
    """A conversation with one agent on one thread."""

    ledger: Ledger
    runner: Runner
    agent: str
    key: ThreadKey

    async def play(
        self, messages: list[Message], resume: list[ResumeEntry], show: Callable[[Event], None]
    ) -> list[Interrupt]:
        """Start a run, show its events to the end, and give the questions it leaves open."""
        started = await self._start(messages, resume)
        asked: list[Interrupt] = []
        async with aclosing(run_events(self.ledger, started)) as events:
            async for event in events:
                show(event)
                if isinstance(event, RunFinished) and isinstance(event.outcome, Interrupted):
                    asked = event.outcome.interrupts
        return asked

    async def _start(self, messages: list[Message], resume: list[ResumeEntry]) -> Started:
        posted = RunAgentInput(
            thread_id=self.key.id,
            run_id=f"run-{uuid4().hex}",
            messages=messages,
            protocol_version="1.0",
            resume=resume or None,
        )
        actor = Actor(tenant=self.key.tenant, owner=self.key.owner)
        return await self.runner.start(StartRequest(agent=self.agent, actor=actor, input=posted))

    async def stop(self) -> None:
        with suppress(NothingRunning):
            await self.runner.stop(self.key, reason="Stopped in the terminal.")

    async def open_questions(self) -> list[Interrupt]:
        """What an earlier run on this thread still waits for."""
        view = await load_view(self.ledger, self.key)
        return [waiting.interrupt for waiting in view.open_interrupts.values()]


@asynccontextmanager
async def _open(service: Service, name: str, thread: str) -> AsyncGenerator[Talk]:
    actor = Actor()
    async with service.running():
        runner = await service.runner()
        yield Talk(runner.ledger, runner, name, actor.thread(thread))


class Terminal:
    """The screen and the keyboard. Colour and cards where a person looks, plain text in a pipe."""

    def __init__(self, console: Console) -> None:
        self.outcome = "success"
        self.is_closed = False
        """Whether its input has ended: no more answers will come."""
        self._reason = ""
        self._console = console
        self._screen = Screen()
        self._spinner = console.status("[dim]waiting[/]") if console.is_terminal else None

    def waiting(self) -> AbstractContextManager[object]:
        """Show that something is under way until the first words arrive."""
        return self._spinner or nullcontext()

    def show(self, event: Event) -> None:
        for piece in self._screen.feed(event):
            if isinstance(piece, Ended):
                self.outcome = piece.outcome
                if piece.outcome == "interrupt":
                    continue  # the question itself comes next
            self._print(piece)
            if isinstance(piece, Ended):
                self._explain()

    def hear(self, reason: str) -> None:
        """Why the run is about to fail: said once it has."""
        self._reason = reason

    def _explain(self) -> None:
        """A pipe gets the agent's words only."""
        if self._reason:
            typer.secho(harmless(self._reason), err=True, fg=typer.colors.RED)
            self._reason = ""

    def _print(self, piece: Piece) -> None:
        if self._spinner is None:
            sys.stdout.write(plain(piece))
            sys.stdout.flush()
            return
        self._spinner.stop()
        rendered = styled(piece)
        if rendered is not None:
            self._console.print(rendered, end="" if getattr(rendered, "end", "\n") == "" else "\n", soft_wrap=True)

    def ask(self, asked: Sequence[Interrupt]) -> list[ResumeEntry]:
        """An answer to every question. Whoever has none to give (end of input, Ctrl-C) cancels it."""
        return [self._answer(interrupt) for interrupt in asked]

    def _answer(self, interrupt: Interrupt) -> ResumeEntry:
        typer.echo(harmless(question_of(interrupt)))
        try:
            payload = answer_to(interrupt, _read)
        except (EOFError, KeyboardInterrupt, typer.Abort) as error:
            self.is_closed = isinstance(error, EOFError)
            typer.echo("No answer: cancelled.")
            return ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
        return ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=payload)


def _read(field: Field) -> Any:
    while True:
        try:
            return field.read(input(f"{harmless(field.prompt)}: "))
        except ValueError as error:
            typer.echo(f"{error}")


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
