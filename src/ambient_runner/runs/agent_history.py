"""The messages of a run before middleware, repair and redaction: the agent's own MESSAGES_SNAPSHOT is compared with them.

So a snapshot that repeats what the agent streamed changes nothing, even if middleware has changed the text on its way to the ledger.
Nearly all agents send no snapshot, so the events are only collected, and folded when one comes. Of a delta that continues the one before it
only the text is kept, and in one list with the events: neither is work for the garbage collector.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ambient_runner.projections.history import HistoryMerge, Slices, finish
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    DELTA_TYPES,
    Custom,
    Delta,
    MessagesSnapshot,
    Raw,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    ToolCallArgs,
    UserMessage,
    type_of,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.agent_events import ignore_repair

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.agent_events import CountRepair
    from ambient_runner.runs.run import Run

__all__ = ["MAX_COLLECTED", "AgentHistory"]

MAX_COLLECTED = 1 << 15
"""Events and texts that are collected before the oldest are folded."""
_FOLDED_AT_ONCE = 256
"""Events and texts that are folded before other tasks may run: about a millisecond."""

_UNRELATED_TYPES = frozenset({StateSnapshot, StateDelta, Custom, Raw, StepStarted, StepFinished})
"""Types of events that no message depends on, and that can be large."""


class AgentHistory:
    """The history of one run. `add_event` gets every event of the agent, in order."""

    def __init__(self, run: Run, count_repair: CountRepair = ignore_repair) -> None:
        self._run = run
        self._count_repair = count_repair
        self._collected: list[Event | str] = []
        """Events, and after a delta the texts of those that continue it."""
        self._last_delta: Delta | None = None
        """The last event, if it is a delta that others may continue."""
        self._last_id = ""
        """Id of its message or call."""

    @cached_property
    def _repairer(self) -> Repairer:
        """Made when it is needed: most runs fold nothing, and their threads may be long."""
        run_input = self._run.input
        users = [message.id for message in run_input.messages if isinstance(message, UserMessage)]
        # As in the pipeline, an id that the thread already has is used for no other message.
        known = Transcript(run_input.messages).all_ids()
        return Repairer(run_input.thread_id, run_input.run_id, known, user_message_ids=users)

    @cached_property
    def _merge(self) -> HistoryMerge:
        return HistoryMerge(self._run.input.messages, self._run.new_ids)

    def add_event(self, event: Event) -> None:
        """Collect one event. Nearly all continue the last delta."""
        kind = type(event)
        delta: Any = event
        last: Any = self._last_delta
        if (
            kind is type(last)
            and delta.metadata is None
            and type(delta.delta) is str
            and delta.subagent_run_id == last.subagent_run_id
            and (delta.tool_call_id if kind is ToolCallArgs else delta.message_id) == self._last_id
        ):
            self._collected.append(delta.delta)
        elif kind in DELTA_TYPES:
            self._last_delta = delta if delta.metadata is None and type(delta.delta) is str else None
            self._last_id = delta.tool_call_id if kind is ToolCallArgs else delta.message_id
            self._collected.append(event)
        elif kind not in _UNRELATED_TYPES:
            self._last_delta = None
            self._collected.append(event)
        if len(self._collected) >= MAX_COLLECTED:
            self.fold_oldest()

    def merge_snapshot(self, snapshot: MessagesSnapshot) -> Custom | None:
        """Return the correction that makes the thread match the agent's snapshot; None if it does already."""
        return finish(self.merge_in_slices(snapshot))

    def merge_in_slices(self, snapshot: MessagesSnapshot) -> Slices[Custom | None]:
        """Do what `merge_snapshot` does, and stop wherever other tasks may run. No event may be added meanwhile."""
        while self.fold_oldest():
            yield
        legal = self._repairer.feed(snapshot)
        messages = [message for event in legal if isinstance(event, MessagesSnapshot) for message in event.messages]
        yield
        before = self._merge.repairs.copy()
        correction = yield from self._merge.merge_in_slices(messages)
        for rule, times in (self._merge.repairs - before).items():
            self._count_repair(rule, type_of(snapshot), times)
        return correction

    def fold_oldest(self) -> bool:
        """Apply the oldest of the collected events, and forget them. Return True if there are more: let other tasks run then."""
        collected = self._collected
        at = 0
        while at < min(len(collected), _FOLDED_AT_ONCE):
            event, after = collected[at], at + 1
            while after < len(collected) and type(collected[after]) is str:
                after += 1
            if after > at + 1:
                texts = cast("list[str]", collected[at + 1 : after])
                first = cast("Delta", event)
                event = replace(first, delta="".join([first.delta, *texts]))
            for legal in self._repairer.feed(cast("Event", event)):
                self._merge.apply_event(legal)
            at = after
        del collected[:at]
        if not collected:
            self._last_delta = None
        return bool(collected)
