"""The innermost handler: it adds a run's RUN_STARTED, closing MESSAGES_SNAPSHOT and terminal event.

Those the agent itself yields are absorbed, except for their outcome, result and usage, so an adapter may yield them or not. Its own
MESSAGES_SNAPSHOT restates the thread (`agent_history.py`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.errors import BridgeError, ProtocolViolation, RunInterrupted
from ambient_runner.projections.private_entries import is_private
from ambient_runner.projections.state import SharedState, is_single_visible_operation, visible_patch
from ambient_runner.protocol.agui_models import EventCoercer, copy_plain_event
from ambient_runner.protocol.dropped_events import dropped_tool_names
from ambient_runner.protocol.events import (
    DELTA_TYPES,
    EVENT_TYPES,
    PROTOCOL_VERSION,
    Custom,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    Success,
    ToolCallResult,
    ToolCallStart,
)
from ambient_runner.protocol.ids import client_safe_id
from ambient_runner.protocol.reserved_events import to_plain_event
from ambient_runner.runs.agent_events import AgentEventRules, ignore_repair, validate_in_slices
from ambient_runner.runs.agent_history import AgentHistory
from ambient_runner.runs.large_work import BusyTime
from ambient_runner.runs.run import current_run_or_none, describe_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ambient_runner.protocol.events import Event, Outcome
    from ambient_runner.runs.agent_events import CountRepair
    from ambient_runner.runs.run import Agent, Run, RunHandler

logger = logging.getLogger(__name__)

SNAPSHOT_MARKER = MessagesSnapshot(messages=[])
"""Stored instead of the messages: the snapshot is folded when it is read, so the messages are not stored again and again.

An adapter may yield this very object during a run, any number of times: clients receive a MESSAGES_SNAPSHOT there. Any other
snapshot of an adapter restates the thread, unless its bridge says that it does not (`PlatformBridge.restates_messages`).
"""

_CLOSING_SNAPSHOT = MessagesSnapshot(messages=[])
"""The snapshot at the end of a run, for middleware; the Runner writes its own."""

_EVENT_TYPES = frozenset(EVENT_TYPES)
_CALL_TYPES = frozenset({ToolCallStart, ToolCallResult})


def run_started(run: Run) -> RunStarted:
    """Return the run's first event. Its input contains only the messages this run added to the thread."""
    run_input = run.input
    return RunStarted(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        protocol_version=PROTOCOL_VERSION,
        parent_run_id=run_input.parent_run_id,
        # With a parent span, the caller began the trace.
        metadata={"traceId": run.trace_id} | ({"parentSpanId": run.caller.span_id} if run.caller else {}),
        input=RunAgentInput(thread_id=run_input.thread_id, run_id=run_input.run_id, messages=list(run.accepted)),
    )


def run_finished(run: Run, outcome: Outcome | None = None) -> RunFinished:
    """Return the terminal event of a run that did not fail; its outcome is success by default."""
    return RunFinished(thread_id=run.input.thread_id, run_id=run.input.run_id, outcome=outcome or Success())


