"""The messages of a run before middleware, repair and redaction: the agent's own MESSAGES_SNAPSHOT is compared with them.

So a snapshot that repeats what the agent streamed changes nothing, even if middleware has changed the text on its way to the ledger.
Nearly all agents send no snapshot, so the events are only collected, and folded when one comes. Of a delta only the text is kept: hundreds
of thousands of event objects would make the garbage collector stop the server for a third of a second.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

from msgspec.structs import replace

from ambient_runner.projections.history import HistoryMerge
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import MessagesSnapshot, TextMessageContent, ToolCallArgs, UserMessage, type_of
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.agent_events import ignore_repair

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Custom, Event
    from ambient_runner.runs.agent_events import CountRepair
    from ambient_runner.runs.run import Run

__all__ = ["MAX_COLLECTED", "AgentHistory"]

MAX_COLLECTED = 4096
"""Events or consecutive deltas that are collected before they are folded."""

_Delta = TextMessageContent | ToolCallArgs


class AgentHistory:
    """The history of one run. `add_event` gets every event of the agent, in order."""

    def __init__(self, run: Run, count_repair: CountRepair = ignore_repair) -> None:
        self._run = run
        self._count_repair = count_repair
        self._collected: list[Event | tuple[_Delta, list[str]]] = []
        """Events, and deltas with the texts of those that continue them."""
        self._last_delta: _Delta | None = None
        self._texts: list[str] = []
        """The texts that continue `_last_delta`."""

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
        """Collect one event."""
        last = self._last_delta
        if last is not None and _continues(event, last):
            self._texts.append(event.delta)
        elif isinstance(event, _Delta) and type(event.delta) is str and event.metadata is None:
            self._last_delta, self._texts = event, [event.delta]
            self._collected.append((event, self._texts))
        else:
            self._last_delta = None
            self._collected.append(event)
        if len(self._texts) >= MAX_COLLECTED or len(self._collected) >= MAX_COLLECTED:
            self.fold()

    def merge_snapshot(self, snapshot: MessagesSnapshot) -> Custom | None:
        """Return the correction that makes the thread match the agent's snapshot; None if it does already."""
        self.fold()
        legal = self._repairer.feed(snapshot)
        messages = [message for event in legal if isinstance(event, MessagesSnapshot) for message in event.messages]
        before = self._merge.repairs.copy()
        correction = self._merge.merge_snapshot(messages)
        for rule, times in (self._merge.repairs - before).items():
            self._count_repair(rule, type_of(snapshot), times)
        return correction

    def fold(self) -> None:
        """Apply the collected events, and forget them."""
        for item in self._collected:
            event = replace(item[0], delta="".join(item[1])) if isinstance(item, tuple) else item
            for legal in self._repairer.feed(event):
                self._merge.apply_event(legal)
        self._collected.clear()
        self._last_delta, self._texts = None, []


def _continues(event: Event, last: _Delta) -> TypeGuard[_Delta]:
    """Return True if the event is one more delta of the same message or call, with no other fields than its text."""
    match event:
        case TextMessageContent():
            is_same = type(last) is TextMessageContent and event.message_id == last.message_id
        case ToolCallArgs():
            is_same = type(last) is ToolCallArgs and event.tool_call_id == last.tool_call_id
        case _:
            return False
    is_plain = event.metadata is None and type(event.delta) is str
    return is_same and is_plain and event.subagent_run_id == last.subagent_run_id
