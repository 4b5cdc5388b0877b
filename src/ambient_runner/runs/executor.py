"""The threads for work on large requests and states: on the event loop it would delay every stream of the server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LARGE_BYTES", "run_in_thread_if_large"]

LARGE_BYTES = 1 << 16
"""Size of JSON, in bytes, from which work on it can take more than 20 ms: if it has many values."""

_executor = ThreadPoolExecutor(2, thread_name_prefix="ambient-large")
"""Not asyncio's own, whose threads agents can occupy. They start with the first large request."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_thread_if_large(size: int, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return the result of a function that works on so many bytes of JSON: in a thread if they are many.

    It must not use what the event loop changes meanwhile.
    """
    if size <= LARGE_BYTES:
        return function(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_executor, lambda: function(*args, **kwargs))
