"""Translate the SDK's messages into AG-UI events. Pure: no process, nothing awaited.

Everything arrives twice: in pieces as the model streams, and whole when a block is complete. What was sent in pieces is not sent again;
what never was, such as the text of a subagent, is sent when it is whole.

Models sometimes reuse ids of calls. Inside, a call has the model's id, since it is answered before another one gets that id; clients know
it by an id that is unique in the thread and that they can send back, also in the run that answers it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from claude_agent_sdk import (
    AssistantMessage,
    ResultMessage,
    ServerToolResultBlock,
    ServerToolUseBlock,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from ambient_runner.bridges.claude.client_tools import client_tool_name
from ambient_runner.bridges.claude.messages import result_content
from ambient_runner.bridges.claude.subagents import Subagents
from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from claude_agent_sdk import ContentBlock

    from ambient_runner.bridges.toolkit.composer import Composer, SentTexts
    from ambient_runner.protocol.events import Content, Event

__all__ = ["CUT_OFF", "StreamState", "ToolCallRecord", "Translator"]

CUT_OFF = "This call was cut off by a question. It is made again after the answer."
"""Result of a call that was not complete when the run ended."""
_SYNTHETIC_MODEL = "<synthetic>"
"""The model of messages that the CLI writes itself, such as the text of an error."""


@dataclass(kw_only=True, slots=True)
class ToolCallRecord:
    """A call the model has made."""

    client_id: str
    """Its id for clients: the model's own, unless the thread has another call with that id or no client could send it back."""
    name: str
    parent: str | None
    """The id of the call it was made on behalf of; None for Claude's own."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class _StreamedMessage:
    """The message that an agent or subagent streams: its open blocks, and the number of blocks of each kind so far."""

    message_id: str = ""
    open_blocks: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    block_counts: Counter[str] = field(default_factory=Counter[str])
    whole_block_counts: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Number of whole blocks of each kind, by the id of their message."""


@dataclass(slots=True)
class StreamState:
    """The streamed part of a turn, by the tool call whose subagent streams it; None for Claude itself. The runs of a turn share it."""

    messages: dict[str | None, _StreamedMessage] = field(default_factory=dict[str | None, _StreamedMessage])
    incomplete: set[str | None] = field(default_factory=set[str | None])
    """The keys of `messages` whose message is not complete."""
    sent_texts: SentTexts = field(default_factory=dict[Any, Any])

    def clear(self) -> None:
        """Forget everything, in place: the turn has ended."""
        self.messages.clear()
        self.incomplete.clear()
        self.sent_texts.clear()


