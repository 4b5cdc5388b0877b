"""Repair of an adapter's events into a legal stream. The meaning is kept where it is clear, and every repair is counted.

The rules and their names are those of `verify.py`, which accepts all output of this module; `ids.py` allocates ids, `chunks.py`
expands chunks. A legal stream passes unchanged, except for three things that a reader who joins in the middle depends on: an
implied owner is written out, a subagent does not name a parent that has finished, and an encrypted value names no owner if its id
has two.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from msgspec.structs import replace

from ambient_runner.errors import ProtocolViolation
from ambient_runner.protocol import events as e
from ambient_runner.protocol.chunks import Chunk, ChunkExpander
from ambient_runner.protocol.events import (
    PROTOCOL_VERSION,
    Attributed,
    BaseEvent,
    Event,
    Outcome,
    ReasoningMessageContent,
    Terminal,
    TextMessageContent,
    ToolCallArgs,
)
from ambient_runner.protocol.ids import IdAllocator, MessageKind, with_client_safe_ids
from ambient_runner.protocol.open_items import OpenItems, OwnersById, SubagentId
from ambient_runner.protocol.verify import encrypted_value_owners, is_json_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_Start = e.TextMessageStart | e.ReasoningStart | e.ReasoningMessageStart
_Content = TextMessageContent | ReasoningMessageContent
_End = e.TextMessageEnd | e.ReasoningMessageEnd
_Tagged = TypeVar("_Tagged", bound=Attributed)
_Named = TypeVar("_Named", bound=_Start | _Content | _End | e.ReasoningEnd)


class _StreamFamily(NamedTuple):
    """The data in which text messages, reasoning messages and reasoning spans differ."""

    rule: str
    kind: MessageKind
    open: Mapping[str, Event]
    owners: OwnersById


class Repairer:
    """Repairs the events of one run, in the order they are emitted.

    `known_ids`, and those for which `has_id` returns True, are the message and tool-call ids of the thread's earlier runs. A message or
    call started here under one of them gets another id, and so does every later reference to it. `user_message_ids` are those of user
    messages, which the agent must not change. `renamed_calls` are the calls of earlier runs that got another id: their id by the agent's.

    Attributes:
        repairs: Number of repairs by rule.
        first_repaired_types: Type of the first repaired event by rule.
        call_names: Tool names of the calls started in this run, by call id.
        answered_call_ids: Ids of the calls that have a result in this run.
        open_deltas: Open messages or calls and the owners of all, by the type of their deltas. `feed` returns a delta with text of an
            open one and its owner as it is.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        known_ids: Collection[str] = (),
        *,
        has_id: Callable[[str], bool] | None = None,
        user_message_ids: Collection[str] = (),
        renamed_calls: Mapping[str, str] | None = None,
    ) -> None:
        self.repairs: Counter[str] = Counter()
        self.first_repaired_types: dict[str, str] = {}
        self.call_names: dict[str, str] = {}
        self.answered_call_ids: set[str] = set()
        self._thread_id = thread_id
        self._run_id = run_id
        self._ids = IdAllocator(known_ids, user_message_ids, renamed_calls, has_id=has_id)
        self._chunks = ChunkExpander()
        self._open_items = open_items = OpenItems()
        self._text_messages = _StreamFamily("text", "text", open_items.text_messages, open_items.message_owners)
        self._reasoning_messages = _StreamFamily(
            "reasoning", "reasoning", open_items.reasoning_messages, open_items.reasoning_owners
        )
        self._reasoning_spans = _StreamFamily(
            "reasoning-span", "reasoning", open_items.reasoning_spans, open_items.reasoning_owners
        )
        self.open_deltas: Mapping[type[BaseEvent], tuple[Mapping[str, Event], OwnersById]] = {
            TextMessageContent: (open_items.text_messages, open_items.message_owners),
            ToolCallArgs: (open_items.tool_calls, open_items.call_owners),
            ReasoningMessageContent: (open_items.reasoning_messages, open_items.reasoning_owners),
        }
        self._started = False
        self._ended = False
        self._emitted: list[Event] = []
        self._fed: Event | None = None
        """The event that is being repaired."""

    @property
    def renamed_calls(self) -> Mapping[str, str]:
        """Ids of the calls that got another id, in this run or an earlier one, by the agent's id."""
        return self._ids.renamed_calls

    @property
    def has_started(self) -> bool:
        """True if RUN_STARTED has been emitted."""
        return self._started

    @property
    def has_ended(self) -> bool:
        """True if the terminal event has been emitted. Later events are dropped."""
        return self._ended

    @property
    def is_running(self) -> bool:
        """True between RUN_STARTED and the terminal event. A well-formed patch of the state is returned as it is then."""
        return self._started and not self._ended

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events to emit for this event: usually itself, none if it is dropped.

        Raises:
            ProtocolViolation: It is not one of our events.
        """
        # Hot path: nearly all events are deltas of an open message or call, and cost only these lines.
        open_items = self._open_items
        if type(event) is TextMessageContent:
            i = event.message_id
            if i in open_items.text_messages and event.delta and open_items.message_owners[i] == event.subagent_run_id:
                return (event,)
        elif type(event) is ToolCallArgs:
            i = event.tool_call_id
            if i in open_items.tool_calls and open_items.call_owners[i] == event.subagent_run_id:
                return (event,)
        elif type(event) is ReasoningMessageContent:
            i = event.message_id
            if (
                i in open_items.reasoning_messages
                and event.delta
                and open_items.reasoning_owners[i] == event.subagent_run_id
            ):
                return (event,)
        return self._repair_event(event)

    @property
    def open_count(self) -> int:
        """Number of messages, tool calls, steps and subagents that are open."""
        return self._open_items.count()

    def close(self, limit: int | None = None) -> list[Event]:
        """Close what is open, `limit` items at most, and return the events that do so. For a run that crashed or was stopped."""
        self._emitted = []
        self._emit_all(list(islice(self._open_items.iterate_closing_events(), limit)))
        return self._emitted

    def reopening_events(self) -> list[Event]:
        """Return the events that open again, empty, everything open now. For a reader who joins here and has received RUN_STARTED."""
        return self._open_items.reopening_events()

    def _repair_event(self, event: Event) -> Sequence[Event]:
        handle = self._HANDLERS.get(type(event))
        if handle is None:
            raise ProtocolViolation(f"The agent sent a {type(event).__name__}, which is not an AG-UI event.")
        self._emitted = []
        self._fed = event
        if self._ended:
            self._count_repair("after-terminal")
            return ()
        if not self._started and not isinstance(event, e.RunStarted | e.RunError):
            self._count_repair("run-not-started")
            self._start_run(
                e.RunStarted(thread_id=self._thread_id, run_id=self._run_id, protocol_version=PROTOCOL_VERSION)
            )
        for end in self._chunks.close_streams_before(event):
            self._end_chunk_stream(end)
        handle(self, event)
        return self._emitted

    def _emit(self, event: Event) -> None:
        self._open_items.apply(event)
        self._emitted.append(event)
        if type(event) is e.TextMessageEnd:
            self._ids.end_text(event.message_id)

    def _emit_all(self, events: Sequence[Event]) -> None:
        for event in events:
            self._emit(event)

    def count_repair(self, rule: str, event_type: str, times: int = 1) -> None:
        """Count repairs, also those that were made before the events came here."""
        if times:
            self.repairs[rule] += times
            self.first_repaired_types.setdefault(rule, event_type)

    def _count_repair(self, rule: str, times: int = 1) -> None:
        self.count_repair(rule, e.type_of(self._fed) if self._fed else "", times)

    def _with_owner(self, event: _Tagged, owner: SubagentId) -> _Tagged:
        """Return the event with the owner of the entity it continues. An event without an owner stays as it is."""
        if event.subagent_run_id is None or event.subagent_run_id == owner:
            return event
        self._count_repair("owner")
        return replace(event, subagent_run_id=owner)

    def _with_first_owner(self, event: _Tagged, owners: OwnersById, entity_id: str) -> _Tagged:
        """Return the event with the first owner of an entity that opens again, written out: a late reader has not seen the first event."""
        if entity_id not in owners or owners[entity_id] == event.subagent_run_id:
            return event
        if event.subagent_run_id is not None:
            self._count_repair("owner")
        return replace(event, subagent_run_id=owners[entity_id])

    def _start_run(self, event: e.RunStarted) -> None:
        if self._started:
            return self._count_repair("run-already-started")
        self._started = True
        if event.input is not None:
            self._ids.reserve_messages(event.input.messages)
        self._emit(self._with_run_ids(event))
        return None

    def _finish_run(self, event: e.RunFinished) -> None:
        outcome = self._repair_outcome(event.outcome)
        self._end_run(replace(self._with_run_ids(event), outcome=outcome))

    def _end_run(self, event: Terminal) -> None:
        ends = self._open_items.closing_events(event)
        self._count_repair("left-open", len(ends))
        self._emit_all(ends)
        self._ended = True
        self._emit(event)

    def _with_run_ids(self, event: Any) -> Any:
        if event.thread_id != self._thread_id:
            self._count_repair("thread-id")
        if event.run_id != self._run_id:
            self._count_repair("run-id")
        return replace(event, thread_id=self._thread_id, run_id=self._run_id)

    def _repair_outcome(self, outcome: Outcome | None) -> Outcome | None:
        match outcome:
            case e.Interrupted(interrupts=interrupts):
                unique: dict[str, e.Interrupt] = {}
                for interrupt in interrupts:
                    call_id = self._call_reference(interrupt.tool_call_id)
                    unique.setdefault(interrupt.id, replace(interrupt, tool_call_id=call_id))
                if not unique or len(unique) != len(interrupts):
                    self._count_repair("interrupts")
                return e.Interrupted(interrupts=list(unique.values())) if unique else None
            case e.Success(pending_tool_call_ids=list(pending)):
                return e.Success(pending_tool_call_ids=[self._ids.call_id(call_id) for call_id in pending])
            case _:
                return outcome

    def _call_reference(self, tool_call_id: str | None) -> str | None:
        return None if tool_call_id is None else self._ids.call_id(tool_call_id)

    def _message_reference(self, message_id: str | None) -> str | None:
        return None if message_id is None else self._ids.message_id("text", message_id)

    def _start_message(self, family: _StreamFamily, event: _Start) -> None:
        before = self._ids.message_id(family.kind, event.message_id)
        i = self._ids.start_message(family.kind, event.message_id, before)
        if i in family.open:
            return self._count_repair(f"{family.rule}-already-open")
        if i != before:
            self._count_repair("id-reused")
        self._emit(self._with_first_owner(_with_message_id(event, i), family.owners, i))
        return None

    def _add_content(self, family: _StreamFamily, event: _Content) -> None:
        if not event.delta:
            return self._count_repair("empty-delta")
        if self._ids.message_id(family.kind, event.message_id) not in family.open:
            self._count_repair(f"{family.rule}-not-open")
            self._start_message(family, _implied_start(event))
        i = self._ids.message_id(family.kind, event.message_id)
        self._emit(self._with_owner(_with_message_id(event, i), family.owners[i]))
        return None

    def _end_message(self, family: _StreamFamily, event: _End) -> None:
        i = self._ids.message_id(family.kind, event.message_id)
        if i not in family.open:
            self._count_repair(f"{family.rule}-not-open")
            if i in family.owners:
                return
            self._start_message(family, _implied_start(event))
            i = self._ids.message_id(family.kind, event.message_id)
        self._emit(self._with_owner(_with_message_id(event, i), family.owners[i]))

    def _end_reasoning_span(self, event: e.ReasoningEnd) -> None:
        i = self._ids.message_id("reasoning", event.message_id)
        if i not in self._open_items.reasoning_spans:
            return self._count_repair("reasoning-span-not-open")
        self._emit(self._with_owner(_with_message_id(event, i), self._open_items.reasoning_owners[i]))
        return None

    def _start_call(self, event: e.ToolCallStart) -> None:
        current = self._ids.call_id(event.tool_call_id)
        if current in self.call_names:
            return self._count_repair(
                "tool-already-open" if current in self._open_items.tool_calls else "tool-replayed"
            )
        i = self._ids.start_call(event.tool_call_id)
        if i != current:
            self._count_repair("id-reused")
        self.call_names[i] = event.tool_call_name
        parent = self._message_reference(event.parent_message_id)
        if i is not event.tool_call_id or parent is not event.parent_message_id:
            event = replace(event, tool_call_id=i, parent_message_id=parent)
        event = self._with_valid_parent(self._with_first_owner(event, self._open_items.call_owners, i))
        self._ids.register_message("text", event.parent_message_id or i)
        self._emit(event)
        return None

    def _with_valid_parent(self, event: e.ToolCallStart) -> e.ToolCallStart:
        """Return the call with an assistant message of the same owner as its parent; any other call gets a message of its own."""
        owners, parent = self._open_items.message_owners, event.parent_message_id
        if parent is not None and not self._ids.may_be_text(parent):
            self._count_repair("tool-parent")
            return replace(event, parent_message_id=None)
        if parent not in owners or owners[parent] == event.subagent_run_id:
            return event
        if event.subagent_run_id is None and event.tool_call_id not in self._open_items.call_owners:
            return replace(event, subagent_run_id=owners[parent])
        self._count_repair("tool-parent")
        return replace(event, parent_message_id=None)

    def _continue_call(self, event: ToolCallArgs | e.ToolCallEnd) -> None:
        i = self._ids.call_id(event.tool_call_id)
        if i not in self._open_items.tool_calls:
            return self._count_repair("tool-not-open")
        named = event if i is event.tool_call_id else replace(event, tool_call_id=i)
        self._emit(self._with_owner(named, self._open_items.call_owners[i]))
        return None

    def _add_result(self, event: e.ToolCallResult) -> None:
        call = self._ids.call_id(event.tool_call_id)
        if call in self.answered_call_ids:
            return self._count_repair("result-repeated")
        if call in self._open_items.tool_calls:
            self._count_repair("result-before-end")
            self._emit(e.ToolCallEnd(tool_call_id=call, subagent_run_id=self._open_items.call_owners[call]))
        self.answered_call_ids.add(call)
        message_id = self._ids.start_result(event.message_id)
        if message_id != event.message_id:
            self._count_repair("id-reused")
        if call is not event.tool_call_id or message_id is not event.message_id:
            event = replace(event, tool_call_id=call, message_id=message_id)
        self._emit(event)
        return None

    def _add_encrypted_value(self, event: e.ReasoningEncryptedValue) -> None:
        is_call = event.subtype == "tool-call"
        i = self._ids.call_id(event.entity_id) if is_call else self._ids.entity_id(event.entity_id)
        if not is_call and self._ids.is_user_message(i):
            return self._count_repair("of-a-user")
        event = replace(event, entity_id=i)
        owner = encrypted_value_owners(self._open_items, event).get(i, event.subagent_run_id)
        self._emit(self._with_owner(event, None if not is_call and self._has_two_owners(i) else owner))
        return None

    def _has_two_owners(self, message_id: str) -> bool:
        """Return True if the id names a message and a reasoning message of different owners.

        A late reader may know only one of the two, so neither owner can be named.
        """
        message, reasoning = self._open_items.message_owners, self._open_items.reasoning_owners
        return message_id in message and message_id in reasoning and message[message_id] != reasoning[message_id]

    def _start_step(self, event: e.StepStarted) -> None:
        if (event.subagent_run_id, event.step_name) in self._open_items.steps:
            return self._count_repair("step-already-open")
        self._emit(event)
        return None

    def _finish_step(self, event: e.StepFinished) -> None:
        owners = self._open_items.step_owners.get(event.step_name, set())
        if event.subagent_run_id in owners:
            self._emit(event)
        elif len(owners) == 1:
            self._count_repair("owner")
            self._emit(replace(event, subagent_run_id=next(iter(owners))))
        else:
            self._count_repair("step-not-open")

    def _start_subagent(self, event: e.SubagentStarted) -> None:
        if event.subagent_run_id in self._open_items.subagents:
            return self._count_repair("subagent-already-open")
        if event.subagent_run_id in self._open_items.finished_subagents:
            return self._count_repair("subagent-reused")
        parent = event.parent_subagent_run_id
        if parent is not None and parent not in self._open_items.subagents:
            self._count_repair("subagent-parent")
            parent = None
        call, message = (
            self._call_reference(event.parent_tool_call_id),
            self._message_reference(event.parent_message_id),
        )
        self._emit(replace(event, parent_subagent_run_id=parent, parent_tool_call_id=call, parent_message_id=message))
        return None

    def _end_subagent(self, event: e.SubagentFinished | e.SubagentError) -> None:
        if event.subagent_run_id not in self._open_items.subagents:
            return self._count_repair("subagent-not-open")
        ends = self._open_items.closing_events_of(event.subagent_run_id)
        self._count_repair("left-open", len(ends))
        self._emit_all([*ends, event])
        return None

    def _emit_state_delta(self, event: e.StateDelta) -> None:
        if not is_json_patch(event.delta):
            return self._count_repair("patch")
        self._emit(event)
        return None

    def _emit_activity_delta(self, event: e.ActivityDelta) -> None:
        if not is_json_patch(event.patch):
            return self._count_repair("patch")
        event = replace(event, message_id=self._ids.message_id("activity", event.message_id))
        if self._ids.is_user_message(event.message_id):
            return self._count_repair("of-a-user")
        owners = self._open_items.activity_owners
        self._emit(self._with_owner(event, owners.get(event.message_id, event.subagent_run_id)))
        return None

    def _emit_activity_snapshot(self, event: e.ActivitySnapshot) -> None:
        before = self._ids.message_id("activity", event.message_id)
        event = replace(event, message_id=self._ids.start_activity(event.message_id))
        if event.message_id != before:
            self._count_repair("of-a-user")
        if event.replace is False:
            event = self._with_first_owner(event, self._open_items.activity_owners, event.message_id)
        self._emit(event)

    def _emit_messages_snapshot(self, event: e.MessagesSnapshot) -> None:
        if event.messages:
            event = replace(event, messages=with_client_safe_ids(event.messages))
        self._ids.register_messages(event.messages)
        self._emit(event)

    def _expand_chunk(self, chunk: Chunk) -> None:
        explicit = self._chunks.expand(chunk)
        if explicit is None:
            return self._count_repair("chunk")
        for event in explicit:
            if isinstance(event, e.TextMessageEnd | e.ReasoningMessageEnd | e.ToolCallEnd):
                self._end_chunk_stream(event)
            else:
                self._HANDLERS[type(event)](self, event)
        return None

    def _end_chunk_stream(self, end: Event) -> None:
        """Emit the end of a chunk stream, unless another event has closed it."""
        match end:
            case e.TextMessageEnd() if self._ids.message_id("text", end.message_id) in self._open_items.text_messages:
                self._end_message(self._text_messages, end)
            case e.ReasoningMessageEnd() if (
                self._ids.message_id("reasoning", end.message_id) in self._open_items.reasoning_messages
            ):
                self._end_message(self._reasoning_messages, end)
            case e.ToolCallEnd() if self._ids.call_id(end.tool_call_id) in self._open_items.tool_calls:
                self._continue_call(end)
            case _:
                pass

    _HANDLERS: ClassVar[dict[type[BaseEvent], Callable[[Repairer, Any], None]]] = {
        e.RunStarted: _start_run,
        e.RunFinished: _finish_run,
        e.RunError: _end_run,
        e.StepStarted: _start_step,
        e.StepFinished: _finish_step,
        e.TextMessageStart: lambda self, event: self._start_message(self._text_messages, event),
        TextMessageContent: lambda self, event: self._add_content(self._text_messages, event),
        e.TextMessageEnd: lambda self, event: self._end_message(self._text_messages, event),
        e.TextMessageChunk: _expand_chunk,
        e.ToolCallStart: _start_call,
        ToolCallArgs: _continue_call,
        e.ToolCallEnd: _continue_call,
        e.ToolCallChunk: _expand_chunk,
        e.ToolCallResult: _add_result,
        e.StateSnapshot: _emit,
        e.StateDelta: _emit_state_delta,
        e.MessagesSnapshot: _emit_messages_snapshot,
        e.ActivitySnapshot: _emit_activity_snapshot,
        e.ActivityDelta: _emit_activity_delta,
        e.Raw: _emit,
        e.Custom: _emit,
        e.ReasoningStart: lambda self, event: self._start_message(self._reasoning_spans, event),
        e.ReasoningEnd: _end_reasoning_span,
        e.ReasoningMessageStart: lambda self, event: self._start_message(self._reasoning_messages, event),
        ReasoningMessageContent: lambda self, event: self._add_content(self._reasoning_messages, event),
        e.ReasoningMessageEnd: lambda self, event: self._end_message(self._reasoning_messages, event),
        e.ReasoningMessageChunk: _expand_chunk,
        e.ReasoningEncryptedValue: _add_encrypted_value,
        e.SubagentStarted: _start_subagent,
        e.SubagentFinished: _end_subagent,
        e.SubagentError: _end_subagent,
    }


def _with_message_id(event: _Named, message_id: str) -> _Named:
    """Return the event of a message with this id. Compared by identity: an equal id that is another object only costs a copy."""
    return event if event.message_id is message_id else replace(event, message_id=message_id)


def _implied_start(event: _Content | _End) -> _Start:
    """Return the start event that an event without one implies."""
    if isinstance(event, TextMessageContent | e.TextMessageEnd):
        return e.TextMessageStart(message_id=event.message_id, role="assistant", subagent_run_id=event.subagent_run_id)
    return e.ReasoningMessageStart(message_id=event.message_id, subagent_run_id=event.subagent_run_id)
