"""Interrupts of an ADK agent, both ways: a tool to confirm, a credential, an input. ADK makes each as a function call of its own.

Clients get them as AG-UI interrupts with a response schema; an answer becomes the function response ADK waits for. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.adk.messages import response_part
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from google.adk.events import Event as ADKEvent
    from google.genai import types

    from ambient_runner.protocol.events import ResumeEntry

__all__ = [
    "CANCELLED_RESPONSE",
    "CREDENTIAL_CALL",
    "INTERNAL_TOOLS",
    "INTERRUPT_CALLS",
    "answer_part",
    "client_call_interrupt",
    "find_interrupted_call",
    "has_secrets",
    "is_confirmed",
    "is_provisional",
    "strip_secrets",
    "target_call_id",
    "to_interrupt",
]

CONFIRMATION_CALL = "adk_request_confirmation"
CREDENTIAL_CALL = "adk_request_credential"
INPUT_CALL = "adk_request_input"
INTERRUPT_CALLS = frozenset({CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL})
"""Names of the calls that are interrupts. Clients never get them as tool calls."""
INTERNAL_TOOLS = frozenset({"set_model_response", "finish_task"})
"""Tools with which ADK's own agents return their output."""

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
CANCELLED_RESPONSE = {"error": "This was cancelled by the user."}
_SECRETS = ("rawAuthCredential", "exchangedAuthCredential")


def to_interrupt(call: types.FunctionCall, subagent_id: str | None = None) -> Interrupt:
    """Return the AG-UI interrupt of a call. Of a credential's configuration it contains only the sign-in address and the scheme."""
    args = call.args or {}
    build = {CONFIRMATION_CALL: _confirmation_interrupt, CREDENTIAL_CALL: _credential_interrupt}.get(
        call.name or "", _input_interrupt
    )
    return build(call.id or "", args, subagent_id)


def client_call_interrupt(call: types.FunctionCall, subagent_id: str | None = None) -> Interrupt:
    """Return a client tool call as an interrupt, for a run that also has other interrupts: an outcome has one kind only."""
    return Interrupt(
        id=call.id or "",
        reason="tool_call",
        message=f"{call.name} waits for its result.",
        tool_call_id=call.id,
        subagent_run_id=subagent_id,
    )


def find_interrupted_call(call: types.FunctionCall) -> tuple[str, Any] | None:
    """Return the call that a confirmation is about, as ADK executes it: name and arguments; None for other interrupts."""
    original = as_object((call.args or {}).get("originalFunctionCall")) if call.name == CONFIRMATION_CALL else {}
    return (str(original.get("name", "")), to_jsonable(original.get("args") or {})) if original else None


def is_confirmed(call: types.FunctionCall, entry: ResumeEntry) -> bool:
    """Return True if the answer to a confirmation executes the call."""
    return _answer_value(call, entry).get("confirmed") is True


def target_call_id(call: types.FunctionCall) -> str | None:
    """Return the id of the call an interrupt is about; None for an interrupt without a call."""
    args = call.args or {}
    call_id = as_object(args.get("originalFunctionCall")).get("id") or args.get("functionCallId")
    return call_id if isinstance(call_id, str) else None


def is_provisional(event: ADKEvent, call_id: str) -> bool:
    """Return True if this response only announces an interrupt. The real one follows after the answer."""
    return call_id in event.actions.requested_tool_confirmations or call_id in event.actions.requested_auth_configs


def answer_part(call: types.FunctionCall, entry: ResumeEntry) -> types.Part:
    """Return the answer as the function response ADK waits for. Only an explicit true confirms; a cancelled interrupt does not."""
    return response_part(call.id or "", call.name or "", _answer_value(call, entry))


def _answer_value(call: types.FunctionCall, entry: ResumeEntry) -> dict[str, Any]:
    payload = entry.payload if entry.status == "resolved" else None
    if call.name == CONFIRMATION_CALL:
        return _confirmation_answer(payload)
    if call.name == CREDENTIAL_CALL:
        return _credential_answer(call.args or {}, payload)
    if entry.status == "cancelled":
        return CANCELLED_RESPONSE
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {"result": payload}


