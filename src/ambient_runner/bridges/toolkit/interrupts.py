"""Helpers for interrupts that every framework needs. The conversion to and from a framework is in each bridge's `interrupts.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.protocol.events import Event, ResumeEntry

__all__ = [
    "DECLINED",
    "approval_schema",
    "cancelled_answer",
    "expires_at",
    "interrupt_lapsed_events",
    "is_approved",
    "resolved_interrupt_ids",
]

DECLINED = "The user declined this call."
"""Result, for the model, of a call that the user did not approve."""


def approval_schema(**more: dict[str, Any]) -> dict[str, Any]:
    """Return the response schema of an interrupt that asks for approval. `more` are the schemas of further, optional members."""
    return {"type": "object", "properties": {"approved": {"type": "boolean"}, **more}, "required": ["approved"]}


def is_approved(answer: Any) -> bool:
    """Return True only for an explicit approval."""
    return as_object(answer).get("approved") is True


def cancelled_answer() -> dict[str, Any]:
    """Return the answer that an agent gets for an interrupt that was cancelled."""
    return {"cancelled": True}


def expires_at(seconds: float | None) -> str | None:
    """Return the `expires_at` of an interrupt raised now, in ISO 8601; None for one that does not expire."""
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def resolved_interrupt_ids(entries: Iterable[ResumeEntry]) -> list[str]:
    """Return the ids of the interrupts that were answered. Cancelled ones are left out."""
    return [entry.interrupt_id for entry in entries if entry.status == "resolved"]


def interrupt_lapsed_events(ids: Sequence[str]) -> list[Event]:
    """Return the `ambient:interrupt_lapsed` event for answers to interrupts that are no longer open; nothing if there are none."""
    return [Custom(name="ambient:interrupt_lapsed", value={"interruptIds": list(ids)})] if ids else []
