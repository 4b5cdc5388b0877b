"""Translate a LangGraph stream into AG-UI events. Pure: native events in, events out, nothing awaited.

A native event is `(namespace, mode, data)`, as `astream` yields it with several modes and subgraphs. A subgraph is a
subagent; a node is a step; a model's message is a `StreamedMessage`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langgraph.constants import END

from ambient_runner.bridges.langgraph.copilotkit import (
    EmittedMessage,
    EmittedState,
    EmittedToolCall,
    ExitRequest,
    parse_emitted,
    shown_tools,
    shows_text,
)
from ambient_runner.bridges.langgraph.instrumentation import DispatchedEvent, MutedMessage, ToolChain, name_custom_event
from ambient_runner.bridges.langgraph.interrupts import GraphInterrupt
from ambient_runner.bridges.langgraph.messages import model_messages_in, token_counts
from ambient_runner.bridges.langgraph.predict_state import Predictions, requested_mappings
from ambient_runner.bridges.langgraph.streamed_message import StreamedMessage, StreamedToolCall
from ambient_runner.bridges.langgraph.streamed_messages import StreamedMessages
from ambient_runner.bridges.langgraph.subagents import Namespace, Subagents
from ambient_runner.bridges.langgraph.tool_call_ids import ToolCallIds
from ambient_runner.bridges.langgraph.tool_calls import ToolCalls
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.events import RunError, TextMessageContent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ambient_runner.bridges.langgraph.copilotkit import Emitted
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
    earlier_calls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Calls of earlier runs that may be answered now: the tool's name by the call's id."""
    messages_key: str = "messages"
    hidden_keys: Collection[str] = ()
    """Keys of the state that clients never see."""
    shared_keys: Collection[str] | None = None
    """Keys of the graph's state that clients see; None for all that are not hidden."""
    private_keys: Collection[str] = ()
    """Keys of the graph's state that clients do not see, also in state that a node emits."""
    predictions: Sequence[Mapping[str, str]] = ()


Native = tuple[Namespace, str, Any]
"""`(namespace, mode, data)`."""


