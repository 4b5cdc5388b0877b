"""What is known of a run before its graph says anything. Data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Plan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is known before the run begins."""

    frontend: frozenset[str] = frozenset()
    """Tools the client executes."""
    messages: frozenset[str] = frozenset()
    """Ids of the thread's messages: what has them has been told."""
    open_calls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Calls of earlier runs that may be answered now: the tool's name by the call's id."""
    messages_key: str = "messages"
    hidden: Collection[str] = ()
    """Keys of the state that are never told."""
    predictions: Sequence[Mapping[str, str]] = ()
