"""The start of an event stream: routes find it, and `event_stream.py` sends from there on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import Batch
    from ambient_runner.projections.frames import Framer
    from ambient_runner.projections.thread_view import ThreadView

__all__ = ["FIRST_WINDOW_BYTES", "WINDOW_BYTES", "StreamStart"]

WINDOW_BYTES = 1 << 19
"""Bytes of entries that a stream takes at a time. Those of a client that does not read stay in memory."""

FIRST_WINDOW_BYTES = 1 << 18
"""Of the first ones. They are kept until all of them are sent, because retention may have dropped them from the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamStart:
    """The entry that a stream starts after, what is sent before the next one, and what was read along with them."""

    after: int
    framer: Framer
    preface: bytes = b""
    view: ThreadView | None = None
    """The thread as of that entry, or of the first one that needs a view, if it is known."""
    batches: Sequence[Batch] = ()
    """The batches that follow it, if they are known: retention may drop them before the stream opens."""
    is_run_open: bool = False
    """True if the preface leaves a run open."""
