"""Interrupts of a Strands agent, both ways: the SDK's interrupts as AG-UI interrupts, and answers as the SDK expects them. Pure.

An SDK interrupt that waits for a client tool (`client_tools.py`) is not an AG-UI interrupt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from ambient_runner.bridges.strands.client_tools import CLIENT_TOOL_INTERRUPT
from ambient_runner.bridges.toolkit.interrupts import (
    approval_schema,
    cancelled_answer,
    check_restored_calls,
    expires_at,
    is_approved,
)
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ambient_runner.bridges.strands.translate import PendingInterrupt
    from ambient_runner.protocol.events import ResumeEntry
    from ambient_runner.runs.run import Run

__all__ = [
    "APPROVAL_INTERRUPT",
    "changed_interrupts",
    "find_interrupted_call",
    "interrupt_response",
    "open_interrupts",
    "resume_responses",
    "to_interrupts",
]

APPROVAL_INTERRUPT = "ambient-approval"
"""Name of the SDK interrupt that requests approval before a tool runs."""

_ID_SEPARATOR = "#"


def open_interrupts(interrupts: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the stored SDK interrupts that a person has to answer, by id: those without a response, except client tools."""
    return {
        native_id: stored["name"]
        for native_id, stored in interrupts.items()
        if stored["name"] != CLIENT_TOOL_INTERRUPT and stored["response"] is None
    }


def to_interrupts(pending: Iterable[PendingInterrupt], seconds: float | None) -> list[Interrupt]:
    """Return the AG-UI interrupts. The SDK may reuse an id in a later run; ours are unique in their thread."""
    expires = expires_at(seconds)
    return [_to_interrupt(item, expires) for item in pending if item.native.name != CLIENT_TOOL_INTERRUPT]


def _to_interrupt(pending: PendingInterrupt, expires: str | None) -> Interrupt:
    native = pending.native
    is_approval = native.name == APPROVAL_INTERRUPT
    use = native.reason["call"] if is_approval else pending.tool_use
    call = {"tool_name": use["name"], "tool_input": use["input"]} if use else {}
    return Interrupt(
        id=f"{native.id}{_ID_SEPARATOR}{uuid4().hex[:12]}",
        reason="tool_call" if is_approval else native.name,
        message=f"Approve the call to {use['name']}?" if is_approval and use else _reason_text(native.reason),
        tool_call_id=use["toolUseId"] if use else None,
        response_schema=approval_schema() if is_approval else None,
        expires_at=expires,
        metadata=(call if is_approval else {**call, "reason": to_jsonable(native.reason)}) or None,
        subagent_run_id=pending.subagent_id,
    )


def find_interrupted_call(pending: PendingInterrupt) -> tuple[str, Any] | None:
    """Return the call that an interrupt is about: name and arguments; None if it is about none."""
    native = pending.native
    use = native.reason["call"] if native.name == APPROVAL_INTERRUPT else pending.tool_use
    return None if use is None else _to_call(use)


def changed_interrupts(
    run: Run | None, state: Any, interrupts: Mapping[str, str], resume: Iterable[ResumeEntry]
) -> set[str]:
    """Return the ids, in the SDK, of the answered interrupts whose calls have other arguments in `state` than those that were shown.

    `state` is what the SDK continues from, `interrupts` are the names of its interrupts by id. A declined approval executes nothing; the
    tool that raised an interrupt itself is executed again for every answer.

    Raises: ArgumentsWithheld for arguments of which the thread has only a redacted copy.
    """
    changed = set[str]()
    for entry in resume:
        native_id = entry.interrupt_id.rpartition(_ID_SEPARATOR)[0]
        asked = run.answered_interrupts.get(entry.interrupt_id) if run else None
        call_id = asked.interrupt.tool_call_id if asked else None
        is_declined = interrupts.get(native_id) == APPROVAL_INTERRUPT and not (
            entry.status == "resolved" and is_approved(entry.payload)
        )
        if call_id is None or is_declined or native_id not in interrupts:
            continue
        if not all(check_restored_calls(entry.interrupt_id, [call]) for call in _find_calls(state, call_id)):
            changed.add(native_id)
    return changed


def _find_calls(value: Any, tool_use_id: str) -> Iterator[tuple[str, Any]]:
    """Yield every copy of a tool call in a state of the SDK: in the model's message, and in the reason of an approval."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _find_calls(item, tool_use_id)
        return
    members = as_object(value)
    if members.get("toolUseId") == tool_use_id and "input" in members:
        yield _to_call(members)
        return
    for item in members.values():
        yield from _find_calls(item, tool_use_id)


def _to_call(use: Mapping[str, Any]) -> tuple[str, Any]:
    return use["name"], to_jsonable(use["input"])


def _reason_text(reason: Any) -> str | None:
    return reason if isinstance(reason, str) else None


def resume_responses(interrupts: Mapping[str, str], resume: Iterable[ResumeEntry], *, wraps: bool = False) -> list[Any]:
    """Return the SDK's responses for these interrupts: the client's payload, or `cancelled_answer()`, also for an expired one.

    With `wraps`, the payload is in `{"response": payload}`, except for an approval, which only this bridge reads.
    """
    entries = {entry.interrupt_id.rpartition(_ID_SEPARATOR)[0]: entry for entry in resume}
    return [
        interrupt_response(native_id, _response_value(entries.get(native_id), wraps and name != APPROVAL_INTERRUPT))
        for native_id, name in interrupts.items()
    ]


def interrupt_response(native_id: str, response: Any) -> dict[str, Any]:
    """Return the content block with which the SDK resumes one of its interrupts."""
    return {"interruptResponse": {"interruptId": native_id, "response": response}}


def _response_value(entry: ResumeEntry | None, wraps: bool) -> Any:
    if entry is None or entry.status == "cancelled":
        return cancelled_answer()
    if wraps:
        return {"response": entry.payload}
    return {} if entry.payload is None else entry.payload  # the SDK takes None for a missing response
