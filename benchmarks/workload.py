"""The workload that every server streams, written once so that all of them send the same deltas.

`count N` is N numbered deltas without pauses; `count N of code` is N deltas of that shape (see `texts.py`). `count N every 33ms` is N
deltas on a schedule; each carries the times at which it was due and created, so that a client on the same machine can compute its
latency. With `unended` at the end they do not end a word. `count N after 5 calls` counts after so many tool calls, one after the other.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from benchmarks.texts import DIGITS, build_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

COMMAND = re.compile(r"count (\d+)(?: of (\w+))?(?: every (\d+)ms( unended)?)?(?: after (\d+) calls)?")
NUMBERED = re.compile(rb'"delta":"(\d+) "')
STAMPED = re.compile(rb'"delta":"(\d+)/(\d+) "')


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The number of deltas, their shape, and the milliseconds between them; None for no pause."""

    count: int
    shape: str = DIGITS
    every_ms: int | None = None
    ends_words: bool = True
    calls: int = 0
    """Tool calls before the first delta."""

    @property
    def prompt(self) -> str:
        shape = "" if self.shape == DIGITS else f" of {self.shape}"
        pace = f" every {self.every_ms}ms" if self.every_ms else ""
        calls = f" after {self.calls} calls" if self.calls else ""
        return f"count {self.count}{shape}{pace}{'' if self.ends_words else ' unended'}{calls}"


def parse_workload(prompt: str) -> Workload:
    """Return the workload of a prompt. Raises: ValueError."""
    found = COMMAND.fullmatch(prompt.strip())
    if found is None:
        raise ValueError(prompt)
    return Workload(
        count=int(found[1]),
        shape=found[2] or DIGITS,
        every_ms=int(found[3]) if found[3] else None,
        ends_words=not found[4],
        calls=int(found[5] or 0),
    )


def last_prompt(messages: list[Any]) -> str:
    """Return the text of the last message, which is an `ag_ui.core` model or a JSON object."""
    last = messages[-1]
    return cast("str", last["content"] if isinstance(last, dict) else last.content)


def list_deltas(work: Workload) -> Iterable[str]:
    """Return the texts to stream without pauses: numbers are made when they are needed, as an agent does, other shapes exist before."""
    if work.shape == DIGITS:
        return (f"{number} " for number in range(1, work.count + 1))
    return build_deltas(work.shape, work.count)


async def stream_deltas(work: Workload) -> AsyncGenerator[str]:
    """Yield the texts to stream: those of `list_deltas`, or on a schedule `due/created` in monotonic nanoseconds."""
    if work.every_ms is None:
        for delta in list_deltas(work):
            yield delta
        return
    start = time.monotonic_ns()
    end = " " if work.ends_words else ""
    for number in range(work.count):
        due = start + number * work.every_ms * 1_000_000
        if (wait := due - time.monotonic_ns()) > 0:
            await asyncio.sleep(wait / 1e9)
        yield f"{due}/{time.monotonic_ns()}{end}"