def strip_secrets(args: dict[str, Any]) -> dict[str, Any]:
    """Return a credential request's arguments without the app's own credentials, so that they can be stored."""
    config = args.get("authConfig")
    if not isinstance(config, dict):
        return args
    public = {name: value for name, value in cast("dict[str, Any]", config).items() if name not in _SECRETS}
    return {**args, "authConfig": public}


def has_secrets(args: dict[str, Any]) -> bool:
    """Return True if a credential request can still be answered. After a restart only what `strip_secrets` returns is left."""
    return any(name in as_object(args.get("authConfig")) for name in _SECRETS)


def _confirmation_interrupt(name: str, args: dict[str, Any], subagent_id: str | None) -> Interrupt:
    original, confirmation = as_object(args.get("originalFunctionCall")), as_object(args.get("toolConfirmation"))
    tool = str(original.get("name", "the tool"))
    hint = confirmation.get("hint")
    metadata: dict[str, Any] = {"toolName": tool, "toolArguments": original.get("args") or {}}
    if confirmation.get("payload") is not None:
        metadata["payload"] = confirmation["payload"]
    is_default = not hint or "FunctionResponse" in str(hint)  # ADK's default hint is meant for programmers
    return Interrupt(
        id=name,
        reason="confirmation",
        message=f"Allow the call of {tool}?" if is_default else str(hint),
        tool_call_id=cast("str | None", original.get("id")),
        response_schema=_CONFIRMATION_SCHEMA,
        metadata=metadata,
        subagent_run_id=subagent_id,
    )


def _credential_interrupt(name: str, args: dict[str, Any], subagent_id: str | None) -> Interrupt:
    config = as_object(args.get("authConfig"))
    oauth = as_object(as_object(config.get("exchangedAuthCredential")).get("oauth2"))
    scheme = as_object(config.get("authScheme"))
    metadata = {"authUri": oauth.get("authUri"), "scheme": scheme.get("type")}
    return Interrupt(
        id=name,
        reason="credential",
        message="Sign in so that the agent can go on.",
        tool_call_id=cast("str | None", args.get("functionCallId")),
        response_schema=_CREDENTIAL_SCHEMA,
        metadata={key: value for key, value in metadata.items() if value is not None},
        subagent_run_id=subagent_id,
    )


def _input_interrupt(name: str, args: dict[str, Any], subagent_id: str | None) -> Interrupt:
    schema, payload = args.get("response_schema", args.get("responseSchema")), args.get("payload")
    message = args.get("message")
    return Interrupt(
        id=name,
        reason="input_required",
        message=str(message) if message else "The agent needs an answer to go on.",
        response_schema=cast("dict[str, Any]", schema) if isinstance(schema, dict) else None,
        metadata=None if payload is None else {"payload": payload},
        subagent_run_id=subagent_id,
    )


def _confirmation_answer(payload: Any) -> dict[str, Any]:
    """Return the answer to a confirmation. One that contradicts itself does not confirm."""
    answer = as_object(payload)
    given = [answer[name] for name in ("confirmed", "approved") if answer.get(name) is not None]
    is_confirmed = payload is True or (bool(given) and all(value is True for value in given))
    return {"confirmed": is_confirmed} | ({"payload": answer["payload"]} if answer.get("payload") is not None else {})


def _credential_answer(args: dict[str, Any], payload: Any) -> dict[str, Any]:
    """Return the request's configuration with the user's answer, which ADK exchanges for a token."""
    fields, config = as_object(payload), as_object(args.get("authConfig"))
    exchanged = as_object(config.get("exchangedAuthCredential"))
    answer = {name: value for name in ("authResponseUri", "redirectUri") if isinstance(value := fields.get(name), str)}
    oauth = {**as_object(exchanged.get("oauth2")), **answer}
    return {**config, "exchangedAuthCredential": {**exchanged, "oauth2": oauth}}
