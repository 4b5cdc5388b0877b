"""The clients of the soak: one that sends messages to a thread, and two that follow it, all at any of the servers."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.e2e.talk import new_id, run_input
from tests.faults.clients import CUT

from .records import Receipt, ThreadRecord
from .streams import frames_of, opened, request

if TYPE_CHECKING:
    from tests.e2e.sse import Event, Frame, Stream

    from .servers import Server
    from .world import World

__all__ = ["Chat", "follow_to_end"]

FOLLOWERS = 2
_BACKOFF = 0.1  # seconds
_RENAME_SHARE = 0.5
"""Share of the messages that come with a new title of their thread."""
_GONE = frozenset({404, 409, 410})
_BUSY = b'"thread_busy"'


class Chat:
    """Sends messages to one thread after the other, each with a key, and repeats a request until it was answered."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._dice = random.Random(f"{world.seed}-{number}")
        self._streams: set[Stream] = set()
        self.thread = ThreadRecord(new_id("thread"))
        self.next_command = ""
        """The next message, if a fault asks for one."""
        self.copies = 1
        """Servers that get the next message at the same moment."""
        self.posted_at: Server | None = None
        """The server that holds the active run."""
        self.outage_since: float | None = None

    async def run(self) -> None:
        """Chat until the soak is over."""
        while not self._world.is_over:
            self.thread = record = ThreadRecord(new_id("thread"))
            async with asyncio.TaskGroup() as tasks:
                followers = [tasks.create_task(self._follow(record)) for _ in range(FOLLOWERS)]
                for _ in range(self._dice.randrange(2, 9)):
                    if record.is_erased or self._world.is_over:
                        break
                    await self._send_message(record)
                for follower in followers:
                    follower.cancel()
            self._world.retired.append(record)

    def cut_connections(self) -> int:
        """Cut every connection of this chat, as a lost network would. Return how many there were."""
        for stream in self._streams:
            stream.cut()
        return len(self._streams)

    def _draw_command(self) -> str:
        if self.next_command:
            command, self.next_command = self.next_command, ""
            return command
        if self._dice.random() < 0.15:
            return f"count {self._dice.randrange(200, 1500)}"
        return f"count {self._dice.randrange(10, 250)} every {self._dice.randrange(2, 25)}ms"

    async def _send_message(self, record: ThreadRecord) -> None:
        """Send one message, to several servers at once if a fault asks for it, and wait until its run has ended."""
        body, key = run_input(record.id, self._draw_command()), new_id("key")
        copies, self.copies = self.copies, 1
        async with asyncio.TaskGroup() as tasks:
            answers = [tasks.create_task(self._post_until_answered(record, body, key)) for _ in range(copies)]
            if self._dice.random() < _RENAME_SHARE:
                tasks.create_task(self._rename_thread(record))
        if any(answer.result() for answer in answers):
            record.sent += 1
            await self._wait_until_idle(record)
        self.posted_at = None

    async def _rename_thread(self, record: ThreadRecord) -> None:
        """Change the title while the run begins: the store commits both together. A thread may not exist yet, and a server may be gone."""
        server = self._world.pick_server(self._dice)
        with suppress(*CUT):
            await request(f"{server.url}/thread/{record.id}", "PATCH", {"title": new_id("title")})

    async def _post_until_answered(self, record: ThreadRecord, body: Event, key: str) -> bool:
        """Post until a server has started or joined the run. Return False if the thread was erased."""
        while not record.is_erased:
            server = self._world.pick_server(self._dice)
            receipt = Receipt()
            try:
                async with opened(f"{server.url}/", "POST", body=body, headers={"Idempotency-Key": key}) as stream:
                    if stream.status == 200:
                        self.posted_at = self.posted_at or server
                        record.receipts.append(receipt)
                        await self._read(record, receipt, stream)
                        return True
                    await self._check_refusal(record, stream)
            except CUT:
                self._world.counts["requests repeated"] += 1
                if receipt in record.receipts:
                    return True
            await asyncio.sleep(_BACKOFF)
        return False

    async def _check_refusal(self, record: ThreadRecord, stream: Stream) -> None:
        """A server that drains, a store that is locked and a run that is not yet closed are answers. Others are not."""
        answer = await stream.body()
        if stream.status != 503 and _BUSY not in answer and not record.is_erased:
            self._world.report_failure("refused", f"POST to {record.id}: {stream.status} {answer.decode()}")

    async def _wait_until_idle(self, record: ThreadRecord) -> None:
        """Wait until a server says that no run is active."""
        while not record.is_erased:
            server = self._world.pick_server(self._dice)
            try:
                url = f"{server.url}/threads/{record.id}/runs?limit=1"
                async with opened(url) as stream:
                    answer = await stream.body()
                    if stream.status == 200 and b'"status":"running"' not in answer:
                        return
            except CUT:
                pass
            await asyncio.sleep(_BACKOFF)

    async def _follow(self, record: ThreadRecord) -> None:
        """Follow the thread from its beginning, and be cut now and then."""
        receipt = Receipt(is_follower=True)
        record.receipts.append(receipt)
        while not record.is_erased:
            server = self._world.pick_server(self._dice)
            headers = {"Last-Event-ID": receipt.cursor} if receipt.cursor else {}
            is_stored = bool(record.entries)
            receipt.resumes.append(f"{server.name} {receipt.cursor}")
            try:
                async with opened(f"{server.url}/threads/{record.id}/events?snapshots=all", headers=headers) as stream:
                    if stream.status == 200:
                        await self._read(record, receipt, stream, limit=self._dice.choice((5, 50, 500, 1 << 40)))
                    elif is_stored and stream.status in _GONE and not record.is_erased:
                        self._report_refused_stream(record, receipt, stream.status)
            except CUT:
                self._world.counts["streams resumed"] += 1
            await asyncio.sleep(_BACKOFF)

    def _report_refused_stream(self, record: ThreadRecord, receipt: Receipt, status: int) -> None:
        self._world.report_failure("refused", f"GET of {record.id} after {receipt.cursor!r}: {status}")

    async def _read(self, record: ThreadRecord, receipt: Receipt, stream: Stream, limit: int = 1 << 40) -> None:
        """Read a stream to its end, or cut it after so many frames."""
        self._streams.add(stream)
        self._world.counts["connections"] += 1
        try:
            count = 0
            async for frame in frames_of(stream):
                self._record(record, receipt, frame)
                count += 1
                if count >= limit:
                    stream.cut()
                    return
        finally:
            self._streams.discard(stream)

    def _record(self, record: ThreadRecord, receipt: Receipt, frame: Frame) -> None:
        ends = len(record.ends)
        record.add(receipt, frame)
        if len(record.ends) > ends and self.outage_since is not None:
            self._world.recoveries.append(time.monotonic() - self.outage_since)
            self.outage_since = None


async def follow_to_end(record: ThreadRecord, receipt: Receipt, url: str) -> None:
    """Let a client read the rest of a thread. Raises: OSError, EOFError; AssertionError if it is refused."""
    headers = {"Last-Event-ID": receipt.cursor} if receipt.cursor else {}
    receipt.resumes.append(f"end {receipt.cursor}")
    async with opened(f"{url}/threads/{record.id}/events?until=idle&snapshots=all", headers=headers) as stream:
        assert stream.status == 200, f"{stream.status} {(await stream.body()).decode()} after {receipt.cursor!r}"
        async for frame in frames_of(stream):
            record.add(receipt, frame)
    receipt.has_finished = True
