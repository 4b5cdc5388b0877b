"""From the SDK's messages to AG-UI events. Pure: no process, no waiting.

Everything comes twice: piece by piece as the model writes, and whole when a block is complete. What was sent in pieces is not said again;
what never was, such as the words of a subagent, is said when it is whole.

Models repeat the ids of calls now and then. Inside, a call goes by the model's id, since it is answered before another has it; clients
know it by an id that no other call of the thread has and that they can send back, in the run that answers it too.
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

from ambient_runner.bridges.claude.client_tools import shown_name
from ambient_runner.bridges.toolkit.tool_call_ids import free_id
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT
from ambient_runner.protocol.events import Custom, DataSource, ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from claude_agent_sdk import ContentBlock

    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Content, ContentPart, Event

__all__ = ["Made", "Translator", "result_content"]

_DELEGATES = frozenset({"Task", "Agent"})
_MADE_UP = "<synthetic>"
"""The model that has written what the CLI says itself, such as the text of an error."""


@dataclass(kw_only=True, slots=True)
class Made:
    """A call the model has made."""

    call: str
    """Its id for clients: the model's own, unless the thread has another call of that id or no client could send it back."""
    name: str
    parent: str | None
    """The call it was made on behalf of; None for Claude's own."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class _Writing:
    """The message a lane writes: which blocks are open, how many of each kind there were."""

    message: str = ""
    open: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    begun: Counter[str] = field(default_factory=Counter[str])
    whole: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])


class Translator:
    """Tells one run. `made` are the calls of the whole session: what was asked in one run is answered in another.

    `answered` are the calls whose results the client brings, `taken` the ids that the thread has already.
    """

    def __init__(
        self,
        composer: Composer,
        made: dict[str, Made],
        answered: Collection[str] = (),
        taken: Collection[str] = (),
    ) -> None:
        self.result: ResultMessage | None = None
        self.session: str | None = None
        self.last: str | None = None
        """The CLI's own id of what was last said: the place to go on from."""
        self.model: str | None = None
        self.trouble: str | None = None
        """What kind of error the CLI has written about, if it has."""
        self.retries = 0
        """How often the CLI has said that it asks the model again."""
        self._composer = composer
        self._made = made
        self._answered = frozenset(answered)
        self._taken = {*taken, *(one.call for one in made.values())}
        self._writing: dict[str | None, _Writing] = {}
        self._unended: set[str | None] = set()
        for one in made.values():
            composer.recall(one.call, self._lane(one.parent))

    def feed(self, message: Any) -> list[Event]:
        """What the message means to clients; often nothing. The CLI's account of itself (its folder, its tools) is for nobody."""
        match message:
            case StreamEvent(event=event, parent_tool_use_id=parent):
                return [*self._delegated(parent), *self._streamed(event, parent)]
            case AssistantMessage():
                return self._whole(message)
            case UserMessage(content=list(blocks), parent_tool_use_id=parent):
                results = [block for block in blocks if isinstance(block, ToolResultBlock)]
                events = self._delegated(parent) if results else []
                return [*events, *(event for block in results for event in self._result(block))]
            case ResultMessage():
                self.session = message.session_id or self.session
                if _answers_us(message):
                    self.result = message
            case SystemMessage(subtype="init", data={"session_id": str(session)}):
                self.session = session
            case SystemMessage(subtype="api_retry", data=said):
                self.retries += 1
                return [_retry(said)]
            case _:
                pass
        return []

    @property
    def is_writing(self) -> bool:
        """Whether a message is not complete. The CLI makes the first calls of one while the model still writes the others."""
        return bool(self._unended)

    def called(self, call: str, name: str, arguments: Mapping[str, Any]) -> list[Event]:
        """A call the CLI asks about. It has been said already, unless the CLI was faster than its own messages."""
        if call in self._made:
            return []
        return self._call(call, name, arguments, None)

    def id_of(self, call: str) -> str:
        """The call's id for clients."""
        return self._made[call].call if call in self._made else call

    def lane_of(self, call: str) -> str | None:
        """The subagent that made the call; None for Claude itself."""
        return self._lane(self._made[call].parent) if call in self._made else None

    def _streamed(self, event: Mapping[str, Any], parent: str | None) -> list[Event]:
        writing = self._writing.setdefault(parent, _Writing())
        match event:
            case {"type": "message_start", "message": {"id": str(message)}}:
                self._writing[parent] = _Writing(message=message, whole=writing.whole)
                self._unended.add(parent)
            case {"type": "message_stop"}:
                self._unended.discard(parent)
            case {"type": "content_block_start", "index": int(index), "content_block": dict()}:
                return self._begun(writing, index, event["content_block"], parent)
            case {"type": "content_block_delta", "index": int(index), "delta": dict()} if index in writing.open:
                return self._grown(*writing.open[index], event["delta"], parent)
            case {"type": "content_block_stop", "index": int(index)} if index in writing.open:
                return self._done(*writing.open.pop(index), parent)
            case _:
                pass
        return []

    def _begun(self, writing: _Writing, index: int, block: Mapping[str, Any], parent: str | None) -> list[Event]:
        match block:
            case {"type": "text" | "thinking" as kind}:
                writing.open[index] = (kind, f"{writing.message}/{writing.begun[kind]}")
                writing.begun[kind] += 1
            case {"type": "tool_use" | "server_tool_use", "id": str(call), "name": str(name)}:
                writing.open[index] = ("call", call)
                made = self._noted(call, name, parent)
                return self._composer.tool_start(made.call, shown_name(name), self._lane(parent))
            case {"type": str(kind), "tool_use_id": str(call), "content": content} if kind.endswith("_tool_result"):
                return self._composer.tool_result(self.id_of(call), json.dumps(content), lane=self._lane(parent))
            case _:
                pass
        return []

    def _grown(self, kind: str, key: str, delta: Mapping[str, Any], parent: str | None) -> list[Event]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                return self._composer.text(text, lane=self._lane(parent), key=key)
            case {"type": "thinking_delta", "thinking": str(text)}:
                return self._composer.reasoning(text, lane=self._lane(parent), key=key)
            case {"type": "input_json_delta", "partial_json": str(text)} if kind == "call":
                return self._composer.tool_args(self.id_of(key), text)
            case _:
                return []

    def _done(self, kind: str, key: str, parent: str | None) -> list[Event]:
        match kind:
            case "text":
                return self._composer.end_text(self._lane(parent))
            case "thinking":
                return self._composer.end_reasoning(self._lane(parent))
            case _:
                return self._composer.tool_end(self.id_of(key))

    def _whole(self, message: AssistantMessage) -> list[Event]:
        parent = message.parent_tool_use_id
        self.session = message.session_id or self.session
        if message.error is not None or message.model == _MADE_UP:
            self.trouble = message.error or self.trouble
            return []
        if parent is None:
            self.last, self.model = message.uuid or self.last, message.model
        events = self._delegated(parent)
        name = message.message_id or ""
        whole = self._writing.setdefault(parent, _Writing()).whole.setdefault(name, Counter())
        for block in message.content:
            events += self._block(block, name, whole, parent)
        return events

    def _block(self, block: ContentBlock, message: str, whole: Counter[str], parent: str | None) -> list[Event]:
        match block:
            case TextBlock(text=text):
                key = f"{message}/{whole['text']}"
                whole["text"] += 1
                return self._composer.text(text, lane=self._lane(parent), key=key, complete=True)
            case ThinkingBlock(thinking=text):
                key = f"{message}/{whole['thinking']}"
                whole["thinking"] += 1
                return self._composer.reasoning(text, lane=self._lane(parent), key=key, complete=True)
            case ToolUseBlock() | ServerToolUseBlock():
                return self._call(block.id, block.name, block.input, parent)
            case ToolResultBlock():
                return self._result(block)
            case ServerToolResultBlock(tool_use_id=call, content=content):
                return self._composer.tool_result(self.id_of(call), json.dumps(content), lane=self._lane(parent))
            case _:
                return []

    def _call(self, call: str, name: str, arguments: Mapping[str, Any], parent: str | None) -> list[Event]:
        made = self._noted(call, name, parent)
        made.input = arguments
        return [
            *self._composer.tool_start(made.call, shown_name(name), self._lane(parent)),
            *self._composer.tool_args_full(made.call, json.dumps(arguments, ensure_ascii=False)),
            *self._composer.tool_end(made.call),
        ]

    def _noted(self, call: str, name: str, parent: str | None) -> Made:
        """The call as it is kept until its result is there; with an id of its own when it is new."""
        made = self._made.get(call)
        if made is None:
            made = self._made[call] = Made(call=free_id(call, self._taken), name=name, parent=parent)
            self._taken.add(made.call)
        return made

    def _result(self, block: ToolResultBlock) -> list[Event]:
        lane = self._lane_under(block.tool_use_id)
        made = self._made.pop(block.tool_use_id, None)
        call = made.call if made else block.tool_use_id
        if call in self._answered:
            return []  # The client has said it itself.
        content = result_content(block.content)
        events = self._composer.end_subagent(lane, error=_failed(content) if block.is_error else None)
        return [
            *events,
            *self._composer.tool_result(
                call,
                content,
                name=shown_name(made.name) if made else None,
                lane=self._lane(made.parent) if made else None,
                is_error=bool(block.is_error),
            ),
        ]

    def _delegated(self, parent: str | None) -> list[Event]:
        """The start of the subagent that speaks, unless it has begun."""
        if parent is None:
            return []
        made = self._made.get(parent, Made(call=parent, name="Task", parent=None))
        if made.name not in _DELEGATES:
            return []
        return [
            *self._delegated(made.parent),
            *self._composer.subagent(
                self._lane_under(parent),
                str(made.input.get("subagent_type") or "agent"),
                description=_text(made.input.get("description")),
                parent=self._lane(made.parent),
                parent_tool_call_id=self.id_of(parent),
            ),
        ]

    def _lane(self, parent: str | None) -> str | None:
        """The lane of what was said on behalf of a call: the subagent's, when the call delegates."""
        if parent is None:
            return None
        made = self._made.get(parent)
        return self._lane_under(parent) if made is None or made.name in _DELEGATES else self._lane(made.parent)

    def _lane_under(self, call: str) -> str:
        """The lane of the subagent that a call sends out."""
        return f"subagent-{self.id_of(call)}"


