"""The faults of the soak, by name. Each is a function of the world; it returns False if there was nothing to inject it into."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from tests.e2e.talk import new_id, run_input
from tests.faults.clients import CUT

from .records import Receipt
from .servers import LEASE, SLOW_READER
from .streams import frames_of, open_stalled, opened, request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from .chats import Chat
    from .servers import Server
    from .world import World

    Fault = Callable[[World], Awaitable[bool]]

__all__ = ["FAULTS"]

_LONGEST_LOCK = 6.0  # seconds: longer than a commit waits for a lock
_BURST = "count 8000"


def _pick_free_server(world: World, *, is_killable: bool) -> Server | None:
    """Return a server into which no fault is injected at this moment; None if there is none. With `is_killable`, one that may be killed."""
    free = [server for server in world.servers if not server.lock.locked() and (server.is_killable or not is_killable)]
    return world.random.choice(free) if free else None


def _active_chats(world: World) -> list[Chat]:
    return [chat for chat in world.chats if chat.thread.entries and not chat.thread.is_erased]


async def kill(world: World) -> bool:
    """kill -9, and start it again."""
    return await _replace(world, signal.SIGKILL)


async def terminate(world: World) -> bool:
    """SIGTERM, wait for its end, and start it again."""
    return await _replace(world, signal.SIGTERM)


async def _replace(world: World, number: signal.Signals) -> bool:
    server = _pick_free_server(world, is_killable=True)
    if server is None:
        return False
    async with server.lock:
        world.note_outage(server)
        server.send_signal(number)
        code = await server.wait()
        if number == signal.SIGTERM and code != 0:
            world.report_failure("bad exit", f"server {server.name} ended with {code} after SIGTERM")
        await server.start()
    return True


async def pause(world: World) -> bool:
    """SIGSTOP for longer than the lease, then SIGCONT: the others take its runs over, and it must notice."""
    server = _pick_free_server(world, is_killable=False)
    if server is None:
        return False
    async with server.lock:
        world.note_outage(server)
        server.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE * world.random.uniform(1.5, 4))
        finally:
            server.send_signal(signal.SIGCONT)
    return True


async def block(world: World) -> bool:
    """Let an agent block the event loop of a server for longer than the lease."""
    server = _pick_free_server(world, is_killable=False)
    if server is None:
        return False
    async with server.lock:
        body = run_input(new_id("blocker"), f"{LEASE * world.random.uniform(1.5, 3):.1f}")
        try:
            async with opened(f"{server.url}/agents/blocker", "POST", body=body) as stream:
                if stream.status != 200:
                    return False
                async for _ in frames_of(stream):
                    pass
        except CUT:
            pass  # a client that gives up is a part of it
    return True


async def lock_store(world: World) -> bool:
    """Hold the write lock of the store, as a backup or a stopped process can."""
    seconds = world.random.uniform(0.5, _LONGEST_LOCK)
    for server in world.servers:
        world.note_outage(server)
    return await asyncio.to_thread(_hold_lock, world.servers[0].store, seconds)


def _hold_lock(store: Path, seconds: float) -> bool:
    with closing(sqlite3.connect(store, timeout=5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False  # a server that is stopped inside a commit has it
        time.sleep(seconds)
        connection.execute("ROLLBACK")
    return True


async def cut_clients(world: World) -> bool:
    """Cut every connection of some clients."""
    chats = world.random.sample(world.chats, world.random.randrange(1, len(world.chats) + 1))
    return sum(chat.cut_connections() for chat in chats) > 0


async def stop_run(world: World) -> bool:
    """Stop a run at any of the servers, twice."""
    chats = [chat for chat in _active_chats(world) if chat.posted_at is not None]
    if not chats:
        return False
    thread = world.random.choice(chats).thread.id
    statuses: list[int] = []
    for _ in range(2):
        try:
            url = f"{world.pick_server(world.random).url}/interrupt"
            statuses.append(await request(url, "POST", {"threadId": thread}))
        except CUT:
            pass
    return 200 in statuses


async def erase(world: World) -> bool:
    """Delete a thread while it is used, until a server has confirmed it."""
    chats = _active_chats(world)
    if not chats:
        return False
    record = world.random.choice(chats).thread
    record.is_erased = True
    while True:
        try:
            if await request(f"{world.pick_server(world.random).url}/thread/{record.id}", "DELETE") in {200, 204, 404}:
                return True
        except CUT:
            pass
        await asyncio.sleep(0.2)


async def repeat_request(world: World) -> bool:
    """Let the next message of a client be sent to several servers at once, with one key."""
    world.random.choice(world.chats).copies = world.random.randrange(2, 5)
    return True


async def trim(world: World) -> bool:
    """Cut the clients of a thread and let it grow, so that retention drops what they have not seen."""
    chats = _active_chats(world)
    if not chats:
        return False
    chat = world.random.choice(chats)
    chat.next_command = f"count {world.random.randrange(2000, 5000)}"
    chat.cut_connections()
    return True


async def stall_reader(world: World) -> bool:
    """Open a stream and do not read it until the server gives it up, then read what came and resume."""
    chats = _active_chats(world)
    if not chats:
        return False
    chat = world.random.choice(chats)
    record, receipt = chat.thread, Receipt(is_follower=True)
    chat.next_command = _BURST
    try:
        server = world.pick_server(world.random)
        async with open_stalled(server.url, f"/threads/{record.id}/events?snapshots=all") as stream:
            if stream.status != 200:
                return False
            record.receipts.append(receipt)
            await asyncio.sleep(SLOW_READER * 1.5)
            async for frame in frames_of(stream):
                record.add(receipt, frame)
    except CUT:
        pass
    return True


FAULTS: dict[str, Fault] = {
    "kill -9": kill,
    "SIGSTOP past the lease": pause,
    "SIGTERM": terminate,
    "clients cut": cut_clients,
    "run stopped": stop_run,
    "event loop blocked": block,
    "reader stalled": stall_reader,
    "store locked": lock_store,
    "retention": trim,
    "thread erased": erase,
    "request repeated": repeat_request,
}
