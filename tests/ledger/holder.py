"""A process that holds a thread: `python holder.py <database> <lease>`.

It appends a line for every line it is sent, and says how that went.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import anyio.to_thread

from ambient_runner.errors import LeaseLost
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey

KEY = ThreadKey("acme", "ann", "trip")


async def main(path: Path, lease: float) -> None:
    async with SqliteLedger(path, lease=lease) as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
        await writer.begin_run(
            [Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")], run_id="r", agent="demo", claim=None
        )
        print("holding", flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.buffer.readline):
            try:
                writer.append(line.strip())
                print(await writer.flush(), flush=True)
            except LeaseLost:
                print("lost", flush=True)


anyio.run(main, Path(sys.argv[1]), float(sys.argv[2]))
