"""A rolling restart under load: each server is replaced in turn, and clients notice nothing but a reconnect."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run_input, split_runs, text_of
from tests.machine_speed import unless_hung

from .clients import CUT, Client
from .comparison import compare
from .harness import start_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.server import Child
    from tests.e2e.sse import Event

CHATS = 4
ENV = {"AMBIENT_STOP_GRACE": "2"}


class Service:
    """Two servers on one store, as behind a load balancer: `urls` are those that are ready."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.servers: list[Child] = []
        self.urls: list[str] = []

    async def start(self) -> None:
        server = await start_server(self._store, env=ENV)
        self.servers.append(server)
        self.urls.append(server.url)

    async def replace_oldest(self) -> int:
        """Start another server, take the oldest out of rotation, and end it by SIGTERM. Return its exit code."""
        await self.start()
        oldest = self.servers.pop(0)
        self.urls.remove(oldest.url)
        oldest.signal(signal.SIGTERM)
        return await anyio.to_thread.run_sync(oldest.wait)

    async def aclose(self) -> None:
        for server in self.servers:
            await anyio.to_thread.run_sync(server.kill)


async def send_until_accepted(service: Service, client: Client, body: Event) -> None:
    """Post a message with a key at any server until a run has taken it, and read to its end, wherever."""
    key, runs = {"Idempotency-Key": new_id("key")}, client.ended_runs + 1
    while True:
        try:
            url = service.urls[client.turn % len(service.urls)]
            async with open_stream(f"{url}/", "POST", body=body, headers=key) as stream:
                if stream.status == 200:
                    break
                assert stream.status == 503, await stream.body()
        except CUT:
            pass
        client.turn += 1
        await anyio.sleep(0.02)
    await client.follow(runs=runs)


async def test_f27_a_rolling_restart_loses_no_message_and_no_event(tmp_path: Path) -> None:
    """Clients chat without a pause while both servers are replaced: every message gets one run, every event comes once."""
    service, codes = Service(tmp_path / "ambient.db"), list[int]()
    clients = [Client(new_id("thread"), service.urls, turn=number) for number in range(CHATS)]
    sent = dict.fromkeys((client.thread for client in clients), 0)
    is_over = False

    async def chat(client: Client) -> None:
        while not is_over:
            await send_until_accepted(service, client, run_input(client.thread, "count 40 every 5ms"))
            sent[client.thread] += 1

    try:
        with unless_hung():
            await service.start()
            await service.start()
            async with anyio.create_task_group() as tasks:
                for client in clients:
                    tasks.start_soon(chat, client)
                for client in clients:
                    await client.has_received(10)
                codes += [await service.replace_oldest(), await service.replace_oldest()]
                is_over = True
            logs = {client.thread: await history(service.urls[0], client.thread) for client in clients}
    finally:
        await service.aclose()
    assert codes == [0, 0]
    for client in clients:
        assert not compare(client.frames, logs[client.thread])
        runs = split_runs(events_of(logs[client.thread]))
        assert len(runs) == sent[client.thread] > 1
        assert all(ending(events) == "shutdown" or text_of(events) == numbers(40) for events in runs)
