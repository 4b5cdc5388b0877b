"""Data kept with a thread between two runs: the calls whose id on the other server is not their id here. Pure.

An id that the thread already has is replaced (`protocol/ids.py`). The other server knows only its own and
would not recognize a call under another id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ambient_runner.protocol.events import AssistantMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.protocol.events import Message, ToolCall

__all__ = ["RemoteMemory"]


class RemoteMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one thread."""

    aliases: dict[str, str] = {}
    """Tool calls with another id here: the other server's id by ours, the newest last."""

    @classmethod
    def from_stored(cls, stored: Any) -> RemoteMemory:
        """Return the stored memory; an empty one if there is none or it is not ours."""
        try:
            return msgspec.convert(stored or {}, cls)
        except msgspec.ValidationError:
            return cls()

    def to_stored(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)

    def with_renamed_calls(self, renamed: Mapping[str, str]) -> RemoteMemory:
        """Return the memory with these calls: our id by the other server's."""
        return RemoteMemory(aliases=self.aliases | {ours: theirs for theirs, ours in renamed.items()})

    def renamed_calls(self) -> dict[str, str]:
        """Return our id of each call by the other server's; of several with the same id, the newest."""
        return {theirs: ours for ours, theirs in self.aliases.items()}

    def with_their_call_ids(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with the other server's call ids. An id that two calls would have stays ours, so that each is found."""
        if not self.aliases:
            return list(messages)
        ids = {call.id: self.aliases.get(call.id, call.id) for message in messages for call in _tool_calls(message)}
        uses = Counter(ids.values())
        unique = {ours: theirs for ours, theirs in ids.items() if uses[theirs] == 1}
        return [_with_call_ids(message, unique) for message in messages]


def _tool_calls(message: Message) -> Sequence[ToolCall]:
    return (message.tool_calls or ()) if isinstance(message, AssistantMessage) else ()


def _with_call_ids(message: Message, call_ids: Mapping[str, str]) -> Message:
    match message:
        case AssistantMessage(tool_calls=[_, *_] as calls):
            return replace(message, tool_calls=[replace(call, id=call_ids.get(call.id, call.id)) for call in calls])
        case ToolMessage():
            return replace(message, tool_call_id=call_ids.get(message.tool_call_id, message.tool_call_id))
        case _:
            return message
