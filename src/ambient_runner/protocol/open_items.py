"""Open messages, tool calls, steps and subagents of a run, and their owners. Shared by `verify.py` and `repair.py`.

The owner of a message, call or step is the `subagentRunId` of the event that opened it, None for the agent itself. An owner
stays recorded after its entity is closed, because a later event may refer to it and the official client compares owners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ambient_runner.protocol.events import (
    ActivityMessage,
    ActivitySnapshot,
    AssistantMessage,
    BaseEvent,
    Event,
    Interrupted,
    Message,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningMessage,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    Success,
    Suspended,
    Terminal,
    TextMessageEnd,
    TextMessageStart,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)

SubagentId = str | None
OwnersById = dict[str, SubagentId]
_OwnerFilter = Callable[[SubagentId], bool]


class OpenItems:
    """Open entities of one run by id, in the order they were opened, each with the event that opened it."""

    def __init__(self) -> None:
        self.text_messages: dict[str, TextMessageStart] = {}
        self.tool_calls: dict[str, ToolCallStart] = {}
        self.reasoning_messages: dict[str, ReasoningMessageStart] = {}
        self.reasoning_spans: dict[str, ReasoningStart] = {}
        self.steps: dict[tuple[SubagentId, str], StepStarted] = {}
        self.step_owners: dict[str, set[SubagentId]] = {}
        """Owners of the open steps, by step name."""
        self.subagents: dict[str, SubagentStarted] = {}
        self.finished_subagents: set[str] = set()
        self.message_owners: OwnersById = {}
        self.call_owners: OwnersById = {}
        self.reasoning_owners: OwnersById = {}
        self.activity_owners: OwnersById = {}

    def apply(self, event: Event) -> None:
        """Record a legal event."""
        record = self._RECORDERS.get(type(event))
        if record is not None:
            record(self, event)

    def _open_text(self, event: TextMessageStart) -> None:
        self.text_messages[event.message_id] = event
        self.message_owners.setdefault(event.message_id, event.subagent_run_id)

    def _open_call(self, event: ToolCallStart) -> None:
        self.tool_calls[event.tool_call_id] = event
        self.call_owners.setdefault(event.tool_call_id, self._call_owner(event))

    def _open_reasoning(self, event: ReasoningMessageStart) -> None:
        self.reasoning_messages[event.message_id] = event
        self.reasoning_owners.setdefault(event.message_id, event.subagent_run_id)

    def _open_reasoning_span(self, event: ReasoningStart) -> None:
        self.reasoning_spans[event.message_id] = event
        self.reasoning_owners.setdefault(event.message_id, event.subagent_run_id)

    def _open_step(self, event: StepStarted) -> None:
        self.steps[event.subagent_run_id, event.step_name] = event
        self.step_owners.setdefault(event.step_name, set()).add(event.subagent_run_id)

    def _open_subagent(self, event: SubagentStarted) -> None:
        self.subagents[event.subagent_run_id] = event

    def _call_owner(self, event: ToolCallStart) -> SubagentId:
        if event.subagent_run_id is None and event.parent_message_id is not None:
            return self.message_owners.get(event.parent_message_id)
        return event.subagent_run_id

    def _close_text(self, event: TextMessageEnd) -> None:
        del self.text_messages[event.message_id]

    def _close_call(self, event: ToolCallEnd) -> None:
        del self.tool_calls[event.tool_call_id]

    def _close_reasoning(self, event: ReasoningMessageEnd) -> None:
        del self.reasoning_messages[event.message_id]

    def _close_reasoning_span(self, event: ReasoningEnd) -> None:
        del self.reasoning_spans[event.message_id]

    def _close_step(self, event: StepFinished) -> None:
        del self.steps[event.subagent_run_id, event.step_name]
        self.step_owners[event.step_name].remove(event.subagent_run_id)

    def _close_subagent(self, event: SubagentFinished | SubagentError) -> None:
        del self.subagents[event.subagent_run_id]
        self.finished_subagents.add(event.subagent_run_id)

    def _record_owners(self, event: Event) -> None:
        match event:
            case ActivitySnapshot() if event.replace is not False or event.message_id not in self.activity_owners:
                self.activity_owners[event.message_id] = event.subagent_run_id
            case MessagesSnapshot():
                self._record_message_owners(event.messages, replace=True)
            case RunStarted() if event.input is not None:
                self._record_message_owners(event.input.messages, replace=False)
            case _:
                pass

    def _record_result(self, event: ToolCallResult) -> None:
        self.message_owners[event.message_id] = event.subagent_run_id

    def _record_message_owners(self, messages: Sequence[Message], *, replace: bool) -> None:
        for message in messages:
            owners = self._owners_for(message)
            if replace or message.id not in owners:
                owners[message.id] = message.subagent_run_id
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls or ():
                    if replace or call.id not in self.call_owners:
                        self.call_owners[call.id] = message.subagent_run_id

    def _owners_for(self, message: Message) -> OwnersById:
        match message:
            case ReasoningMessage():
                return self.reasoning_owners
            case ActivityMessage():
                return self.activity_owners
            case _:
                return self.message_owners

    def count(self) -> int:
        """Return how many entities are open."""
        messages, reasoning = self.text_messages, self.reasoning_messages
        groups = (self.tool_calls, messages, reasoning, self.reasoning_spans, self.steps, self.subagents)
        return sum(map(len, groups))

    def closing_events(self, terminal: Terminal | None = None) -> list[Event]:
        """Return the events that close everything, in an order every client accepts. `terminal` decides how open subagents end."""
        return list(self.iterate_closing_events(terminal))

    def iterate_closing_events(self, terminal: Terminal | None = None) -> Iterator[Event]:
        """Yield the events of `closing_events`. Apply none of them before the iteration ends."""
        yield from self._closing_events_where(lambda _: True)
        for subagent_id in reversed(self.subagents):
            yield implied_subagent_end(subagent_id, terminal)

    def closing_events_of(self, owner: str) -> list[Event]:
        """Return the events that close everything one subagent has open, except the subagent itself."""
        return list(self._closing_events_where(lambda candidate: candidate == owner))

    def _closing_events_where(self, is_wanted: _OwnerFilter) -> Iterator[Event]:
        message, call, reasoning = self.message_owners, self.call_owners, self.reasoning_owners
        for i in self.tool_calls:
            if is_wanted(call[i]):
                yield ToolCallEnd(tool_call_id=i, subagent_run_id=call[i])
        for i in self.text_messages:
            if is_wanted(message[i]):
                yield TextMessageEnd(message_id=i, subagent_run_id=message[i])
        for i in self.reasoning_messages:
            if is_wanted(reasoning[i]):
                yield ReasoningMessageEnd(message_id=i, subagent_run_id=reasoning[i])
        for i in self.reasoning_spans:
            if is_wanted(reasoning[i]):
                yield ReasoningEnd(message_id=i, subagent_run_id=reasoning[i])
        for owner, name in reversed(self.steps):
            if is_wanted(owner):
                yield StepFinished(step_name=name, subagent_run_id=owner)

    def reopening_events(self) -> list[Event]:
        """Return the events that open everything again, empty, for a reader that joins here."""
        reasoning = self.reasoning_owners
        return [
            *(self._reopened_subagent(event) for event in self.subagents.values()),
            *self.steps.values(),
            *(ReasoningStart(message_id=i, subagent_run_id=reasoning[i]) for i in self.reasoning_spans),
            *(ReasoningMessageStart(message_id=i, subagent_run_id=reasoning[i]) for i in self.reasoning_messages),
            *(
                TextMessageStart(message_id=i, role=e.role, name=e.name, subagent_run_id=self.message_owners[i])
                for i, e in self.text_messages.items()
            ),
            *(self._reopened_call(event) for event in self.tool_calls.values()),
        ]

    def _reopened_subagent(self, event: SubagentStarted) -> SubagentStarted:
        # A reader that joins now does not know a finished parent, and fails on a reference to it.
        parent = event.parent_subagent_run_id
        return SubagentStarted(
            subagent_run_id=event.subagent_run_id,
            name=event.name,
            description=event.description,
            parent_subagent_run_id=parent if parent in self.subagents else None,
            parent_tool_call_id=event.parent_tool_call_id,
            parent_message_id=event.parent_message_id,
        )

    def _reopened_call(self, event: ToolCallStart) -> ToolCallStart:
        # Without a parent, the message of a call has its id. Some clients that know the call append a second message unless it is named.
        owner, message = self.call_owners[event.tool_call_id], event.parent_message_id or event.tool_call_id
        same_owner = self.message_owners.get(message, owner) == owner
        return ToolCallStart(
            tool_call_id=event.tool_call_id,
            tool_call_name=event.tool_call_name,
            parent_message_id=message if same_owner else None,
            subagent_run_id=owner,
        )

    _RECORDERS: ClassVar[dict[type[BaseEvent], Callable[[OpenItems, Any], None]]] = {
        TextMessageStart: _open_text,
        ToolCallStart: _open_call,
        ReasoningMessageStart: _open_reasoning,
        ReasoningStart: _open_reasoning_span,
        StepStarted: _open_step,
        SubagentStarted: _open_subagent,
        TextMessageEnd: _close_text,
        ToolCallEnd: _close_call,
        ReasoningMessageEnd: _close_reasoning,
        ReasoningEnd: _close_reasoning_span,
        StepFinished: _close_step,
        SubagentFinished: _close_subagent,
        SubagentError: _close_subagent,
        ToolCallResult: _record_result,
        ActivitySnapshot: _record_owners,
        MessagesSnapshot: _record_owners,
        RunStarted: _record_owners,
    }


def implied_subagent_end(subagent_run_id: str, terminal: Terminal | None) -> SubagentFinished | SubagentError:
    """Return the end of a subagent that is still open when its run ends with `terminal`."""
    match terminal:
        case RunFinished(outcome=None | Success()):
            return SubagentFinished(subagent_run_id=subagent_run_id)
        case RunFinished(outcome=Interrupted(interrupts=interrupts)):
            waiting = [interrupt.id for interrupt in interrupts if interrupt.subagent_run_id == subagent_run_id]
            return SubagentFinished(subagent_run_id=subagent_run_id, outcome=Suspended(interrupt_ids=waiting or None))
        case _:
            return SubagentError(
                subagent_run_id=subagent_run_id,
                message="The run ended before this subagent did.",
                code="run_ended",
            )
