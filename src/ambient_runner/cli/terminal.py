"""The screen and the keyboard of `ambient run`: it prints the pieces of `render.py` and prompts for answers to interrupts."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import typer

from ambient_runner.cli.interrupt_form import build_answer
from ambient_runner.cli.interrupt_text import describe_interrupt
from ambient_runner.cli.render import EndPiece, Screen, to_plain_text, to_renderable
from ambient_runner.cli.stdio import is_interactive, read_line
from ambient_runner.cli.text_format import strip_control_chars, to_single_line
from ambient_runner.protocol.events import ResumeEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from ambient_runner.cli.interrupt_form import FormField
    from ambient_runner.cli.render import Piece
    from ambient_runner.protocol.events import Event, Interrupt, ToolCall

__all__ = ["Terminal"]

_MAX_REFUSED = 10
"""Answers in a row that may be refused if nobody types them: a script could repeat the same one for ever."""
_ENDED = "standard input has ended"
_REFUSED = f"{_MAX_REFUSED} answers in a row were refused"


class _AnswersRefused(Exception):
    """Standard input has only answers that are not valid."""


class Terminal:
    """The screen and the keyboard. Colors and panels on a terminal, plain text in a pipe."""

    def __init__(self, console: Console) -> None:
        self.outcome = "success"
        self.closed_reason = ""
        """The reason for which no more answers will come; empty while they may."""
        self._failure_lines: list[str] = []
        self._console = console
        self._screen = Screen()
        self._spinner = console.status("[dim]waiting[/]") if console.is_terminal else None

    @property
    def is_closed(self) -> bool:
        return bool(self.closed_reason)

    def show_spinner(self) -> AbstractContextManager[object]:
        """Show a spinner until the first output."""
        return self._spinner or nullcontext()

    def show_event(self, event: Event) -> None:
        for piece in self._screen.render_event(event):
            if isinstance(piece, EndPiece):
                self.outcome = piece.outcome
                if piece.outcome == "interrupt":
                    continue  # the interrupt is shown next
            self._print_piece(piece)
            if isinstance(piece, EndPiece):
                self._print_failure_lines()

    def add_earlier_calls(self, calls: Iterable[ToolCall]) -> None:
        """Add tool calls of earlier runs, so that a result has the name of its call."""
        self._screen.add_earlier_calls(calls)

    def set_failure_lines(self, lines: list[str]) -> None:
        """Set the cause of a failure, line by line. It is printed after the terminal event."""
        self._failure_lines = lines

    def _print_failure_lines(self) -> None:
        """Print the cause to stderr, so that a pipe gets only the agent's output."""
        for line in filter(None, self._failure_lines):
            typer.secho(to_single_line(line), err=True, fg=typer.colors.RED)
        self._failure_lines = []

    def _print_piece(self, piece: Piece) -> None:
        if self._spinner is None:
            sys.stdout.write(to_plain_text(piece))
            sys.stdout.flush()
            return
        self._spinner.stop()
        rendered = to_renderable(piece)
        if rendered is not None:
            self._console.print(rendered, end="" if getattr(rendered, "end", "\n") == "" else "\n", soft_wrap=True)

    def limit_refusals(self, refused: int) -> None:
        """Expect no more answers if so many in a row were refused, and nobody types them."""
        if refused >= _MAX_REFUSED and not is_interactive():
            self.closed_reason = _REFUSED

    def ask_for_answers(self, interrupts: Sequence[Interrupt], *, is_retry: bool = False) -> list[ResumeEntry]:
        """Return an answer to every interrupt. End of input and Ctrl-C cancel it; in a retry, the end of input leaves it open."""
        if is_retry:
            typer.echo("The interrupt is still open. Answer again; Ctrl-C cancels it, the end of input leaves it open.")
        return [self._ask_for_answer(interrupt, is_retry) for interrupt in interrupts]

    def _ask_for_answer(self, interrupt: Interrupt, is_retry: bool) -> ResumeEntry:
        """Return the answer to an interrupt. Once no more answers are expected, none is read: the line could be meant for another one."""
        call = self._screen.describe_call(interrupt.tool_call_id)
        typer.echo(strip_control_chars(describe_interrupt(interrupt, call)))
        try:
            payload = build_answer(interrupt, self._read_field)
        except (EOFError, KeyboardInterrupt, typer.Abort, _AnswersRefused) as error:
            self.closed_reason = self.closed_reason or _closed_reason(error)
            typer.echo("No answer: still open." if is_retry and self.is_closed else "No answer: cancelled.")
            return ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
        return ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=payload)

    def _read_field(self, field: FormField) -> Any:
        """Prompt until a line is valid. Raises: EOFError, _AnswersRefused."""
        if self.is_closed:
            raise EOFError
        refused = 0
        while refused < _MAX_REFUSED or is_interactive():
            try:
                return field.parse_line(read_line(f"{to_single_line(field.prompt)}: "))
            except ValueError as error:
                typer.echo(to_single_line(str(error)))
                refused += 1
        raise _AnswersRefused


def _closed_reason(error: BaseException) -> str:
    if isinstance(error, _AnswersRefused):
        return _REFUSED
    return _ENDED if isinstance(error, EOFError) else ""