def frame_agent(
    agent: Agent,
    store_private: Callable[[Custom], None] | None = None,
    count_repair: CountRepair = ignore_repair,
    busy: BusyTime | None = None,
) -> RunHandler:
    """Return a handler that runs `agent` inside a complete frame. `store_private` receives the agent's private entries.

    Their events are also passed on: middleware can see them, but not create, change or drop an entry. The agent does not run while its
    client tools have results for only some of their calls. `busy` counts the work; other tasks run in between.
    """
    busy = busy or BusyTime()

    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        yield run_started(run)
        if run.pending_call_ids:
            yield _CLOSING_SNAPSHOT
            yield run_finished(run, Success(pending_tool_call_ids=list(run.pending_call_ids)))
            return
        coerce, sent_state = EventCoercer(accepts_unknown=True), _SentState(run)
        ending = _RunEnding(client_tools={tool.name for tool in run.input.tools})
        rules = AgentEventRules(agent, count_repair)
        restatement = _ThreadRestatement(run, count_repair, busy) if agent.restates_messages else None
        collect = restatement.history.add_event if restatement else None
        try:
            async with agent.open_run(run) as events:
                async for value in events:
                    event = (
                        value
                        if type(value) in _EVENT_TYPES
                        else copy_plain_event(value) or await _convert_event(coerce, value, busy)
                    )
                    # `rules.is_exempt` without the call: nearly all events are such deltas.
                    is_exempt_delta = type(event) in DELTA_TYPES and event.metadata is None
                    is_exempt = (
                        is_exempt_delta or rules.is_exempt(event) or sent_state.is_exempt(event, agent.hidden_state)
                    )
                    if is_exempt and not (restatement and restatement.is_due):
                        if not is_exempt_delta and type(event) in _CALL_TYPES:
                            ending.absorb(event)
                        if collect is not None:
                            collect(event)
                        yield event
                        continue
                    if type(value) in _EVENT_TYPES and event is not SNAPSHOT_MARKER:
                        event = await busy.work_in_slices(validate_in_slices(event))
                    with busy:
                        known = rules.apply(value, event)
                    await busy.yield_if_spent()
                    outgoing = (
                        *coerce.take_notices(),
                        *(await restatement.events_before(known) if restatement else ()),
                    )
                    if not ending.absorb(known) and not sent_state.absorb(known):
                        outgoing = (*outgoing, known)
                    for each in map(to_plain_event, outgoing):
                        if store_private is not None and isinstance(each, Custom) and is_private(each):
                            store_private(each)
                        yield visible_event(each, agent.hidden_state)
        except* RunInterrupted as raised:
            ending.outcome = Interrupted(interrupts=[_coerce_interrupt(each) for each in _collect_interrupts(raised)])
        ending.outcome = rules.apply_to_outcome(ending.outcome)
        yield _CLOSING_SNAPSHOT
        yield ending.terminal_event(run)

    return handle


def _collect_interrupts(group: BaseExceptionGroup[RunInterrupted]) -> list[Interrupt]:
    """Return all interrupts of a group: a framework may raise inside a task group, so groups may be nested."""
    return [
        interrupt
        for error in group.exceptions
        for interrupt in (_collect_interrupts(error) if isinstance(error, BaseExceptionGroup) else error.interrupts)
    ]


def _coerce_interrupt(interrupt: object) -> Interrupt:
    """Return our Interrupt for a model of `ag_ui.core`, which adapters may raise as they may yield its events."""
    if isinstance(interrupt, Interrupt):
        return interrupt
    outcome = {"type": "interrupt", "interrupts": [interrupt]}
    event = _coerce_event(EventCoercer(), {"type": "RUN_FINISHED", "threadId": "", "runId": "", "outcome": outcome})
    assert isinstance(event, RunFinished)
    assert isinstance(event.outcome, Interrupted)
    return event.outcome.interrupts[0]


async def _convert_event(coerce: EventCoercer, event: object, busy: BusyTime) -> Event:
    try:
        return await busy.work_in_slices(coerce.convert_in_slices(event))
    except (TypeError, ValueError) as error:
        raise ProtocolViolation from error


def _coerce_event(coerce: EventCoercer, event: object) -> Event:
    try:
        return coerce(event)
    except (TypeError, ValueError) as error:
        raise ProtocolViolation from error


def _hide_error_text(error: RunError) -> RunError:
    """Replace an agent's error that has no code, which is nearly always the text of an exception: it is logged, not sent."""
    logger.error(
        "The agent of %s ended with an error without a code: %s", describe_run(current_run_or_none()), error.message
    )
    known = BridgeError()
    return msgspec.structs.replace(error, message=known.message, code=known.code, metadata=None)


def visible_event(event: Event, hidden: frozenset[str]) -> Event:
    """Return a state event without the keys that are hidden from clients."""
    match event:
        case StateSnapshot():
            return msgspec.structs.replace(event, snapshot=SharedState(event.snapshot).visible_part(hidden))
        case StateDelta():
            return msgspec.structs.replace(event, delta=visible_patch(event.delta, hidden))
        case _:
            return event


_canonical = msgspec.json.Encoder(order="sorted").encode
"""Compares JSON values: in Python, 1 == True."""


