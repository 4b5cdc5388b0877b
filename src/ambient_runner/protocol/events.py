"""The AG-UI 1.0 grammar as msgspec Structs: every event, message, part, outcome and the run input.

Structs cost a fortieth of the pydantic models to build and encode, and that is the whole write budget. `agui_models.py` converts
them to `ag_ui.core` models and back; `verify.py` checks which sequences are legal. Fields are camelCase on the wire, absent when None,
and `type` always comes first, so the type of a stored line can be read from its prefix (`type_of_line`).
"""

from __future__ import annotations

from itertools import filterfalse
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "ActivityDelta",
    "ActivityMessage",
    "ActivitySnapshot",
    "AssistantMessage",
    "AudioPart",
    "BaseEvent",
    "Cancelled",
    "Content",
    "ContentPart",
    "Context",
    "Custom",
    "DataSource",
    "DeveloperMessage",
    "DocumentPart",
    "Event",
    "FileSource",
    "FunctionCall",
    "ImagePart",
    "Interrupt",
    "Interrupted",
    "Message",
    "MessagesSnapshot",
    "Outcome",
    "PartSource",
    "Raw",
    "ReasoningEncryptedValue",
    "ReasoningEnd",
    "ReasoningMessage",
    "ReasoningMessageChunk",
    "ReasoningMessageContent",
    "ReasoningMessageEnd",
    "ReasoningMessageStart",
    "ReasoningStart",
    "ResumeEntry",
    "RunAgentInput",
    "RunError",
    "RunFinished",
    "RunStarted",
    "StateDelta",
    "StateSnapshot",
    "StepFinished",
    "StepStarted",
    "SubagentError",
    "SubagentFinished",
    "SubagentOutcome",
    "SubagentStarted",
    "SubagentSuccess",
    "Success",
    "Suspended",
    "SystemMessage",
    "Terminal",
    "TextMessageChunk",
    "TextMessageContent",
    "TextMessageEnd",
    "TextMessageStart",
    "TextPart",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolCallArgs",
    "ToolCallChunk",
    "ToolCallEnd",
    "ToolCallResult",
    "ToolCallStart",
    "ToolMessage",
    "UrlSource",
    "UserMessage",
    "VideoPart",
]
"""The public names: the types of AG-UI 1.0 (docs/reference/python.md). Other names of this module are internal."""

PROTOCOL_VERSION = "1.0"
CUSTOM_PREFIX = "ambient:"
"""Prefix of the names of our own CUSTOM events."""

Metadata = dict[str, Any]
JsonPatch = list[dict[str, Any]]
TextRole = Literal["developer", "system", "assistant", "user"]


def _constant_field(value: Any) -> Any:
    """Return a field for a constant that is always encoded, although it is the default: clients require it."""
    return msgspec.field(default_factory=lambda: value)


def _list_field() -> Any:
    return msgspec.field(default_factory=list[Any])


class _Model(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True, gc=False):
    """Shared options: camelCase on the wire, None is omitted. JSON values have no cycles, so the garbage collector may skip them."""


class DataSource(_Model, tag_field="type", tag="data", frozen=True, kw_only=True):
    value: str
    mime_type: str


class UrlSource(_Model, tag_field="type", tag="url", frozen=True, kw_only=True):
    value: str
    mime_type: str | None = None


class FileSource(_Model, tag_field="type", tag="file", frozen=True, kw_only=True):
    value: str
    provider: str | None = None
    mime_type: str | None = None


PartSource = DataSource | UrlSource | FileSource


class TextPart(_Model, tag_field="type", tag="text", frozen=True, kw_only=True):
    text: str
    id: str | None = None
    metadata: Any = None


class _MediaPart(_Model, frozen=True, kw_only=True):
    source: PartSource
    id: str | None = None
    metadata: Any = None


class ImagePart(_MediaPart, tag_field="type", tag="image", frozen=True, kw_only=True): ...


class AudioPart(_MediaPart, tag_field="type", tag="audio", frozen=True, kw_only=True): ...


class VideoPart(_MediaPart, tag_field="type", tag="video", frozen=True, kw_only=True): ...


class DocumentPart(_MediaPart, tag_field="type", tag="document", frozen=True, kw_only=True): ...


