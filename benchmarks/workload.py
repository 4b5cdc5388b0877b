"""What every contender is asked to stream, written once so that all of them send the same deltas.

`count N` is N numbered deltas as fast as they come; `count N every 33ms` is N deltas on a schedule, each carrying the moment
it was due and the moment it was made, so that a reader on the same machine can tell how long it travelled.
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
    """How many deltas, and how many milliseconds between them (none: at once)."""

    count: int
    every_ms: int | None = None

    @property
    def prompt(self) -> str:
        return f"count {self.count}" + (f" every {self.every_ms}ms" if self.every_ms else "")


def parse(prompt: str) -> Workload:
    """The workload a prompt asks for."""
    found = COMMAND.fullmatch(prompt.strip())
    if found is None:
        raise ValueError(prompt)
    return Workload(count=int(found[1]), every_ms=int(found[2]) if found[2] else None)


def last_prompt(messages: list[Any]) -> str:
    """The text of the newest message, given as `ag_ui.core` models or as plain JSON objects."""
    newest = messages[-1]
    return cast("str", newest["content"] if isinstance(newest, dict) else newest.content)


async def deltas(work: Workload) -> AsyncGenerator[str]:
    """The texts to stream, numbered or, on a schedule, stamped `due/made` in monotonic nanoseconds."""
    if work.every_ms is None:
        for number in range(1, work.count + 1):
            yield f"{number} "
        return
    began = time.monotonic_ns()
    for number in range(work.count):
        due = began + number * work.every_ms * 1_000_000
        if (wait := due - time.monotonic_ns()) > 0:
            await asyncio.sleep(wait / 1e9)
        yield f"{due}/{time.monotonic_ns()} "
