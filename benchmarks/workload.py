"""The workload that every server streams, written once so that all of them send the same deltas.

`count N` is N numbered deltas without pauses. `count N every 33ms` is N deltas on a schedule; each carries the times at which it was
due and created, so that a client on the same machine can compute its latency.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

COMMAND = re.compile(r"count (\d+)(?: every (\d+)ms)?")
NUMBERED = re.compile(rb'"delta":"(\d+) "')
STAMPED = re.compile(rb'"delta":"(\d+)/(\d+) "')


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The number of deltas, and the milliseconds between them; None for no pause."""

    count: int
    every_ms: int | None = None

    @property
    def prompt(self) -> str:
        return f"count {self.count}" + (f" every {self.every_ms}ms" if self.every_ms else "")


def parse_workload(prompt: str) -> Workload:
    """Return the workload of a prompt. Raises: ValueError."""
    found = COMMAND.fullmatch(prompt.strip())
    if found is None:
        raise ValueError(prompt)
    return Workload(count=int(found[1]), every_ms=int(found[2]) if found[2] else None)


def last_prompt(messages: list[Any]) -> str:
    """Return the text of the last message, which is an `ag_ui.core` model or a JSON object."""
    last = messages[-1]
    return cast("str", last["content"] if isinstance(last, dict) else last.content)


async def stream_deltas(work: Workload) -> AsyncGenerator[str]:
    """Yield the texts to stream: numbers, or on a schedule `due/created` in monotonic nanoseconds."""
    if work.every_ms is None:
        for number in range(1, work.count + 1):
            yield f"{number} "
        return
    start = time.monotonic_ns()
    for number in range(work.count):
        due = start + number * work.every_ms * 1_000_000
        if (wait := due - time.monotonic_ns()) > 0:
            await asyncio.sleep(wait / 1e9)
        yield f"{due}/{time.monotonic_ns()} "
