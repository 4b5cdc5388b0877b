"""A message of a Transcript while its events come: the deltas and patches not joined yet, and the memory that it takes. Pure."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import PatchedDocument, apply_bounded_patch, is_object
from ambient_runner.protocol.events import AssistantMessage, FunctionCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Message, ToolCall

__all__ = ["StreamedCall", "StreamedMessage", "estimate_message_bytes"]

_MESSAGE_BYTES = 500
"""Bytes that a message takes besides its values: its objects, its id, and its entries in the indexes."""
_CALL_BYTES = 600
_BYTES_PER_JSON_BYTE = 6
"""Bytes of memory that decoded JSON takes for each byte of its text, about."""


class StreamedCall:
    """A tool call and the argument deltas not joined yet."""

    __slots__ = ("call", "deltas")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.deltas: list[str] = []

    def join_deltas(self) -> ToolCall:
        if self.deltas:
            function = self.call.function
            text = function.arguments + "".join(self.deltas)
            self.call = replace(self.call, function=FunctionCall(name=function.name, arguments=text))
            self.deltas.clear()
        return self.call


class StreamedMessage:
    """A message that changes, with the deltas, patches and calls that came since it was last joined."""

    __slots__ = ("_patched", "calls", "deltas", "has_changed_calls", "initial_bytes", "message")

    def __init__(self, message: Message, initial_bytes: int = 0) -> None:
        self.message = message
        self.initial_bytes = initial_bytes
        """Memory that the message took before it changed; 0 if it is new."""
        self.deltas: list[str] = []
        self.calls: list[StreamedCall] = []
        self.has_changed_calls = False
        """True if a call has changed since the message was last joined."""
        self._patched: PatchedDocument | None = None
        """The content of an activity since a patch changed it: consecutive patches copy it once."""
        if isinstance(message, AssistantMessage) and message.tool_calls:
            self.calls = [StreamedCall(call) for call in message.tool_calls]

    def has_text(self) -> bool:
        return bool(self.deltas or (self._patched.root if self._patched else self.message.content))

    def replace_message(self, message: Message) -> None:
        """Put a message in the place of this one: without its deltas, patches and calls."""
        self.message, self.has_changed_calls, self._patched = message, False, None
        self.calls.clear()
        self.deltas.clear()

    def try_patch(self, operations: Sequence[dict[str, Any]]) -> bool:
        """Apply a patch to the content of an activity. Return False, and change nothing, if it does not apply or is not an object then."""
        patched = self._patched or PatchedDocument(self.message.content)
        try:
            apply_bounded_patch(patched, operations)
        except PatchConflict:
            return False
        if not is_object(patched.root):
            patched.undo()
            return False
        self._patched = patched
        return True

    def join_deltas(self) -> Message:
        if self.deltas:
            content = self.message.content
            text = (content if isinstance(content, str) else "") + "".join(self.deltas)
            self.message = replace(self.message, content=text)
            self.deltas.clear()
        if self._patched:
            self.message = replace(self.message, content=self._patched.freeze())
            self._patched = None
        if self.has_changed_calls:
            self.message = replace(self.message, tool_calls=[call.join_deltas() for call in self.calls])
            self.has_changed_calls = False
        return self.message


def estimate_message_bytes(message: Message) -> int:
    """Return about how much memory a message takes."""
    content = message.content
    size = _MESSAGE_BYTES
    if content is not None:  # A message with tool calls has none.
        size += getsizeof(content) if type(content) is str else _estimate_value_bytes(content)
    if type(message) is AssistantMessage and message.tool_calls:
        size += sum(_CALL_BYTES + getsizeof(call.function.arguments) for call in message.tool_calls)
    return size if message.metadata is None else size + _estimate_value_bytes(message.metadata)


def _estimate_value_bytes(value: Any) -> int:
    return _BYTES_PER_JSON_BYTE * len(msgspec.json.encode(value))
