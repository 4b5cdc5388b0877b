"""Deferred patches of the state: which ones may wait, and their encoding in one step.

A patch that sets one top-level key to a scalar needs no repair, and many of them are searched, encoded and applied to the state
together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ambient_runner.projections.state_patch import STATE_DELTA_PREFIX, read_key_change
from ambient_runner.protocol.events import StateDelta
from ambient_runner.runs.deferred_events import MAX_DEFERRED_TEXT_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.projections.state_patch import KeyChange
    from ambient_runner.protocol.events import Event

__all__ = ["read_deferrable_change", "read_key_changes", "stamp_lines"]


def read_deferrable_change(event: StateDelta) -> KeyChange | None:
    """Return the change that a patch makes if it may be deferred: it is small, and has no other fields. Else return None."""
    if event.metadata is None and event.raw_event is None and event.subagent_run_id is None and event.timestamp is None:
        return read_key_change(event.delta, MAX_DEFERRED_TEXT_CHARS)
    return None


def read_key_changes(events: Sequence[Event]) -> list[KeyChange] | None:
    """Return the changes that the patches among redacted events make; None if one of them does anything else."""
    changes = [read_key_change(event.delta, MAX_DEFERRED_TEXT_CHARS) for event in events if type(event) is StateDelta]
    known = [change for change in changes if change is not None]
    return known if len(known) == len(changes) else None


def stamp_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Return the lines of patches with the current time. They are those of the events with a `timestamp`, which is their first field."""
    head = b'%b"timestamp":%d,' % (STATE_DELTA_PREFIX, time.time_ns() // 1_000_000)
    return [head + line[len(STATE_DELTA_PREFIX) :] for line in lines]
