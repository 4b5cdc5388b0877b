"""Files that a crash or a bad disk left behind: the store opens without the damaged tail, or refuses with a clear error."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from ambient_runner.ledger import SqliteLedger
from tests.e2e.server import AMBIENT
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run_input, split_runs, text_of
from tests.machine_speed import unless_hung

from .clients import Client
from .harness import check_usable, start_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.sse import Frame

THREADS = 3
FILES = ("ambient.db", "ambient.db-wal")


async def kill_in_the_middle(directory: Path) -> dict[str, list[Frame]]:
    """Kill a server in the middle of runs, so that the newest entries are in the WAL only. Return what clients saw, by thread."""
    server = await start_server(directory / "ambient.db")
    clients = [Client(new_id("thread"), [server.url]) for _ in range(THREADS)]
    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(client.post, run_input(client.thread, "count 100000 every 2ms"))
        for client in clients:
            await client.has_received(100)
        server.process.kill()
    await anyio.to_thread.run_sync(server.wait)
    return {client.thread: client.frames for client in clients}


def truncate(wal: Path, dice: random.Random) -> None:
    """Cut the file at any byte of its second half."""
    size = wal.stat().st_size
    with wal.open("r+b") as file:
        file.truncate(dice.randrange(size // 2, size))


def flip(wal: Path, dice: random.Random) -> None:
    """Flip one bit of its second half."""
    size = wal.stat().st_size
    with wal.open("r+b") as file:
        at = dice.randrange(size // 2, size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << dice.randrange(8))]))


def append_garbage(wal: Path, dice: random.Random) -> None:
    """Add bytes that a torn write could have left."""
    with wal.open("ab") as file:
        file.write(dice.randbytes(dice.randrange(1, 10_000)))


async def test_f15_a_damaged_wal_costs_only_its_tail(tmp_path: Path, long: bool) -> None:
    """Truncated anywhere, one bit flipped, or garbage at the end: each thread is a prefix of what it was, closed and usable."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice, whole = random.Random(seed), tmp_path / "whole"
    whole.mkdir()
    with unless_hung():
        seen = await kill_in_the_middle(whole)
        for number in range(20 if long else 1):
            for damage in (truncate, flip, append_garbage):
                damaged = tmp_path / f"{damage.__name__}-{number}"
                damaged.mkdir()
                for name in FILES:
                    shutil.copy(whole / name, damaged / name)
                damage(damaged / "ambient.db-wal", dice)
                with await start_server(damaged / "ambient.db") as server:
                    kept = sum([await check_prefix(server.url, thread, frames) for thread, frames in seen.items()])
                assert damage is not append_garbage or kept == sum(map(len, seen.values()))


async def check_prefix(url: str, thread: str, seen: list[Frame]) -> int:
    """Check that a thread begins as it did, ends in a terminal event and can be used. Return how many frames are the same."""
    stored = [frame for frame in await history(url, thread) if frame.id]
    (events,) = split_runs(events_of(stored))
    text = text_of(events)
    assert (ending(events), text) == ("run_abandoned", numbers(text.count(" ")))
    same = next((at for at, (a, b) in enumerate(zip(stored, seen, strict=False)) if a.raw != b.raw), len(seen))
    assert same == len(seen) or len(stored) - same <= 3, "only what recovery wrote may follow the prefix"
    await check_usable(url, thread)
    return same


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
async def test_f15_a_damaged_database_is_refused_with_a_clear_error(tmp_path: Path, damage: str) -> None:
    """Not its tail but its head: the server does not start, says which file is damaged, and does not touch it."""
    with unless_hung():
        path = tmp_path / "ambient.db"
        async with SqliteLedger(path):
            pass  # Creates the file.
        content = path.read_bytes()
        path.write_bytes(content[:4096] if damage == "truncated" else b"\xff" * 4096 + content[4096:])
        damaged = path.read_bytes()
        command = [AMBIENT, "serve", "demo", "--port", "0", "--store", f"sqlite:///{path}"]
        done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
    assert done.returncode == 2
    assert (b"ambient.db" in done.stdout, b"Traceback" in done.stdout) == (True, False)
    assert path.read_bytes() == damaged
