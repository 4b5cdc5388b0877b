"""Tool call ids for clients. Models repeat ids or choose unsafe ones; on the wire each id names one call of the thread. Pure."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING

from ambient_runner.protocol.ids import client_safe_id

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["allocate_tool_call_id"]


def allocate_tool_call_id(call_id: str, taken: Container[str]) -> str:
    """Return the model's id if it is safe and free, else one derived from it that is.

    `repair.py` would fix both later, but then the agent could not match the id in the client's answer to its call.
    """
    own = client_safe_id(call_id)
    candidates = chain([own], (client_safe_id(f"{own}~{n}") for n in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)
