"""The open interrupts of a thread: raised by its last run, and open until a run acts on their answers. Part of the ThreadView."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ambient_runner.projections.json_values import canonical_text
from ambient_runner.protocol.events import (
    Interrupt,
    MessagesSnapshot,
    RunError,
    RunFinished,
    RunStarted,
    StateSnapshot,
    StepFinished,
    StepStarted,
    ToolCallResult,
)
from ambient_runner.protocol.reserved_events import has_reserved_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ambient_runner.projections.transcript import Transcript
    from ambient_runner.protocol.events import Event

__all__ = ["OpenInterrupt", "OpenInterrupts"]

# Events that a resumed run may emit before it has acted on the answers.
_BEFORE_ACTING = (RunStarted, RunError, RunFinished, MessagesSnapshot, StateSnapshot, StepStarted, StepFinished)


class OpenInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """An interrupt that waits for an answer, or whose answer has not been acted on yet."""

    interrupt: Interrupt
    run: str
    """Key of the run that raised the interrupt."""
    digest: str
    """SHA-256 of the arguments of its tool call as they were shown; empty if it has no call."""
    answered: bool = False
    """True if the current run has the answer. If that run fails before it acts, the interrupt is open again."""
    digest_key: str = ""
    """Key of the digest in its metadata (`runs.approvals`); empty if an earlier version stored it."""

    def has_shown(self, arguments: str) -> bool:
        """Return True if these arguments of its tool call were shown, in any spelling; also if it has no call."""
        # Earlier versions did not unify the spelling.
        return not self.digest or self.digest in (_digest_text(canonical_text(arguments)), _digest_text(arguments))


class OpenInterrupts:
    """The open interrupts by id, in the order in which they were raised."""

    __slots__ = ("by_id", "digest_key", "has_answers")

    def __init__(self, interrupts: Iterable[OpenInterrupt] = (), digest_key: str = "") -> None:
        self.by_id = {pending.interrupt.id: pending for pending in interrupts}
        self.digest_key = digest_key
        """Key of the last run for the digests of the interrupts it raises."""
        self.has_answers = any(pending.answered for pending in self.by_id.values())
        """True if the current run has answers that it has not acted on."""

    def copy(self) -> OpenInterrupts:
        return OpenInterrupts(self.by_id.values(), self.digest_key)

    def start_run(self, answers: Collection[str], digest_key: str) -> None:
        """Start a run that answers these interrupts. The others have expired, or the run would not have been admitted."""
        self.digest_key = digest_key
        self.by_id = {name: pending for name, pending in self.by_id.items() if name in answers}
        self._mark_answered(answers)

    def end_run(self) -> None:
        """End the run: an answer that it has not acted on can be given again."""
        self._mark_answered(())

    def replace_all(self, run: str, interrupts: Iterable[Interrupt], transcript: Transcript) -> None:
        """Open the interrupts that a run ends with, in place of all others."""
        self.by_id = {interrupt.id: self._open(run, interrupt, transcript) for interrupt in interrupts}

    def consume_answers(self, event: Event) -> None:
        """Drop the answered interrupts that this event of the current run shows to have been acted on."""
        if isinstance(event, ToolCallResult):
            self.drop_answered(event.tool_call_id)
        if not isinstance(event, _BEFORE_ACTING) and not has_reserved_name(event):
            self.drop_answered(None)

    def drop_answered(self, *tool_call_ids: str | None) -> None:
        """Drop the answered interrupts, or only those of these tool calls (None: without a call)."""
        self.by_id = {
            name: pending
            for name, pending in self.by_id.items()
            if not pending.answered or (tool_call_ids and pending.interrupt.tool_call_id not in tool_call_ids)
        }
        self.has_answers = any(pending.answered for pending in self.by_id.values())

    def cancel(self, ids: Collection[str]) -> None:
        """Close these interrupts without an answer."""
        self.by_id = {name: pending for name, pending in self.by_id.items() if name not in ids}

    def _open(self, run: str, interrupt: Interrupt, transcript: Transcript) -> OpenInterrupt:
        call = transcript.find_call(interrupt.tool_call_id) if interrupt.tool_call_id else None
        digest = _digest_text(canonical_text(call.function.arguments)) if call else ""
        return OpenInterrupt(interrupt=interrupt, run=run, digest=digest, digest_key=self.digest_key)

    def _mark_answered(self, ids: Collection[str]) -> None:
        """Mark exactly these interrupts as answered in the current run."""
        self.by_id = {name: replace(pending, answered=name in ids) for name, pending in self.by_id.items()}
        self.has_answers = any(pending.answered for pending in self.by_id.values())


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
