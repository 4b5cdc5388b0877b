"""What the other server says, made into what this one stores: a legal stream under ids that are free, and its word on the history. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.remote.history import Conversation
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    OURS,
    Custom,
    MessagesSnapshot,
    RunError,
    RunFinished,
    RunStarted,
    UserMessage,
)
from ambient_runner.protocol.limits import is_dropped
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.framing import SNAPSHOT_HERE

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

    from ambient_runner.protocol.events import Event, RunAgentInput

__all__ = ["Translation"]

_MOST_DROPPED = 10
"""Times a run says that something was passed over. A server that sends nothing but rubbish does not fill the thread with it."""

_OF_ITS_WORK = frozenset(
    f"{OURS}{name}"
    for name in (
        *("dropped", "hook_error", "interrupt_lapsed", "setup_error"),
        *("repo_added", "repo_progress", "repo_removed", "workflow_changed"),
    )
)
"""What a server of ours says of the agent's work. The rest of these names is about a server itself, its readers or its users: clients talk
to this one, which says its own."""


class Translation:
    """One run of the other server. `ended` once it has given its terminal event, `heard` once it has given any event."""

    def __init__(self, asked: RunAgentInput, added: Iterable[str]) -> None:
        self.ended = False
        self.heard = False
        users = [message.id for message in asked.messages if isinstance(message, UserMessage)]
        self._repairer = Repairer(asked.thread_id, asked.run_id, Transcript(asked.messages).ids(), users=users)
        self._conversation = Conversation(asked.messages, added)
        self._spoken = False
        self._snapshot_due = False
        self._dropped = 0

    @property
    def repairs(self) -> Counter[str]:
        return self._repairer.repairs

    def feed(self, event: Event) -> list[Event]:
        """What this event means here."""
        if isinstance(event, Custom) and self._is_passed_over(event):
            return []
        self.heard = self.heard or not is_dropped(event)
        out: list[Event] = []
        for legal in self._repairer.feed(event):
            out += self._kept(legal)
        return out

    def _kept(self, event: Event) -> Sequence[Event]:
        if isinstance(event, MessagesSnapshot):
            restated = self._conversation.told(event.messages)
            self._snapshot_due = self._spoken or restated is not None
            return () if restated is None else (restated,)
        if isinstance(event, RunStarted):  # its messages are those that were sent
            return (event,)
        self._spoken = True
        self._conversation.apply(event)
        self.ended = isinstance(event, RunFinished | RunError)
        # The run's own closing snapshot follows by itself; one in the middle is sent where it stood.
        due, self._snapshot_due = self._snapshot_due and not self.ended, False
        return (SNAPSHOT_HERE, event) if due else (event,)

    def _is_passed_over(self, event: Custom) -> bool:
        """Under our names another server may speak of its work and no more; and rubbish is mentioned only so often."""
        rubbish = is_dropped(event)
        self._dropped += rubbish
        is_reserved = event.name.startswith(OURS) and event.name not in _OF_ITS_WORK
        return is_reserved or (rubbish and self._dropped > _MOST_DROPPED)
