"""What it takes to bring an ADK session in step with its thread. Pure: the session's events and the thread's turns in, a plan out.

The ledger says what was said; ADK's session is what the model reads. They part when the process that held the session is gone, when
another replica ran the thread, when a run was cut short, and when the thread was rewound. What the session still has right is kept,
because it knows more than a transcript does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.bridges.adk.interrupts import is_provisional
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.events import Event as AdkEvent

    from ambient_runner.bridges.toolkit.turns import Result, Turn

__all__ = ["Memory", "Paused", "Plan", "live_events", "plan", "read_memory", "unanswered"]


class Paused(msgspec.Struct, kw_only=True):
    """An invocation that waits for someone, word for word: what a transcript cannot tell is needed to go on with it."""

    since: str
    """The user message that began it."""
    events: list[dict[str, Any]]


class Memory(msgspec.Struct, kw_only=True):
    """What a run leaves for the next one."""

    last: str
    """The session's last event."""
    since: str
    """The newest user message the session has seen."""
    paused: Paused | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to do to a session, in this order."""

    kept: list[AdkEvent]
    rewind: str | None = None
    """The invocation before which the session is cut; what is before it is `kept`."""
    before: list[Turn] = field(default_factory=list["Turn"])
    paused: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    after: list[Turn] = field(default_factory=list["Turn"])


def read_memory(value: Any) -> Memory | None:
    """What an earlier run left; None when it is not understood."""
    try:
        return msgspec.convert(value, Memory)
    except msgspec.ValidationError:
        return None


def live_events(events: Sequence[AdkEvent]) -> list[AdkEvent]:
    """The events a model sees: what a rewind has cut is left out."""
    live: list[AdkEvent] = []
    at = len(events) - 1
    while at >= 0:
        cut = events[at].actions.rewind_before_invocation_id
        if cut:
            at = next((i for i in range(at) if events[i].invocation_id == cut), at)
        else:
            live.append(events[at])
        at -= 1
    return live[::-1]


def plan(events: Sequence[AdkEvent], history: Sequence[Turn], memory: Memory | None, *, is_continuation: bool) -> Plan:
    """How to make `events` (live ones) say what `history` says."""
    if not is_continuation and events:
        return Plan(kept=list(events))
    said = {message for turn in history if isinstance(turn, AssistantTurn) for message in turn.ids}
    trusted = next((i + 1 for i, event in enumerate(events) if memory and event.id == memory.last), 0)
    kept, rewind = _kept(events, trusted, said)
    in_step = memory is not None and 0 < trusted <= len(kept)
    missing = history[_covered(history, kept, memory if in_step else None) :]
    begins, ends, paused = _wake(missing, memory.paused if memory and not in_step else None)
    return Plan(kept=kept, rewind=rewind, before=list(missing[:begins]), paused=paused, after=list(missing[ends:]))


def _kept(events: Sequence[AdkEvent], trusted: int, said: set[str]) -> tuple[list[AdkEvent], str | None]:
    """The events to keep and the invocation to cut at: the first one, after those trusted, of which the thread knows nothing."""
    known = {event.invocation_id for event in events[trusted:] if event.id in said}
    loud = {event.invocation_id for event in events[trusted:] if event.content is not None}
    cut = next((e.invocation_id for e in events[trusted:] if e.invocation_id in loud - known), None)
    if cut is None:
        return list(events), None
    begins = next(i for i, event in enumerate(events) if event.invocation_id == cut)
    return list(events[:begins]), cut


def _covered(history: Sequence[Turn], kept: Sequence[AdkEvent], memory: Memory | None) -> int:
    """How many turns of the thread the kept events amount to."""
    ids = {event.id for event in kept}
    covered = 0
    whole = seen = False
    for i, turn in enumerate(history):
        match turn:
            case UserTurn():
                whole = seen = memory is not None and turn.id == memory.since
            case AssistantTurn():
                seen = whole or not ids.isdisjoint(turn.ids)
            case _:
                pass
        covered = i + 1 if seen else covered
    return covered


def _wake(missing: Sequence[Turn], paused: Paused | None) -> tuple[int, int, list[dict[str, Any]]]:
    """Where the paused invocation stands among the missing turns, and its events."""
    begins = next(
        (i for i, turn in enumerate(missing) if paused and isinstance(turn, UserTurn) and turn.id == paused.since), None
    )
    if begins is None or paused is None:
        return len(missing), len(missing), []
    ends = next((i for i in range(begins + 1, len(missing)) if isinstance(missing[i], UserTurn)), len(missing))
    return begins, ends, paused.events


def unanswered(events: Sequence[AdkEvent], history: Sequence[Turn]) -> list[Result]:
    """The thread's results for calls that still wait in the session. Without them the model sees an open call, or one that is to be
    confirmed."""
    responses = [(event, response.id or "") for event in events for response in event.get_function_responses()]
    answered = {call_id for event, call_id in responses if not is_provisional(event, call_id)}
    waiting = {call_id for event in events for call_id in event.long_running_tool_ids or ()}
    waiting |= {call_id for _, call_id in responses}
    return [
        result
        for turn in history
        if isinstance(turn, ResultsTurn)
        for result in turn.results
        if result.call_id in waiting - answered
    ]
