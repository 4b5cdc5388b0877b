"""The state that the clients, the faults and the report of a soak share."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .chats import Chat
    from .records import ThreadRecord
    from .servers import Server

__all__ = ["World"]


@dataclass
class World:
    """The state of one soak."""

    seed: int
    servers: list[Server]
    random: Random
    chats: list[Chat] = field(default_factory=list["Chat"])
    retired: list[ThreadRecord] = field(default_factory=list["ThreadRecord"])
    """Threads that get no more messages and wait to be compared."""
    is_over: bool = False
    faults: Counter[str] = field(default_factory=Counter[str])
    wrong: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    """Numbers of what was done and compared: threads, runs, events, connections, gaps."""
    recoveries: list[float] = field(default_factory=list[float])
    """Seconds from the fault of a server to the end of a run that it held."""
    failures: list[str] = field(default_factory=list[str])
    """Descriptions of what was wrong, for whoever has to find out why."""

    def pick_server(self, random: Random) -> Server:
        return random.choice(self.servers)

    def note_outage(self, server: Server) -> None:
        """Start the clock of every run that this server holds."""
        for chat in self.chats:
            if chat.posted_at is server and chat.outage_since is None:
                chat.outage_since = time.monotonic()

    def report_failure(self, kind: str, text: str, count: int = 1) -> None:
        self.wrong[kind] += count
        self.failures.append(f"{kind}: {text}")