class Translator:
    """Translator of one run. `calls` are those of the whole session: a call of one run may be answered in another.

    `answered` are the calls whose results the client brings, `used_ids` the ids that the thread already has.
    """

    def __init__(
        self,
        composer: Composer,
        calls: dict[str, ToolCallRecord],
        answered: Collection[str] = (),
        used_ids: Collection[str] = (),
        streams: StreamState | None = None,
    ) -> None:
        self.result: ResultMessage | None = None
        self.session_id: str | None = None
        self.last_entry_id: str | None = None
        """The CLI's id of its last message: the position to continue from."""
        self.model: str | None = None
        self.error_kind: str | None = None
        """The kind of error in the CLI's messages, if there is one."""
        self.retry_count = 0
        """Number of retries of model requests that the CLI has reported."""
        self._composer = composer
        self._calls = calls
        self._subagents = Subagents(composer, calls)
        self._answered = frozenset(answered)
        self._used_ids = {*used_ids, *(call.client_id for call in calls.values())}
        streams = streams or StreamState()
        self._streamed = streams.messages
        self._incomplete = streams.incomplete
        composer.continue_texts(streams.sent_texts)
        for call in calls.values():
            composer.continue_tool_call(call.client_id, self._subagents.subagent_of(call.parent))

    def feed(self, message: Any) -> list[Event]:
        """Return the events of a message; often none. The CLI's description of itself (its directory, its tools) is not for clients."""
        match message:
            case StreamEvent(event=event, parent_tool_use_id=parent):
                return [*self._subagents.start(parent), *self._on_stream_event(event, parent)]
            case AssistantMessage():
                return self._on_assistant_message(message)
            case UserMessage(content=list(blocks), parent_tool_use_id=parent):
                results = [block for block in blocks if isinstance(block, ToolResultBlock)]
                events = self._subagents.start(parent) if results else []
                return [*events, *(event for block in results for event in self._emit_result(block))]
            case ResultMessage():
                self.session_id = message.session_id or self.session_id
                if _ends_turn(message):
                    self.result = message
            case SystemMessage(subtype="init", data={"session_id": str(session_id)}):
                self.session_id = session_id
            case SystemMessage(subtype="api_retry", data=data):
                self.retry_count += 1
                return [_retry_event(data)]
            case _:
                pass
        return []

    @property
    def is_streaming(self) -> bool:
        """True while a message is incomplete. The CLI makes the first calls of one while the model still streams the others."""
        return bool(self._incomplete)

    def is_caller_streaming(self, call_id: str) -> bool:
        """Return True while the message that makes this call is incomplete; for a call that was not reported yet, while any is."""
        call = self._calls.get(call_id)
        return self.is_streaming if call is None else call.parent in self._incomplete

    def cut_streamed_calls(self) -> list[Event]:
        """Return the end of the calls that are still streamed when the run has to end. Once they are whole, they start under another id."""
        events: list[Event] = []
        for streamed in self._streamed.values():
            for index, (kind, key) in list(streamed.open_blocks.items()):
                if kind == "call":
                    del streamed.open_blocks[index]
                    events += self._composer.tool_result(self.client_id_of(key), CUT_OFF, is_error=True)
                    self._calls.pop(key, None)
        return events

    def emit_requested_call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> list[Event]:
        """Return the events of a call that needs permission, if the CLI asks before it reports the call."""
        if call_id in self._calls:
            return []
        return self._emit_call(call_id, name, arguments, None)

    def client_id_of(self, call_id: str) -> str:
        """Return the call's id for clients."""
        return self._calls[call_id].client_id if call_id in self._calls else call_id

    def subagent_of(self, call_id: str) -> str | None:
        """Return the id of the subagent that made the call; None for Claude itself."""
        return self._subagents.subagent_of(self._calls[call_id].parent) if call_id in self._calls else None

    def _on_stream_event(self, event: Mapping[str, Any], parent: str | None) -> list[Event]:
        streamed = self._streamed.setdefault(parent, _StreamedMessage())
        match event:
            case {"type": "message_start", "message": {"id": str(message_id)}}:
                counts = streamed.whole_block_counts
                self._streamed[parent] = _StreamedMessage(message_id=message_id, whole_block_counts=counts)
                self._incomplete.add(parent)
            case {"type": "message_stop"}:
                self._incomplete.discard(parent)
            case {"type": "content_block_start", "index": int(index), "content_block": dict()}:
                return self._on_block_start(streamed, index, event["content_block"], parent)
            case {"type": "content_block_delta", "index": int(index), "delta": dict()} if index in streamed.open_blocks:
                return self._on_block_delta(*streamed.open_blocks[index], event["delta"], parent)
            case {"type": "content_block_stop", "index": int(index)} if index in streamed.open_blocks:
                return self._on_block_stop(*streamed.open_blocks.pop(index), parent)
            case _:
                pass
        return []

    def _on_block_start(
        self, streamed: _StreamedMessage, index: int, block: Mapping[str, Any], parent: str | None
    ) -> list[Event]:
        match block:
            case {"type": "text" | "thinking" as kind}:
                streamed.open_blocks[index] = (kind, f"{streamed.message_id}/{streamed.block_counts[kind]}")
                streamed.block_counts[kind] += 1
            case {"type": "tool_use" | "server_tool_use", "id": str(call_id), "name": str(name)}:
                streamed.open_blocks[index] = ("call", call_id)
                call = self._record_call(call_id, name, parent)
                return self._composer.tool_start(
                    call.client_id, client_tool_name(name), self._subagents.subagent_of(parent)
                )
            case {"type": str(kind), "tool_use_id": str(call_id), "content": content} if kind.endswith("_tool_result"):
                return self._emit_server_result(call_id, content, parent)
            case _:
                pass
        return []

    def _on_block_delta(self, kind: str, key: str, delta: Mapping[str, Any], parent: str | None) -> list[Event]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                return self._composer.text(text, subagent_id=self._subagents.subagent_of(parent), key=key)
            case {"type": "thinking_delta", "thinking": str(text)}:
                return self._composer.reasoning(text, subagent_id=self._subagents.subagent_of(parent), key=key)
            case {"type": "input_json_delta", "partial_json": str(text)} if kind == "call":
                return self._composer.tool_args(self.client_id_of(key), text)
            case _:
                return []

    def _on_block_stop(self, kind: str, key: str, parent: str | None) -> list[Event]:
        match kind:
            case "text":
                return self._composer.end_text(self._subagents.subagent_of(parent))
            case "thinking":
                return self._composer.end_reasoning(self._subagents.subagent_of(parent))
            case _:
                return self._composer.tool_end(self.client_id_of(key))

    def _on_assistant_message(self, message: AssistantMessage) -> list[Event]:
        parent = message.parent_tool_use_id
        self.session_id = message.session_id or self.session_id
        if message.error is not None or message.model == _SYNTHETIC_MODEL:
            self.error_kind = message.error or self.error_kind
            return []
        if parent is None:
            self.last_entry_id, self.model = message.uuid or self.last_entry_id, message.model
        events = self._subagents.start(parent)
        message_id = message.message_id or ""
        streamed = self._streamed.setdefault(parent, _StreamedMessage())
        counts = streamed.whole_block_counts.setdefault(message_id, Counter())
        for block in message.content:
            events += self._emit_block(block, message_id, counts, parent)
        return events

    def _emit_block(
        self, block: ContentBlock, message_id: str, counts: Counter[str], parent: str | None
    ) -> list[Event]:
        subagent_id = self._subagents.subagent_of(parent)
        match block:
            case TextBlock(text=text):
                key = f"{message_id}/{counts['text']}"
                counts["text"] += 1
                return self._composer.text(text, subagent_id=subagent_id, key=key, complete=True)
            case ThinkingBlock(thinking=text):
                key = f"{message_id}/{counts['thinking']}"
                counts["thinking"] += 1
                return self._composer.reasoning(text, subagent_id=subagent_id, key=key, complete=True)
            case ToolUseBlock() | ServerToolUseBlock():
                return self._emit_call(block.id, block.name, block.input, parent)
            case ToolResultBlock():
                return self._emit_result(block)
            case ServerToolResultBlock(tool_use_id=call_id, content=content):
                return self._emit_server_result(call_id, content, parent)
            case _:
                return []

    def _emit_call(self, call_id: str, name: str, arguments: Mapping[str, Any], parent: str | None) -> list[Event]:
        call = self._record_call(call_id, name, parent)
        call.input = arguments
        return [
            *self._composer.tool_start(call.client_id, client_tool_name(name), self._subagents.subagent_of(parent)),
            *self._composer.tool_args_full(call.client_id, json.dumps(arguments, ensure_ascii=False)),
            *self._composer.tool_end(call.client_id),
        ]

    def _record_call(self, call_id: str, name: str, parent: str | None) -> ToolCallRecord:
        """Return the record of a call, which exists until its result arrives. A new call gets its client id here."""
        call = self._calls.get(call_id)
        if call is None:
            client_id = allocate_tool_call_id(call_id, self._used_ids)
            call = self._calls[call_id] = ToolCallRecord(client_id=client_id, name=name, parent=parent)
            self._used_ids.add(client_id)
        return call

    def _emit_server_result(self, call_id: str, content: Any, parent: str | None) -> list[Event]:
        """Return the result of a tool that the provider has executed."""
        client_id, subagent_id = self.client_id_of(call_id), self._subagents.subagent_of(parent)
        return self._composer.tool_result(client_id, json.dumps(content), subagent_id=subagent_id)

    def _emit_result(self, block: ToolResultBlock) -> list[Event]:
        call_id = block.tool_use_id
        client_id, call = self.client_id_of(call_id), self._calls.get(call_id)
        if client_id in self._answered:
            self._calls.pop(call_id, None)
            return []  # The client has sent it itself.
        content = result_content(block.content)
        events = self._subagents.end(call_id, error=_failure_text(content) if block.is_error else None)
        self._calls.pop(call_id, None)
        return [
            *events,
            *self._composer.tool_result(
                client_id,
                content,
                name=client_tool_name(call.name) if call else None,
                subagent_id=self._subagents.subagent_of(call.parent) if call else None,
                is_error=bool(block.is_error),
            ),
        ]


def _ends_turn(message: ResultMessage) -> bool:
    """Return True if this ends the turn we began, and not one the CLI began by itself."""
    return message.origin is None or message.origin["kind"] == "human"


def _retry_event(data: Mapping[str, Any]) -> Custom:
    """Return the event of a retried model request. `status` is the HTTP status of the provider; None if it did not answer."""
    value = {
        "attempt": data.get("attempt"),
        "maxRetries": data.get("max_retries"),
        "delayMs": data.get("retry_delay_ms"),
        "status": data.get("error_status"),
    }
    return Custom(name="claude:retry", value=value)


def _failure_text(content: Content) -> str:
    return content if isinstance(content, str) else "The subagent failed."
