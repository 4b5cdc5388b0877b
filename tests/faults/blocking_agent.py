"""An agent that makes the mistake of the fault suite: blocking code in an `async def`. Its message says how."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.lowlevel


async def agent(input: Any) -> AsyncIterator[dict[str, Any]]:
    """`sleep 3` blocks once for three seconds; `sleep 2 times 3` three times; `search` blocks in C code that keeps the GIL."""
    words = str(input.messages[-1].content).split()
    yield {"type": "TEXT_MESSAGE_START", "messageId": input.run_id, "role": "assistant"}
    for number in range(int(words[3]) if "times" in words else 1):
        if words[0] == "sleep":
            call_slow_library(float(words[1]))
        else:
            search_backwards()
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": input.run_id, "delta": f"{number} "}
        for _ in range(100):  # The loop gets its turn: what follows is another block.
            await anyio.lowlevel.checkpoint()
    yield {"type": "TEXT_MESSAGE_END", "messageId": input.run_id}


def call_slow_library(seconds: float) -> None:
    time.sleep(seconds)


def search_backwards() -> None:
    """Take seconds in calls of C code, however fast the machine, and go on for a moment in Python, where other threads get their turn."""
    text, until = "a" * 20, time.monotonic() + 1.5
    while time.monotonic() < until:
        text += "a"
        re.match(r"(a+)+$", f"{text}b")
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        pass
