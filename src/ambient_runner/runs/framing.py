"""`framed`: the innermost handler. It gives a run its RUN_STARTED, closing MESSAGES_SNAPSHOT and terminal event.

What the agent itself says of these is absorbed, keeping outcome, result and usage, so an adapter may send them or not.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.errors import BridgeError, Parked, ProtocolViolation
from ambient_runner.projections.private_entries import is_kept
from ambient_runner.projections.state import SharedState, visible_patch
from ambient_runner.protocol.agui_models import Coercer
from ambient_runner.protocol.events import (
    PROTOCOL_VERSION,
    Custom,
    Interrupted,
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    Success,
    TextMessageContent,
    ToolCallArgs,
    ToolCallResult,
    ToolCallStart,
)
from ambient_runner.protocol.ids import fit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ambient_runner.protocol.events import Event, Interrupt, Outcome
    from ambient_runner.runs.run import Agent, Run, RunHandler

logger = logging.getLogger(__name__)

SNAPSHOT_HERE = MessagesSnapshot(messages=[])
"""Stored instead of the messages: the frame is folded when it is read, so its cost is not stored again and again.

An adapter may yield this very object in the middle of a run, as often as it likes: clients get a MESSAGES_SNAPSHOT there. Any other
snapshot of an adapter is absorbed.
"""

_CLOSING = MessagesSnapshot(messages=[])
"""The same, where the run ends: middleware sees it, and the Runner writes its own."""

_DELTAS = frozenset({TextMessageContent, ToolCallArgs})


def run_started(run: Run) -> RunStarted:
    """The run's first event. Its input holds only what this run added to the thread."""
    asked = run.input
    return RunStarted(
        thread_id=asked.thread_id,
        run_id=asked.run_id,
        protocol_version=PROTOCOL_VERSION,
        parent_run_id=asked.parent_run_id,
        # With a parent, the trace is one that the caller has begun.
        metadata={"traceId": run.trace_id} | ({"parentSpanId": run.caller.span_id} if run.caller else {}),
        input=RunAgentInput(thread_id=asked.thread_id, run_id=asked.run_id, messages=list(run.accepted)),
    )


def finished(run: Run, outcome: Outcome | None = None) -> RunFinished:
    """The end of a run that did not fail; success unless something else is said."""
    return RunFinished(thread_id=run.input.thread_id, run_id=run.input.run_id, outcome=outcome or Success())


def framed(agent: Agent, keep: Callable[[Custom], None] | None = None) -> RunHandler:
    """A handler that runs `agent` inside a complete frame. `keep` gets what the agent wants to keep.

    The event that says so is passed on like others: middleware can see it, but not make, change or lose one.
    """

    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        yield run_started(run)
        coerce, told = Coercer(), _ToldState(run)
        ending = _Ending(frontend={tool.name for tool in run.input.tools})
        try:
            async with agent.running(run) as events:
                async for event in events:
                    if type(event) in _DELTAS:
                        yield event
                    elif not ending.absorb(said := _coerced(coerce, event)) and not told.absorb(said):
                        if keep is not None and isinstance(said, Custom) and is_kept(said):
                            keep(said)
                        yield shown(said, agent.hidden_state)
        except* Parked as parked:
            ending.outcome = Interrupted(interrupts=_questions(parked))
        yield _CLOSING
        yield ending.event(run)

    return handle


def _questions(parked: BaseExceptionGroup[Parked]) -> list[Interrupt]:
    """Everything that was asked: a framework may park from inside a task group, so it may come in a group."""
    return [
        question
        for one in parked.exceptions
        for question in (_questions(one) if isinstance(one, BaseExceptionGroup) else one.interrupts)
    ]


def _coerced(coerce: Coercer, event: object) -> Event:
    try:
        return coerce(event)
    except (TypeError, ValueError) as error:
        raise ProtocolViolation from error


def _unknown(error: RunError) -> RunError:
    """An agent's error without a code is nearly always the text of an exception: the log gets it, the client a calm sentence."""
    logger.error("An agent ended with an error of its own: %s", error.message)
    known = BridgeError()
    return msgspec.structs.replace(error, message=known.message, code=known.code, metadata=None)


def shown(event: Event, hidden: frozenset[str]) -> Event:
    """A state event without the keys clients never see."""
    match event:
        case StateSnapshot():
            return msgspec.structs.replace(event, snapshot=SharedState(event.snapshot).visible(hidden))
        case StateDelta():
            return msgspec.structs.replace(event, delta=visible_patch(event.delta, hidden))
        case _:
            return event


_canonical = msgspec.json.Encoder(order="sorted").encode
"""For Python, 1 is True."""


class _ToldState:
    """The state that clients were told before the agent began. Many agents begin by saying it again."""

    def __init__(self, run: Run) -> None:
        self._said = _canonical(run.input.state) if run.is_state_told else None

    def absorb(self, event: Event) -> bool:
        """Take note of the event; True when it says nothing new."""
        if self._said is None or not isinstance(event, StateSnapshot | StateDelta):
            return False
        said, self._said = self._said, None
        try:
            return isinstance(event, StateSnapshot) and _canonical(event.snapshot) == said
        except (TypeError, ValueError, RecursionError):
            return False  # Whoever writes it says what is wrong.


@dataclass(kw_only=True, slots=True)
class _Ending:
    """What the agent said about how the run ends, and which frontend calls it leaves open."""

    frontend: set[str]
    outcome: Outcome | None = None
    error: RunError | None = None
    finished: RunFinished | None = None
    waiting: dict[str, None] = field(default_factory=dict[str, None])

    def absorb(self, event: Event) -> bool:
        """Take note of the event; True when it must not be passed on."""
        match event:
            case ToolCallStart(tool_call_id=id, tool_call_name=name) if name in self.frontend:
                self.waiting[id] = None
            case ToolCallResult(tool_call_id=id):
                self.waiting.pop(id, None)
            case RunFinished():
                self.finished, self.outcome = event, event.outcome
                return True
            case RunError():
                self.error = event if event.code else _unknown(event)
                return True
            case RunStarted():
                return True
            case MessagesSnapshot():
                return event is not SNAPSHOT_HERE
            case _:
                pass
        return False

    def event(self, run: Run) -> Event:
        if self.error is not None:
            return self.error
        ending, said = finished(run, self._outcome()), self.finished
        if said is None:
            return ending
        return msgspec.structs.replace(ending, result=said.result, usage=said.usage, metadata=said.metadata)

    def _outcome(self) -> Outcome:
        if self.outcome is None or isinstance(self.outcome, Success):
            # An agent may wait for calls the client did not declare: tools of its own that someone outside answers.
            said = self.outcome.pending_tool_call_ids if self.outcome else None
            return Success(pending_tool_call_ids=list(dict.fromkeys([*(said or ()), *self.waiting])) or None)
        if isinstance(self.outcome, Interrupted) and any(fit(one.id) != one.id for one in self.outcome.interrupts):
            # Nobody could answer it, and the thread would wait for ever.
            raise ProtocolViolation("The agent asks something under an id that no client could send back.")
        return self.outcome
