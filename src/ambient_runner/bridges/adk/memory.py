"""Memory of an ADK session, stored with the thread: where the session ended, and the events of a paused invocation.

With it, `session_sync.py` decides which events of a session still match the thread, and any process can resume a paused invocation.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic_core
from google.adk.events import Event

from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.interrupts import CREDENTIAL_CALL, strip_secrets
from ambient_runner.bridges.adk.messages import is_initial_result
from ambient_runner.bridges.adk.session_sync import live_events
from ambient_runner.projections.state import is_hidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.sessions import Session

__all__ = ["PausedInvocation", "SessionMemory", "new_invocation_id", "restore_events"]

_MAX_PAUSED_BYTES = 256 << 10
"""Limit in bytes of JSON for a stored paused invocation. Of a longer one only the waiting calls are stored."""


class PausedInvocation(msgspec.Struct, kw_only=True):
    """Serialized events of an invocation that waits for the client. ADK needs more than a transcript to resume it."""

    since: str
    """Id of the user message that started it."""
    events: list[dict[str, Any]]


class SessionMemory(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Data that a run stores for the next one."""

    last: str
    """Id of the session's last event."""
    since: str
    """Id of the newest user message in the session."""
    paused: PausedInvocation | None = None

    @classmethod
    def from_session(cls, session: Session | None, user_message_id: str) -> SessionMemory | None:
        """Return the memory of a session at the end of a run; None for a session without events."""
        if session is None or not session.events:
            return None
        paused = _paused_invocation(session, user_message_id)
        return cls(last=session.events[-1].id, since=user_message_id, paused=paused)

    @classmethod
    def from_stored(cls, value: Any) -> SessionMemory | None:
        """Return the memory that `to_stored` serialized; None when the value is not a valid one."""
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError:
            return None

    def to_stored(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


def restore_events(stored_events: Sequence[dict[str, Any]]) -> list[Event]:
    """Return the events of a paused invocation under a new invocation id: the old one may have been rewound."""
    new_id = {"invocationId": new_invocation_id()}
    events = [{name: value for name, value in event.items() if name != "timestamp"} | new_id for event in stored_events]
    # Validated as JSON, not as Python values: bytes, such as thought signatures, are base64 in JSON.
    return [Event.model_validate_json(json.dumps(event)) for event in events]


def new_invocation_id() -> str:
    return f"e-{uuid.uuid4()}"


def _paused_invocation(session: Session, user_message_id: str) -> PausedInvocation | None:
    """Return the session's last invocation, serialized, if it has an open call; otherwise None."""
    live = live_events(session.events)
    last = [event for event in live if live and event.invocation_id == live[-1].invocation_id]
    calls = {call.id for event in last for call in event.get_function_calls()}
    responses = [response for event in last for response in event.get_function_responses()]
    answered = {response.id for response in responses if not is_initial_result(response)}
    if not calls - answered:
        return None
    events = [_serialize_event(event) for event in last]
    if len(json.dumps(events)) > _MAX_PAUSED_BYTES:
        start = next(i for i, event in enumerate(last) if {call.id for call in event.get_function_calls()} - answered)
        events = [events[0], *events[max(start - 1, 1) :]]
    return PausedInvocation(since=user_message_id, events=events)


def _serialize_event(event: Event) -> dict[str, Any]:
    """Return the event as JSON to store with the thread, without credentials and without hidden state."""
    serialized = pydantic_core.to_jsonable_python(
        event, by_alias=True, exclude_none=True, serialize_unknown=True, bytes_mode="base64"
    )
    actions = serialized.get("actions", {})
    actions.pop("requestedAuthConfigs", None)
    changes = actions.get("stateDelta", {})
    actions["stateDelta"] = {key: value for key, value in changes.items() if not is_hidden(key, HIDDEN)}
    for part in serialized.get("content", {}).get("parts", ()):
        _remove_secrets(part)
    return serialized


def _remove_secrets(part: dict[str, Any]) -> None:
    call, response = part.get("functionCall", {}), part.get("functionResponse", {})
    if call.get("name") == CREDENTIAL_CALL:
        call["args"] = strip_secrets(call.get("args", {}))
    if response.get("name") == CREDENTIAL_CALL:
        response["response"] = {}
