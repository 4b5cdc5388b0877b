"""The chain of runs on other servers that wait for a run, to detect gateways whose agents lead back to themselves.

Each server adds its run's key to the request it sends to the next one. A run requested by the very run that holds its thread would wait for
itself, and a request that passed many servers is in a loop across threads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ambient_runner.errors import AgentLoop

if TYPE_CHECKING:
    from ambient_runner.runs.run import Run

__all__ = ["MAX_HOPS", "VIA", "format_via_header", "parse_via_header"]

VIA = "X-Ambient-Via"
"""The header: keys of runs, the outermost first."""
MAX_HOPS = 5
"""Number of servers a request may have passed before this one."""

_KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")


def parse_via_header(header: str | None) -> tuple[str, ...]:
    """Return the runs that wait for this request. An item that is not a valid key counts as well. Raises: AgentLoop."""
    keys = [item.strip() for item in (header or "").split(",") if item.strip()]
    if len(keys) > MAX_HOPS:
        raise AgentLoop(
            f"This request passed more than {MAX_HOPS} servers, so the URL of an agent leads back to one of them. "
            "Check the URLs of the agents on these servers."
        )
    return tuple(key if _KEY.fullmatch(key) else "unknown" for key in keys)


def format_via_header(run: Run) -> str:
    """Return the header for requests of this run to another server."""
    return ", ".join((*run.via, run.key))
