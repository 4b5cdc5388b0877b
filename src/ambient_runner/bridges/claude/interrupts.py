"""What the CLI asks a person, as AG-UI interrupts, and a person's answer as the SDK takes it. Pure, but for the future that waits.

A question is live: a process waits for the answer, and nothing of it outlives that process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, PermissionUpdate

from ambient_runner.bridges.toolkit.interrupts import expiry
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from claude_agent_sdk import PermissionResult

    from ambient_runner.protocol.events import ResumeEntry

__all__ = ["CANCELLED", "FULL", "LATE", "Question", "answer_to", "interrupt_of"]

ASK = "AskUserQuestion"
CANCELLED = "The user declined this call."
LATE = "Nobody answered in time. Stop here: the user will come back to it."
FULL = "Too many questions wait for people on this server already. Go on without this, or say that it has to wait."

_APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "message": {"type": "string"},
        "always": {"type": "boolean"},
    },
    "required": ["approved"],
}


@dataclass(kw_only=True, slots=True, eq=False)
class Question:
    """A call the CLI will not make before a person has said so, or a question of Claude's own."""

    call: str
    tool: str
    input: dict[str, Any]
    suggestions: Sequence[PermissionUpdate] = ()
    id: str = field(default_factory=lambda: f"claude-{uuid4()}")
    answer: asyncio.Future[PermissionResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def is_open(self) -> bool:
        return not self.answer.done()

    def settle(self, result: PermissionResult) -> None:
        if self.is_open:
            self.answer.set_result(result)


def interrupt_of(question: Question, *, seconds: float, call: str, shown: str, lane: str | None) -> Interrupt:
    """The question as clients see it. Arguments are not repeated: the call has them.

    `call` and `shown` are the call's id and the tool's name for them.
    """
    expires = expiry(seconds)
    if question.tool == ASK:
        asked = _asked(question)
        return Interrupt(
            id=question.id,
            reason="input_required",
            message="\n".join(str(one["question"]) for one in asked) or None,
            tool_call_id=call,
            response_schema=_answers_schema(asked),
            expires_at=expires,
            metadata={"tool": shown, "questions": asked},
            subagent_run_id=lane,
        )
    return Interrupt(
        id=question.id,
        reason="tool_call",
        message=f"Claude wants to use {shown}.",
        tool_call_id=call,
        response_schema=_APPROVAL_SCHEMA,
        expires_at=expires,
        metadata={"tool": shown},
        subagent_run_id=lane,
    )


def answer_to(question: Question, entry: ResumeEntry | None) -> PermissionResult:
    """What the CLI is told. Whatever is not clearly a yes is a no."""
    if entry is None or entry.status == "cancelled":
        return PermissionResultDeny(message=CANCELLED)
    return _answers(question, entry.payload) if question.tool == ASK else _decision(question, entry.payload)


def _decision(question: Question, payload: Any) -> PermissionResult:
    if not isinstance(payload, Mapping):
        return PermissionResultDeny(message=CANCELLED)
    said = cast("Mapping[str, Any]", payload)
    if said.get("approved") is not True:
        reason = said.get("message")
        return PermissionResultDeny(message=reason if isinstance(reason, str) and reason else CANCELLED)
    edited = said.get("editedArgs")
    return PermissionResultAllow(
        updated_input=dict(cast("Mapping[str, Any]", edited)) if isinstance(edited, Mapping) else question.input,
        updated_permissions=_for_this_session(question.suggestions) if said.get("always") is True else None,
    )


def _for_this_session(suggestions: Sequence[PermissionUpdate]) -> list[PermissionUpdate]:
    """The rules the CLI suggests, for as long as its process lives: a click must not write settings files."""
    return [
        PermissionUpdate(type="addRules", rules=one.rules, behavior="allow", destination="session")
        for one in suggestions
        if one.type == "addRules" and one.behavior == "allow"
    ]


def _answers(question: Question, payload: Any) -> PermissionResult:
    """The CLI takes answers by the text of the question; a bare text answers a single question."""
    asked = [str(one["question"]) for one in _asked(question)]
    given: Any = cast("Mapping[str, Any]", payload).get("answers", payload) if isinstance(payload, Mapping) else payload
    if isinstance(given, str | list) and len(asked) == 1:
        given = {asked[0]: cast("Any", given)}
    if not isinstance(given, Mapping):
        return PermissionResultDeny(message=CANCELLED)
    answers = {name: _words(value) for name, value in cast("Mapping[str, Any]", given).items() if name in asked}
    if not answers:
        return PermissionResultDeny(message=CANCELLED)
    return PermissionResultAllow(updated_input={**question.input, "answers": answers})


def _words(value: Any) -> str:
    return ", ".join(str(one) for one in cast("list[Any]", value)) if isinstance(value, list) else str(value)


def _asked(question: Question) -> list[dict[str, Any]]:
    given: Any = question.input.get("questions")
    asked = cast("list[Any]", given) if isinstance(given, list) else []
    return [cast("dict[str, Any]", one) for one in asked if isinstance(one, dict) and "question" in one]


def _answers_schema(asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One answer for each question: one of its options, several where that is allowed, or other words."""
    answers = {str(one["question"]): {"type": ["string", "array"], "items": {"type": "string"}} for one in asked}
    return {
        "type": "object",
        "properties": {"answers": {"type": "object", "properties": answers}},
        "required": ["answers"],
    }