ContentPart = TextPart | ImagePart | AudioPart | VideoPart | DocumentPart
Content = str | list[ContentPart]


class FunctionCall(_Model, frozen=True, kw_only=True):
    name: str
    arguments: str


class ToolCall(_Model, frozen=True, kw_only=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = _constant_field("function")
    encrypted_value: str | None = None
    metadata: Metadata | None = None


class _Message(_Model, frozen=True, kw_only=True):
    id: str
    subagent_run_id: str | None = None
    metadata: Metadata | None = None
    encrypted_value: str | None = None


class DeveloperMessage(_Message, tag_field="role", tag="developer", frozen=True, kw_only=True):
    content: str
    name: str | None = None


class SystemMessage(_Message, tag_field="role", tag="system", frozen=True, kw_only=True):
    content: str
    name: str | None = None


class AssistantMessage(_Message, tag_field="role", tag="assistant", frozen=True, kw_only=True):
    content: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None


class UserMessage(_Message, tag_field="role", tag="user", frozen=True, kw_only=True):
    content: Content
    name: str | None = None


class ToolMessage(_Message, tag_field="role", tag="tool", frozen=True, kw_only=True):
    tool_call_id: str
    content: Content
    error: str | None = None


class ActivityMessage(_Model, tag_field="role", tag="activity", frozen=True, kw_only=True):
    id: str
    activity_type: str
    content: dict[str, Any]
    subagent_run_id: str | None = None
    metadata: Metadata | None = None


class ReasoningMessage(_Message, tag_field="role", tag="reasoning", frozen=True, kw_only=True):
    content: str


Message = (
    DeveloperMessage | SystemMessage | AssistantMessage | UserMessage | ToolMessage | ActivityMessage | ReasoningMessage
)


class Tool(_Model, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: Any = None
    metadata: Metadata | None = None


class Context(_Model, frozen=True, kw_only=True):
    description: str
    value: str


class ResumeEntry(_Model, frozen=True, kw_only=True):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: Metadata | None = None


class RunAgentInput(_Model, frozen=True, kw_only=True):
    """The input of a run, as a client sends it. `tools` and `context` are always encoded: pre-1.0 clients require them."""

    thread_id: str
    run_id: str
    messages: list[Message]
    tools: list[Tool] = _list_field()
    context: list[Context] = _list_field()
    protocol_version: str | None = None
    parent_run_id: str | None = None
    state: Any = None
    forwarded_props: Any = None
    resume: list[ResumeEntry] | None = None


class Interrupt(_Model, frozen=True, kw_only=True):
    id: str
    reason: str
    message: str | None = None
    tool_call_id: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: str | None = None
    metadata: Metadata | None = None
    subagent_run_id: str | None = None


class Success(_Model, tag_field="type", tag="success", frozen=True, kw_only=True):
    pending_tool_call_ids: list[str] | None = None


class Interrupted(_Model, tag_field="type", tag="interrupt", frozen=True, kw_only=True):
    interrupts: list[Interrupt]


class Cancelled(_Model, tag_field="type", tag="cancelled", frozen=True, kw_only=True): ...


Outcome = Success | Interrupted | Cancelled


class Suspended(_Model, tag_field="type", tag="suspended", frozen=True, kw_only=True):
    interrupt_ids: list[str] | None = None


class SubagentSuccess(_Model, tag_field="type", tag="success", frozen=True, kw_only=True): ...


SubagentOutcome = SubagentSuccess | Suspended


class TokenUsage(_Model, frozen=True, kw_only=True):
    provider: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class BaseEvent(_Model, tag_field="type", frozen=True, kw_only=True):
    timestamp: int | None = None
    raw_event: Any = None
    metadata: Metadata | None = None


class Attributed(BaseEvent, frozen=True, kw_only=True):
    """An event that may belong to a subagent."""

    subagent_run_id: str | None = None


class RunStarted(BaseEvent, tag="RUN_STARTED", frozen=True, kw_only=True):
    thread_id: str
    run_id: str
    protocol_version: str | None = None
    parent_run_id: str | None = None
    input: RunAgentInput | None = None


class RunFinished(BaseEvent, tag="RUN_FINISHED", frozen=True, kw_only=True):
    thread_id: str
    run_id: str
    result: Any = None
    outcome: Outcome | None = None
    usage: list[TokenUsage] | None = None


class RunError(BaseEvent, tag="RUN_ERROR", frozen=True, kw_only=True):
    message: str
    code: str | None = None
    usage: list[TokenUsage] | None = None


class StepStarted(Attributed, tag="STEP_STARTED", frozen=True, kw_only=True):
    step_name: str


class StepFinished(Attributed, tag="STEP_FINISHED", frozen=True, kw_only=True):
    step_name: str


class TextMessageStart(Attributed, tag="TEXT_MESSAGE_START", frozen=True, kw_only=True):
    message_id: str
    role: TextRole | None = None
    name: str | None = None


class TextMessageContent(Attributed, tag="TEXT_MESSAGE_CONTENT", frozen=True, kw_only=True):
    message_id: str
    delta: str


class TextMessageEnd(Attributed, tag="TEXT_MESSAGE_END", frozen=True, kw_only=True):
    message_id: str


class TextMessageChunk(Attributed, tag="TEXT_MESSAGE_CHUNK", frozen=True, kw_only=True):
    message_id: str | None = None
    role: TextRole | None = None
    delta: str | None = None
    name: str | None = None


class ToolCallStart(Attributed, tag="TOOL_CALL_START", frozen=True, kw_only=True):
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | None = None


class ToolCallArgs(Attributed, tag="TOOL_CALL_ARGS", frozen=True, kw_only=True):
    tool_call_id: str
    delta: str


class ToolCallEnd(Attributed, tag="TOOL_CALL_END", frozen=True, kw_only=True):
    tool_call_id: str


class ToolCallChunk(Attributed, tag="TOOL_CALL_CHUNK", frozen=True, kw_only=True):
    tool_call_id: str | None = None
    tool_call_name: str | None = None
    parent_message_id: str | None = None
    delta: str | None = None


class ToolCallResult(Attributed, tag="TOOL_CALL_RESULT", frozen=True, kw_only=True):
    message_id: str
    tool_call_id: str
    content: Content
    role: Literal["tool"] | None = None


class StateSnapshot(Attributed, tag="STATE_SNAPSHOT", frozen=True, kw_only=True):
    snapshot: Any


class StateDelta(Attributed, tag="STATE_DELTA", frozen=True, kw_only=True):
    delta: JsonPatch


class MessagesSnapshot(BaseEvent, tag="MESSAGES_SNAPSHOT", frozen=True, kw_only=True):
    messages: list[Message]


class ActivitySnapshot(Attributed, tag="ACTIVITY_SNAPSHOT", frozen=True, kw_only=True):
    message_id: str
    activity_type: str
    content: dict[str, Any]
    replace: bool | None = None


class ActivityDelta(Attributed, tag="ACTIVITY_DELTA", frozen=True, kw_only=True):
    message_id: str
    activity_type: str
    patch: JsonPatch


class Raw(Attributed, tag="RAW", frozen=True, kw_only=True):
    event: Any
    source: str | None = None


class Custom(Attributed, tag="CUSTOM", frozen=True, kw_only=True):
    name: str
    value: Any


class ReasoningStart(Attributed, tag="REASONING_START", frozen=True, kw_only=True):
    message_id: str


class ReasoningEnd(Attributed, tag="REASONING_END", frozen=True, kw_only=True):
    message_id: str


class ReasoningMessageStart(Attributed, tag="REASONING_MESSAGE_START", frozen=True, kw_only=True):
    message_id: str
    role: Literal["reasoning"] = _constant_field("reasoning")


class ReasoningMessageContent(Attributed, tag="REASONING_MESSAGE_CONTENT", frozen=True, kw_only=True):
    message_id: str
    delta: str


class ReasoningMessageEnd(Attributed, tag="REASONING_MESSAGE_END", frozen=True, kw_only=True):
    message_id: str


class ReasoningMessageChunk(Attributed, tag="REASONING_MESSAGE_CHUNK", frozen=True, kw_only=True):
    message_id: str | None = None
    delta: str | None = None


class ReasoningEncryptedValue(Attributed, tag="REASONING_ENCRYPTED_VALUE", frozen=True, kw_only=True):
    subtype: Literal["tool-call", "message"]
    entity_id: str
    encrypted_value: str


class SubagentStarted(BaseEvent, tag="SUBAGENT_STARTED", frozen=True, kw_only=True):
    subagent_run_id: str
    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None
    parent_tool_call_id: str | None = None
    parent_message_id: str | None = None


class SubagentFinished(BaseEvent, tag="SUBAGENT_FINISHED", frozen=True, kw_only=True):
    subagent_run_id: str
    result: Any = None
    outcome: SubagentOutcome | None = None


class SubagentError(BaseEvent, tag="SUBAGENT_ERROR", frozen=True, kw_only=True):
    subagent_run_id: str
    message: str
    code: str | None = None


Event = (
    RunStarted
    | RunFinished
    | RunError
    | StepStarted
    | StepFinished
    | TextMessageStart
    | TextMessageContent
    | TextMessageEnd
    | TextMessageChunk
    | ToolCallStart
    | ToolCallArgs
    | ToolCallEnd
    | ToolCallChunk
    | ToolCallResult
    | StateSnapshot
    | StateDelta
    | MessagesSnapshot
    | ActivitySnapshot
    | ActivityDelta
    | Raw
    | Custom
    | ReasoningStart
    | ReasoningEnd
    | ReasoningMessageStart
    | ReasoningMessageContent
    | ReasoningMessageEnd
    | ReasoningMessageChunk
    | ReasoningEncryptedValue
    | SubagentStarted
    | SubagentFinished
    | SubagentError
)
EVENT_TYPES: tuple[type[BaseEvent], ...] = get_args(Event)
Terminal = RunFinished | RunError
Delta = TextMessageContent | ReasoningMessageContent | ToolCallArgs
"""A part of a text, of reasoning or of arguments, as most events of a stream are."""
DELTA_TYPES: frozenset[type[BaseEvent]] = frozenset(get_args(Delta))
"""The same for a fast test: `type(event) in DELTA_TYPES`."""


def outcome_name(terminal: Terminal) -> str:
    """Return the outcome of a run: `success`, `interrupt`, `cancelled` or `error`."""
    if isinstance(terminal, RunError):
        return "error"
    return str((terminal.outcome or Success()).__struct_config__.tag)


def content_as_text(content: Content | None) -> str:
    """Return the content as text. A part that is not text becomes its type in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if isinstance(part, TextPart) else f"[{part.__struct_config__.tag}]" for part in content)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

encode_event = _encoder.encode
"""Return an event as one line of JSON, without a newline. Raises ValueError or TypeError for a value that JSON cannot represent."""

decode_event = _decoder.decode
"""Return the event of a stored line."""

_TERMINAL_PREFIXES = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
_DELTA_PREFIXES = (
    b'{"type":"TEXT_MESSAGE_CONTENT"',
    b'{"type":"REASONING_MESSAGE_CONTENT"',
    b'{"type":"TOOL_CALL_ARGS"',
)
_TYPE_AT = len(b'{"type":"')


def type_of(event: BaseEvent) -> str:
    """Return the event's AG-UI type, such as `TEXT_MESSAGE_START`."""
    return str(event.__struct_config__.tag)


def is_terminal_line(line: bytes) -> bool:
    """Return True if an encoded event is a run's terminal event, read from its first bytes without decoding it."""
    return line.startswith(_TERMINAL_PREFIXES)


is_delta_line: Callable[[bytes], bool] = methodcaller("startswith", _DELTA_PREFIXES)
"""Return True if an encoded event is a delta of text, reasoning or arguments, as most are. Called for each one, so not in Python."""


def without_deltas(lines: Sequence[bytes]) -> Iterable[bytes]:
    """Return the encoded events that are no deltas.

    Most batches have deltas of one type only. If the least and the greatest line begin with its prefix, all lines do: that takes a fifth
    of the time of `is_delta_line` for each.
    """
    least, greatest = min(lines, default=b""), max(lines, default=b"")
    if any(least.startswith(prefix) and greatest.startswith(prefix) for prefix in _DELTA_PREFIXES):
        return ()
    return filterfalse(is_delta_line, lines)


def type_of_line(line: bytes) -> str:
    """Return the type of an encoded event, read from its first bytes without decoding it."""
    return line[_TYPE_AT : line.index(b'"', _TYPE_AT)].decode()
