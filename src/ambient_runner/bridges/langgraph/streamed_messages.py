"""The messages of a run, by the ids that the graph gives them and by the model calls that stream them. Pure.

Some providers give the chunks of one message several ids, and the whole message another one (OpenAI's Responses API does). So a chunk
belongs to the message of its model call, whatever its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langchain_core.messages import AIMessage

    from ambient_runner.bridges.langgraph.streamed_message import StreamedMessage
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["StreamedMessages", "is_run_id"]

_RUN_ID_PREFIXES = ("lc_run-", "run-")
"""Prefixes of the ids that LangChain gives to messages of one model call that have none."""


def is_run_id(native_id: str) -> bool:
    """Return True if LangChain made this id from a model call."""
    return native_id.startswith(_RUN_ID_PREFIXES)


class StreamedMessages:
    """The messages of one run. A message is open until its node ends."""

    def __init__(self) -> None:
        self._by_id: dict[str, StreamedMessage] = {}
        self._by_call: dict[int, tuple[Mapping[str, Any], StreamedMessage]] = {}
        self._open: dict[StreamedMessage, None] = {}

    def __iter__(self) -> Iterator[StreamedMessage]:
        return iter(dict.fromkeys(self._by_id.values()))

    def get(self, native_id: str | None) -> StreamedMessage | None:
        return self._by_id.get(native_id or "")

    def get_open(self, native_id: str | None) -> StreamedMessage | None:
        message = self.get(native_id)
        return message if message in self._open else None

    def is_open(self, message: StreamedMessage) -> bool:
        return message in self._open

    def find(self, native_id: str, metadata: Mapping[str, Any]) -> StreamedMessage | None:
        """Return the message with this id, or that of the same model call: then it has this id too."""
        known = self._by_id.get(native_id)
        if known is None:
            known = self._message_of_call(native_id, metadata)
            if known is not None:
                self.add_id(native_id, known)
        return known

    def find_copied(self, copy: AIMessage, subagent_id: SubagentId, task: str) -> StreamedMessage | None:
        """Return the message that a node streamed and now returns as a copy under another id; it has this id too then."""
        for message in self:
            is_candidate = message.subagent_id == subagent_id and message.task.startswith(task) and not message.is_kept
            if is_candidate and message.has_same_content(copy):
                message.is_kept = True
                self.add_id(copy.id or "", message)
                return message
        return None

    def add(self, native_id: str, metadata: Mapping[str, Any], message: StreamedMessage) -> None:
        self.add_id(native_id, message)
        self._open[message] = None
        if _is_model_call(metadata):
            self._by_call[id(metadata)] = metadata, message

    def add_id(self, native_id: str, message: StreamedMessage) -> None:
        self._by_id[native_id] = message
        message.native_ids.add(native_id)

    def close_node(self, task: str) -> list[StreamedMessage]:
        """Return the open messages of a node that ended. They are no longer open."""
        ended = [message for message in self._open if message.task.startswith(task)]
        for message in ended:
            del self._open[message]
        return ended

    def _message_of_call(self, native_id: str, metadata: Mapping[str, Any]) -> StreamedMessage | None:
        """Return the message of the model call with this metadata. The SDK passes one object with all chunks of a call.

        A batch of calls shares it; then LangChain's ids tell them apart.
        """
        call = self._by_call.get(id(metadata))
        if call is None or (is_run_id(native_id) and any(map(is_run_id, call[1].native_ids))):
            return None
        return call[1]


def _is_model_call(metadata: Mapping[str, Any]) -> bool:
    """Return True for the metadata of a model call, False for that of a node, which is the same for all messages it returns."""
    return "ls_model_type" in metadata
