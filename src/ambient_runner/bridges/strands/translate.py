"""Translation of Strands events into AG-UI events. Pure: no await, no I/O.

Where a hook of the user applies, a marker is among the events: `ToolCallReady` before a call ends, `ToolResultReady` for a result,
`StateChange` when a tool changes the state. `tool_behaviors.py` expands markers into events. Nested agents (graphs, swarms, agents as
tools) are subagents, see `subagents.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.bridges.strands.citations import Citations
from ambient_runner.bridges.strands.subagents import Subagents
from ambient_runner.bridges.strands.tool_call_ids import NestedCallIds
from ambient_runner.protocol.events import TextMessageContent, TextMessageEnd, TextMessageStart

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import SubagentId

__all__ = [
    "MARKER_TYPES",
    "TOOL_RESULT",
    "Marker",
    "PendingInterrupt",
    "StateChange",
    "ToolCallReady",
    "ToolResultReady",
    "ToolStreamValue",
    "Translator",
    "TranslatorContext",
]

Native = Mapping[str, Any]

TOOL_RESULT = "ambient_tool_result"
"""Key of the event with which `instrumentation.py` emits each tool result at once. The SDK emits all results of a turn in one batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallReady:
    """The arguments of a call are complete. `ends` is False for a client tool, whose call ends with the run, after all other events."""

    tool_use_id: str
    name: str
    arguments: str
    ends: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultReady:
    """One of the agent's own tools has returned its result."""

    tool_use_id: str
    name: str
    arguments: str
    result: Native
    subagent_id: SubagentId


@dataclass(frozen=True, kw_only=True, slots=True)
class StateChange:
    """A tool sets keys of the shared state while it runs."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStreamValue:
    """A tool has yielded a value that a hook handles."""

    tool_use_id: str
    name: str
    value: Any


Marker = ToolCallReady | ToolResultReady | StateChange | ToolStreamValue
MARKER_TYPES = frozenset({ToolCallReady, ToolResultReady, StateChange, ToolStreamValue})


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingInterrupt:
    """An interrupt of the SDK, and the tool call that raised it."""

    native: Any
    tool_use: Native | None = None
    subagent_id: SubagentId = None


_NO_EVENTS: list[Any] = []


@dataclass(slots=True)
class _StreamedCall:
    name: str
    subagent_id: SubagentId
    deltas: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        return "".join(self.deltas)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslatorContext:
    """Facts about tools and earlier calls, known before the run starts."""

    client_tools: Collection[str] = ()
    """Tools that the client executes."""
    continuing_tools: Collection[str] = ()
    """Client tools after whose call the model continues."""
    streamer_tools: Collection[str] = ()
    """Tools whose arguments a hook streams."""
    handled_tools: Collection[str] = ()
    """Tools whose yielded values a hook handles."""
    predictions: Mapping[str, list[dict[str, str]]] = field(default_factory=dict[str, list[dict[str, str]]])
    """Value of the `PredictState` event by tool name."""
    earlier_calls: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Name and arguments of the calls of earlier runs, by id. Their TOOL_CALL_START has been sent."""
    answered_call_ids: Collection[str] = ()
    """Calls of earlier runs that have a result."""


