"""Answers to the open interrupts of a thread. Pure.

A client answers in `resume`, one from before AG-UI 1.0 in `forwardedProps.command.resume`. A new message without an answer cancels the
interrupts if the policy allows it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.errors import InterruptNotOpen, InvalidInput, PendingInterrupts
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.events import ResumeEntry, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.config import OnPendingInterrupt
    from ambient_runner.projections.open_interrupts import OpenInterrupt
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["check_state_is_free", "command_resume", "is_cancelled_by_message", "match_answers", "parse_answer"]

_BY_NEW_MESSAGE = {"ambient": {"cancelledBy": "new_message"}}


def match_answers(
    view: ThreadView, run_input: RunAgentInput, now: datetime, policy: OnPendingInterrupt
) -> tuple[ResumeEntry, ...]:
    """Return the answers to open interrupts. They cover every interrupt that has not expired.

    Raises: PendingInterrupts, InterruptNotOpen; InvalidInput for two different answers to one of them.
    """
    opened = view.open_interrupts
    resume = run_input.resume or _command_answers(view, run_input)
    live = _live_ids(view, now)
    answers = _answers_by_id([entry for entry in resume if entry.interrupt_id in opened])
    if resume and not answers:
        raise InterruptNotOpen
    for name, entry in answers.items():
        if name not in live and entry.status == "resolved":
            raise InterruptNotOpen(f"The interrupt {name} has expired. Send status `cancelled` for it.")
    missing = sorted(set(live) - answers.keys())
    if missing and not resume and policy == "cancel" and _has_new_message(view, run_input):
        return tuple(ResumeEntry(interrupt_id=name, status="cancelled", metadata=_BY_NEW_MESSAGE) for name in live)
    if missing:
        raise PendingInterrupts(
            f"The last run waits for answers to these interrupts: {', '.join(missing)}. Answer all of them in `resume`."
        )
    return tuple(answers.values())


def check_state_is_free(view: ThreadView, now: datetime | None = None) -> None:
    """Refuse a client's change of the state while an interrupt is open: what a person approves must not depend on it.

    An answer may bring a state. Raises: PendingInterrupts.
    """
    live = _live_ids(view, now or datetime.now(UTC))
    if live:
        raise PendingInterrupts(
            f"The state cannot be changed while these interrupts are open: {', '.join(sorted(live))}. "
            "Answer them first, or send the new `state` together with `resume`."
        )


def is_cancelled_by_message(entry: ResumeEntry) -> bool:
    """Return True if the interrupt was not answered: a new message cancelled it."""
    return entry.status == "cancelled" and entry.metadata == _BY_NEW_MESSAGE


def command_resume(run_input: RunAgentInput) -> tuple[Any] | None:
    """Return the answer in `forwardedProps.command.resume`, in a tuple because it may be any value; None if there is none.

    Text that is JSON is parsed: clients send their answers in that form.
    """
    props: Any = run_input.forwarded_props
    command: Any = cast("dict[str, Any]", props).get("command") if isinstance(props, dict) else None
    answer: Any = cast("dict[str, Any]", command).get("resume") if isinstance(command, dict) else None
    return None if answer is None else (parse_answer(answer),)


def parse_answer(answer: Any) -> Any:
    """Return the value of an answer that is JSON text; any other answer as it is."""
    if not isinstance(answer, str):
        return answer
    try:
        return strict_json.loads(answer.encode())
    except (InvalidInput, UnicodeEncodeError):
        return answer


def _command_answers(view: ThreadView, run_input: RunAgentInput) -> list[ResumeEntry]:
    """Return the answers of a page from before AG-UI 1.0: to the only open interrupt, or to several by their ids."""
    found = command_resume(run_input)
    if found is None:
        return []
    (answer,) = found
    opened = list(view.open_interrupts)
    by_id = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    if any(name in by_id for name in opened):
        return [_resolved_entry(name, by_id[name]) for name in opened if name in by_id]
    if len(opened) == 1:
        return [_resolved_entry(opened[0], answer)]
    if opened:
        raise PendingInterrupts(
            "`forwardedProps.command.resume` answers one interrupt, and several are open. Answer all of them in `resume`, "
            f"or send an object of answers by interrupt id: {', '.join(opened)}."
        )
    if not _has_new_message(view, run_input):
        raise InterruptNotOpen
    return []


def _answers_by_id(entries: Sequence[ResumeEntry]) -> dict[str, ResumeEntry]:
    """Return the answers by the id of their interrupt. The same answer twice is one; two different ones are no decision."""
    answers: dict[str, ResumeEntry] = {}
    for entry in entries:
        first = answers.setdefault(entry.interrupt_id, entry)
        if msgspec.json.encode(first) != msgspec.json.encode(entry):
            raise InvalidInput(f"`resume` has different answers to the interrupt {entry.interrupt_id}. Send one.")
    return answers


def _resolved_entry(interrupt_id: str, answer: Any) -> ResumeEntry:
    return ResumeEntry(interrupt_id=interrupt_id, status="resolved", payload=answer)


def _has_new_message(view: ThreadView, run_input: RunAgentInput) -> bool:
    has_id = view.transcript.has_id
    return any(isinstance(message, UserMessage) and not has_id(message.id) for message in run_input.messages)


def _live_ids(view: ThreadView, now: datetime) -> list[str]:
    """Return the ids of the open interrupts that have not expired."""
    return [name for name, interrupt in view.open_interrupts.items() if not _is_expired(interrupt, now)]


def _is_expired(pending: OpenInterrupt, now: datetime) -> bool:
    stamp = pending.interrupt.expires_at
    try:
        expires = datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return False
    if expires is None:
        return False
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)) <= now
