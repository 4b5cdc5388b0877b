"""The start of a stream that connects to a thread: its view there, and the active run that follows. `runs/connect.py` is the pure part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.projections.thread_event import ThreadIdentity
from ambient_runner.runs.connect import connect_events, is_run_active, seq_before_active_run
from ambient_runner.runs.view_cache import ThreadEpoch

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.ledger.records import RunInfo, ThreadInfo
    from ambient_runner.projections.frames import Framer
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.runs.runner import Runner

__all__ = ["ConnectStart", "find_connect_start"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectStart:
    """The entry that a connect stands for, and the thread as of that entry."""

    info: ThreadInfo
    seq: int
    view: ThreadView
    active_run: RunInfo | None
    """The run that follows; None between runs."""

    def render(self, framer: Framer, hidden: Collection[str]) -> bytes:
        """Return the frames of the connect. `hidden` are the state keys that clients do not see."""
        events = connect_events(ThreadIdentity.of_info(self.info), self.info.epoch, self.view, hidden)
        return framer.render_at(events, self.seq, self.view)


async def find_connect_start(runner: Runner, info: ThreadInfo) -> ConnectStart:
    """Return the newest entry of the thread, or the one before its active run.

    Call it before anything that may need the newest view: the view before an active run is folded from the one in memory.
    """
    newest = await runner.ledger.find_run_at(info.key, info.last)
    active = newest if is_run_active(info, newest) else None
    seq, thread = seq_before_active_run(info, newest), ThreadEpoch(info.key, info.epoch)
    view = await (runner.views.view_before_run(thread, seq) if active else runner.views.view_at(thread, seq))
    return ConnectStart(info=info, seq=seq, view=view, active_run=active)
