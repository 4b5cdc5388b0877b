"""The client of the official ACP SDK for Python, counting the chunks of the fake agent: `python -m benchmarks.acp_sdk AGENT CHUNKS`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block


class CountingClient(Client):
    """Counts updates and does nothing with them."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.has_all = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.has_all.set()


async def main(agent: str, chunks: int) -> None:
    client = CountingClient(chunks)
    async with spawn_agent_process(client, sys.executable, "-I", agent) as (connection, _process):
        await connection.initialize(protocol_version=PROTOCOL_VERSION)
        session = await connection.new_session(cwd="/", mcp_servers=[])
        started = time.monotonic()
        await connection.prompt(session_id=session.session_id, prompt=[text_block(f"flood {chunks}")])
        await client.has_all.wait()
        print(time.monotonic() - started)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
