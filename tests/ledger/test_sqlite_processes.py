"""Real processes on one file: one is killed, one is stopped and wakes up too late."""

from __future__ import annotations

import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from ambient_runner.ledger import LeaseHeld, SqliteLedger, ThreadKey
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import Process

KEY = ThreadKey("acme", "ann", "trip")
HOLDER = Path(__file__).with_name("holder.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


class Child:
    """The holder, on the other end of a pipe."""

    def __init__(self, process: Process) -> None:
        assert process.stdout
        self.process = process
        self._output = TextReceiveStream(process.stdout)
        self._buffer = ""

    async def read_line(self) -> str:
        while "\n" not in self._buffer:
            self._buffer += await self._output.receive()
        line, _, self._buffer = self._buffer.partition("\n")
        return line

    async def append(self, line: bytes) -> None:
        assert self.process.stdin
        await self.process.stdin.send(line + b"\n")


@asynccontextmanager
async def a_holder(path: Path, lease: float) -> AsyncGenerator[Child, None]:
    async with await anyio.open_process([sys.executable, str(HOLDER), str(path), str(lease)], stderr=None) as process:
        child = Child(process)
        try:
            assert await child.read_line() == "holding"
            yield child
        finally:
            if process.returncode is None:
                process.kill()


async def lines(ledger: SqliteLedger) -> list[bytes]:
    return [line for batch in await ledger.read_batches(KEY, 0) for line in batch.lines]


async def test_a_thread_is_free_at_once_when_its_process_is_killed(path: Path) -> None:
    with unless_hung():
        async with a_holder(path, lease=600) as child, SqliteLedger(path, lease=600) as ledger:
            await child.append(b"a")
            assert await child.read_line() == "2"
            with pytest.raises(LeaseHeld):
                await ledger.acquire_lease(KEY, "run-2")
            assert await ledger.list_abandoned_runs() == []
            child.process.kill()
            assert await ledger.wait_released(KEY, 10)
            assert [run.key for run in await ledger.list_abandoned_runs()] == ["run-1"]
            async with await ledger.acquire_lease(KEY, "run-1") as heir:
                heir.append(b"abandoned")
                await heir.finish_run()
            assert await lines(ledger) == [b"started", b"a", b"abandoned"]


async def test_a_process_that_wakes_up_after_a_takeover_cannot_write(path: Path) -> None:
    with unless_hung():
        async with a_holder(path, lease=0.6) as child, SqliteLedger(path, lease=0.6) as ledger:
            assert await ledger.wait_released(KEY, 1.0) is False  # longer than a lease: it is renewed
            child.process.send_signal(signal.SIGSTOP)
            assert await ledger.wait_released(KEY, 10)
            async with await ledger.acquire_lease(KEY, "run-1") as heir:
                heir.append(b"abandoned")
                await heir.finish_run()
                child.process.send_signal(signal.SIGCONT)
                await child.append(b"ghost")
                assert await child.read_line() == "lost"
            assert await lines(ledger) == [b"started", b"abandoned"]
