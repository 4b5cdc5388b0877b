"""Messages for the audience `safe`: the same rules as for the events they were streamed as (`safe.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.projections.safe_activities import safe_activity
from ambient_runner.projections.safe_metadata import is_summary, safe_metadata
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
    from ambient_runner.protocol.events import Content, Message, ToolCall

__all__ = ["HIDDEN_REASONING", "safe_message", "summarize_content"]

HIDDEN_REASONING = "[reasoning is hidden]"
"""The text of a reasoning message that has no summary."""


def safe_message(message: Message, rules: ExposureRules, find_call: FindCall) -> Message:
    """Return the message as the audience `safe` gets it."""
    match message:
        case UserMessage():
            return replace(message, encrypted_value=None)
        case ActivityMessage():
            shown = message.content if rules.shows(message.activity_type) else safe_activity(message.content)
            return replace(message, content=shown, metadata=safe_metadata(message, rules))
        case ReasoningMessage():
            text = message.content if is_summary(message) else HIDDEN_REASONING
            return replace(message, content=text, encrypted_value=None, metadata=safe_metadata(message, rules))
        case AssistantMessage():
            calls = message.tool_calls and [_safe_call(call, rules, find_call) for call in message.tool_calls]
            return replace(message, tool_calls=calls, encrypted_value=None, metadata=safe_metadata(message, rules))
        case ToolMessage():
            return _safe_tool_message(message, rules, find_call)
        case _:
            return replace(message, encrypted_value=None, metadata=safe_metadata(message, rules))


def summarize_content(content: Content) -> str:
    """Return the summary of a tool's result, as text."""
    if isinstance(content, str):
        return summary_as_text(summarize_text(content, "tool_result"))
    return summary_as_text(summarize_value(content, "tool_result"))


def _safe_call(call: ToolCall, rules: ExposureRules, find_call: FindCall) -> ToolCall:
    is_client = find_call(call.id).is_client
    function = call.function
    if not rules.shows_arguments(function.name, is_client=is_client):
        summary = summary_as_text(summarize_text(function.arguments, "tool_arguments"))
        function = FunctionCall(name=function.name, arguments=summary)
    return replace(call, function=function, encrypted_value=None, metadata=safe_metadata(call, rules))


def _safe_tool_message(message: ToolMessage, rules: ExposureRules, find_call: FindCall) -> Message:
    call = find_call(message.tool_call_id)
    shown: dict[str, Any] = {}
    if not rules.shows_result(call.name, is_client=call.is_client):
        shown = {"content": summarize_content(message.content), "error": None}
    return replace(message, encrypted_value=None, metadata=safe_metadata(message, rules), **shown)
