"""Expansion of `*_CHUNK` events into START, CONTENT and END, so that no later stage has to know chunks.

Each owner (a `subagentRunId`, None for the agent itself) has its own streams. As in the official client, a chunk may leave
out the id that its owner is streaming, and text and reasoning end when their owner starts something else. Unlike there, tool calls
streamed in parallel stay open together, and a CUSTOM or STATE event in between does not end a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ambient_runner.protocol.events import (
    Event,
    MessagesSnapshot,
    ReasoningMessageChunk,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    TextMessageChunk,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
)

if TYPE_CHECKING:
    from ambient_runner.protocol.open_items import SubagentId

Chunk = TextMessageChunk | ToolCallChunk | ReasoningMessageChunk
_StreamKind = Literal["text", "tool", "reasoning"]


class ChunkStream(NamedTuple):
    """A message or tool call that is being streamed in chunks."""

    kind: _StreamKind
    id: str


class ChunkExpander:
    """Expands the chunks of one run. An owner streams one message, or several tool calls; the last one is its current stream."""

    def __init__(self) -> None:
        self._streams_by_owner: dict[SubagentId, list[ChunkStream]] = {}

    def expand(self, chunk: Chunk) -> list[Event] | None:
        """Return the explicit events for a chunk, or None if it names no stream and its owner has none to continue."""
        kind = _stream_kind(chunk)
        stream_id = chunk.tool_call_id if isinstance(chunk, ToolCallChunk) else chunk.message_id
        owner = self._stream_owner(kind, stream_id, chunk.subagent_run_id)
        streams = self._streams_by_owner.get(owner, [])
        if stream_id is None:
            if not streams or streams[-1].kind != kind:
                return None
            stream_id = streams[-1].id
        stream = ChunkStream(kind, stream_id)
        events: list[Event] = []
        if stream in streams:
            streams.remove(stream)
        else:
            events += [] if kind == "tool" and streams and streams[-1].kind == "tool" else self._close_streams(owner)
            events += _start_events(chunk, stream)
        self._streams_by_owner.setdefault(owner, []).append(stream)
        return events + _content_events(chunk, stream)

    def close_streams_before(self, event: Event) -> list[Event]:
        """Close the streams that an explicit event ends: those of its owner, or all of them for a snapshot. Return their END events.

        An empty snapshot is only a marker, folded when it is read, so the streams continue.
        """
        if not self._streams_by_owner:
            return []
        match event:
            case MessagesSnapshot(messages=[_, *_]):
                return [end for owner in list(self._streams_by_owner) for end in self._close_streams(owner)]
            case TextMessageStart() | ToolCallStart() | ReasoningStart() | ReasoningMessageStart():
                return self._close_streams(event.subagent_run_id)
            case _:
                return []

    def _stream_owner(self, kind: _StreamKind, stream_id: str | None, claimed_owner: SubagentId) -> SubagentId:
        if stream_id is not None:
            holders = [
                owner for owner, streams in self._streams_by_owner.items() if ChunkStream(kind, stream_id) in streams
            ]
            return holders[0] if holders else claimed_owner
        if claimed_owner is not None:
            return claimed_owner
        candidates = [owner for owner, streams in self._streams_by_owner.items() if streams[-1].kind == kind]
        return candidates[0] if len(candidates) == 1 else None

    def _close_streams(self, owner: SubagentId) -> list[Event]:
        return [_end_event(stream, owner) for stream in self._streams_by_owner.pop(owner, ())]


def _stream_kind(chunk: Chunk) -> _StreamKind:
    match chunk:
        case TextMessageChunk():
            return "text"
        case ToolCallChunk():
            return "tool"
        case ReasoningMessageChunk():
            return "reasoning"


def _start_events(chunk: Chunk, stream: ChunkStream) -> list[Event]:
    owner, metadata = chunk.subagent_run_id, chunk.metadata
    match chunk:
        case TextMessageChunk():
            return [
                TextMessageStart(
                    message_id=stream.id, role=chunk.role, name=chunk.name, subagent_run_id=owner, metadata=metadata
                )
            ]
        case ReasoningMessageChunk():
            return [ReasoningMessageStart(message_id=stream.id, subagent_run_id=owner, metadata=metadata)]
        case ToolCallChunk(tool_call_name=str(name)):
            return [
                ToolCallStart(
                    tool_call_id=stream.id,
                    tool_call_name=name,
                    parent_message_id=chunk.parent_message_id,
                    subagent_run_id=owner,
                    metadata=metadata,
                )
            ]
        case ToolCallChunk():
            # It may continue a call that was started explicitly; if not, `repair.py` drops its arguments.
            return []


def _content_events(chunk: Chunk, stream: ChunkStream) -> list[Event]:
    if chunk.delta is None:
        return []
    delta, owner, time, raw = chunk.delta, chunk.subagent_run_id, chunk.timestamp, chunk.raw_event
    match stream.kind:
        case "text":
            event = TextMessageContent(
                message_id=stream.id, delta=delta, subagent_run_id=owner, timestamp=time, raw_event=raw
            )
        case "tool":
            event = ToolCallArgs(
                tool_call_id=stream.id, delta=delta, subagent_run_id=owner, timestamp=time, raw_event=raw
            )
        case "reasoning":
            event = ReasoningMessageContent(
                message_id=stream.id, delta=delta, subagent_run_id=owner, timestamp=time, raw_event=raw
            )
    return [event]


def _end_event(stream: ChunkStream, owner: SubagentId) -> Event:
    match stream.kind:
        case "text":
            return TextMessageEnd(message_id=stream.id, subagent_run_id=owner)
        case "tool":
            return ToolCallEnd(tool_call_id=stream.id, subagent_run_id=owner)
        case "reasoning":
            return ReasoningMessageEnd(message_id=stream.id, subagent_run_id=owner)
