"""Translate a LangGraph stream into AG-UI events. Pure: native events in, events out, nothing awaited.

A native event is `(namespace, mode, data)`, as `astream` yields it with several modes and subgraphs. A subgraph is a
subagent; a node is a step; a model's message is a `StreamedMessage`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from ambient_runner.bridges.langgraph.instrumentation import MutedMessage, name_custom_event
from ambient_runner.bridges.langgraph.interrupts import GraphInterrupt
from ambient_runner.bridges.langgraph.messages import is_json_object, model_messages_in, result_content, token_counts
from ambient_runner.bridges.langgraph.predict_state import Predictions, requested_mappings
from ambient_runner.bridges.langgraph.streamed_message import StreamedMessage, StreamedToolCall
from ambient_runner.bridges.langgraph.subagents import Namespace, Subagents
from ambient_runner.bridges.langgraph.tool_call_ids import ToolCallIds
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.events import RunError, TextMessageContent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event, Terminal
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["Native", "Translator", "TranslatorContext"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslatorContext:
    """Data of the run that is known before it begins."""

    client_tools: frozenset[str] = frozenset()
    """Names of the tools the client executes."""
    message_ids: frozenset[str] = frozenset()
    """Ids of the thread's messages: clients have these already."""
    open_calls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Calls of earlier runs that may be answered now: the tool's name by the call's id."""
    messages_key: str = "messages"
    hidden_keys: Collection[str] = ()
    """Keys of the state that clients never see."""
    predictions: Sequence[Mapping[str, str]] = ()


Native = tuple[Namespace, str, Any]
"""`(namespace, mode, data)`."""

_NOT_JSON = "The arguments of this call are not a JSON object, so it was not executed."


@dataclass(frozen=True, slots=True, eq=False)
class _OpenCall:
    """A call of this run that has no result."""

    namespace: Namespace
    message: StreamedMessage
    call: StreamedToolCall


@dataclass(frozen=True, slots=True, eq=False)
class _CurrentText:
    """The message whose text is being streamed: what `fast_delta` needs of it."""

    native_id: str
    message_id: str
    subagent_id: SubagentId


class Translator:
    """Translator of one run. `interrupts` are open, `is_paused` is True at a breakpoint, `values` is the graph's latest state."""

    def __init__(self, state: StateStore, context: TranslatorContext, call_ids: ToolCallIds | None = None) -> None:
        self.interrupts: dict[str, GraphInterrupt] = {}
        self.is_paused = False
        self.values: Mapping[str, Any] = {}
        self.adopted_ids: set[str] = set()
        """Messages and calls of subgraphs that have become part of the graph's own conversation."""
        self.is_resuming = False
        """True if nodes continue that have run before, and may repeat their messages and calls."""
        self.has_begun = False
        """True once a node has begun."""
        self.usage = Usage()
        self._state = state
        self._context = context
        self._composer = Composer()
        self._subagents = Subagents(self._composer)
        self._predictions = Predictions(state)
        self._messages: dict[str, StreamedMessage] = {}
        self._open_messages: dict[str, StreamedMessage] = {}
        self._known_ids = set(context.message_ids)
        self._emit_flags: dict[str, Mapping[str, Any]] = {}
        self._call_ids = call_ids or ToolCallIds()
        self._earlier_calls = dict(context.open_calls)
        self._repeated_calls: set[str] = set()
        self._unanswered: dict[str, list[_OpenCall]] = {}
        self._running: Counter[tuple[SubagentId, str]] = Counter()
        self._current_text: _CurrentText | None = None
        self._handlers: dict[str, Callable[[Namespace, Any], list[Event]]] = {
            "custom": self._on_custom,
            "tasks": self._on_task,
            "updates": self._on_updates,
            "values": self._on_values,
        }
        for call_id in context.open_calls:
            self._composer.continue_tool_call(call_id)

    @property
    def is_waiting(self) -> bool:
        """True if the graph waits for an answer."""
        return bool(self.interrupts) or self.is_paused

    def fast_delta(self, native: Native) -> TextMessageContent | None:
        """Return the next piece of the text that is being streamed if the event is only that; otherwise None: use `feed`."""
        current = self._current_text
        if current is None or native[1] != "messages":
            return None
        message = native[2][0]
        if (
            message.id != current.native_id
            or type(message) is not AIMessageChunk
            or type(text := message.content) is not str
            or not text
            or message.tool_call_chunks
            or message.additional_kwargs
            or message.usage_metadata is not None
            or message.chunk_position is not None
        ):
            return None
        return TextMessageContent(message_id=current.message_id, delta=text, subagent_run_id=current.subagent_id)

    def mark_known(self, message_ids: Iterable[str]) -> None:
        """Mark messages that the graph has from before, whether clients have received them or not."""
        self._known_ids.update(message_ids)

    def feed(self, native: Native) -> list[Event]:
        """Return the events of a native event that is not a `fast_delta`."""
        namespace, mode, data = native
        if mode == "messages":
            return self._on_message(namespace, *data)
        handler = self._handlers.get(mode)
        return handler(namespace, data) if handler else []

    def close(self, terminal: Terminal) -> list[Event]:
        """Return the ends of everything open. Discarded predictions are not emitted: `StateStore.snapshot_if_changed` does that."""
        self._current_text = None
        self._predictions.discard_all(self.shared_state())
        results = [] if isinstance(terminal, RunError) else self._results_of_unreadable_calls()
        ends = [event for message in self._messages.values() for event in message.composer.close(terminal)]
        return [*results, *ends, *self._composer.close(terminal)]

    def _results_of_unreadable_calls(self) -> list[Event]:
        """Return error results for calls the SDK skipped because it cannot read their arguments. It reads more than JSON."""
        unanswered = {call_id for call_id, _ in self._unanswered_calls()}
        return [
            event
            for open_call in chain.from_iterable(self._unanswered.values())
            if open_call.call.client_id not in unanswered and not is_json_object(open_call.call.arguments)
            for event in open_call.message.composer.tool_result(open_call.call.client_id, _NOT_JSON, is_error=True)
        ]

    def pending_client_calls(self) -> list[str]:
        """Return the client's calls in the graph's conversation without a result: of this run, or of an interrupted one before."""
        return [
            call_id
            for call_id, call in self._unanswered_calls()
            if call_id and call["name"] in self._context.client_tools
        ]

    def _unanswered_calls(self) -> list[tuple[str, Any]]:
        return list(self._call_ids.read_stored(self.values.get(self._context.messages_key)).unanswered)

    def shared_state(self) -> dict[str, Any]:
        """Return the part of the graph's state that clients see."""
        keys = [key for key in self.values if key not in self._context.hidden_keys and not key.startswith("__")]
        return {key: self.values[key] for key in keys}

    def _on_message(self, namespace: Namespace, message: Any, metadata: Mapping[str, Any]) -> list[Event]:
        self._current_text = None
        match message:
            case AIMessageChunk():
                return self._on_chunk(namespace, message, metadata)
            case AIMessage():
                return self._on_whole_message(namespace, message, metadata)
            case ToolMessage():
                return self._on_tool_result(namespace, message)
            case _:
                return []

    def _on_chunk(self, namespace: Namespace, chunk: AIMessageChunk, metadata: Mapping[str, Any]) -> list[Event]:
        events = self._subagents.enter_namespace(namespace)
        message = self._streamed_message(chunk, namespace, metadata)
        self._add_usage(chunk, metadata)
        content = message.emit_content(chunk)
        events += content
        for call, delta in message.calls_in_chunk(chunk):
            events += self._add_to_call(namespace, message, call, delta, metadata)
        if chunk.chunk_position == "last":
            events += self._end_message(message, is_whole=False)
        elif chunk.id and content and type(last := content[-1]) is TextMessageContent and not chunk.tool_call_chunks:
            self._current_text = _CurrentText(chunk.id, last.message_id, message.subagent_id)
        return events

    def _on_whole_message(
        self, namespace: Namespace, whole: AIMessage, metadata: Mapping[str, Any], *, counts_usage: bool = True
    ) -> list[Event]:
        """Emit a message that was not streamed. One that the thread already has is an old one that appears again."""
        if whole.id in self._context.message_ids or whole.id in self._messages:
            return []
        if counts_usage:
            self._add_usage(whole, metadata)
        events = self._subagents.enter_namespace(namespace)
        message = self._streamed_message(whole, namespace, {**metadata, **self._emit_flags.get(whole.id or "", {})})
        return [*events, *message.emit_content(whole), *self._complete_calls(namespace, message, whole, metadata)]

    def _add_usage(self, message: AIMessage, metadata: Mapping[str, Any]) -> None:
        if message.usage_metadata is not None:
            model = metadata.get("ls_model_name") or message.response_metadata.get("model_name")
            counts = token_counts(message.usage_metadata)
            self.usage.add_counts(counts, model=model, provider=metadata.get("ls_provider"))

    def _complete_calls(
        self, namespace: Namespace, message: StreamedMessage, whole: AIMessage, metadata: Mapping[str, Any]
    ) -> list[Event]:
        """Emit the calls that no chunk had, and end the message."""
        events: list[Event] = []
        for call, arguments in message.missing_calls(whole):
            events += self._add_to_call(namespace, message, call, arguments, metadata)
        return [*events, *self._end_message(message)]

    def _streamed_message(
        self, native: AIMessage, namespace: Namespace, metadata: Mapping[str, Any]
    ) -> StreamedMessage:
        native_id = native.id or random_id("message")
        known = self._messages.get(native_id)
        if known is not None:
            return known
        message = self._messages[native_id] = self._open_messages[native_id] = StreamedMessage(
            random_id("message") if native_id in self._context.message_ids else native_id,
            self._subagents.subagent_of(namespace),
            str(metadata.get("langgraph_checkpoint_ns", "")),
            shows_text=metadata.get("emit-messages", True) is not False,
            shows_calls=metadata.get("emit-tool-calls", True) is not False,
        )
        return message

    def _add_to_call(
        self,
        namespace: Namespace,
        message: StreamedMessage,
        call: StreamedToolCall,
        delta: str,
        metadata: Mapping[str, Any],
    ) -> list[Event]:
        """Begin or continue a call. Its arguments may be predicted state."""
        events: list[Event] = []
        if not call.client_id and not self._is_repeated_call(message, call):
            call.client_id = self._call_ids.allocate_client_id(message.message_id, call.id)
            self._unanswered.setdefault(call.id, []).append(_OpenCall(namespace, message, call))
            mappings = [*self._context.predictions, *requested_mappings(metadata)]
            events += self._predictions.start_call(call.client_id, call.name, mappings)
            events += message.composer.tool_start(
                call.client_id, call.name, message.subagent_id, message_id=message.message_id
            )
        return [
            *events,
            *message.composer.tool_args(call.client_id, delta),
            *self._predictions.add_arguments(call.client_id, delta),
        ]

    def _is_repeated_call(self, message: StreamedMessage, call: StreamedToolCall) -> bool:
        """Return True if a resumed node repeats a call that clients know from its first attempt, and give it that id."""
        for client_id, name in reversed(self._earlier_calls.items()) if self.is_resuming else ():
            is_same = name == call.name and self._call_ids.native_id(client_id) == call.id
            if is_same and client_id not in self._repeated_calls:
                call.client_id = client_id
                self._repeated_calls.add(client_id)
                self._call_ids.record_call(message.message_id, client_id)
                return True
        return False

    def _end_message(self, message: StreamedMessage, *, is_whole: bool = True) -> list[Event]:
        """End a complete message. Calls of the client's tools stay open until the run ends: then the client executes them."""
        events: list[Event] = []
        for call in message.calls.values():
            events += self._predictions.add_arguments(call.client_id, "", complete=True)
        keep_open = self._context.client_tools if message.subagent_id is None else frozenset[str]()
        return [*events, *message.end_open_items(keep_open, is_whole=is_whole)]

    def _on_tool_result(self, namespace: Namespace, result: ToolMessage) -> list[Event]:
        self._known_ids.add(result.id or "")
        open_call = self._find_open_call(namespace, result.tool_call_id)
        call_id = open_call.call.client_id if open_call else self._earlier_call_id(result.tool_call_id)
        if call_id is None:
            return []
        if open_call:
            self._unanswered[open_call.call.id].remove(open_call)
        self._earlier_calls.pop(call_id, None)
        self._predictions.finish_call(call_id)
        caller = open_call.message if open_call else None
        return [
            *(self._subagents.enter_namespace(namespace) if caller is None else []),
            *(caller.composer if caller else self._composer).tool_result(
                call_id,
                result_content(cast("Any", result.content)),
                name=result.name,
                subagent_id=self._subagents.subagent_of(namespace) if caller is None else caller.subagent_id,
                is_error=result.status == "error",
            ),
        ]

    def _find_open_call(self, namespace: Namespace, native_id: str) -> _OpenCall | None:
        """Return the call of this run that a result answers: of the newest message in the namespace that has one, else of the newest."""
        candidates = self._unanswered.get(native_id, [])
        nearest = [open_call for open_call in candidates if open_call.namespace == namespace] or candidates
        return next((open_call for open_call in nearest if open_call.message is nearest[-1].message), None)

    def _earlier_call_id(self, native_id: str) -> str | None:
        """Return the id under which clients await a result of an earlier run, or a new id for an unknown call; None if they have it."""
        waiting = self._earlier_call_ids(native_id)
        if waiting:
            return waiting[-1]
        if self._call_ids.has_native_id(native_id):
            return None
        return self._call_ids.allocate_client_id("", native_id)

    def _earlier_call_ids(self, native_id: str) -> list[str]:
        return [client_id for client_id in self._earlier_calls if self._call_ids.native_id(client_id) == native_id]

    def _client_call_id(self, namespace: Namespace, native_id: str) -> str:
        open_call = self._find_open_call(namespace, native_id)
        return open_call.call.client_id if open_call else self._call_ids.latest_client_id(native_id)

    def _on_custom(self, namespace: Namespace, data: Any) -> list[Event]:
        if isinstance(data, MutedMessage):
            self._emit_flags[data.id] = data.flags
            return []
        events = self._subagents.enter_namespace(namespace)
        return [*events, *self._composer.custom(*name_custom_event(data), self._subagents.subagent_of(namespace))]

    def _on_task(self, namespace: Namespace, data: Mapping[str, Any]) -> list[Event]:
        """Handle the start or the end of a node."""
        name: str = data["name"]
        if name.startswith("__"):
            return []
        node = (*namespace, f"{name}:{data['id']}")
        if "input" in data:
            return self._on_node_start(namespace, name, node, data["input"])
        interrupts = data.get("interrupts") or ()
        for raised in interrupts:
            self._record_interrupt(raised, namespace, node)
        return [] if interrupts else self._on_node_end(namespace, name, node, has_failed=bool(data.get("error")))

    def _on_node_start(self, namespace: Namespace, name: str, node: Namespace, node_input: Any) -> list[Event]:
        self._subagents.record_tool_call(node, node_input, partial(self._client_call_id, namespace))
        events, subagent_id = self._subagents.enter_namespace(namespace), self._subagents.subagent_of(namespace)
        self._running[subagent_id, name] += 1
        self.has_begun = True
        return [*events, *self._composer.start_step(name, subagent_id)]

    def _on_node_end(self, namespace: Namespace, name: str, node: Namespace, *, has_failed: bool) -> list[Event]:
        """End the node's messages and its subgraphs, and its step unless another instance of the node still runs."""
        subagent_id, task = self._subagents.subagent_of(namespace), "|".join(node)
        self._running[subagent_id, name] -= 1
        events: list[Event] = []
        for native_id, message in list(self._open_messages.items()):
            if message.task.startswith(task):
                events += self._end_message(self._open_messages.pop(native_id))
                if self._current_text is not None and self._current_text.native_id == native_id:
                    self._current_text = None
        events += self._subagents.leave_node(node, has_failed=has_failed)
        return [*events, *(self._composer.end_step(name, subagent_id) if self._running[subagent_id, name] <= 0 else [])]

    def _record_interrupt(self, raised: Mapping[str, Any], namespace: Namespace, node: Namespace) -> None:
        """Record an interrupt. The innermost graph reports it first; the graphs around it repeat it."""
        if raised["id"] not in self.interrupts:
            self.interrupts[raised["id"]] = GraphInterrupt(
                id=raised["id"],
                value=raised["value"],
                response_schema=raised.get("response_schema"),
                subagent_id=self._subagents.subagent_of(namespace),
                tool_call_id=self._subagents.tool_call_of(node),
            )

    def _on_updates(self, namespace: Namespace, data: Any) -> list[Event]:
        """Handle a node's output: its messages are whole, so what their chunks lacked can be emitted."""
        events: list[Event] = []
        for node, update in data.items() if isinstance(data, Mapping) else ():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            if node == "__interrupt__":
                self.is_paused = not namespace and not update
                continue
            for whole in model_messages_in(update):
                message = self._open_messages.get(whole.id or "")
                if message is not None:
                    events += message.emit_missing_content(whole)
                    events += self._complete_calls(namespace, message, whole, {})
        return events

    def _on_values(self, namespace: Namespace, data: Any) -> list[Event]:
        """Handle the state after a step of the graph itself; subgraphs are ignored."""
        if namespace or not isinstance(data, Mapping):
            return []
        self.values = cast("Mapping[str, Any]", data)
        events = self._sync_messages(self.values.get(self._context.messages_key))
        changes = {key: item for key, item in self.shared_state().items() if not self._predictions.covers_key(key)}
        return [*events, *self._state.update_with_patch(changes)]

    def _sync_messages(self, messages: Any) -> list[Event]:
        """Emit messages of the graph's conversation that were not streamed: taken from a cache, or written as a dict."""
        events: list[Event] = []
        for stored in cast("Iterable[Any]", messages) if isinstance(messages, list) else ():
            native_id = stored.id if isinstance(stored, BaseMessage) else None
            message = self._messages.get(native_id or "")
            if message is not None:
                self._adopt_message(message)
            elif native_id and native_id not in self._known_ids:
                self._known_ids.add(native_id)
                events += self._emit_unstreamed(stored) if self.has_begun else []
        return events

    def _emit_unstreamed(self, stored: Any) -> list[Event]:
        match stored:
            case AIMessage():
                return self._on_whole_message((), stored, {}, counts_usage=False)
            case ToolMessage() if self._find_open_call((), stored.tool_call_id) or self._earlier_call_ids(
                stored.tool_call_id
            ):
                return self._on_tool_result((), stored)
            case _:
                return []

    def _adopt_message(self, message: StreamedMessage) -> None:
        if message.subagent_id is not None:
            self.adopted_ids.update([message.message_id, *(call.client_id for call in message.calls.values())])