class _SentState:
    """The state that clients received before the agent began. Many agents begin by sending it again."""

    def __init__(self, run: Run) -> None:
        # As it is now: an agent may change the value in place.
        self._sent = msgspec.json.encode(run.input.state) if run.is_state_sent else None

    def is_exempt(self, event: Event, hidden: frozenset[str]) -> bool:
        """Return True for a patch that is passed on as it is: one operation, which is never too many, on a key that is not hidden.

        False until the first state event of the agent was compared with the state that clients have.
        """
        if type(event) is not StateDelta or event.metadata is not None or self._sent is not None:
            return False
        return is_single_visible_operation(event.delta, hidden)

    def absorb(self, event: Event) -> bool:
        """Inspect an event. Return True if it repeats the state clients have and must not be passed on."""
        if self._sent is None or not isinstance(event, StateSnapshot | StateDelta):
            return False
        sent, self._sent = self._sent, None
        try:
            return isinstance(event, StateSnapshot) and _canonical(event.snapshot) == _canonical(
                msgspec.json.decode(sent)
            )
        except (TypeError, ValueError, RecursionError):
            return False  # The pipeline reports what is wrong with it.


_FRAME_TYPES = (RunStarted, RunFinished, RunError)


class _ThreadRestatement:
    """Restatement of the thread by the agent's own snapshots. `is_due` is True while clients have not received the last one.

    One in the middle of a run keeps its position. The last one needs none: the run's closing snapshot follows it.
    """

    def __init__(self, run: Run, count_repair: CountRepair, busy: BusyTime) -> None:
        self._busy = busy
        self.history = AgentHistory(run, count_repair)
        self.is_due = False

    async def events_before(self, event: Event) -> Sequence[Event]:
        """Inspect an event. Return the events before it: the correction by a snapshot, or the marker of the previous one."""
        if isinstance(event, _FRAME_TYPES):
            return ()
        if isinstance(event, MessagesSnapshot):
            correction = (
                await self._busy.work_in_slices(self.history.merge_in_slices(event))
                if event is not SNAPSHOT_MARKER
                else None
            )
            self.is_due = event is not SNAPSHOT_MARKER and (self.is_due or correction is not None)
            return () if correction is None else (correction,)
        self.history.add_event(event)
        is_due, self.is_due = self.is_due, False
        return (SNAPSHOT_MARKER,) if is_due else ()


@dataclass(kw_only=True, slots=True)
class _RunEnding:
    """The agent's own terminal event and outcome, and the client tool calls without a result."""

    client_tools: set[str]
    outcome: Outcome | None = None
    error: RunError | None = None
    finished: RunFinished | None = None
    pending_calls: dict[str, str] = field(default_factory=dict[str, str])
    """Names of the tools, by call id."""

    def absorb(self, event: Event) -> bool:
        """Inspect an event. Return True if it must not be passed on."""
        match event:
            case ToolCallStart(tool_call_id=id, tool_call_name=name) if name in self.client_tools:
                self.pending_calls[id] = name
            case Custom():
                # The agent did not get these tools of the client: a call of such a name is its own.
                self.client_tools.difference_update(dropped_tool_names(event))
            case ToolCallResult(tool_call_id=id):
                self.pending_calls.pop(id, None)
            case RunFinished():
                self.finished, self.outcome = event, event.outcome
                return True
            case RunError():
                self.error = event if event.code else _hide_error_text(event)
                return True
            case RunStarted():
                return True
            case MessagesSnapshot():
                return event is not SNAPSHOT_MARKER
            case _:
                pass
        return False

    def terminal_event(self, run: Run) -> Event:
        if self.error is not None:
            return self.error
        ending, reported = run_finished(run, self._final_outcome()), self.finished
        if reported is None:
            return ending
        return msgspec.structs.replace(ending, result=reported.result, usage=reported.usage, metadata=reported.metadata)

    def _final_outcome(self) -> Outcome:
        if self.outcome is None or isinstance(self.outcome, Success):
            # An agent may wait for calls of tools the client did not declare: its own tools that another party answers.
            reported = self.outcome.pending_tool_call_ids if self.outcome else None
            pending = [call for call, name in self.pending_calls.items() if name in self.client_tools]
            return Success(pending_tool_call_ids=list(dict.fromkeys([*(reported or ()), *pending])) or None)
        if isinstance(self.outcome, Interrupted) and any(
            client_safe_id(interrupt.id) != interrupt.id for interrupt in self.outcome.interrupts
        ):
            # No client could answer it, and the thread would wait forever.
            raise ProtocolViolation("The agent raised an interrupt whose id no client can send back.")
        return self.outcome
