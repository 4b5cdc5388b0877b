"""One message of a model as events: text, reasoning and tool calls, whether it arrives in chunks, whole, or both.

Nodes that run in parallel stream at the same time, and each message must form one sequence of events. So every message has its own
Composer, and `translate.py` decides which message a native event belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.langgraph.messages import additional_reasoning, content_pieces, text_content
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.json_values import to_json_text
from ambient_runner.protocol.events import ReasoningMessageStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["StreamedMessage", "StreamedToolCall"]


@dataclass(slots=True, eq=False)
class StreamedToolCall:
    """A tool call that is being streamed. Its name and id may come after the first of its arguments."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    client_id: str = ""
    """Its id in the thread, once TOOL_CALL_START has been emitted."""

    def add_chunk(self, chunk: Any) -> str:
        """Add a chunk. Return the arguments that can be emitted now."""
        self.id = self.id or chunk.get("id") or ""
        self.name = self.name or chunk.get("name") or ""
        self.pieces.append(chunk.get("args") or "")
        if not (self.id and self.name):
            return ""
        return self.pieces[-1] if self.client_id else "".join(self.pieces)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class StreamedMessage:
    """A message with the id `message_id`, of a subagent or of the graph itself. `task` is the path of the node that streams it.

    With `shows_text` False its text is not emitted. Of its calls, only those of `shown_tools` are; None for all.
    """

    def __init__(
        self,
        message_id: str,
        subagent_id: SubagentId,
        task: str,
        *,
        shows_text: bool,
        shown_tools: frozenset[str] | None,
    ) -> None:
        self.message_id = message_id
        self.native_ids: set[str] = set()
        """The ids that the graph gives it, in chunks or as a whole."""
        self.is_kept = False
        """True once it is known to be in the graph's conversation."""
        self.subagent_id = subagent_id
        self.task = task
        self.composer = Composer()
        self.calls: dict[Any, StreamedToolCall] = {}
        self.shows_text = shows_text
        self._shown_tools = shown_tools
        self.text_pieces: list[str] = []
        self.reasoning_ids: list[str] = []
        self._has_reasoning = False
        self._latest_key: Any = None

    def emit_content(self, message: Any) -> list[Event]:
        """Return the text and the reasoning of a chunk, or of a message that came whole."""
        events: list[Event] = []
        if not self.shows_text:
            return events
        additional = additional_reasoning(message.additional_kwargs) if message.additional_kwargs else ""
        if additional:
            events += self._emit_reasoning(additional)
        for kind, piece in content_pieces(message.content):
            match kind:
                case "text":
                    self.text_pieces.append(piece)
                    events += self.composer.text(piece, subagent_id=self.subagent_id, message_id=self.message_id)
                case "reasoning" | "summary":
                    events += self._emit_reasoning(piece, is_summary=kind == "summary")
                case _:
                    events += self.composer.reasoning_encrypted(piece, subagent_id=self.subagent_id)
        return events

    def emit_missing_content(self, message: Any) -> list[Event]:
        """Return the content of the whole message if its chunks had none."""
        return [] if self.text or self._has_reasoning else self.emit_content(message)

    @property
    def text(self) -> str:
        """The text that has been emitted."""
        return "".join(self.text_pieces)

    def has_same_content(self, message: Any) -> bool:
        """Return True if a whole message has the text and the calls that were streamed, and so may be a copy."""
        text = text_content(message)
        calls = [call["id"] for call in message.tool_calls]
        return bool(text or calls) and text == self.text and calls == [call.id for call in self.calls.values()]

    def calls_in_chunk(self, message: Any) -> Iterator[tuple[StreamedToolCall, str]]:
        """Yield the calls that a chunk continues, each with the arguments that can be emitted now."""
        for chunk in message.tool_call_chunks:
            call = self._call_for_chunk(chunk)
            delta = call.add_chunk(chunk)
            if call.id and call.name:
                yield call, delta

    def shows_call(self, call: StreamedToolCall) -> bool:
        return self.shows_tool(call.name)

    def shows_tool(self, name: str) -> bool:
        return self._shown_tools is None or name in self._shown_tools

    def missing_calls(self, message: Any) -> Iterator[tuple[StreamedToolCall, str]]:
        """Yield the calls of the whole message that no chunk began or gave arguments to. Calls without an id appear only here."""
        streamed = list(self.calls.values())
        for whole in message.tool_calls:
            native_id = whole["id"] or ""
            call = next((call for call in streamed if call.id == native_id), None)
            if call is None:
                call = self.calls[native_id, len(self.calls)] = StreamedToolCall(native_id, whole["name"])
            else:
                streamed.remove(call)
            if not call.arguments:
                call.pieces.append(to_json_text(whole["args"]))
            elif call.client_id or not self.shows_call(call):
                continue
            yield call, call.arguments

    def end_open_items(self, *, is_whole: bool) -> list[Event]:
        """Return the ends of all it has open. Unless the message `is_whole`, calls without arguments stay open: these may come with it."""
        events = [*self.composer.end_text(self.subagent_id), *self.composer.end_reasoning(self.subagent_id)]
        for call in self.calls.values():
            if call.client_id and (is_whole or call.arguments):
                events += self.composer.tool_end(call.client_id)
        return events

    def _call_for_chunk(self, chunk: Any) -> StreamedToolCall:
        """Return the call a chunk belongs to: by its index, else by its id, else the previous one."""
        index, native_id = chunk.get("index"), chunk.get("id")
        key = index if index is not None else native_id if native_id else self._latest_key
        call = self.calls.get(key)
        if call is not None and native_id and call.id and call.id != native_id:
            key = native_id  # Some providers give every call the same index.
        self._latest_key = key
        return self.calls.setdefault(key, StreamedToolCall())

    def _emit_reasoning(self, piece: str, *, is_summary: bool = False) -> list[Event]:
        self._has_reasoning = self._has_reasoning or bool(piece)
        events = self.composer.reasoning(piece, subagent_id=self.subagent_id, is_summary=is_summary)
        self.reasoning_ids += [event.message_id for event in events if isinstance(event, ReasoningMessageStart)]
        return events
