"""The conversation as the other server tells it, against the conversation as it was shown and streamed. Pure.

A MESSAGES_SNAPSHOT of the other server is the truth about what it was shown and has said. Mostly it says what was streamed already, and
then nothing has to be stored. `docs/agents/remote.md` has the rules.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.projections.private_entries import restate
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    ReasoningMessage,
    ToolMessage,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from ambient_runner.protocol.events import Custom, Event, Message, ToolCall

__all__ = ["Conversation"]


class Conversation:
    """What the other server was shown, and what it has said since. `asked` are the ids of the messages this run added."""

    def __init__(self, shown: Iterable[Message], asked: Iterable[str] = ()) -> None:
        self._transcript = Transcript(shown)
        self._shown = frozenset(message.id for message in self._transcript.messages())
        self._asked = frozenset(asked)

    def apply(self, event: Event) -> None:
        self._transcript.apply(event)

    def told(self, snapshot: Sequence[Message]) -> Custom | None:
        """What has to be stored so that the conversation is as this snapshot says; None when it is so already."""
        ours = self._transcript.messages()
        if not snapshot or list(snapshot) == ours:
            return None
        named = _named(snapshot, ours)
        gone = _gone(named, ours) if self._is_whole(named, ours) else []
        after = Transcript(ours)
        after.restate(named, gone)
        if after.messages() == ours:
            return None
        self._transcript = after
        return restate(named, gone)

    def _is_whole(self, named: Sequence[Message], ours: Sequence[Message]) -> bool:
        """Whether it is the whole conversation: what this run added is in it, and every call of this run that waits for a result."""
        results = {message.tool_call_id for message in ours if isinstance(message, ToolMessage)}
        spoken = [message for message in ours if message.id not in self._shown]
        waiting = {call.id for message in spoken for call in _calls(message)} - results
        told = {call.id for message in named for call in _calls(message)}
        return waiting <= told and self._asked <= {message.id for message in named}


def _named(snapshot: Sequence[Message], ours: Sequence[Message]) -> list[Message]:
    """The messages of a snapshot under the ids we know them by.

    A server may tell a message under another id than it streamed it, or under none: then the one that says the same is meant. One
    without an id that says something new gets one by its place.
    """
    known = {message.id: message for message in ours if message.id}
    told = {message.id for message in snapshot if message.id in known}
    twins: dict[Hashable, list[Message]] = {}
    for message in known.values():
        if message.id not in told:
            twins.setdefault(_likeness(message), []).append(message)
    taken = {*known, *(message.id for message in snapshot)}
    named: dict[str, Message] = {}
    for place, message in enumerate(snapshot, 1):
        old = known.get(message.id)
        if old is None or message.id in named or type(old) is not type(message):
            alike = twins.get(_likeness(message))
            old = alike.pop(0) if alike else None
        if old is not None:
            named[old.id] = _merged(old, message)
        elif not message.id:
            own = next(one for number in count(place) if (one := f"told-{number}") not in taken)
            named[own] = replace(message, id=own)
            taken.add(own)
        elif message.id not in named and message.id not in known:
            named[message.id] = message
    return list(named.values())


def _likeness(message: Message) -> Hashable:
    """Equal for two messages that say the same, whatever their ids."""
    match message:
        case ToolMessage():
            return "tool", message.tool_call_id
        case AssistantMessage() if message.tool_calls:
            return "calls", tuple(call.id for call in message.tool_calls)
        case _:
            return type(message).__name__, repr(message.content or "")


def _merged(old: Message, told: Message) -> Message:
    """What the snapshot says of a message; what it leaves out stays as it was."""
    said = {name: getattr(told, name) for name in told.__struct_fields__ if name != "id"}
    stated = {name: value for name, value in said.items() if value is not None and (value or getattr(old, name))}
    if isinstance(old, AssistantMessage) and isinstance(told, AssistantMessage) and _same_calls(old, told):
        stated.pop("tool_calls", None)
    return replace(old, **stated)


def _same_calls(old: AssistantMessage, told: AssistantMessage) -> bool:
    return [(call.id, call.function) for call in _calls(old)] == [(call.id, call.function) for call in _calls(told)]


def _calls(message: Message) -> Sequence[ToolCall]:
    return (message.tool_calls or ()) if isinstance(message, AssistantMessage) else ()


def _gone(named: Sequence[Message], ours: Sequence[Message]) -> list[str]:
    """What a whole conversation does not name. Reasoning and activities stay when it has none of their kind, as with every client."""
    told = {message.id for message in named}
    kinds = {type(message) for message in named}
    return [
        message.id
        for message in ours
        if message.id not in told
        and (type(message) in kinds or not isinstance(message, ReasoningMessage | ActivityMessage))
    ]
