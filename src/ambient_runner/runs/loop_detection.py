"""Which runs of other servers wait for a run, so that gateways that lead back to themselves are found out.

Each server adds its run's key to what it asks of the next one. A run that is asked for by the very run that has its thread would wait for
itself, and one that has come through many servers goes round in circles among threads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ambient_runner.errors import AgentLoop

if TYPE_CHECKING:
    from ambient_runner.runs.run import Run

__all__ = ["MOST_HOPS", "VIA", "read_via", "via_of"]

VIA = "X-Ambient-Via"
"""The header: keys of runs, the first one asked first."""
MOST_HOPS = 5
"""How many servers may stand before this one."""

_KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")


def read_via(header: str | None) -> tuple[str, ...]:
    """The runs that wait for what a request asks. What is no key counts all the same. Raises: AgentLoop."""
    named = [one.strip() for one in (header or "").split(",") if one.strip()]
    if len(named) > MOST_HOPS:
        raise AgentLoop(
            f"This request has come through more than {MOST_HOPS} servers, so an agent's URL leads back to one of them. "
            "The operators of those servers have to look at the URLs of their agents."
        )
    return tuple(one if _KEY.fullmatch(one) else "unknown" for one in named)


def via_of(run: Run) -> str:
    """The header of what this run asks of another server."""
    return ", ".join((*run.via, run.key))
