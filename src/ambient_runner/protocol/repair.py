"""Whatever an adapter emits, turned into a legal stream: the meaning is kept where it is clear, and every repair is counted.

The rules and their names are those of `verify.py`, which accepts everything that comes out of here; `ids.py` finds ids, `lanes.py`
expands chunks. A legal stream passes unchanged but for two things that a reader who joins in the middle depends on: an
implied owner is written out, and a subagent does not name a parent that has finished.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from msgspec.structs import replace

from ambient_runner.errors import ProtocolViolation
from ambient_runner.protocol import events as e
from ambient_runner.protocol.chunks import Chunk, ChunkLanes
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
from ambient_runner.protocol.ids import Ids, Kind, fitted
from ambient_runner.protocol.open_items import Open, Owner, Owners
from ambient_runner.protocol.verify import encrypted_owners, is_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_Start = e.TextMessageStart | e.ReasoningStart | e.ReasoningMessageStart
_Content = TextMessageContent | ReasoningMessageContent
_End = e.TextMessageEnd | e.ReasoningMessageEnd
_Tagged = TypeVar("_Tagged", bound=Attributed)


class _Family(NamedTuple):
    """What text messages, reasoning messages and reasoning spans differ in."""

    rule: str
    kind: Kind
    open: Mapping[str, Event]
    owners: Owners


class Repairer:
    """Repairs the events of one run, in the order they are emitted.

    `known_ids` are the message and tool-call ids of the thread's earlier runs. A message or call started here under one of them gets
    another id, and so does every later reference to it. `users` are those of what users said, which is not the agent's to change.

    Attributes:
        repairs: How often each rule was applied.
        calls: The names of the calls started in this run, by id.
        results: The ids of the calls answered in this run.
    """

    def __init__(
        self, thread_id: str, run_id: str, known_ids: Collection[str] = (), *, users: Collection[str] = ()
    ) -> None:
        self.repairs: Counter[str] = Counter()
        self.calls: dict[str, str] = {}
        self.results: set[str] = set()
        self._thread_id = thread_id
        self._run_id = run_id
        self._ids = Ids(known_ids, users)
        self._lanes = ChunkLanes()
        self._open = state = Open()
        self._texts = _Family("text", "text", state.texts, state.message_owners)
        self._thoughts = _Family("reasoning", "reasoning", state.thoughts, state.reasoning_owners)
        self._spans = _Family("reasoning-span", "reasoning", state.spans, state.reasoning_owners)
        self._started = False
        self._ended = False
        self._out: list[Event] = []

    @property
    def started(self) -> bool:
        """Whether RUN_STARTED has been emitted."""
        return self._started

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been emitted; everything after it is dropped."""
        return self._ended

    def feed(self, event: Event) -> Sequence[Event]:
        """What to emit for this event: usually itself, nothing when it is dropped.

        Raises:
            ProtocolViolation: It is not one of our events.
        """
        # Nearly all events are deltas of something open; these lines are their whole cost.
        state = self._open
        if type(event) is TextMessageContent:
            i = event.message_id
            if i in state.texts and event.delta and state.message_owners[i] == event.subagent_run_id:
                return (event,)
        elif type(event) is ToolCallArgs:
            i = event.tool_call_id
            if i in state.calls and state.call_owners[i] == event.subagent_run_id:
                return (event,)
        elif type(event) is ReasoningMessageContent:
            i = event.message_id
            if i in state.thoughts and event.delta and state.reasoning_owners[i] == event.subagent_run_id:
                return (event,)
        return self._repair(event)

    def close(self) -> list[Event]:
        """The events that end everything open; afterwards nothing is. For a run that crashed or was stopped."""
        self._out = []
        self._emit_all(self._open.ends())
        return self._out

    def reopening(self) -> list[Event]:
        """The events that open, empty, everything open now, for a reader who joins here and has had its RUN_STARTED."""
        return self._open.starts()

    def _repair(self, event: Event) -> Sequence[Event]:
        handle = self._HANDLERS.get(type(event))
        if handle is None:
            raise ProtocolViolation(f"The agent sent a {type(event).__name__}, which is not an AG-UI event.")
        self._out = []
        if self._ended:
            self._count("after-terminal")
            return ()
        if not self._started and not isinstance(event, e.RunStarted | e.RunError):
            self._count("run-not-started")
            self._run_started(
                e.RunStarted(thread_id=self._thread_id, run_id=self._run_id, protocol_version=PROTOCOL_VERSION)
            )
        for end in self._lanes.interrupt(event):
            self._end_chunked(end)
        handle(self, event)
        return self._out

    def _emit(self, event: Event) -> None:
        self._open.apply(event)
        self._out.append(event)
        if type(event) is e.TextMessageEnd:
            self._ids.end_text(event.message_id)

    def _emit_all(self, events: Sequence[Event]) -> None:
        for event in events:
            self._emit(event)

    def _count(self, rule: str) -> None:
        self.repairs[rule] += 1

    def _owned(self, event: _Tagged, owner: Owner) -> _Tagged:
        """A continuation belongs to whoever opened; untagged it does not say otherwise."""
        if event.subagent_run_id is None or event.subagent_run_id == owner:
            return event
        self._count("owner")
        return replace(event, subagent_run_id=owner)

    def _owned_again(self, event: _Tagged, owners: Owners, entity_id: str) -> _Tagged:
        """What is opened again belongs to its first opener, in so many words: a late reader has not seen that one."""
        if entity_id not in owners or owners[entity_id] == event.subagent_run_id:
            return event
        if event.subagent_run_id is not None:
            self._count("owner")
        return replace(event, subagent_run_id=owners[entity_id])

    def _run_started(self, event: e.RunStarted) -> None:
        if self._started:
            return self._count("run-already-started")
        self._started = True
        if event.input is not None:
            self._ids.know(event.input.messages)
        self._emit(self._of_this_run(event))
        return None

    def _run_finished(self, event: e.RunFinished) -> None:
        outcome = self._outcome(event.outcome)
        self._run_ended(replace(self._of_this_run(event), outcome=outcome))

    def _run_ended(self, event: Terminal) -> None:
        ends = self._open.ends(event)
        self.repairs.update(["left-open"] * len(ends))
        self._emit_all(ends)
        self._ended = True
        self._emit(event)

    def _of_this_run(self, event: Any) -> Any:
        if event.thread_id != self._thread_id:
            self._count("thread-id")
        if event.run_id != self._run_id:
            self._count("run-id")
        return replace(event, thread_id=self._thread_id, run_id=self._run_id)

    def _outcome(self, outcome: Outcome | None) -> Outcome | None:
        match outcome:
            case e.Interrupted(interrupts=interrupts):
                first: dict[str, e.Interrupt] = {}
                for one in interrupts:
                    first.setdefault(one.id, replace(one, tool_call_id=self._call_reference(one.tool_call_id)))
                if not first or len(first) != len(interrupts):
                    self._count("interrupts")
                return e.Interrupted(interrupts=list(first.values())) if first else None
            case e.Success(pending_tool_call_ids=list(pending)):
                return e.Success(pending_tool_call_ids=[self._ids.call(one) for one in pending])
            case _:
                return outcome

    def _call_reference(self, tool_call_id: str | None) -> str | None:
        return None if tool_call_id is None else self._ids.call(tool_call_id)

    def _message_reference(self, message_id: str | None) -> str | None:
        return None if message_id is None else self._ids.message("text", message_id)

    def _start(self, family: _Family, event: _Start) -> None:
        before = self._ids.message(family.kind, event.message_id)
        i = self._ids.start_message(family.kind, event.message_id)
        if i in family.open:
            return self._count(f"{family.rule}-already-open")
        if i != before:
            self._count("id-reused")
        self._emit(self._owned_again(replace(event, message_id=i), family.owners, i))
        return None

    def _content(self, family: _Family, event: _Content) -> None:
        if not event.delta:
            return self._count("empty-delta")
        if self._ids.message(family.kind, event.message_id) not in family.open:
            self._count(f"{family.rule}-not-open")
            self._start(family, _start_of(event))
        i = self._ids.message(family.kind, event.message_id)
        self._emit(self._owned(replace(event, message_id=i), family.owners[i]))
        return None

    def _end(self, family: _Family, event: _End) -> None:
        i = self._ids.message(family.kind, event.message_id)
        if i not in family.open:
            self._count(f"{family.rule}-not-open")
            if i in family.owners:
                return
            self._start(family, _start_of(event))
            i = self._ids.message(family.kind, event.message_id)
        self._emit(self._owned(replace(event, message_id=i), family.owners[i]))

    def _span_end(self, event: e.ReasoningEnd) -> None:
        i = self._ids.message("reasoning", event.message_id)
        if i not in self._open.spans:
            return self._count("reasoning-span-not-open")
        self._emit(self._owned(replace(event, message_id=i), self._open.reasoning_owners[i]))
        return None

    def _call_start(self, event: e.ToolCallStart) -> None:
        current = self._ids.call(event.tool_call_id)
        if current in self.calls:
            return self._count("tool-already-open" if current in self._open.calls else "tool-replayed")
        i = self._ids.start_call(event.tool_call_id)
        if i != current:
            self._count("id-reused")
        self.calls[i] = event.tool_call_name
        event = replace(event, tool_call_id=i, parent_message_id=self._message_reference(event.parent_message_id))
        event = self._carried(self._owned_again(event, self._open.call_owners, i))
        self._ids.note_message("text", event.parent_message_id or i)
        self._emit(event)
        return None

    def _carried(self, event: e.ToolCallStart) -> e.ToolCallStart:
        """A call and the message that carries it have one owner; a call that says otherwise gets a message of its own."""
        owners, parent = self._open.message_owners, event.parent_message_id
        if parent not in owners or owners[parent] == event.subagent_run_id:
            return event
        if event.subagent_run_id is None and event.tool_call_id not in self._open.call_owners:
            return replace(event, subagent_run_id=owners[parent])
        self._count("tool-parent")
        return replace(event, parent_message_id=None)

    def _call_continued(self, event: ToolCallArgs | e.ToolCallEnd) -> None:
        i = self._ids.call(event.tool_call_id)
        if i not in self._open.calls:
            return self._count("tool-not-open")
        self._emit(self._owned(replace(event, tool_call_id=i), self._open.call_owners[i]))
        return None

    def _result(self, event: e.ToolCallResult) -> None:
        call = self._ids.call(event.tool_call_id)
        if call in self.results:
            return self._count("result-repeated")
        if call in self._open.calls:
            self._count("result-before-end")
            self._emit(e.ToolCallEnd(tool_call_id=call, subagent_run_id=self._open.call_owners[call]))
        self.results.add(call)
        message_id = self._ids.start_result(event.message_id)
        if message_id != event.message_id:
            self._count("id-reused")
        self._emit(replace(event, tool_call_id=call, message_id=message_id))
        return None

    def _encrypted(self, event: e.ReasoningEncryptedValue) -> None:
        is_call = event.subtype == "tool-call"
        i = self._ids.call(event.entity_id) if is_call else self._ids.entity(event.entity_id)
        if not is_call and self._ids.is_users(i):
            return self._count("of-a-user")
        event = replace(event, entity_id=i)
        self._emit(self._owned(event, encrypted_owners(self._open, event).get(i, event.subagent_run_id)))
        return None

    def _step_started(self, event: e.StepStarted) -> None:
        if (event.subagent_run_id, event.step_name) in self._open.steps:
            return self._count("step-already-open")
        self._emit(event)
        return None

    def _step_finished(self, event: e.StepFinished) -> None:
        owners = self._open.step_owners.get(event.step_name, set())
        if event.subagent_run_id in owners:
            self._emit(event)
        elif len(owners) == 1:
            self._count("owner")
            self._emit(replace(event, subagent_run_id=next(iter(owners))))
        else:
            self._count("step-not-open")

    def _subagent_started(self, event: e.SubagentStarted) -> None:
        if event.subagent_run_id in self._open.subagents:
            return self._count("subagent-already-open")
        if event.subagent_run_id in self._open.finished_subagents:
            return self._count("subagent-reused")
        parent = event.parent_subagent_run_id
        if parent is not None and parent not in self._open.subagents:
            self._count("subagent-parent")
            parent = None
        call, message = (
            self._call_reference(event.parent_tool_call_id),
            self._message_reference(event.parent_message_id),
        )
        self._emit(replace(event, parent_subagent_run_id=parent, parent_tool_call_id=call, parent_message_id=message))
        return None

    def _subagent_ended(self, event: e.SubagentFinished | e.SubagentError) -> None:
        if event.subagent_run_id not in self._open.subagents:
            return self._count("subagent-not-open")
        ends = self._open.ends_of(event.subagent_run_id)
        self.repairs.update(["left-open"] * len(ends))
        self._emit_all([*ends, event])
        return None

    def _state_delta(self, event: e.StateDelta) -> None:
        if not is_patch(event.delta):
            return self._count("patch")
        self._emit(event)
        return None

    def _activity_delta(self, event: e.ActivityDelta) -> None:
        if not is_patch(event.patch):
            return self._count("patch")
        event = replace(event, message_id=self._ids.message("activity", event.message_id))
        if self._ids.is_users(event.message_id):
            return self._count("of-a-user")
        owners = self._open.activity_owners
        self._emit(self._owned(event, owners.get(event.message_id, event.subagent_run_id)))
        return None

    def _activity(self, event: e.ActivitySnapshot) -> None:
        before = self._ids.message("activity", event.message_id)
        event = replace(event, message_id=self._ids.activity(event.message_id))
        if event.message_id != before:
            self._count("of-a-user")
        if event.replace is False:
            event = self._owned_again(event, self._open.activity_owners, event.message_id)
        self._emit(event)

    def _snapshot(self, event: e.MessagesSnapshot) -> None:
        if event.messages:
            event = replace(event, messages=fitted(event.messages))
        self._ids.note_messages(event.messages)
        self._emit(event)

    def _chunk(self, chunk: Chunk) -> None:
        explicit = self._lanes.expand(chunk)
        if explicit is None:
            return self._count("chunk")
        for event in explicit:
            if isinstance(event, e.TextMessageEnd | e.ReasoningMessageEnd | e.ToolCallEnd):
                self._end_chunked(event)
            else:
                self._HANDLERS[type(event)](self, event)
        return None

    def _end_chunked(self, end: Event) -> None:
        """The end a chunk stream is due, unless something else has closed it meanwhile."""
        match end:
            case e.TextMessageEnd() if self._ids.message("text", end.message_id) in self._open.texts:
                self._end(self._texts, end)
            case e.ReasoningMessageEnd() if self._ids.message("reasoning", end.message_id) in self._open.thoughts:
                self._end(self._thoughts, end)
            case e.ToolCallEnd() if self._ids.call(end.tool_call_id) in self._open.calls:
                self._call_continued(end)
            case _:
                pass

    _HANDLERS: ClassVar[dict[type[BaseEvent], Callable[[Repairer, Any], None]]] = {
        e.RunStarted: _run_started,
        e.RunFinished: _run_finished,
        e.RunError: _run_ended,
        e.StepStarted: _step_started,
        e.StepFinished: _step_finished,
        e.TextMessageStart: lambda self, event: self._start(self._texts, event),
        TextMessageContent: lambda self, event: self._content(self._texts, event),
        e.TextMessageEnd: lambda self, event: self._end(self._texts, event),
        e.TextMessageChunk: _chunk,
        e.ToolCallStart: _call_start,
        ToolCallArgs: _call_continued,
        e.ToolCallEnd: _call_continued,
        e.ToolCallChunk: _chunk,
        e.ToolCallResult: _result,
        e.StateSnapshot: _emit,
        e.StateDelta: _state_delta,
        e.MessagesSnapshot: _snapshot,
        e.ActivitySnapshot: _activity,
        e.ActivityDelta: _activity_delta,
        e.Raw: _emit,
        e.Custom: _emit,
        e.ReasoningStart: lambda self, event: self._start(self._spans, event),
        e.ReasoningEnd: _span_end,
        e.ReasoningMessageStart: lambda self, event: self._start(self._thoughts, event),
        ReasoningMessageContent: lambda self, event: self._content(self._thoughts, event),
        e.ReasoningMessageEnd: lambda self, event: self._end(self._thoughts, event),
        e.ReasoningMessageChunk: _chunk,
        e.ReasoningEncryptedValue: _encrypted,
        e.SubagentStarted: _subagent_started,
        e.SubagentFinished: _subagent_ended,
        e.SubagentError: _subagent_ended,
    }


def _start_of(event: _Content | _End) -> _Start:
    """The opener that an event without one implies."""
    if isinstance(event, TextMessageContent | e.TextMessageEnd):
        return e.TextMessageStart(message_id=event.message_id, role="assistant", subagent_run_id=event.subagent_run_id)
    return e.ReasoningMessageStart(message_id=event.message_id, subagent_run_id=event.subagent_run_id)
