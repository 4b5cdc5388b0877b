"""What a run has open, and who owns what: the bookkeeping that `verify.py` and `repair.py` share.

The owner of a message, call or step is the `subagentRunId` of the event that opened it, None for the agent itself. Owners
outlive their entity, because a later event may still refer to it; they are what the official client compares tags with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ambient_runner.protocol.events import (
    ActivityMessage,
    ActivitySnapshot,
    AssistantMessage,
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

Owner = str | None
Owners = dict[str, Owner]
_Wanted = Callable[[Owner], bool]

_OPENERS = {TextMessageStart, ToolCallStart, ReasoningMessageStart, ReasoningStart, StepStarted, SubagentStarted}
_CLOSERS = {
    TextMessageEnd,
    ToolCallEnd,
    ReasoningMessageEnd,
    ReasoningEnd,
    StepFinished,
    SubagentFinished,
    SubagentError,
}
_TEACHERS = {ToolCallResult, ActivitySnapshot, MessagesSnapshot, RunStarted}


class Open:
    """The open entities of one run by id, in the order they were opened, each with the event that opened it."""

    def __init__(self) -> None:
        self.texts: dict[str, TextMessageStart] = {}
        self.calls: dict[str, ToolCallStart] = {}
        self.thoughts: dict[str, ReasoningMessageStart] = {}
        self.spans: dict[str, ReasoningStart] = {}
        self.steps: dict[tuple[Owner, str], StepStarted] = {}
        self.step_owners: dict[str, set[Owner]] = {}
        """Who has a step of this name open."""
        self.subagents: dict[str, SubagentStarted] = {}
        self.finished_subagents: set[str] = set()
        self.message_owners: Owners = {}
        self.call_owners: Owners = {}
        self.reasoning_owners: Owners = {}
        self.activity_owners: Owners = {}

    def apply(self, event: Event) -> None:
        """Take note of a legal event."""
        kind = type(event)
        if kind in _OPENERS:
            self._opens(event)
        elif kind in _CLOSERS:
            self._closes(event)
        elif kind in _TEACHERS:
            self._learns(event)

    def _opens(self, event: Event) -> None:
        match event:
            case TextMessageStart():
                self.texts[event.message_id] = event
                self.message_owners.setdefault(event.message_id, event.subagent_run_id)
            case ToolCallStart():
                self.calls[event.tool_call_id] = event
                self.call_owners.setdefault(event.tool_call_id, self._call_owner(event))
            case ReasoningMessageStart():
                self.thoughts[event.message_id] = event
                self.reasoning_owners.setdefault(event.message_id, event.subagent_run_id)
            case ReasoningStart():
                self.spans[event.message_id] = event
                self.reasoning_owners.setdefault(event.message_id, event.subagent_run_id)
            case StepStarted():
                self.steps[event.subagent_run_id, event.step_name] = event
                self.step_owners.setdefault(event.step_name, set()).add(event.subagent_run_id)
            case SubagentStarted():
                self.subagents[event.subagent_run_id] = event
            case _:
                pass

    def _call_owner(self, event: ToolCallStart) -> Owner:
        if event.subagent_run_id is None and event.parent_message_id is not None:
            return self.message_owners.get(event.parent_message_id)
        return event.subagent_run_id

    def _closes(self, event: Event) -> None:
        match event:
            case TextMessageEnd():
                del self.texts[event.message_id]
            case ToolCallEnd():
                del self.calls[event.tool_call_id]
            case ReasoningMessageEnd():
                del self.thoughts[event.message_id]
            case ReasoningEnd():
                del self.spans[event.message_id]
            case StepFinished():
                del self.steps[event.subagent_run_id, event.step_name]
                self.step_owners[event.step_name].remove(event.subagent_run_id)
            case SubagentFinished() | SubagentError():
                del self.subagents[event.subagent_run_id]
                self.finished_subagents.add(event.subagent_run_id)
            case _:
                pass

    def _learns(self, event: Event) -> None:
        match event:
            case ToolCallResult():
                self.message_owners[event.message_id] = event.subagent_run_id
            case ActivitySnapshot() if event.replace is not False or event.message_id not in self.activity_owners:
                self.activity_owners[event.message_id] = event.subagent_run_id
            case MessagesSnapshot():
                self._seed(event.messages, replace=True)
            case RunStarted() if event.input is not None:
                self._seed(event.input.messages, replace=False)
            case _:
                pass

    def _seed(self, messages: Sequence[Message], *, replace: bool) -> None:
        for message in messages:
            owners = self._owners_for(message)
            if replace or message.id not in owners:
                owners[message.id] = message.subagent_run_id
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls or ():
                    if replace or call.id not in self.call_owners:
                        self.call_owners[call.id] = message.subagent_run_id

    def _owners_for(self, message: Message) -> Owners:
        match message:
            case ReasoningMessage():
                return self.reasoning_owners
            case ActivityMessage():
                return self.activity_owners
            case _:
                return self.message_owners

    def ends(self, terminal: Terminal | None = None) -> list[Event]:
        """What closes everything, in an order every client accepts. `terminal` says how subagents came to their end."""
        events = self._stream_ends(lambda _: True)
        events.extend(subagent_end(one, terminal) for one in reversed(self.subagents))
        return events

    def ends_of(self, owner: str) -> list[Event]:
        """What closes everything that one subagent has open, the subagent itself excepted."""
        return self._stream_ends(lambda candidate: candidate == owner)

    def _stream_ends(self, wanted: _Wanted) -> list[Event]:
        message, call, reasoning = self.message_owners, self.call_owners, self.reasoning_owners
        return [
            *(ToolCallEnd(tool_call_id=i, subagent_run_id=call[i]) for i in self.calls if wanted(call[i])),
            *(TextMessageEnd(message_id=i, subagent_run_id=message[i]) for i in self.texts if wanted(message[i])),
            *(
                ReasoningMessageEnd(message_id=i, subagent_run_id=reasoning[i])
                for i in self.thoughts
                if wanted(reasoning[i])
            ),
            *(ReasoningEnd(message_id=i, subagent_run_id=reasoning[i]) for i in self.spans if wanted(reasoning[i])),
            *(
                StepFinished(step_name=name, subagent_run_id=owner)
                for owner, name in reversed(self.steps)
                if wanted(owner)
            ),
        ]

    def starts(self) -> list[Event]:
        """What opens everything again, empty, for a reader that joins here."""
        reasoning = self.reasoning_owners
        return [
            *(self._subagent_again(event) for event in self.subagents.values()),
            *self.steps.values(),
            *(ReasoningStart(message_id=i, subagent_run_id=reasoning[i]) for i in self.spans),
            *(ReasoningMessageStart(message_id=i, subagent_run_id=reasoning[i]) for i in self.thoughts),
            *(
                TextMessageStart(message_id=i, role=e.role, name=e.name, subagent_run_id=self.message_owners[i])
                for i, e in self.texts.items()
            ),
            *(self._call_again(event) for event in self.calls.values()),
        ]

    def _subagent_again(self, event: SubagentStarted) -> SubagentStarted:
        # A parent that has finished is unknown to a reader who joins now, and naming it would be fatal there.
        parent = event.parent_subagent_run_id
        return SubagentStarted(
            subagent_run_id=event.subagent_run_id,
            name=event.name,
            description=event.description,
            parent_subagent_run_id=parent if parent in self.subagents else None,
            parent_tool_call_id=event.parent_tool_call_id,
            parent_message_id=event.parent_message_id,
        )

    def _call_again(self, event: ToolCallStart) -> ToolCallStart:
        owner, parent = self.call_owners[event.tool_call_id], event.parent_message_id
        same_owner = parent is None or self.message_owners.get(parent, owner) == owner
        return ToolCallStart(
            tool_call_id=event.tool_call_id,
            tool_call_name=event.tool_call_name,
            parent_message_id=parent if same_owner else None,
            subagent_run_id=owner,
        )


def subagent_end(subagent_run_id: str, terminal: Terminal | None) -> SubagentFinished | SubagentError:
    """The end of a subagent that did not end itself: what the run's own end says about it."""
    match terminal:
        case RunFinished(outcome=None | Success()):
            return SubagentFinished(subagent_run_id=subagent_run_id)
        case RunFinished(outcome=Interrupted(interrupts=interrupts)):
            waiting = [one.id for one in interrupts if one.subagent_run_id == subagent_run_id]
            return SubagentFinished(subagent_run_id=subagent_run_id, outcome=Suspended(interrupt_ids=waiting or None))
        case _:
            return SubagentError(
                subagent_run_id=subagent_run_id,
                message="The run ended before this subagent did.",
                code="run_ended",
            )
