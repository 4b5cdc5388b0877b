"""Messages for the audience `safe`: the same rules as for the events they were streamed as (`safe.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.projections.safe_activities import safe_activity
from ambient_runner.projections.summaries import summarize_text, summarize_value, summary_as_text
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    ReasoningMessage,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.known_calls import FindCall
    from ambient_runner.protocol.events import Content, Message, Metadata, ToolCall

__all__ = ["HIDDEN_REASONING", "is_summary", "safe_message", "safe_metadata", "summarize_content"]

HIDDEN_REASONING = "[reasoning is hidden]"
"""The text of a reasoning message that has no summary."""
_SUMMARY = "summary"
_KEPT_METADATA = frozenset({"checkpointId", "isError", "parentSpanId", _SUMMARY, "summaryRef", "traceId"})
"""Members of metadata that this server or its bridges add for clients. Those of providers are left out."""


def safe_message(message: Message, rules: ExposureRules, find_call: FindCall) -> Message:
    """Return the message as the audience `safe` gets it."""
    match message:
        case UserMessage():
            return replace(message, encrypted_value=None)
        case ActivityMessage():
            shown = message.content if rules.shows(message.activity_type) else safe_activity(message.content)
            return replace(message, content=shown, metadata=_metadata(message.metadata, rules))
        case ReasoningMessage():
            text = message.content if is_summary(message.metadata) else HIDDEN_REASONING
            return replace(message, content=text, encrypted_value=None, metadata=safe_metadata(message.metadata))
        case AssistantMessage():
            calls = message.tool_calls and [_safe_call(call, rules, find_call) for call in message.tool_calls]
            return replace(message, tool_calls=calls, encrypted_value=None, metadata=_metadata(message.metadata, rules))
        case ToolMessage():
            return _safe_tool_message(message, rules, find_call)
        case _:
            return replace(message, encrypted_value=None, metadata=_metadata(message.metadata, rules))


def safe_metadata(metadata: Metadata | None) -> Metadata | None:
    """Return the members of metadata that are ours; None if there are none."""
    return {key: value for key, value in (metadata or {}).items() if key in _KEPT_METADATA} or None


def is_summary(metadata: Metadata | None) -> bool:
    """Return True if the framework marked this reasoning as a summary for people."""
    return bool(metadata) and metadata.get(_SUMMARY) is True


def summarize_content(content: Content) -> str:
    """Return the summary of a tool's result, as text."""
    if isinstance(content, str):
        return summary_as_text(summarize_text(content, "tool_result"))
    return summary_as_text(summarize_value(content, "tool_result"))


def _metadata(metadata: Metadata | None, rules: ExposureRules) -> Metadata | None:
    return metadata if rules.shows_unnamed else safe_metadata(metadata)


def _safe_call(call: ToolCall, rules: ExposureRules, find_call: FindCall) -> ToolCall:
    is_client = find_call(call.id).is_client
    function = call.function
    if not rules.shows_arguments(function.name, is_client=is_client):
        summary = summary_as_text(summarize_text(function.arguments, "tool_arguments"))
        function = FunctionCall(name=function.name, arguments=summary)
    return replace(call, function=function, encrypted_value=None, metadata=_metadata(call.metadata, rules))


def _safe_tool_message(message: ToolMessage, rules: ExposureRules, find_call: FindCall) -> Message:
    call = find_call(message.tool_call_id)
    shown: dict[str, Any] = {}
    if not rules.shows_result(call.name, is_client=call.is_client):
        shown = {"content": summarize_content(message.content), "error": None}
    return replace(message, encrypted_value=None, metadata=_metadata(message.metadata, rules), **shown)
