"""Interrupts both ways: permission requests of the CLI as AG-UI interrupts, and answers as the SDK expects them. Pure, except for a future.

A request is live: a process waits for its answer, and nothing of it outlives that process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, PermissionUpdate

from ambient_runner.bridges.toolkit.interrupts import (
    DECLINED,
    approval_schema,
    check_approval,
    check_members,
    expires_at,
    is_approved,
    join_names,
    read_answer,
    read_approval,
)
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from claude_agent_sdk import PermissionResult

    from ambient_runner.protocol.events import ResumeEntry

__all__ = [
    "LIMIT_REACHED",
    "TIMED_OUT",
    "PermissionRequest",
    "check_answer",
    "is_executed",
    "to_interrupt",
    "to_permission_result",
]

ASK_USER_TOOL = "AskUserQuestion"
TIMED_OUT = "Nobody answered in time. Stop here: the user will come back to it."
LIMIT_REACHED = (
    "Too many permission requests are waiting on this server already. Go on without this, or say that it has to wait."
)

_EXPECTED_ANSWERS = 'Send {"answers": {"<question>": "<answer>"}}. To decline, send {"declined": true}.'

_APPROVAL_SCHEMA = approval_schema(
    editedArgs={"type": "object"}, message={"type": "string"}, always={"type": "boolean"}
)


@dataclass(kw_only=True, slots=True, eq=False)
class PermissionRequest:
    """A call the CLI does not make without a person's permission, or questions of Claude to the user (`AskUserQuestion`)."""

    call_id: str
    tool: str
    input: dict[str, Any]
    suggestions: Sequence[PermissionUpdate] = ()
    received_at: float | None = None
    """Monotonic time at which a run received it."""
    is_shown: bool = False
    """True once a run has ended with it. Only then can an answer be for it."""
    is_changed: bool = False
    """True if its arguments are others than those that were shown first. Then the interrupt shows them too."""
    id: str = field(default_factory=lambda: f"claude-{uuid4()}")
    answer: asyncio.Future[PermissionResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def is_open(self) -> bool:
        return not self.answer.done()

    def resolve(self, result: PermissionResult) -> None:
        if self.is_open:
            self.answer.set_result(result)


def to_interrupt(
    request: PermissionRequest, *, seconds: float, tool_call_id: str, tool_name: str, subagent_id: str | None
) -> Interrupt:
    """Return the AG-UI interrupt. It does not repeat the arguments, unless they have changed: the tool call has them.

    `tool_call_id` and `tool_name` are the id of the call and the name of the tool for clients.
    """
    expires = expires_at(seconds)
    if request.tool == ASK_USER_TOOL:
        questions = _questions_in(request)
        return Interrupt(
            id=request.id,
            reason="input_required",
            message="\n".join(str(question["question"]) for question in questions) or None,
            tool_call_id=tool_call_id,
            response_schema=_answers_schema(questions),
            expires_at=expires,
            metadata={"tool": tool_name, "questions": questions},
            subagent_run_id=subagent_id,
        )
    return Interrupt(
        id=request.id,
        reason="tool_call",
        message=f"Claude wants to use {tool_name}.",
        tool_call_id=tool_call_id,
        response_schema=_APPROVAL_SCHEMA,
        expires_at=expires,
        metadata={"tool": tool_name, **({"arguments": request.input} if request.is_changed else {})},
        subagent_run_id=subagent_id,
    )


def check_answer(interrupt: Interrupt, payload: Any) -> None:
    """Return if the answer fits the interrupt: it decides about the call, or answers the questions. Raises: InvalidInput."""
    if interrupt.reason == "tool_call":
        answer = check_approval(read_approval(payload), editedArgs=dict)
        if not answer.get("editedArgs", True):
            raise InvalidInput("`editedArgs` replaces all arguments, so it cannot be empty. Leave it out to keep them.")
        return
    questions = as_object(interrupt.metadata).get("questions")
    if isinstance(questions, list):  # They may have been too large to be stored.
        items = cast("list[Any]", questions)
        _check_answers([str(as_object(item).get("question")) for item in items], read_answer(payload))


def _check_answers(questions: Sequence[str], payload: Any) -> None:
    if isinstance(payload, dict) and _is_declined(check_members(payload, _EXPECTED_ANSWERS)):
        return
    answers = _read_answers(questions, payload)
    unknown = [name for name in answers if name not in questions]
    if not answers or unknown or not all(_is_answer(value) for value in answers.values()):
        known = join_names([f'"{question}"' for question in questions])
        raise InvalidInput(
            f"An answer is a text, or a list of texts, to one of the questions: {known}. {_EXPECTED_ANSWERS}"
        )


def _is_answer(value: Any) -> bool:
    texts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return bool(texts) and all(isinstance(text, str) for text in texts)


def _is_declined(answer: Mapping[str, Any]) -> bool:
    return answer.get("declined") is True or answer.get("approved") is False


def is_executed(result: PermissionResult) -> bool:
    """Return True if the answer lets the CLI make the call."""
    return isinstance(result, PermissionResultAllow)


def to_permission_result(request: PermissionRequest, entry: ResumeEntry | None) -> PermissionResult:
    """Return the answer for the CLI. Anything but a clear approval declines the call."""
    if entry is None or entry.status == "cancelled":
        return PermissionResultDeny(message=DECLINED)
    if request.tool == ASK_USER_TOOL:
        return _answer_questions(request, read_answer(entry.payload))
    return _decide_call(request, read_approval(entry.payload))


def _decide_call(request: PermissionRequest, payload: Any) -> PermissionResult:
    decision = as_object(payload)
    if not is_approved(decision) or not _has_valid_edit(decision):
        reason = decision.get("message")
        return PermissionResultDeny(message=reason if isinstance(reason, str) and reason else DECLINED)
    edited = decision.get("editedArgs")
    return PermissionResultAllow(
        updated_input=dict(cast("Mapping[str, Any]", edited)) if isinstance(edited, Mapping) else request.input,
        updated_permissions=_session_rules(request.suggestions) if decision.get("always") is True else None,
    )


def _has_valid_edit(decision: Mapping[str, Any]) -> bool:
    """Return False for edited arguments that are not an object with members: the original call was not what the person approved."""
    edited = decision.get("editedArgs")
    return edited is None or (isinstance(edited, Mapping) and bool(cast("Mapping[str, Any]", edited)))


def _session_rules(suggestions: Sequence[PermissionUpdate]) -> list[PermissionUpdate]:
    """Return the rules the CLI suggests, limited to its process: a click must not write settings files."""
    return [
        PermissionUpdate(type="addRules", rules=update.rules, behavior="allow", destination="session")
        for update in suggestions
        if update.type == "addRules" and update.behavior == "allow"
    ]


def _answer_questions(request: PermissionRequest, payload: Any) -> PermissionResult:
    """Return answers keyed by the text of the question, as the CLI expects them. Anything else declines."""
    questions = [str(question["question"]) for question in _questions_in(request)]
    is_declined = _is_declined(as_object(payload))
    given: Mapping[str, Any] = {} if is_declined else _read_answers(questions, payload)
    answers = {name: _answer_text(value) for name, value in given.items() if name in questions}
    if not answers:
        reason = as_object(payload).get("message")
        return PermissionResultDeny(message=reason if isinstance(reason, str) and reason else DECLINED)
    return PermissionResultAllow(updated_input={**request.input, "answers": answers})


def _read_answers(questions: Sequence[str], payload: Any) -> Mapping[str, Any]:
    """Return the answers by their questions. A single question may be answered without naming it."""
    values: Any = payload
    if isinstance(payload, Mapping):
        values = cast("Mapping[str, Any]", payload).get("answers", payload)
    if isinstance(values, str | list) and len(questions) == 1:
        return {questions[0]: cast("Any", values)}
    return cast("Mapping[str, Any]", values) if isinstance(values, Mapping) else {}


def _answer_text(value: Any) -> str:
    return ", ".join(str(item) for item in cast("list[Any]", value)) if isinstance(value, list) else str(value)


def _questions_in(request: PermissionRequest) -> list[dict[str, Any]]:
    questions: Any = request.input.get("questions")
    items = cast("list[Any]", questions) if isinstance(questions, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict) and "question" in item]


def _answers_schema(questions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a schema with one answer per question: one of its options, several where that is allowed, or other text."""
    answers = {
        str(question["question"]): {"type": ["string", "array"], "items": {"type": "string"}} for question in questions
    }
    return {
        "type": "object",
        "properties": {"answers": {"type": "object", "properties": answers}},
        "required": ["answers"],
    }
