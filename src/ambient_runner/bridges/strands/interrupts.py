"""Questions to people: the SDK's interrupts as AG-UI has them, and the answers as the SDK takes them. Pure.

An interrupt may also stand for a tool that the client executes (`wiring.py`): that one is no question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ambient_runner.bridges.strands.instrumentation import APPROVAL, FRONTEND
from ambient_runner.bridges.toolkit.interrupts import expiry
from ambient_runner.bridges.toolkit.json_values import plain
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.bridges.strands.translate import Question
    from ambient_runner.protocol.events import ResumeEntry

__all__ = ["answer", "open_questions", "questions_of", "responses"]

_AGAIN = "#"
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}


def open_questions(interrupts: Mapping[str, Any]) -> list[str]:
    """Those of the SDK's stored interrupts that a person has to answer: all but what waits for a tool of the client."""
    return [name for name, one in interrupts.items() if one["name"] != FRONTEND and one["response"] is None]


def questions_of(questions: Iterable[Question], seconds: float | None) -> list[Interrupt]:
    """The questions as AG-UI asks them. The SDK may use an id again in a later run, and ours is unique in its thread."""
    expires = expiry(seconds)
    return [_interrupt(question, expires) for question in questions if question.interrupt.name != FRONTEND]


def _interrupt(question: Question, expires: str | None) -> Interrupt:
    asked = question.interrupt
    is_approval = asked.name == APPROVAL
    use = asked.reason["call"] if is_approval else question.tool_use
    known = {"tool_name": use["name"], "tool_input": use["input"]} if use else {}
    return Interrupt(
        id=f"{asked.id}{_AGAIN}{uuid4().hex[:12]}",
        reason="tool_call" if is_approval else asked.name,
        message=f"Approve the call to {use['name']}?" if is_approval and use else _words(asked.reason),
        tool_call_id=use["toolUseId"] if use else None,
        response_schema=_APPROVAL_SCHEMA if is_approval else None,
        expires_at=expires,
        metadata=(known if is_approval else {**known, "reason": plain(asked.reason)}) or None,
        subagent_run_id=question.lane,
    )


def _words(reason: Any) -> str | None:
    return reason if isinstance(reason, str) else None


def responses(asked: Iterable[str], resume: Iterable[ResumeEntry]) -> list[Any]:
    """The answers as the SDK takes them: what the person sent, or `{"cancelled": True}`; also for a question that has expired."""
    given = {entry.interrupt_id.rpartition(_AGAIN)[0]: entry for entry in resume}
    return [answer(name, _response(given.get(name))) for name in asked]


def answer(name: str, response: Any) -> dict[str, Any]:
    """What the SDK goes on with at one of its interrupts."""
    return {"interruptResponse": {"interruptId": name, "response": response}}


def _response(entry: ResumeEntry | None) -> Any:
    if entry is None or entry.status == "cancelled":
        return {"cancelled": True}
    return {} if entry.payload is None else entry.payload  # For the SDK, None is no answer at all.
