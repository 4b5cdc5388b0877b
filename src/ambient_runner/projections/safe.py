"""The audience `safe`: the part of an agent's events that clients on other machines see. Pure, over one event at a time.

Texts, names, state and usage stay whole. Arguments and results of tools, run input and output become summaries unless their exposure says
otherwise; reasoning becomes a marker; RAW, metadata of providers and encrypted values are left out. `docs/how-to/audience.md` has the
table, and a test reads it. `safe_messages.py` applies the same rules to messages, so that a snapshot equals the stream.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import BridgeError, message_for_code
from ambient_runner.projections.known_calls import UNKNOWN_CALL, FindCall
from ambient_runner.projections.safe_activities import safe_activity, safe_activity_patch
from ambient_runner.projections.safe_interrupts import safe_interrupt
from ambient_runner.projections.safe_messages import HIDDEN_REASONING, safe_message, summarize_content
from ambient_runner.projections.safe_metadata import is_summary, safe_metadata
from ambient_runner.projections.summaries import summarize_text, summarize_value, summary_as_text
from ambient_runner.protocol.events import (
    CUSTOM_PREFIX,
    ActivityDelta,
    ActivitySnapshot,
    Custom,
    Event,
    Interrupted,
    MessagesSnapshot,
    Raw,
    ReasoningEncryptedValue,
    ReasoningMessageChunk,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    RunError,
    RunFinished,
    RunStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    ToolCallArgs,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallResult,
    type_of_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.protocol.events import Outcome, RunAgentInput

__all__ = ["needs_projection", "project_safe", "safe_snapshot"]

USAGE_EVENT = "ambient:usage"
_ERROR_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_PREDICT_STATE = "PredictState"
"""A CUSTOM event of AG-UI: the client shows arguments of tools as state while they are streamed."""
_MAPPING_MEMBERS = ("state_key", "tool", "tool_argument")

_STRIPPED_MEMBERS = (b'"metadata":', b'"rawEvent":')
"""Members that any event may have. Inside a JSON string the quotation marks would be escaped."""


def needs_projection(line: bytes, rules: ExposureRules) -> bool:
    """Return True if this stored line may differ for the audience `safe`. All others are sent as they are stored."""
    kind = type_of_line(line)
    if kind in _CHANGED_TYPES or (kind in _ARGUMENT_TYPES and not rules.shows_all_arguments):
        return True
    return any(member in line for member in _STRIPPED_MEMBERS)


def project_safe(event: Event, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    """Return the events that the audience `safe` gets for an event; none if it gets nothing of it."""
    event = _without_provider_data(event, rules)
    project = _PROJECTIONS.get(type(event))
    return [event] if project is None else project(event, rules, find_call)


def safe_snapshot(snapshot: MessagesSnapshot, rules: ExposureRules, find_call: FindCall) -> MessagesSnapshot:
    """Return the messages as the audience `safe` gets them."""
    return replace(snapshot, messages=[safe_message(message, rules, find_call) for message in snapshot.messages])


def _without_provider_data(event: Event, rules: ExposureRules) -> Event:
    if event.raw_event is None and event.metadata is None:
        return event
    return replace(event, raw_event=None, metadata=safe_metadata(event, rules))


def _project_start(event: RunStarted, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    return [event if event.input is None else replace(event, input=_safe_input(event.input, rules, find_call))]


def _safe_input(run_input: RunAgentInput, rules: ExposureRules, find_call: FindCall) -> RunAgentInput:
    """Return the input with the messages that this run added. Everything else of it is a summary or left out."""
    return replace(
        run_input,
        messages=[safe_message(message, rules, find_call) for message in run_input.messages],
        tools=[],
        context=[],
        resume=None,
        state=None if run_input.state is None else summarize_value(run_input.state, "run_input"),
        forwarded_props=(
            None if run_input.forwarded_props is None else summarize_value(run_input.forwarded_props, "run_input")
        ),
    )


def _project_finish(event: RunFinished, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    result = event.result
    if result is not None and not rules.shows_unnamed:
        result = summarize_value(result, "run_output")
    return [*_usage_event(event), replace(event, result=result, outcome=_safe_outcome(event.outcome, rules, find_call))]


def _project_error(event: RunError | SubagentError, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    """Return the error with our message. A code that is a text, such as that of an exception, is replaced."""
    is_code = event.code is None or _ERROR_CODE.fullmatch(event.code)
    code = event.code if is_code else BridgeError.code
    return [*_usage_event(event), replace(event, code=code, message=message_for_code(code))]


def _usage_event(event: RunFinished | RunError | SubagentError) -> list[Event]:
    """Return the tokens of a run as an event too: clients before AG-UI 1.0 do not know them at its end."""
    usage = None if isinstance(event, SubagentError) else event.usage
    return [Custom(name=USAGE_EVENT, value={"usage": msgspec.to_builtins(usage)})] if usage else []


def _safe_outcome(outcome: Outcome | None, rules: ExposureRules, find_call: FindCall) -> Outcome | None:
    if not isinstance(outcome, Interrupted):
        return outcome
    return replace(
        outcome, interrupts=[safe_interrupt(interrupt, rules, find_call) for interrupt in outcome.interrupts]
    )


def _project_arguments(event: ToolCallArgs | ToolCallEnd, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    """Return the arguments as they are streamed if they are shown; else nothing until the end, and one summary before it."""
    if rules.shows_all_arguments:
        return [event]
    call = find_call(event.tool_call_id)
    if rules.shows_arguments(call.name, is_client=call.is_client):
        return [event]
    if isinstance(event, ToolCallArgs):
        return []
    summary = summary_as_text(summarize_text(call.arguments, "tool_arguments"))
    return [
        ToolCallArgs(tool_call_id=event.tool_call_id, delta=summary, subagent_run_id=event.subagent_run_id),
        event,
    ]


def _project_result(event: ToolCallResult, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    call = UNKNOWN_CALL if rules.shows_all_results else find_call(event.tool_call_id)
    is_shown = rules.shows_all_results or rules.shows_result(call.name, is_client=call.is_client)
    return [event if is_shown else replace(event, content=summarize_content(event.content))]


def _project_snapshot(event: MessagesSnapshot, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    return [safe_snapshot(event, rules, find_call)]


def _project_activity(event: ActivitySnapshot, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    return [event if rules.shows(event.activity_type) else replace(event, content=safe_activity(event.content))]


def _project_activity_patch(event: ActivityDelta, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    patch = event.patch if rules.shows(event.activity_type) else safe_activity_patch(event.patch)
    return [replace(event, patch=patch)] if patch else []


def _project_custom(event: Custom, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    if event.name.startswith(CUSTOM_PREFIX) or rules.shows(event.name):
        return [event]
    if event.name == _PREDICT_STATE:
        shown = _shown_mappings(event.value, rules)
        return [replace(event, value=shown)] if shown else []
    return [replace(event, value=summarize_value(event.value, "custom_event"))]


def _shown_mappings(value: Any, rules: ExposureRules) -> list[dict[str, str]]:
    """Return the mappings of arguments to state keys that a client can use: of tools whose arguments it sees.

    From a summary it would predict nonsense. The state itself comes with the state events.
    """
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    found = [_named_texts(cast("dict[str, Any]", item)) for item in listed if isinstance(item, dict)]
    return [mapping for mapping in found if "state_key" in mapping and rules.shows_arguments(mapping.get("tool", ""))]


def _named_texts(mapping: dict[str, Any]) -> dict[str, str]:
    return {name: mapping[name] for name in _MAPPING_MEMBERS if isinstance(mapping.get(name), str)}


def _project_reasoning(
    event: ReasoningMessageContent | ReasoningMessageEnd, rules: ExposureRules, find_call: FindCall
) -> list[Event]:
    """Return a summary that the framework marked as one; else nothing until the end, and a marker before it."""
    if is_summary(event):
        return [event]
    if isinstance(event, ReasoningMessageContent):
        return []
    marker = ReasoningMessageContent(
        message_id=event.message_id, delta=HIDDEN_REASONING, subagent_run_id=event.subagent_run_id
    )
    return [marker, event]


def _project_subagent_start(event: SubagentStarted, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    return [event if rules.shows(event.name) else replace(event, description=None)]


def _project_subagent_end(event: SubagentFinished, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    if event.result is None or rules.shows_unnamed:
        return [event]
    return [replace(event, result=summarize_value(event.result, "subagent_output"))]


def _drop(event: Event, rules: ExposureRules, find_call: FindCall) -> list[Event]:
    return []


_PROJECTIONS: dict[type[Event], Callable[[Any, ExposureRules, FindCall], list[Event]]] = {
    RunStarted: _project_start,
    RunFinished: _project_finish,
    RunError: _project_error,
    ToolCallArgs: _project_arguments,
    ToolCallEnd: _project_arguments,
    ToolCallChunk: _drop,
    ToolCallResult: _project_result,
    MessagesSnapshot: _project_snapshot,
    ActivitySnapshot: _project_activity,
    ActivityDelta: _project_activity_patch,
    Raw: _drop,
    Custom: _project_custom,
    ReasoningMessageContent: _project_reasoning,
    ReasoningMessageEnd: _project_reasoning,
    ReasoningMessageChunk: _drop,
    ReasoningEncryptedValue: _drop,
    SubagentStarted: _project_subagent_start,
    SubagentFinished: _project_subagent_end,
    SubagentError: _project_error,
}
"""The projections by type of event. Events of all other types only lose data of providers."""

_ARGUMENT_TYPES = frozenset({"TOOL_CALL_ARGS", "TOOL_CALL_END"})
_CHANGED_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in _PROJECTIONS) - _ARGUMENT_TYPES
