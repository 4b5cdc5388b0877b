"""Chunk events turned into START, CONTENT and END, lane by lane, so that nothing after this needs to know chunks.

A lane is one agent's part of the run: a `subagentRunId`, None for the agent itself. As in the official client a chunk may leave
out the id that its lane is streaming, and text and reasoning end when their lane begins something else. Unlike there, calls
streamed in parallel stay open side by side, and a CUSTOM or STATE event in between does not cut a stream in two.
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
    from ambient_runner.protocol.open_items import Owner

Chunk = TextMessageChunk | ToolCallChunk | ReasoningMessageChunk
_Kind = Literal["text", "tool", "reasoning"]


class Stream(NamedTuple):
    kind: _Kind
    id: str


class ChunkLanes:
    """The chunk streams of one run. A lane streams one message, or several tool calls; the last one is its current."""

    def __init__(self) -> None:
        self._lanes: dict[Owner, list[Stream]] = {}

    def expand(self, chunk: Chunk) -> list[Event] | None:
        """The explicit events a chunk stands for, or None when it names no stream and none is its to continue."""
        kind = _kind_of(chunk)
        given = chunk.tool_call_id if isinstance(chunk, ToolCallChunk) else chunk.message_id
        lane = self._lane_for(kind, given, chunk.subagent_run_id)
        streams = self._lanes.get(lane, [])
        if given is None:
            if not streams or streams[-1].kind != kind:
                return None
            given = streams[-1].id
        stream = Stream(kind, given)
        events: list[Event] = []
        if stream in streams:
            streams.remove(stream)
        else:
            events += [] if kind == "tool" and streams and streams[-1].kind == "tool" else self._end(lane)
            events += _start(chunk, stream)
        self._lanes.setdefault(lane, []).append(stream)
        return events + _content(chunk, stream)

    def interrupt(self, event: Event) -> list[Event]:
        """The ends that an explicit event implies for streams of its lane; of all lanes, for a snapshot.

        An empty snapshot is only the place of one: it is folded when it is read, and the streams go on.
        """
        if not self._lanes:
            return []
        match event:
            case MessagesSnapshot(messages=[_, *_]):
                return [end for lane in list(self._lanes) for end in self._end(lane)]
            case TextMessageStart() | ToolCallStart() | ReasoningStart() | ReasoningMessageStart():
                return self._end(event.subagent_run_id)
            case _:
                return []

    def _lane_for(self, kind: _Kind, given: str | None, tag: Owner) -> Owner:
        if given is not None:
            holders = [lane for lane, streams in self._lanes.items() if Stream(kind, given) in streams]
            return holders[0] if holders else tag
        if tag is not None:
            return tag
        candidates = [lane for lane, streams in self._lanes.items() if streams[-1].kind == kind]
        return candidates[0] if len(candidates) == 1 else None

    def _end(self, lane: Owner) -> list[Event]:
        return [_end(stream, lane) for stream in self._lanes.pop(lane, ())]


def _kind_of(chunk: Chunk) -> _Kind:
    match chunk:
        case TextMessageChunk():
            return "text"
        case ToolCallChunk():
            return "tool"
        case ReasoningMessageChunk():
            return "reasoning"


def _start(chunk: Chunk, stream: Stream) -> list[Event]:
    tag, metadata = chunk.subagent_run_id, chunk.metadata
    match chunk:
        case TextMessageChunk():
            return [
                TextMessageStart(
                    message_id=stream.id, role=chunk.role, name=chunk.name, subagent_run_id=tag, metadata=metadata
                )
            ]
        case ReasoningMessageChunk():
            return [ReasoningMessageStart(message_id=stream.id, subagent_run_id=tag, metadata=metadata)]
        case ToolCallChunk(tool_call_name=str(name)):
            return [
                ToolCallStart(
                    tool_call_id=stream.id,
                    tool_call_name=name,
                    parent_message_id=chunk.parent_message_id,
                    subagent_run_id=tag,
                    metadata=metadata,
                )
            ]
        case ToolCallChunk():
            # It may continue a call that was started explicitly; if not, its arguments have no home.
            return []


def _content(chunk: Chunk, stream: Stream) -> list[Event]:
    if chunk.delta is None:
        return []
    delta, tag, time, raw = chunk.delta, chunk.subagent_run_id, chunk.timestamp, chunk.raw_event
    match stream.kind:
        case "text":
            event = TextMessageContent(
                message_id=stream.id, delta=delta, subagent_run_id=tag, timestamp=time, raw_event=raw
            )
        case "tool":
            event = ToolCallArgs(
                tool_call_id=stream.id, delta=delta, subagent_run_id=tag, timestamp=time, raw_event=raw
            )
        case "reasoning":
            event = ReasoningMessageContent(
                message_id=stream.id, delta=delta, subagent_run_id=tag, timestamp=time, raw_event=raw
            )
    return [event]


def _end(stream: Stream, lane: Owner) -> Event:
    match stream.kind:
        case "text":
            return TextMessageEnd(message_id=stream.id, subagent_run_id=lane)
        case "tool":
            return ToolCallEnd(tool_call_id=stream.id, subagent_run_id=lane)
        case "reasoning":
            return ReasoningMessageEnd(message_id=stream.id, subagent_run_id=lane)
