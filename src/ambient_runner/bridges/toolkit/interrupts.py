"""Helpers for interrupts that every framework needs. The conversion to and from a framework is in each bridge's `interrupts.py`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import ArgumentsWithheld, InvalidInput
from ambient_runner.projections.json_values import canonical_json
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.protocol.reserved_events import PlatformEvent
from ambient_runner.runs.approvals import has_same_arguments, is_known_digest, record_arguments
from ambient_runner.runs.interrupt_answers import parse_answer
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.protocol.events import Event, ResumeEntry
    from ambient_runner.runs.approvals import Call

__all__ = [
    "DECLINED",
    "approval_schema",
    "asked_again_id",
    "cancelled_answer",
    "check_approval",
    "check_members",
    "check_restored_calls",
    "expires_at",
    "framework_interrupt_id",
    "has_same_arguments",
    "interrupt_lapsed_events",
    "is_approved",
    "join_names",
    "read_answer",
    "read_approval",
    "record_arguments",
    "resolved_interrupt_ids",
]

_ASKED_AGAIN = re.compile(r"#again-[0-9a-f]{12}\Z")

DECLINED = "The user declined this call."
"""Result, for the model, of a call that the user did not approve."""

_MAX_NAMES = 10
_MAX_NAME_LENGTH = 80
_TYPE_NAMES = {bool: "true or false", str: "a text", dict: "an object"}
_EXPECTED_APPROVAL = 'Send {"approved": true}, or {"approved": false} and, if you like, a "message".'


def approval_schema(**more: dict[str, Any]) -> dict[str, Any]:
    """Return the response schema of an interrupt that asks for approval. `more` are the schemas of further, optional members."""
    return {"type": "object", "properties": {"approved": {"type": "boolean"}, **more}, "required": ["approved"]}


def is_approved(answer: Any) -> bool:
    """Return True only for an explicit approval."""
    return as_object(answer).get("approved") is True


def read_answer(payload: Any) -> Any:
    """Return an answer that is the JSON text of an object as that object; any other answer as it is."""
    answer = parse_answer(payload)
    return cast("Any", answer) if isinstance(answer, dict) else payload


def read_approval(payload: Any) -> Any:
    """Return an answer to a request for approval, which may be JSON text. A bare boolean says yes or no; `reason` is another `message`."""
    answer = parse_answer(payload)
    if isinstance(answer, bool):
        return {"approved": answer}
    if not isinstance(answer, dict):
        return payload
    members = cast("dict[str, Any]", answer)
    has_reason = members.get("message") is None and members.get("reason") is not None
    return {**members, "message": members["reason"]} if has_reason else members


def join_names(names: Sequence[str]) -> str:
    """Return names for an error message: not more, and not longer, than a person reads."""
    shown = [name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…" for name in names[:_MAX_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def check_members(payload: Any, expected: str, **types: type) -> dict[str, Any]:
    """Return the members of an answer, without those that are null. `expected` is the sentence that tells what to send.

    Raises: InvalidInput if it is no object, or if one of these members has another type.
    """
    if not isinstance(payload, dict):
        raise InvalidInput(f"The answer must be an object. {expected}")
    members = cast("dict[str, Any]", payload)
    answer = {name: value for name, value in members.items() if value is not None}
    for name, kind in types.items():
        if name in answer and type(answer[name]) is not kind:
            raise InvalidInput(f"`{name}` must be {_TYPE_NAMES[kind]}. {expected}")
    return answer


def check_approval(payload: Any, **types: type) -> dict[str, Any]:
    """Return the members of an answer to a request for approval, without those that are null. `types` are those of further members.

    Raises: InvalidInput if it says neither yes nor no: nobody must be taken to have decided.
    """
    answer = check_members(payload, _EXPECTED_APPROVAL, approved=bool, message=str, always=bool, **types)
    if "approved" not in answer:
        raise InvalidInput(f"The answer says neither yes nor no. {_EXPECTED_APPROVAL}")
    return answer


def cancelled_answer() -> dict[str, Any]:
    """Return the answer that an agent gets for an interrupt that was cancelled."""
    return {"cancelled": True}


def asked_again_id(interrupt_id: str) -> str:
    """Return a new id for an interrupt whose arguments have changed: an answer to the first one must not be taken for this one."""
    return f"{framework_interrupt_id(interrupt_id)}#again-{uuid4().hex[:12]}"


def framework_interrupt_id(interrupt_id: str) -> str:
    """Return the framework's own id of an interrupt, which `asked_again_id` has extended."""
    return _ASKED_AGAIN.sub("", interrupt_id)


def check_restored_calls(interrupt_id: str, calls: Sequence[Call]) -> bool:
    """Return `has_same_arguments` for calls that may be restored from the thread, where secrets are redacted.

    Raises: ArgumentsWithheld if they have a placeholder in place of what was asked about.
    """
    run = current_run_or_none()
    asked = run.answered_interrupts.get(interrupt_id) if run else None
    if asked is None:
        return True
    is_same = has_same_arguments(interrupt_id, calls)
    if REDACTED in canonical_json(list(calls)) and not (is_same and is_known_digest(asked)):
        raise ArgumentsWithheld
    return is_same


def expires_at(seconds: float | None) -> str | None:
    """Return the `expires_at` of an interrupt raised now, in ISO 8601; None for one that does not expire."""
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def resolved_interrupt_ids(entries: Iterable[ResumeEntry]) -> list[str]:
    """Return the ids of the interrupts that were answered. Cancelled ones are left out."""
    return [entry.interrupt_id for entry in entries if entry.status == "resolved"]


def interrupt_lapsed_events(ids: Sequence[str]) -> list[Event]:
    """Return the `ambient:interrupt_lapsed` event for answers to interrupts that are no longer open; nothing if there are none."""
    return [PlatformEvent(name="ambient:interrupt_lapsed", value={"interruptIds": list(ids)})] if ids else []
