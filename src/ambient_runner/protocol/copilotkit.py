"""The shapes that CopilotKit's client expects of its runtime: RuntimeInfo, thread rows, messages for its inspector, suggestions.

Pure. `copilotkit_input.py` reads what the client sends; the routes are in `server/routes/copilotkit.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from ambient_runner.protocol.events import (
    AssistantMessage,
    Event,
    RunError,
    RunFinished,
    RunStarted,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolMessage,
    content_as_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.protocol.events import Message, RunAgentInput

__all__ = [
    "CLIENT_VERSION",
    "SUGGEST_TOOL",
    "Suggestion",
    "inspector_message",
    "is_suggestion_request",
    "refusal_events",
    "runtime_info",
    "stop_answer",
    "suggestion_events",
    "thread_row",
]

CLIENT_VERSION = "0.0.59"
"""The `@ag-ui/client` of CopilotKit's client, which does not declare it."""
SUGGEST_TOOL = "copilotkitSuggest"
_RUNTIME_VERSION = "1.75.0"
"""The version of CopilotKit whose routes these are."""
_THREAD_ENDPOINTS = {"list": True, "inspect": True, "mutations": True, "realtimeMetadata": False}
_STOPPED = "STOPPED"


class ThreadRecord(Protocol):
    """The members of a thread that its row shows. `ledger.records.ThreadInfo` implements this protocol."""

    @property
    def title(self) -> str: ...
    @property
    def archived(self) -> bool: ...
    @property
    def created(self) -> int: ...
    @property
    def updated(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A message that the user could send next, and the title of its button."""

    title: str
    message: str


def runtime_info(capabilities: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the RuntimeInfo for agents with these AgentCapabilities, by id.

    `suggestions` is always true: a client that is told otherwise runs the agent on a new thread instead.
    """
    return {
        "version": _RUNTIME_VERSION,
        "mode": "sse",
        "agents": {
            agent: {"name": agent, "description": "", "className": "AmbientAgent", "capabilities": declared}
            for agent, declared in capabilities.items()
        },
        "threadEndpoints": _THREAD_ENDPOINTS,
        "singleRoute": {"resourceOperations": True, "threadEndpoints": _THREAD_ENDPOINTS},
        "suggestions": True,
        "audioFileTranscriptionEnabled": False,
        "a2uiEnabled": False,
        "openGenerativeUIEnabled": False,
        "telemetryDisabled": True,
    }


def thread_row(thread_id: str, thread: ThreadRecord, *, agent: str, tenant: str, owner: str) -> dict[str, Any]:
    """Return a row of the thread list. Its dates are ISO strings of one length, because the client sorts them as texts."""
    return {
        "id": thread_id,
        "organizationId": tenant,
        "agentId": agent,
        "createdById": owner,
        "name": thread.title or None,
        "archived": thread.archived,
        "createdAt": _iso_date(thread.created),
        "updatedAt": _iso_date(thread.updated),
    }


def _iso_date(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def inspector_message(message: Message) -> dict[str, Any]:
    """Return a message as CopilotKit's inspector reads it: its content is a text, and its tool calls are flat."""
    row: dict[str, Any] = {"id": message.id, "role": message.__struct_config__.tag}
    match message:
        case AssistantMessage(tool_calls=[_, *_] as calls):
            flat = [{"id": call.id, "name": call.function.name, "args": call.function.arguments} for call in calls]
            row["toolCalls"] = flat
        case ToolMessage():
            row["toolCallId"] = message.tool_call_id
        case _:
            pass
    match message.content:
        case None:
            return row
        case dict() as activity:
            return {**row, "content": msgspec.json.encode(activity).decode()}
        case content:
            return {**row, "content": content_as_text(content)}


def stop_answer(is_stopped: bool) -> dict[str, Any]:
    """Return the answer to a stop."""
    if not is_stopped:
        return {"stopped": False, "message": "No such run is active, so nothing was stopped."}
    interrupt = {"type": "RUN_ERROR", "message": "The run was stopped.", "code": _STOPPED}
    return {"stopped": True, "interrupt": interrupt}


def is_suggestion_request(run_input: RunAgentInput) -> bool:
    """Return True if the client asks for suggestions and not for a run: on the single route, both are `agent/run`."""
    if [tool.name for tool in run_input.tools or ()] != [SUGGEST_TOOL]:
        return False
    return _member(_member(_member(run_input.forwarded_props, "toolChoice"), "function"), "name") == SUGGEST_TOOL


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def suggestion_events(run_input: RunAgentInput, suggestions: Sequence[Suggestion]) -> list[Event]:
    """Return the answer to a suggestion request: a run with one call of the client's tool; an empty run without suggestions."""
    thread, run = run_input.thread_id, run_input.run_id
    call = f"suggest-{run}"
    arguments = {"suggestions": [{"title": each.title, "message": each.message} for each in suggestions]}
    events: list[Event] = [RunStarted(thread_id=thread, run_id=run)]
    if suggestions:
        events += [
            ToolCallStart(tool_call_id=call, tool_call_name=SUGGEST_TOOL),
            ToolCallArgs(tool_call_id=call, delta=msgspec.json.encode(arguments).decode()),
            ToolCallEnd(tool_call_id=call),
        ]
    return [*events, RunFinished(thread_id=thread, run_id=run)]


def refusal_events(run_input: RunAgentInput, code: str, message: str) -> list[Event]:
    """Return a refusal for a client whose stream is open already."""
    return [
        RunStarted(thread_id=run_input.thread_id, run_id=run_input.run_id),
        RunError(message=message, code=code),
    ]
