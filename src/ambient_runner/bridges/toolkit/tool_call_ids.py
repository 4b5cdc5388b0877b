"""Under which id clients know a call. Models repeat ids, or make them as they like; in a thread each stands for one call. Pure."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING

from ambient_runner.protocol.ids import fit

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["free_id"]


def free_id(call_id: str, taken: Container[str]) -> str:
    """The model's own id, or one that stands for it: a client can send it back, and no other call has it.

    `repair.py` would see to both at the end, but then the agent would not know its call by the id that the answer names.
    """
    own = fit(call_id)
    return next(one for one in chain([own], (fit(f"{own}~{n}") for n in count(2))) if one not in taken)
