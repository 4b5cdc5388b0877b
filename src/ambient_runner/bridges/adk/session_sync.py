"""Plan to synchronize an ADK session with its thread. Pure: the session's events and the thread's turns in, a `SyncPlan` out.

The ledger is the source of truth; the model reads ADK's session. They diverge when the process that held the session has ended, when
another replica ran the thread, when a run was cut off, and when the thread was rewound. Events of the session that still match are
retained, because they contain more than a transcript. `sessions.py` carries out the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.interrupts import is_provisional
from ambient_runner.bridges.adk.messages import is_initial_result
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.events import Event as ADKEvent

    from ambient_runner.bridges.adk.memory import PausedInvocation, SessionMemory
    from ambient_runner.bridges.toolkit.turns import Turn, TurnToolResult

__all__ = ["SyncPlan", "find_event", "live_events", "pending_results", "plan_sync"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncPlan:
    """Changes to a session, in this order."""

    retained_events: list[ADKEvent]
    rewind_invocation: str | None = None
    """Id of the first invocation to remove; the events before it are `retained_events`."""
    turns_before: list[Turn] = field(default_factory=list["Turn"])
    paused_events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns_after: list[Turn] = field(default_factory=list["Turn"])


def live_events(events: Sequence[ADKEvent]) -> list[ADKEvent]:
    """Return the events the model sees, without those that were rewound."""
    live: list[ADKEvent] = []
    index = len(events) - 1
    while index >= 0:
        rewound = events[index].actions.rewind_before_invocation_id
        if rewound:
            index = next((i for i in range(index) if events[i].invocation_id == rewound), index)
        else:
            live.append(events[index])
        index -= 1
    return live[::-1]


def find_event(events: Sequence[ADKEvent], event_id: str) -> int:
    """Return the index of the event with this id; -1 if there is none."""
    return next((i for i, event in enumerate(events) if event.id == event_id), -1)


def plan_sync(
    events: Sequence[ADKEvent],
    history: Sequence[Turn],
    memory: SessionMemory | None,
    *,
    is_continuation: bool,
    has_external: bool = False,
) -> SyncPlan:
    """Return the plan that makes the live `events` match `history`. With `has_external`, another server has continued the session."""
    trusted = find_event(events, memory.last) + 1 if memory else 0
    if events and (not is_continuation or (has_external and trusted)):
        return SyncPlan(retained_events=list(events))
    retained, rewind = (list(events), None) if has_external else _retained_events(events, trusted, _turn_ids(history))
    is_current = memory is not None and 0 < trusted <= len(retained)
    missing = history[_count_covered_turns(history, retained, memory if is_current else None) :]
    start, end, paused = _paused_range(missing, memory.paused if memory and not is_current else None)
    return SyncPlan(
        retained_events=retained,
        rewind_invocation=rewind,
        turns_before=list(missing[:start]),
        paused_events=paused,
        turns_after=list(missing[end:]),
    )


def _turn_ids(history: Sequence[Turn]) -> set[str]:
    """Return the ids of messages that may be those of events: an adopted user message has the id of its event."""
    assistant = {message_id for turn in history if isinstance(turn, AssistantTurn) for message_id in turn.ids}
    return assistant | {turn.id for turn in history if isinstance(turn, UserTurn)}


def _retained_events(
    events: Sequence[ADKEvent], trusted: int, message_ids: set[str]
) -> tuple[list[ADKEvent], str | None]:
    """Return the events to retain, and the invocation to rewind to: the first untrusted one whose messages the thread lacks."""
    known = {event.invocation_id for event in events[trusted:] if event.id in message_ids}
    with_content = {event.invocation_id for event in events[trusted:] if event.content is not None}
    rewind = next((e.invocation_id for e in events[trusted:] if e.invocation_id in with_content - known), None)
    if rewind is None:
        return list(events), None
    start = next(i for i, event in enumerate(events) if event.invocation_id == rewind)
    return list(events[:start]), rewind


def _count_covered_turns(history: Sequence[Turn], retained: Sequence[ADKEvent], memory: SessionMemory | None) -> int:
    """Return the number of leading turns of the thread that the retained events cover."""
    ids = {event.id for event in retained}
    covered = 0
    is_last_user = is_covered = False
    for i, turn in enumerate(history):
        match turn:
            case UserTurn():
                is_last_user = memory is not None and turn.id == memory.since
                is_covered = is_last_user or turn.id in ids
            case AssistantTurn():
                is_covered = is_last_user or not ids.isdisjoint(turn.ids)
            case _:
                pass
        covered = i + 1 if is_covered else covered
    return covered


def _paused_range(missing: Sequence[Turn], paused: PausedInvocation | None) -> tuple[int, int, list[dict[str, Any]]]:
    """Return the range of missing turns that the paused invocation replaces, and its events."""
    start = next(
        (i for i, turn in enumerate(missing) if paused and isinstance(turn, UserTurn) and turn.id == paused.since), None
    )
    if start is None or paused is None:
        return len(missing), len(missing), []
    end = next((i for i in range(start + 1, len(missing)) if isinstance(missing[i], UserTurn)), len(missing))
    return start, end, paused.events


def pending_results(events: Sequence[ADKEvent], history: Sequence[Turn]) -> list[TurnToolResult]:
    """Return the thread's results for calls that still wait in the session.

    Without them the model sees an open call, or a call that waits for confirmation.
    """
    responses = [(event, response) for event in events for response in event.get_function_responses()]
    answered = {
        response.id
        for event, response in responses
        if not is_provisional(event, response.id or "") and not is_initial_result(response)
    }
    waiting = {call_id for event in events for call_id in event.long_running_tool_ids or ()}
    waiting |= {response.id for _, response in responses}
    return [
        result
        for turn in history
        if isinstance(turn, ResultsTurn)
        for result in turn.results
        if result.call_id in waiting - answered
    ]