def _answers_us(message: ResultMessage) -> bool:
    """Whether this ends the turn that was asked for, and not one the CLI began by itself."""
    return message.origin is None or message.origin["kind"] == "human"


def _retry(said: Mapping[str, Any]) -> Custom:
    """`status` is the HTTP status of the provider's answer; None when there was none."""
    value = {
        "attempt": said.get("attempt"),
        "maxRetries": said.get("max_retries"),
        "delayMs": said.get("retry_delay_ms"),
        "status": said.get("error_status"),
    }
    return Custom(name="claude:retry", value=value)


def result_content(content: str | list[dict[str, Any]] | None) -> Content:
    """All of a tool's result: plain text where it is nothing but text."""
    if isinstance(content, str):
        return content or EMPTY_RESULT
    parts = [_part(block) for block in content or ()]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) < len(parts):
        return parts
    return "\n".join(texts) or EMPTY_RESULT


def _part(block: Mapping[str, Any]) -> ContentPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image", "source": {"type": "base64", "data": str(data), "media_type": str(kind)}}:
            return ImagePart(source=DataSource(value=data, mime_type=kind))
        case _:
            return TextPart(text=json.dumps(block, ensure_ascii=False))


def _failed(content: Content) -> str:
    return content if isinstance(content, str) else "The subagent failed."


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
