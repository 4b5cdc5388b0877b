"""Turns of a conversation that an agent's own session does not have. A session is known by the user messages it has received. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.turns import UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.turns import Turn

__all__ = ["MAX_RECEIVED", "find_missing_turns", "received_ids"]

MAX_RECEIVED = 64
"""Number of the newest received messages that are compared with the conversation."""


def received_ids(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return the ids of the newest user messages, for a session that has these turns."""
    return tuple(_user_ids(turns)[-MAX_RECEIVED:])


def find_missing_turns(received: Sequence[str], history: Sequence[Turn]) -> Sequence[Turn] | None:
    """Return the turns after those that a session has; None if it has others, which were rewound, or none at all.

    `received` are the ids of the newest user messages that the session has, in order.
    """
    users = _user_ids(history)
    last = received[-1] if received else None
    if last is None or last not in users:
        return None
    known = users[: users.index(last) + 1]
    if known[-len(received) :] != list(received)[-len(known) :]:
        return None
    return _turns_from(history, users[len(known)]) if len(known) < len(users) else ()


def _user_ids(turns: Sequence[Turn]) -> list[str]:
    return [turn.id for turn in turns if isinstance(turn, UserTurn)]


def _turns_from(history: Sequence[Turn], user_id: str) -> Sequence[Turn]:
    first = next(index for index, turn in enumerate(history) if isinstance(turn, UserTurn) and turn.id == user_id)
    return history[first:]
