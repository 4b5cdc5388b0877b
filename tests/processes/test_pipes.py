from __future__ import annotations

import os
import time

import anyio

from ambient_runner.processes.pipes import OutputPipe
from tests.machine_speed import unless_hung

SLOW = 0.02  # seconds
LARGE = 1 << 16


async def test_blocks_that_take_long_to_deliver_become_smaller() -> None:
    """A process that flooded short lines kept the event loop for seconds: each block had 100,000 of them."""
    sizes: list[int] = []
    enough = anyio.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def receive(data: bytes) -> None:
        sizes.append(len(data))
        time.sleep(SLOW)
        if len(sizes) == 10:
            enough.set()
        else:
            fill()

    def fill() -> None:
        try:
            while os.write(writer, b"x" * LARGE):
                pass
        except BlockingIOError:
            pass

    pipe = OutputPipe(os.fdopen(reader, "rb", buffering=0), receive, lambda: None)
    fill()
    with unless_hung():
        await enough.wait()
    pipe.close()
    os.close(writer)
    assert sizes[0] >= LARGE
    assert sizes[-1] == 1 << 12
