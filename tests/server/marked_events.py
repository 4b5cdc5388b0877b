"""Events with a marker in each of their fields, for tests of what reaches a client. They are made from the grammar."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivitySnapshot,
    Custom,
    Event,
    MessagesSnapshot,
    Raw,
    ReasoningEncryptedValue,
    ReasoningEnd,
    ReasoningMessageChunk,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageChunk,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)

__all__ = ["MARKER", "UNKNOWN", "Marked", "marked", "marked_run"]

MARKER = re.compile(r"<([A-Z_]+)\.([\w.]+)>")
MARKED_METADATA = ("checkpointId", "isError", "parentSpanId", "provider", "summary", "summaryRef", "traceId")
"""Names that this server, its bridges and providers use."""
IDS = {
    "threadId": "t",
    "runId": "r",
    "parentRunId": None,
    "subagentRunId": "sub",
    "parentSubagentRunId": None,
    "parentMessageId": "text",
    "parentToolCallId": None,
    "messageId": "text",
    "toolCallId": "call",
    "entityId": "call",
    "interruptIds": ["i"],
    "pendingToolCallIds": None,
}
"""Ids connect events, so they are no place for a marker. They are kept everywhere."""
Overrides = dict[str, Any]


class Marked:
    """Makes events with a marker in each of their fields: `<TYPE.field>` in texts, `<TYPE.field.key>` and `.value` in objects."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._tag = str(kind.__struct_config__.tag)

    def event(self, **overrides: Any) -> Any:
        return msgspec.convert({**self.members(self._kind, ""), **overrides}, type=self._kind)

    def members(self, kind: type[Any], path: str) -> dict[str, Any]:
        described = inspect.type_info(kind)
        assert isinstance(described, inspect.StructType)
        fields = {
            field.encode_name: IDS[field.encode_name]
            if field.encode_name in IDS
            else self._value(field.type, f"{path}.{field.encode_name}")
            for field in described.fields
        }
        tag = {described.tag_field: described.tag} if described.tag_field else {}
        return {**{name: value for name, value in fields.items() if value is not None}, **tag}

    def _value(self, kind: inspect.Type, path: str) -> Any:
        match kind:
            case inspect.AnyType() | inspect.DictType():
                return self._metadata(path) if path.endswith(".metadata") else self._object(path)
            case inspect.StrType():
                return "2099-01-01T00:00:00Z" if path.endswith(".expiresAt") else self._marker(path)
            case inspect.IntType():
                return 7
            case inspect.BoolType():
                return True
            case inspect.LiteralType(values=values):
                return values[-1]
            case inspect.ListType(item_type=inspect.DictType()):
                # A JSON Patch: of the state, and of an activity whose progress is shown.
                return [{"op": "add", "path": "/body", "value": self._object(path)}]
            case inspect.ListType(item_type=item):
                return [self._item(member, path) for member in _members(item)]
            case inspect.StructType(cls=cls):
                return self.members(cls, path)
            case inspect.UnionType():
                return self._value(_members(kind)[-1], path)
            case _:
                raise NotImplementedError(kind)

    def _item(self, kind: inspect.Type, path: str) -> Any:
        """One member of a list: of messages and parts, with their kind in the marker and an id of their own."""
        tag = getattr(kind, "tag", None)
        value = self._value(kind, f"{path}.{tag}" if tag else path)
        return {**value, "id": f"{tag}-of-{self._tag}"} if tag else value

    def _marker(self, path: str, end: str = "") -> str:
        return f"<{self._tag}{path}{end}>"

    def _object(self, path: str) -> dict[str, Any]:
        nested = {self._marker(path, ".nestedKey"): [self._marker(path, ".nested")]}
        return {self._marker(path, ".key"): self._marker(path, ".value"), "nested": nested}

    def _metadata(self, path: str) -> dict[str, Any]:
        return {name: self._marker(path, f".{name}") for name in MARKED_METADATA}


def _members(kind: inspect.Type) -> list[inspect.Type]:
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    return [member for member in kind.types if not isinstance(member, inspect.NoneType)]


def marked(kind: type[Any], **overrides: Any) -> Any:
    return Marked(kind).event(**overrides)


def marked_run() -> list[Event]:
    """A run of every event, in an order that the protocol allows."""
    own: Overrides = {"subagentRunId": None}
    reasoning, chunk, chunk_call = {"messageId": "thought"}, {"messageId": "chunk"}, {"toolCallId": "chunk-call"}
    predicted = {"state_key": "draft", "tool": "search", "tool_argument": "text", "extra": "<CUSTOM.predicted>"}
    return [
        marked(RunStarted),
        marked(SubagentStarted),
        marked(StepStarted),
        marked(ReasoningStart, **reasoning),
        marked(ReasoningMessageStart, **reasoning),
        marked(ReasoningMessageContent, **reasoning),
        marked(ReasoningMessageEnd, **reasoning),
        marked(ReasoningEncryptedValue, subtype="message", entityId="thought"),
        marked(ReasoningEnd, **reasoning),
        marked(ReasoningMessageChunk, messageId="thought-chunk"),
        marked(TextMessageStart, role="assistant"),
        marked(TextMessageContent),
        marked(TextMessageEnd),
        marked(TextMessageChunk, role="assistant", **chunk),
        marked(ToolCallStart),
        marked(ToolCallArgs),
        marked(ToolCallEnd),
        marked(ReasoningEncryptedValue, subtype="tool-call"),
        marked(ToolCallResult, messageId="result"),
        marked(ToolCallChunk, parentMessageId="chunk", **chunk_call),
        marked(ToolCallResult, messageId="chunk-result", content=marked(ToolCallResult).content, **chunk_call),
        marked(ActivitySnapshot, messageId="activity"),
        marked(ActivityDelta, messageId="activity"),
        marked(StateSnapshot, **own),
        marked(StateDelta, **own),
        marked(Raw),
        marked(Custom),
        Custom(name="PredictState", value=[predicted]),
        marked(StepFinished, stepName=marked(StepStarted).step_name),
        marked(SubagentFinished),
        marked(SubagentStarted, subagentRunId="other"),
        marked(SubagentError, subagentRunId="other"),
        marked(MessagesSnapshot),
        marked(RunFinished, outcome={"type": "success"}),
    ]


UNKNOWN: list[dict[str, Any]] = [
    {"type": "OF_THE_FUTURE", "body": "<UNKNOWN.body>"},
    {"type": "THINKING_START", "title": "<UNKNOWN.title>"},
    {"type": "THINKING_TEXT_MESSAGE_START"},
    {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "<UNKNOWN.thought>"},
    {"type": "THINKING_TEXT_MESSAGE_END"},
    {"type": "THINKING_END"},
    {"type": "STEP_STARTED", "stepName": "s", "extra": "<UNKNOWN.member>"},
    {"type": "STEP_FINISHED", "stepName": "s"},
]
"""Events that AG-UI 1.0 does not have, and a member that an event does not have."""