class Translator:
    """Translator of one run. At the end, `result` is the SDK's result and `interrupts` are the interrupts the run waits for.

    `is_stopping` returns True if the run has been requested to stop: the SDK then writes a message of its own, which is not sent.
    """

    def __init__(
        self, composer: Composer, context: TranslatorContext, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self.result: Any = None
        self.force_stopped = False
        """True if the SDK has given up the run."""
        self.interrupts: dict[str, PendingInterrupt] = {}
        self._composer = composer
        self._context = context
        self._calls: dict[str, _StreamedCall] = {}
        self._current_calls: dict[SubagentId, str] = {}
        self._open_texts: dict[SubagentId, str] = {}
        self._citations = Citations()
        self._is_stopping = is_stopping
        self._streaming_subagents: set[SubagentId] = set()
        self._continuing_subagents: set[SubagentId] = set()
        """Those whose last turn has a call for which the model does not wait; None for the agent itself."""
        self._last_message: Native = {}
        self._answered_ids = set(context.answered_call_ids)
        self._subagents = Subagents(composer)
        self._nested_ids = NestedCallIds(context.earlier_calls.keys(), self._answered_ids)
        self._handlers: dict[str, Callable[[Native, SubagentId], list[Any]]] = {
            "node_id": self._node_event,
            "from_node_ids": self._node_handoff,
            "current_tool_use": self._arguments_delta,
            "citation": self._citation,
            "reasoningText": self._reasoning_delta,
            "reasoningRedactedContent": self._redacted_reasoning,
            TOOL_RESULT: self._tool_result,
            "tool_stream_event": self._tool_stream_event,
            "tool_interrupt_event": self._tool_interrupt,
            "message": self._complete_message,
            "force_stop": self._force_stop,
            "result": self._final_result,
        }

    def feed(self, native: Native | str, subagent_id: SubagentId = None) -> list[Any]:
        """Return the events and markers of an SDK event or of a text delta.

        Almost all items of a stream are text deltas, so these are checked first.
        """
        if isinstance(native, str):
            return self._text_delta(native, subagent_id)
        if "data" in native:
            return self._text_delta(native["data"], subagent_id)
        raw = native.get("event")
        if raw is None or "node_id" in native:
            return self._with_citations(self._dispatch(native, subagent_id))
        return _NO_EVENTS if "contentBlockDelta" in raw else self._with_citations(self._model_chunk(raw, subagent_id))

    def _text_delta(self, delta: str, subagent_id: SubagentId) -> list[Event]:
        message_id = self._open_texts.get(subagent_id)
        if message_id is None or not delta:
            return self._first_delta(delta, subagent_id)
        self._citations.add_text(delta, subagent_id)
        return [TextMessageContent(message_id=message_id, delta=delta, subagent_run_id=subagent_id)]

    def _first_delta(self, delta: str, subagent_id: SubagentId) -> list[Event]:
        """Return the events of text that opens a message. Later deltas need only its id, until its speaker has another event."""
        events = self._composer.text(delta, subagent_id=subagent_id)
        if any(isinstance(event, TextMessageStart) for event in events):
            self._citations.start_message(subagent_id)
        if events and isinstance(events[-1], TextMessageContent):
            self._open_texts[subagent_id] = events[-1].message_id
            self._citations.add_text(delta, subagent_id)
        return self._with_citations(events)

    def _citation(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        self._citations.add(native["citation"], subagent_id)
        return _NO_EVENTS

    def _with_citations(self, items: list[Any]) -> list[Any]:
        """Return the items with the citations of a message in the metadata of its end."""
        if not self._citations:
            return items
        return [self._annotate_end(item) if isinstance(item, TextMessageEnd) else item for item in items]

    def _annotate_end(self, end: TextMessageEnd) -> TextMessageEnd:
        return msgspec.structs.replace(end, metadata=self._citations.take_metadata(end.subagent_run_id))

    def _dispatch(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        for key, handle in self._handlers.items():
            if key in native:
                self._open_texts.pop(subagent_id, None)
                return handle(native, subagent_id)
        return _NO_EVENTS

    def _find_call(self, tool_use_id: str) -> tuple[str, str]:
        """Return name and arguments of a call of this run or an earlier one."""
        call = self._calls.get(tool_use_id)
        return (call.name, call.arguments) if call else self._context.earlier_calls.get(tool_use_id, ("tool", ""))

    def _model_chunk(self, raw: Native, subagent_id: SubagentId) -> list[Any]:
        self._open_texts.pop(subagent_id, None)
        start = raw.get("contentBlockStart")
        if start is not None:
            block: Native = start.get("start") or {}
            use = block.get("toolUse")
            return self._start_call(use["toolUseId"], use["name"], subagent_id) if use else _NO_EVENTS
        if "contentBlockStop" in raw:
            return self._end_block(subagent_id)
        return self._start_model_turn(subagent_id) if "messageStart" in raw else _NO_EVENTS

    def _call_id(self, native_id: str, subagent_id: SubagentId) -> str:
        """Return the client-visible id of a call: the SDK's, unless it is a call of an agent used as a tool."""
        parent = self._subagents.parent_calls.get(subagent_id)
        return native_id if parent is None else self._nested_ids.find_call(native_id, subagent_id, parent)

    def _new_call_id(self, native_id: str, subagent_id: SubagentId) -> str:
        parent = self._subagents.parent_calls.get(subagent_id)
        if parent is not None:
            return self._nested_ids.start_call(native_id, subagent_id, parent)
        self._nested_ids.reserve(native_id)
        return native_id

    def _start_call(self, native_id: str, name: str, subagent_id: SubagentId) -> list[Any]:
        self._current_calls[subagent_id] = tool_use_id = self._new_call_id(native_id, subagent_id)
        if tool_use_id in self._calls:
            return _NO_EVENTS
        self._calls[tool_use_id] = _StreamedCall(name, subagent_id)
        events: list[Any] = [*self._composer.end_text(subagent_id), *self._composer.end_reasoning(subagent_id)]
        prediction = self._context.predictions.get(name)
        if prediction:
            events += self._composer.custom("PredictState", prediction, subagent_id)
        return events + self._composer.tool_start(tool_use_id, name, subagent_id)

    def _arguments_delta(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        tool_use_id = self._call_id(native["current_tool_use"]["toolUseId"], subagent_id)
        delta = native["delta"]["toolUse"]["input"]
        call = self._calls.get(tool_use_id)
        if call is None:
            return _NO_EVENTS
        call.deltas.append(delta)
        return _NO_EVENTS if call.name in self._context.streamer_tools else self._composer.tool_args(tool_use_id, delta)

    def _end_block(self, subagent_id: SubagentId) -> list[Any]:
        tool_use_id = self._current_calls.pop(subagent_id, None)
        if tool_use_id is None:
            return self._composer.end_reasoning(subagent_id)
        call = self._calls[tool_use_id]
        is_client_tool = self._is_client_tool(call.name, subagent_id)
        waits_for_client = is_client_tool and call.name not in self._context.continuing_tools
        if is_client_tool and not waits_for_client:
            self._continuing_subagents.add(subagent_id)
        return [
            ToolCallReady(tool_use_id=tool_use_id, name=call.name, arguments=call.arguments, ends=not waits_for_client)
        ]

    def _start_model_turn(self, subagent_id: SubagentId) -> list[Any]:
        """End what the model left open when it failed and starts again: a call it had begun will not be made."""
        self._streaming_subagents.add(subagent_id)
        if subagent_id in self._continuing_subagents:
            self._continuing_subagents.discard(subagent_id)
            self._composer.start_turn(subagent_id)
        tool_use_id = self._current_calls.pop(subagent_id, None)
        ended = [*self._composer.end_text(subagent_id), *self._composer.end_reasoning(subagent_id)]
        if not ended:
            self._citations.take_metadata(subagent_id)  # citations without a text have no message
        return ended + (self._composer.tool_end(tool_use_id) if tool_use_id else [])

    def _reasoning_delta(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        return self._composer.reasoning(native["reasoningText"] or "", subagent_id=subagent_id)

    def _redacted_reasoning(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        content = native["reasoningRedactedContent"]
        return (
            self._composer.reasoning_encrypted(base64.b64encode(content).decode(), subagent_id=subagent_id)
            if content
            else _NO_EVENTS
        )

    def _complete_message(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        message = native["message"]
        if message["role"] == "assistant":
            return self._assistant_message(message, subagent_id)
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        return [item for result in results for item in self._result_marker(result, subagent_id)]

    def _assistant_message(self, message: Native, subagent_id: SubagentId) -> list[Any]:
        """End the model's message. Text that was not streamed comes from a hook or another agent, and is sent now."""
        self._last_message = message
        was_streamed = subagent_id in self._streaming_subagents or self._is_stopping()
        self._streaming_subagents.discard(subagent_id)
        texts = [] if was_streamed else _text_blocks(message)
        events = [event for text in texts for event in self._composer.text(text, subagent_id=subagent_id)]
        return [*events, *self._composer.end_text(subagent_id), *self._composer.end_reasoning(subagent_id)]

    def _tool_result(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        return self._result_marker(native[TOOL_RESULT], subagent_id)

    def _result_marker(self, result: Native, subagent_id: SubagentId) -> list[Any]:
        tool_use_id = self._call_id(result["toolUseId"], subagent_id)
        name, arguments = self._find_call(tool_use_id)
        if tool_use_id in self._answered_ids or self._is_client_tool(name, subagent_id):
            return _NO_EVENTS
        self._answered_ids.add(tool_use_id)
        marker = ToolResultReady(
            tool_use_id=tool_use_id, name=name, arguments=arguments, result=result, subagent_id=subagent_id
        )
        return [*self._subagents.close_tool(tool_use_id), marker]

    def _is_client_tool(self, name: str, subagent_id: SubagentId) -> bool:
        """Return True for a client tool. Agents used as tools have no client tools, whatever their own are called."""
        return name in self._context.client_tools and subagent_id not in self._subagents.parent_calls

    def _tool_stream_event(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        streamed = native["tool_stream_event"]
        data, use = streamed["data"], streamed["tool_use"]
        tool_use_id = self._call_id(use["toolUseId"], subagent_id)
        if use["name"] in self._context.handled_tools:
            value = ToolStreamValue(tool_use_id=tool_use_id, name=use["name"], value=data)
            return [value, *self._inner_events(use["name"], tool_use_id, data, subagent_id)]
        events = self._inner_events(use["name"], tool_use_id, data, subagent_id)
        changes = cast("dict[str, Any]", data).get("state") if isinstance(data, dict) else None
        return [StateChange(changes=cast("Native", changes))] if not events and isinstance(changes, dict) else events

    def _inner_events(self, name: str, tool_use_id: str, data: Any, subagent_id: SubagentId) -> list[Any]:
        """Return the events of an agent that is used as a tool; none for a value of another tool."""
        if not isinstance(data, dict):
            return _NO_EVENTS
        inner = cast("dict[str, Any]", data)
        opened, inner_id = self._subagents.enter_tool(tool_use_id, name, inner, subagent_id)
        return [*opened, *self.feed(inner, inner_id)] if inner_id is not None else _NO_EVENTS

    def _tool_interrupt(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        event = native["tool_interrupt_event"]
        use = {**event["tool_use"], "toolUseId": self._call_id(event["tool_use"]["toolUseId"], subagent_id)}
        for interrupt in event["interrupts"]:
            self.interrupts[interrupt.id] = PendingInterrupt(native=interrupt, tool_use=use, subagent_id=subagent_id)
        return _NO_EVENTS

    def _force_stop(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        self.force_stopped = self.force_stopped or subagent_id is None
        return _NO_EVENTS

    def _node_event(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        kind, node = native.get("type"), native["node_id"]
        if kind == "multiagent_node_stream":
            opened, inner_id = self._subagents.enter_node(node, subagent_id)
            return [*opened, *self.feed(native["event"], inner_id)]
        if kind == "multiagent_node_interrupt":
            inner_id = self._subagents.subagent_of(node, subagent_id)
            for interrupt in native["interrupts"]:
                known = self.interrupts.get(interrupt.id)
                use = known.tool_use if known else None
                self.interrupts[interrupt.id] = PendingInterrupt(native=interrupt, tool_use=use, subagent_id=inner_id)
        return self._subagents.feed_node(native, subagent_id)

    def _node_handoff(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        value = {"from_nodes": native["from_node_ids"], "to_nodes": native["to_node_ids"]}
        message = native.get("message")
        return self._composer.custom(
            "MultiAgentHandoff", value | ({"message": message} if message else {}), subagent_id
        )

    def _final_result(self, native: Native, subagent_id: SubagentId) -> list[Any]:
        if subagent_id is not None:
            return _NO_EVENTS
        self.result = native["result"]
        interrupts = getattr(self.result, "interrupts", None) or ()
        self.interrupts = {item.id: self.interrupts.get(item.id, PendingInterrupt(native=item)) for item in interrupts}
        return self._final_message(subagent_id)

    def _final_message(self, subagent_id: SubagentId) -> list[Any]:
        """Return the events of the final message if a hook wrote it and it has not been sent."""
        last: Native = getattr(self.result, "message", None) or {}
        is_sent = not last or _text_blocks(last) == _text_blocks(self._last_message)
        if is_sent or getattr(self.result, "stop_reason", None) != "end_turn":
            return _NO_EVENTS
        return self._assistant_message(last, subagent_id)


def _text_blocks(message: Native) -> list[str]:
    return [block["text"] for block in message.get("content", ()) if "text" in block]
