"""Translate the other server's events to those this server stores: a legal stream with unused ids, and corrections of the history. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.projections.history import HistoryMerge
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.dropped_events import is_dropped_event
from ambient_runner.protocol.events import (
    CUSTOM_PREFIX,
    Custom,
    MessagesSnapshot,
    RunError,
    RunFinished,
    RunStarted,
    UserMessage,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.reserved_events import has_reserved_name, to_plain_event, to_platform_event
from ambient_runner.runs.framing import SNAPSHOT_MARKER

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from ambient_runner.protocol.events import Event, RunAgentInput

__all__ = ["Translator"]

_RELAYED_EVENTS = frozenset(
    f"{CUSTOM_PREFIX}{name}"
    for name in (
        *("dropped", "hook_error", "interrupt_lapsed", "setup_error"),
        *("repo_added", "repo_progress", "repo_removed", "workflow_changed"),
    )
)
"""Events with reserved names that are passed on: those about the agent's work."""
_MAX_DROPPED_NOTICES = 10
"""Limit on `ambient:dropped` events per run, so that a server that sends only invalid events does not fill the thread."""


class Translator:
    """Translates one run. `is_ended` is True after the terminal event, `has_events` after any event.

    `renamed_calls` are the calls of earlier runs that have another id here: our id by the other server's.
    """

    def __init__(
        self, run_input: RunAgentInput, added_ids: Iterable[str], renamed_calls: Mapping[str, str] | None = None
    ) -> None:
        self.is_ended = False
        self.has_events = False
        users = [message.id for message in run_input.messages if isinstance(message, UserMessage)]
        self._repairer = Repairer(
            run_input.thread_id,
            run_input.run_id,
            Transcript(run_input.messages).all_ids(),
            user_message_ids=users,
            renamed_calls=renamed_calls,
        )
        self._history = HistoryMerge(run_input.messages, added_ids, is_other_server=True)
        self._has_content = False
        self._snapshot_due = False
        self._dropped_count = 0

    @property
    def repairs(self) -> Counter[str]:
        return self._repairer.repairs + self._history.repairs

    @property
    def renamed_calls(self) -> Mapping[str, str]:
        return self._repairer.renamed_calls

    def feed(self, event: Event) -> list[Event]:
        """Return the events to store for this one."""
        if isinstance(event, Custom) and self._is_ignored(event):
            return []
        self.has_events = self.has_events or not is_dropped_event(event)
        out: list[Event] = []
        for legal in self._repairer.feed(to_plain_event(event)):
            out += self._translate_legal_event(legal)
        return out

    def _translate_legal_event(self, event: Event) -> Sequence[Event]:
        if isinstance(event, MessagesSnapshot):
            correction = self._history.merge_snapshot(event.messages)
            self._snapshot_due = self._has_content or correction is not None
            return () if correction is None else (correction,)
        if isinstance(event, RunStarted):  # Its messages are those that were sent.
            return (event,)
        self._has_content = True
        self._history.apply_event(event)
        self.is_ended = isinstance(event, RunFinished | RunError)
        # The run's closing snapshot is added at its end; a snapshot in the middle keeps its position.
        is_due, self._snapshot_due = self._snapshot_due and not self.is_ended, False
        if isinstance(event, Custom) and has_reserved_name(event):
            event = to_platform_event(event)
        return (SNAPSHOT_MARKER, event) if is_due else (event,)

    def _is_ignored(self, event: Custom) -> bool:
        """Return True for an `ambient:*` event that is not passed on, and for dropped events above the limit.

        Those are about the other server, its readers or its users; this server sends its own.
        """
        is_dropped = is_dropped_event(event)
        self._dropped_count += is_dropped
        is_relayed = not has_reserved_name(event) or event.name in _RELAYED_EVENTS
        return not is_relayed or (is_dropped and self._dropped_count > _MAX_DROPPED_NOTICES)