@dataclass(frozen=True, slots=True, eq=False)
class _CurrentText:
    """The message whose text is being streamed: what `fast_delta` needs of it."""

    native_id: str
    message_id: str
    subagent_id: SubagentId
    pieces: list[str]
    """The text so far."""


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
        self.messages = StreamedMessages()
        self._known_ids = set(context.message_ids)
        self._emit_flags: dict[str, Mapping[str, Any]] = {}
        self._calls = ToolCalls(
            self._composer, self._subagents, call_ids or ToolCallIds(), self._predictions, context.earlier_calls
        )
        self._emitted = self._calls.emitted
        self._running: Counter[tuple[SubagentId, str]] = Counter()
        self._current_text: _CurrentText | None = None
        self._handlers: dict[str, Callable[[Namespace, Any], list[Event]]] = {
            "custom": self._on_custom,
            "tasks": self._on_task,
            "updates": self._on_updates,
            "values": self._on_values,
        }

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
        current.pieces.append(text)
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
        results = (
            [] if isinstance(terminal, RunError) else self._calls.results_of_unreadable_calls(self._stored_messages())
        )
        ends = [event for message in self.messages for event in message.composer.close(terminal)]
        return [*results, *ends, *self._composer.close(terminal)]

    def pending_client_calls(self) -> list[str]:
        """Return the client's calls without a result: of the graph's conversation, also of earlier runs, and emitted ones."""
        waiting = self._calls.pending_tools(self._stored_messages())
        return [call_id for call_id, name in waiting.items() if call_id and name in self._context.client_tools]

    def pending_calls(self) -> list[tuple[str, str, Any]]:
        """Return the calls without a result: id, name and arguments. Those of this run first, then those of the graph's conversation."""
        return self._calls.pending_calls(self._stored_messages())

    def _stored_messages(self) -> Any:
        return self.values.get(self._context.messages_key)

    def shared_state(self) -> dict[str, Any]:
        """Return the part of the graph's state that clients see."""
        shared = self._context.shared_keys
        return {key: value for key, value in self._visible_part(self.values).items() if shared is None or key in shared}

    def _visible_part(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if self._is_visible(key)}

    def _is_visible(self, key: str) -> bool:
        context = self._context
        return key not in context.hidden_keys and key not in context.private_keys and not key.startswith("__")

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
            self._current_text = _CurrentText(chunk.id, last.message_id, message.subagent_id, message.text_pieces)
        return events

    def _on_whole_message(
        self, namespace: Namespace, whole: AIMessage, metadata: Mapping[str, Any], *, counts_usage: bool = True
    ) -> list[Event]:
        """Emit a message that was not streamed. One that the thread already has is an old one that appears again."""
        if whole.id in self._context.message_ids or self.messages.get(whole.id) is not None:
            return []
        emitted = self._emitted.take_message(whole)
        if emitted is not None and whole.id:
            self.messages.add_id(whole.id, emitted)
            return []
        streamed = self._find_streamed(namespace, whole, metadata)
        if streamed is not None:
            return [*streamed.emit_missing_content(whole), *self._complete_calls(namespace, streamed, whole, metadata)]
        if counts_usage:
            self._add_usage(whole, metadata)
        events = self._subagents.enter_namespace(namespace)
        message = self._streamed_message(whole, namespace, {**metadata, **self._emit_flags.get(whole.id or "", {})})
        return [*events, *message.emit_content(whole), *self._complete_calls(namespace, message, whole, metadata)]

    def _find_streamed(
        self, namespace: Namespace, whole: AIMessage, metadata: Mapping[str, Any]
    ) -> StreamedMessage | None:
        """Return the message that was streamed under other ids: by the same model call, or by the node that returns a copy of it."""
        if not whole.id:
            return None
        task, subagent_id = str(metadata.get("langgraph_checkpoint_ns", "")), self._subagents.subagent_of(namespace)
        return self.messages.find(whole.id, metadata) or self.messages.find_copied(whole, subagent_id, task)

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
        known = self.messages.find(native_id, metadata)
        if known is not None:
            return known
        message = StreamedMessage(
            random_id("message") if native_id in self._context.message_ids else native_id,
            self._subagents.subagent_of(namespace),
            str(metadata.get("langgraph_checkpoint_ns", "")),
            shows_text=shows_text(metadata),
            shown_tools=shown_tools(metadata),
        )
        self.messages.add(native_id, metadata, message)
        return message

    def _add_to_call(
        self,
        namespace: Namespace,
        message: StreamedMessage,
        call: StreamedToolCall,
        delta: str,
        metadata: Mapping[str, Any],
    ) -> list[Event]:
        requested = [*self._context.predictions, *requested_mappings(metadata)]
        mappings = [mapping for mapping in requested if self._is_visible(mapping["state_key"])]
        return self._calls.add_arguments(namespace, message, call, delta, mappings, is_resuming=self.is_resuming)

    def _end_message(self, message: StreamedMessage, *, is_whole: bool = True) -> list[Event]:
        """End a complete message."""
        return [*self._calls.complete_arguments(message), *message.end_open_items(is_whole=is_whole)]

    def _on_tool_result(self, namespace: Namespace, result: ToolMessage) -> list[Event]:
        self._known_ids.add(result.id or "")
        return self._calls.add_result(namespace, result)

    def _on_custom(self, namespace: Namespace, data: Any) -> list[Event]:
        if isinstance(data, MutedMessage):
            self._emit_flags[data.id] = data.flags
            return []
        emitted = parse_emitted(data) if isinstance(data, DispatchedEvent) else None
        if emitted is not None:
            return [*self._subagents.enter_namespace(namespace), *self._on_emitted(namespace, emitted)]
        if isinstance(data, ToolChain):
            self._subagents.record_chain(data, partial(self._calls.find_client_id, namespace))
            return []
        events = self._subagents.enter_namespace(namespace)
        return [*events, *self._composer.custom(*name_custom_event(data), self._subagents.subagent_of(namespace))]

    def _on_emitted(self, namespace: Namespace, emitted: Emitted) -> list[Event]:
        """Handle what a node sends before it ends."""
        subagent_id = self._subagents.subagent_of(namespace)
        match emitted:
            case EmittedMessage():
                return self._emit_message(emitted, namespace)
            case EmittedToolCall():
                return self._emitted.emit_call(emitted, subagent_id)
            case EmittedState():
                return self._predictions.show_state(self._visible_part(emitted.values))
            case ExitRequest():
                return self._composer.custom("Exit", True, subagent_id)

    def _emit_message(self, emitted: EmittedMessage, namespace: Namespace) -> list[Event]:
        """Emit a message at once. The node also returns it, usually under another id: then it is not emitted again."""
        native = AIMessage(emitted.text, id=None if emitted.id in self._known_ids else emitted.id)
        message = self._streamed_message(native, namespace, {})
        self._emitted.add_message(emitted.text, message)
        return [*message.emit_content(native), *self._end_message(message)]

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
        if interrupts:
            return []
        returned = self._emit_returned(namespace, data.get("result"))
        return [*returned, *self._on_node_end(namespace, name, node, has_failed=bool(data.get("error")))]

    def _emit_returned(self, namespace: Namespace, result: Any) -> list[Event]:
        """Emit the messages of `entrypoint.final`: they have not been streamed, and nothing gives them ids."""
        value = cast("Mapping[str, Any]", result).get(END) if isinstance(result, Mapping) else None
        unstreamed = [message for message in model_messages_in(value) if not message.id]
        return [event for message in unstreamed for event in self._on_whole_message(namespace, message, {})]

    def _on_node_start(self, namespace: Namespace, name: str, node: Namespace, node_input: Any) -> list[Event]:
        self._subagents.record_tool_call(node, node_input, partial(self._calls.find_client_id, namespace))
        events, subagent_id = self._subagents.enter_namespace(namespace), self._subagents.subagent_of(namespace)
        self._running[subagent_id, name] += 1
        self.has_begun = True
        return [*events, *self._composer.start_step(name, subagent_id)]

    def _on_node_end(self, namespace: Namespace, name: str, node: Namespace, *, has_failed: bool) -> list[Event]:
        """End the node's messages and its subgraphs, and its step unless another instance of the node still runs."""
        subagent_id, task = self._subagents.subagent_of(namespace), "|".join(node)
        self._running[subagent_id, name] -= 1
        events: list[Event] = []
        for message in self.messages.close_node(task):
            events += self._end_message(message)
            if self._current_text is not None and self._current_text.native_id in message.native_ids:
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
                message = self.messages.get_open(whole.id)
                if message is not None:
                    events += message.emit_missing_content(whole)
                    events += self._complete_calls(namespace, message, whole, {})
        return events

    def _on_values(self, namespace: Namespace, data: Any) -> list[Event]:
        """Handle the state after a step of the graph itself; subgraphs are ignored."""
        if namespace or not isinstance(data, Mapping):
            return []
        self.values = cast("Mapping[str, Any]", data)
        events = self._sync_messages(self._stored_messages())
        changes = {key: item for key, item in self.shared_state().items() if not self._predictions.covers_key(key)}
        return [*events, *self._state.update_with_patch(changes)]

    def _sync_messages(self, messages: Any) -> list[Event]:
        """Emit messages of the graph's conversation that were not streamed: taken from a cache, or written as a dict."""
        events: list[Event] = []
        for stored in cast("Iterable[Any]", messages) if isinstance(messages, list) else ():
            native_id = stored.id if isinstance(stored, BaseMessage) else None
            message = self.messages.get(native_id)
            if message is not None:
                message.is_kept = True
                self._adopt_message(message)
            elif native_id and native_id not in self._known_ids:
                self._known_ids.add(native_id)
                events += self._emit_unstreamed(stored) if self.has_begun else []
        return events

    def _emit_unstreamed(self, stored: Any) -> list[Event]:
        match stored:
            case AIMessage():
                return self._on_whole_message((), stored, {}, counts_usage=False)
            case ToolMessage() if self._calls.is_waiting_for(stored):
                return self._on_tool_result((), stored)
            case _:
                return []

    def _adopt_message(self, message: StreamedMessage) -> None:
        if message.subagent_id is not None:
            self.adopted_ids.update([message.message_id, *(call.client_id for call in message.calls.values())])
