"""Questions an ADK agent puts to a person: a tool to confirm, a credential, an input. Each is a call ADK makes to the client itself.

For clients they are AG-UI interrupts with a schema of the answer; an answer becomes the function response ADK waits for. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.adk.messages import response_part
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from google.adk.events import Event as AdkEvent
    from google.genai import types

    from ambient_runner.protocol.events import ResumeEntry

__all__ = [
    "CANCELLED",
    "CREDENTIAL",
    "INTERNAL",
    "QUESTIONS",
    "answer_part",
    "asked_about",
    "call_question",
    "has_secrets",
    "interrupt_of",
    "is_provisional",
    "without_secrets",
]

CONFIRM, CREDENTIAL, INPUT = "adk_request_confirmation", "adk_request_credential", "adk_request_input"
QUESTIONS = frozenset({CONFIRM, CREDENTIAL, INPUT})
"""Names of the calls that are questions. They are never shown as tool calls."""
INTERNAL = frozenset({"set_model_response", "finish_task"})
"""Tools by which ADK's own agents hand over what they made."""

_CONFIRMATION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}, "payload": {}},
    "required": ["confirmed"],
}
_CREDENTIAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "authResponseUri": {"type": "string", "description": "The whole address the provider sent the person back to."},
        "redirectUri": {"type": "string"},
    },
    "required": ["authResponseUri"],
}
CANCELLED = {"error": "This was cancelled by the user."}
_SECRETS = ("rawAuthCredential", "exchangedAuthCredential")


def interrupt_of(question: types.FunctionCall, lane: str | None = None) -> Interrupt:
    """The question as clients see it. Nothing of a credential's configuration is in it but where to sign in."""
    args = question.args or {}
    make = {CONFIRM: _confirmation, CREDENTIAL: _credential}.get(question.name or "", _input)
    return make(question.id or "", args, lane)


def call_question(call: types.FunctionCall, lane: str | None = None) -> Interrupt:
    """A client's own call that waits beside a question: one outcome cannot hold both, so it is asked for in the same way."""
    return Interrupt(
        id=call.id or "",
        reason="tool_call",
        message=f"{call.name} waits for its result.",
        tool_call_id=call.id,
        subagent_run_id=lane,
    )


def asked_about(question: types.FunctionCall) -> str | None:
    """The id of the call a question is about; None for a question of its own."""
    args = question.args or {}
    about = _object(args.get("originalFunctionCall")).get("id") or args.get("functionCallId")
    return about if isinstance(about, str) else None


def is_provisional(event: AdkEvent, call_id: str) -> bool:
    """Whether this result only says that a person is asked first. The real one comes when they have answered."""
    return call_id in event.actions.requested_tool_confirmations or call_id in event.actions.requested_auth_configs


def answer_part(call: types.FunctionCall, entry: ResumeEntry) -> types.Part:
    """The answer as the function response ADK waits for. Only a plain yes confirms; a cancelled question is a no."""
    return response_part(call.id or "", call.name or "", _answer(call, entry))


def _answer(call: types.FunctionCall, entry: ResumeEntry) -> dict[str, Any]:
    payload = entry.payload if entry.status == "resolved" else None
    if call.name == CONFIRM:
        return _confirmed(payload)
    if call.name == CREDENTIAL:
        return _signed_in(call.args or {}, payload)
    if entry.status == "cancelled":
        return CANCELLED
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {"result": payload}


def without_secrets(args: dict[str, Any]) -> dict[str, Any]:
    """A credential request's arguments, fit to be kept: without what the app authenticates itself with."""
    config = args.get("authConfig")
    if not isinstance(config, dict):
        return args
    kept = {name: value for name, value in cast("dict[str, Any]", config).items() if name not in _SECRETS}
    return {**args, "authConfig": kept}


def has_secrets(args: dict[str, Any]) -> bool:
    """Whether a credential request can still be answered: after a restart it is known only `without_secrets`."""
    return any(name in _object(args.get("authConfig")) for name in _SECRETS)


def _confirmation(name: str, args: dict[str, Any], lane: str | None) -> Interrupt:
    original, confirmation = _object(args.get("originalFunctionCall")), _object(args.get("toolConfirmation"))
    tool = str(original.get("name", "the tool"))
    hint = confirmation.get("hint")
    metadata: dict[str, Any] = {"toolName": tool, "toolArguments": original.get("args") or {}}
    if confirmation.get("payload") is not None:
        metadata["payload"] = confirmation["payload"]
    default = not hint or "FunctionResponse" in str(hint)  # ADK's own hint speaks to programmers
    return Interrupt(
        id=name,
        reason="confirmation",
        message=f"Allow the call of {tool}?" if default else str(hint),
        tool_call_id=cast("str | None", original.get("id")),
        response_schema=_CONFIRMATION_SCHEMA,
        metadata=metadata,
        subagent_run_id=lane,
    )


def _credential(name: str, args: dict[str, Any], lane: str | None) -> Interrupt:
    config = _object(args.get("authConfig"))
    oauth = _object(_object(config.get("exchangedAuthCredential")).get("oauth2"))
    scheme = _object(config.get("authScheme"))
    metadata = {"authUri": oauth.get("authUri"), "scheme": scheme.get("type")}
    return Interrupt(
        id=name,
        reason="credential",
        message="Sign in so that the agent can go on.",
        tool_call_id=cast("str | None", args.get("functionCallId")),
        response_schema=_CREDENTIAL_SCHEMA,
        metadata={key: value for key, value in metadata.items() if value is not None},
        subagent_run_id=lane,
    )


def _input(name: str, args: dict[str, Any], lane: str | None) -> Interrupt:
    schema, payload = args.get("response_schema", args.get("responseSchema")), args.get("payload")
    message = args.get("message")
    return Interrupt(
        id=name,
        reason="input_required",
        message=str(message) if message else "The agent needs an answer to go on.",
        response_schema=cast("dict[str, Any]", schema) if isinstance(schema, dict) else None,
        metadata=None if payload is None else {"payload": payload},
        subagent_run_id=lane,
    )


def _confirmed(payload: Any) -> dict[str, Any]:
    given = _object(payload)
    yes = payload is True or given.get("confirmed") is True or given.get("approved") is True
    return {"confirmed": yes} | ({"payload": given["payload"]} if given.get("payload") is not None else {})


def _signed_in(args: dict[str, Any], payload: Any) -> dict[str, Any]:
    """The request's own configuration with the person's answer in it, which is what ADK exchanges for a token."""
    given, config = _object(payload), _object(args.get("authConfig"))
    exchanged = _object(config.get("exchangedAuthCredential"))
    answer = {name: value for name in ("authResponseUri", "redirectUri") if isinstance(value := given.get(name), str)}
    oauth = {**_object(exchanged.get("oauth2")), **answer}
    return {**config, "exchangedAuthCredential": {**exchanged, "oauth2": oauth}}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
