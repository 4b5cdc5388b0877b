"""Map tool calls of the graph to those of the thread. Some models reuse ids in every answer, but in a thread a call id is unique.

So a call whose id the thread already has gets another one for clients, `c0~2`, and keeps the model's own for the graph. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, ToolMessage

from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.protocol import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.messages.tool import ToolCall

    from ambient_runner.protocol.events import Message

__all__ = ["StoredMessages", "ToolCallIds", "message_key"]


@dataclass(slots=True)
class StoredMessages:
    """A graph's conversation in terms of the thread's ids."""

    keys: set[str | None] = field(default_factory=set[str | None])
    """The `message_key` of each message."""
    unanswered: list[tuple[str, ToolCall]] = field(default_factory=list[tuple[str, "ToolCall"]])
    """The calls without a result, each with its id in the thread."""


class ToolCallIds:
    """The ids of a thread's tool calls. `aliases` holds those that differ: the graph's id by the client's.

    `message_ids` holds the ids of messages that differ: the thread's by the graph's.
    """

    def __init__(
        self,
        messages: Sequence[Message] = (),
        aliases: Mapping[str, str] | None = None,
        message_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.aliases: dict[str, str] = {}
        present = {message.id for message in messages}
        self.message_ids = {name: own for name, own in (message_ids or {}).items() if own in present}
        self._client_ids: dict[tuple[str, str], list[str]] = {}
        self._latest: dict[str, str] = {}
        self._used: set[str] = set()
        for message_id, client_id in _thread_calls(messages):
            if client_id in (aliases or {}):
                self.aliases[client_id] = (aliases or {})[client_id]
            if client_id not in self._used:
                self.record_call(message_id, client_id)

    def native_id(self, client_id: str) -> str:
        """Return the graph's id of a call."""
        return self.aliases.get(client_id, client_id)

    def latest_client_id(self, native_id: str) -> str:
        """Return the thread's id of the newest call with this id in the graph."""
        return self._latest.get(native_id, native_id)

    def has_native_id(self, native_id: str) -> bool:
        return native_id in self._latest

    def allocate_client_id(self, message_id: str, native_id: str) -> str:
        """Return the id of a new call for clients: the graph's own, unless the thread has it or no client could send it back."""
        client_id = allocate_tool_call_id(native_id, self._used)
        if client_id != native_id:
            self.aliases[client_id] = native_id
        self.record_call(message_id, client_id)
        return client_id

    def record_call(self, message_id: str, client_id: str) -> None:
        """Record that the graph's message has this call of the thread."""
        native_id = self.native_id(client_id)
        self._used.add(client_id)
        self._client_ids.setdefault((message_id, native_id), []).append(client_id)
        self._latest[native_id] = client_id

    def read_stored(self, messages: Any) -> StoredMessages:
        """Read a graph's conversation. A result belongs to the newest message with such a call, and there to the first without one."""
        stored, unanswered = StoredMessages(), list[list[tuple[str, "ToolCall"]]]()
        for message in cast("list[Any]", messages) if isinstance(messages, list) else ():
            if isinstance(message, ToolMessage):
                stored.keys.add(self._take_answered(unanswered, message.tool_call_id))
                continue
            stored.keys.add(self.message_ids.get(message.id, message.id))
            if isinstance(message, AIMessage):
                unanswered.append(list(self.calls_of(message)))
        stored.unanswered = [call for calls in unanswered for call in calls]
        return stored

    def answered_calls(self, messages: Iterable[BaseMessage]) -> dict[str, str]:
        """Return the calls that the results of a graph's conversation answer: the id in the thread by the id of the result."""
        answered, unanswered = dict[str, str](), list[list[tuple[str, "ToolCall"]]]()
        for message in messages:
            if isinstance(message, ToolMessage):
                answered[message.id or ""] = self._take_answered(unanswered, message.tool_call_id)
            elif isinstance(message, AIMessage):
                unanswered.append(list(self.calls_of(message)))
        return answered

    def with_native_ids(self, messages: Iterable[BaseMessage]) -> list[BaseMessage]:
        """Return the messages with the graph's ids of messages and tool calls."""
        graph_ids = {thread_id: graph_id for graph_id, thread_id in self.message_ids.items()}
        renamed = [
            message.model_copy(update={"id": graph_ids[message.id]}) if message.id in graph_ids else message
            for message in messages
        ]
        return [self._with_native_id(message) if self.aliases else message for message in renamed]

    def calls_of(self, message: AIMessage) -> Iterator[tuple[str, ToolCall]]:
        """Yield the calls of a graph's message with their ids in the thread."""
        message_id = self.message_ids.get(message.id or "", message.id or "")
        left = {
            call["id"] or "": list(self._client_ids.get((message_id, call["id"] or ""), ()))
            for call in message.tool_calls
        }
        for call in message.tool_calls:
            client_ids = left[call["id"] or ""]
            yield client_ids.pop(0) if client_ids else self.latest_client_id(call["id"] or ""), call

    def _take_answered(self, unanswered: list[list[tuple[str, ToolCall]]], native_id: str) -> str:
        """Remove the call that a result answers. Return its id in the thread."""
        for calls in reversed(unanswered):
            answered = next((call for call in calls if call[1]["id"] == native_id), None)
            if answered is not None:
                calls.remove(answered)
                return answered[0]
        return self.latest_client_id(native_id)

    def _with_native_id(self, message: BaseMessage) -> BaseMessage:
        match message:
            case AIMessage():
                calls = [{**call, "id": self.native_id(call["id"] or "")} for call in message.tool_calls]
                return message.model_copy(update={"tool_calls": calls})
            case ToolMessage():
                return message.model_copy(update={"tool_call_id": self.native_id(message.tool_call_id)})
            case _:
                return message


def message_key(message: BaseMessage) -> str | None:
    """Return the key that identifies a message: its id, or for a tool result the id of its call."""
    return message.tool_call_id if isinstance(message, ToolMessage) else message.id


def _thread_calls(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """Yield the calls of a thread, each with the id of its message; also calls of which only the result is left."""
    for message in messages:
        match message:
            case events.AssistantMessage():
                yield from ((message.id, call.id) for call in message.tool_calls or ())
            case events.ToolMessage():
                yield "", message.tool_call_id
            case _:
                pass
