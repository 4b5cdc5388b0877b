"""The messages of a run before middleware, repair and redaction: the agent's own MESSAGES_SNAPSHOT is compared with them.

So a snapshot that repeats what the agent streamed changes nothing, even if middleware has changed the text on its way to the ledger.
Nearly all agents send no snapshot, so the events are only collected, and folded when one comes.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ambient_runner.projections.history import HistoryMerge
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import MessagesSnapshot, TextMessageContent, UserMessage
from ambient_runner.protocol.repair import Repairer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ambient_runner.protocol.events import Custom, Event
    from ambient_runner.runs.run import Run

__all__ = ["MAX_COLLECTED", "AgentHistory"]

MAX_COLLECTED = 4096
"""Events that are collected before they are folded."""


class AgentHistory:
    """The history of one run. Every event of the agent is appended to `collected`; `fold` them when there are MAX_COLLECTED."""

    def __init__(self, run: Run) -> None:
        messages = run.input.messages
        users = [message.id for message in messages if isinstance(message, UserMessage)]
        # As in the pipeline, an id that the thread already has is used for no other message.
        self._repairer = Repairer(
            run.input.thread_id, run.input.run_id, Transcript(messages).all_ids(), user_message_ids=users
        )
        self._merge = HistoryMerge(messages, run.new_ids, may_edit_input=False)
        self.collected: list[Event] = []

    def merge_snapshot(self, snapshot: MessagesSnapshot) -> Custom | None:
        """Return the correction that makes the thread match the agent's snapshot; None if it does already."""
        self.fold()
        legal = self._repairer.feed(snapshot)
        messages = [message for event in legal if isinstance(event, MessagesSnapshot) for message in event.messages]
        return self._merge.merge_snapshot(messages)

    def fold(self) -> None:
        """Apply the collected events, and forget them."""
        for event in _join_deltas(self.collected):
            for legal in self._repairer.feed(event):
                self._merge.apply_event(legal)
        self.collected.clear()


def _join_deltas(events: list[Event]) -> Iterator[Event]:
    """Yield the events with consecutive text deltas of a message joined: repairing each of them would cost more than streaming it."""
    for key, group in groupby(events, _delta_key):
        if key is None:
            yield from group
        else:
            deltas = cast("list[TextMessageContent]", list(group))
            yield replace(deltas[0], delta="".join([event.delta for event in deltas]))


def _delta_key(event: Event) -> tuple[str, str | None] | None:
    """Return the message of a text delta without metadata; None for other events."""
    if type(event) is TextMessageContent and event.metadata is None:
        return event.message_id, event.subagent_run_id
    return None
