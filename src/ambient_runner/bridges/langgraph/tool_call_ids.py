"""Which tool call of the graph is which of the thread. Some models count anew in every answer, and a thread has one call per id.

So a call whose id the thread has already goes by another one towards clients, `c0~2`, and by the model's own towards the graph. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, ToolMessage

from ambient_runner.bridges.toolkit.tool_call_ids import free_id
from ambient_runner.protocol import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langchain_core.messages import BaseMessage
    from langchain_core.messages.tool import ToolCall

    from ambient_runner.protocol.events import Message

__all__ = ["CallNames", "Stored", "name_of"]


@dataclass(slots=True)
class Stored:
    """A graph's conversation by the names the thread has for it."""

    known: set[str | None] = field(default_factory=set[str | None])
    """What `name_of` says of its messages."""
    unanswered: list[tuple[str, ToolCall]] = field(default_factory=list[tuple[str, "ToolCall"]])
    """The calls that have no result, each after its id in the thread."""


class CallNames:
    """The ids of a thread's calls. `aliases` are those that differ from the graph's: the graph's id by the thread's."""

    def __init__(self, messages: Iterable[Message] = (), aliases: Mapping[str, str] | None = None) -> None:
        self.aliases: dict[str, str] = {}
        self._told: dict[tuple[str, str], list[str]] = {}
        self._latest: dict[str, str] = {}
        self._taken: set[str] = set()
        for message_id, told in _calls(messages):
            if told in (aliases or {}):
                self.aliases[told] = (aliases or {})[told]
            if told not in self._taken:
                self.note(message_id, told)

    def native(self, told: str) -> str:
        """The graph's id of a call."""
        return self.aliases.get(told, told)

    def latest(self, native: str) -> str:
        """The thread's id of the newest call that the graph calls so."""
        return self._latest.get(native, native)

    def knows(self, native: str) -> bool:
        return native in self._latest

    def new(self, message_id: str, native: str) -> str:
        """An id for a call that begins: the graph's own, unless the thread has it or no client could send it back."""
        told = free_id(native, self._taken)
        if told != native:
            self.aliases[told] = native
        self.note(message_id, told)
        return told

    def note(self, message_id: str, told: str) -> None:
        """The graph's message of this id has this call of the thread."""
        native = self.native(told)
        self._taken.add(told)
        self._told.setdefault((message_id, native), []).append(told)
        self._latest[native] = told

    def read(self, messages: Any) -> Stored:
        """A graph's conversation. A result belongs to the newest message with such a call, and there to the first without one."""
        found, waiting = Stored(), list[list[tuple[str, "ToolCall"]]]()
        for message in cast("list[Any]", messages) if isinstance(messages, list) else ():
            if isinstance(message, ToolMessage):
                found.known.add(self._answered(waiting, message.tool_call_id))
                continue
            found.known.add(message.id)
            if isinstance(message, AIMessage):
                waiting.append(list(self._calls_in(message)))
        found.unanswered = [one for calls in waiting for one in calls]
        return found

    def natives(self, messages: Iterable[BaseMessage]) -> list[BaseMessage]:
        """Messages as the graph has them."""
        return [self._with_own_ids(message) if self.aliases else message for message in messages]

    def _calls_in(self, message: AIMessage) -> Iterator[tuple[str, ToolCall]]:
        left = {
            call["id"] or "": list(self._told.get((message.id or "", call["id"] or ""), ()))
            for call in message.tool_calls
        }
        for call in message.tool_calls:
            told = left[call["id"] or ""]
            yield told.pop(0) if told else self.latest(call["id"] or ""), call

    def _answered(self, waiting: list[list[tuple[str, ToolCall]]], native: str) -> str:
        for calls in reversed(waiting):
            one = next((one for one in calls if one[1]["id"] == native), None)
            if one is not None:
                calls.remove(one)
                return one[0]
        return self.latest(native)

    def _with_own_ids(self, message: BaseMessage) -> BaseMessage:
        match message:
            case AIMessage():
                calls = [{**call, "id": self.native(call["id"] or "")} for call in message.tool_calls]
                return message.model_copy(update={"tool_calls": calls})
            case ToolMessage():
                return message.model_copy(update={"tool_call_id": self.native(message.tool_call_id)})
            case _:
                return message


def name_of(message: BaseMessage) -> str | None:
    """What tells a message from others: its id, for a result that of its call."""
    return message.tool_call_id if isinstance(message, ToolMessage) else message.id


def _calls(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """The calls of a thread, each with its message; also those of which there is only a result."""
    for message in messages:
        match message:
            case events.AssistantMessage():
                yield from ((message.id, call.id) for call in message.tool_calls or ())
            case events.ToolMessage():
                yield "", message.tool_call_id
            case _:
                pass
