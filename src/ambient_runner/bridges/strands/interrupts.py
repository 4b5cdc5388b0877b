"""Interrupts of a Strands agent, both ways: the SDK's interrupts as AG-UI interrupts, and answers as the SDK expects them. Pure.

An SDK interrupt that waits for a client tool (`client_tools.py`) is not an AG-UI interrupt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ambient_runner.bridges.strands.client_tools import CLIENT_TOOL_INTERRUPT
from ambient_runner.bridges.toolkit.interrupts import approval_schema, cancelled_answer, expires_at
from ambient_runner.bridges.toolkit.json_values import to_jsonable
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.bridges.strands.translate import PendingInterrupt
    from ambient_runner.protocol.events import ResumeEntry

__all__ = [
    "APPROVAL_INTERRUPT",
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
