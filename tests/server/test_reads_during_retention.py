"""Requests that read a thread while another process applies retention to it, between any two of their reads."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from ambient_runner.ledger import Ledger, MemoryLedger, StoreSettings
from ambient_runner.ledger.records import Batch, Checkpoint, RunInfo, ThreadInfo, ThreadKey
from ambient_runner.runs.maintenance import apply_retention
from tests.ledger.test_registry import install_store
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, demo, error_of, frames, run_body
from tests.world import KEY

KEEP = 5


class TrimmingLedger(MemoryLedger):
    """A store in which another process applies retention right after one of the reads of this one."""

    reads_left = 0
    """Reads after which that happens; 0 for never."""
    piece = 1 << 20
    """Bytes that one read returns, about."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get_thread(self, key: ThreadKey) -> ThreadInfo | None:
        return await self._trim_after("get_thread", await super().get_thread(key))

    async def get_run(self, key: ThreadKey, run: str) -> RunInfo | None:
        return await self._trim_after("get_run", await super().get_run(key, run))

    async def find_run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        return await self._trim_after("find_run_at", await super().find_run_at(key, seq))

    async def get_checkpoint(self, key: ThreadKey, at: int | None = None, *, epoch: str = "") -> Checkpoint | None:
        return await self._trim_after("get_checkpoint", await super().get_checkpoint(key, at, epoch=epoch))

    async def read_batches(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        limit = min(limit, self.piece)
        return await self._trim_after(
            "read_batches", await super().read_batches(key, after, until=until, limit=limit, epoch=epoch)
        )

    async def _trim_after(self, read: str, found: Any) -> Any:
        self.reads.append(read)
        self.reads_left -= 1
        if self.reads_left == 0:
            await apply_retention(self, KEY, KEEP)
        return found


class LongThread(NamedTuple):
    ledger: TrimmingLedger
    writer: httpx.AsyncClient
    reader: httpx.AsyncClient
    posted: list[httpx.Response]


class CutRecorder:
    """Completes responses that end incomplete, which httpx cannot represent, and counts them."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_complete = False

        async def watch(message: Any) -> None:
            nonlocal is_complete
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await self._app(scope, receive, watch)
        if not is_complete:
            self.count += 1
            await send({"type": "http.response.body", "body": b""})


_LEDGERS: list[TrimmingLedger] = []
RETAINING = dataclasses.replace(SETTINGS, store="trimming://")


def open_trimming(url: str, settings: StoreSettings) -> Ledger:
    return _LEDGERS[-1]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"from {__name__} import open_trimming"
    install_store(tmp_path, monkeypatch, "trimming_store", source, trimming="trimming_store:open_trimming")


@asynccontextmanager
async def long_thread(*, trimmed_before: bool) -> AsyncGenerator[LongThread, None]:
    """A thread of six runs, and a server that has nothing of it in memory."""
    _LEDGERS.append(TrimmingLedger())
    async with demo(RETAINING) as writer, demo(RETAINING) as reader:
        posted: list[httpx.Response] = []
        for turn in range(6):
            posted.append(await writer.post("/", json=run_body("say one two three four", message=f"u{turn}")))
            if trimmed_before and turn == 2:
                assert await apply_retention(_LEDGERS[-1], KEY, KEEP)
        yield LongThread(_LEDGERS[-1], writer, reader, posted)


QUERIES = {
    "from the start": "/threads/t/events?until=idle",
    "from the start, without snapshots": "/threads/t/events?until=idle&snapshots=0",
    "a run that is retained": "/threads/t/events?run={last_run}",
    "a run that is dropped": "/threads/t/events?run={first_run}",
    "connect": "/threads/t/events?from=snapshot&until=idle",
    "after the last event": "/threads/t/events?until=idle&after={last}",
    "after the first run": "/threads/t/events?until=idle&after={first}",
    "within the first run": "/threads/t/events?until=idle&after={within}",
    "messages": "/message_snapshot/t",
    "runs": "/threads/t/runs",
    "copilotkit events": "/copilotkit/threads/t/events",
    "copilotkit messages": "/copilotkit/threads/t/messages",
}


def read_answer(response: httpx.Response) -> Any:
    """Return what a client makes of an answer. The id of the small run that announces a gap is random."""
    if response.status_code != 200:
        return error_of(response)
    if "event-stream" not in response.headers["content-type"]:
        return response.json()
    return [
        (cursor, {**event, "runId": "gap"} if str(event.get("runId")).startswith("gap-") else event)
        for cursor, event in frames(response)
    ]


@pytest.mark.parametrize("trimmed_before", [False, True], ids=["first time", "again"])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
async def test_a_reader_gets_the_thread_as_it_was_before_retention_or_after(query: str, trimmed_before: bool) -> None:
    reads = 0
    is_over = False
    while not is_over:
        reads += 1
        async with long_thread(trimmed_before=trimmed_before) as (ledger, writer, reader, posted):
            first, last = posted[3 if trimmed_before else 0], posted[-1]
            address = query.format(
                first_run=first.headers["x-ambient-run"],
                last_run=last.headers["x-ambient-run"],
                first=frames(first)[-1][0],
                within=frames(first)[3][0],
                last=frames(last)[-1][0],
            )
            with unless_hung():
                untouched = read_answer(await writer.get(address))
                ledger.reads_left = reads
                meanwhile = read_answer(await reader.get(address))
                is_over, ledger.reads_left = ledger.reads_left > 0, 0
                await apply_retention(ledger, KEY, KEEP)
                trimmed = read_answer(await writer.get(address))
        assert meanwhile in (untouched, trimmed), f"retention after read {reads}"
    assert reads > 2


async def test_a_stream_reads_the_row_and_the_entries_of_its_thread_once() -> None:
    """Every read costs a transaction in another thread, and gives retention one more chance to overtake the reader."""
    async with long_thread(trimmed_before=False) as (ledger, _, reader, posted):
        address = f"/threads/t/events?run={posted[-1].headers['x-ambient-run']}"
        await reader.get(address)
        ledger.reads.clear()
        await reader.get(address)
        reads_of_run = list(ledger.reads)
        ledger.reads.clear()
        await reader.get("/threads/t/events?until=idle")
    assert reads_of_run == ["get_thread", "get_run", "get_run", "read_batches"]
    start, tail, end = ["get_thread", "read_batches"], ["get_thread"], ["get_thread", "find_run_at"]
    assert ledger.reads == start + tail + end


@pytest.mark.parametrize("piece", [1, 1_000, 3_000])
async def test_a_reader_of_several_pieces_is_told_of_the_gap_or_its_stream_is_cut_and_resumes_with_it(
    piece: int,
) -> None:
    """Between two runs the gap is announced in the stream itself."""
    outcomes: set[str] = set()
    is_over = False
    for reads in range(1, 100):
        _LEDGERS.append(TrimmingLedger())
        ledger = _LEDGERS[-1]
        async with demo(RETAINING) as writer, demo(RETAINING) as reader:
            for turn in range(4):
                await writer.post("/", json=run_body("say one two three four", message=f"u{turn}"))
            ledger.piece = piece
            ledger.reads_left = reads
            transport = reader._transport
            assert isinstance(transport, httpx.ASGITransport)
            transport.app = cuts = CutRecorder(transport.app)
            with unless_hung():
                stream = frames(await reader.get("/threads/t/events?until=idle&snapshots=0"))
                is_over, ledger.reads_left = ledger.reads_left > 0, 0
                gaps = [event for _, event in stream if event.get("name") == "ambient:gap"]
                assert bool(cuts.count) == (stream[-1][1]["type"] != "RUN_FINISHED")
                if cuts.count:
                    outcomes.add("incomplete")
                    rest = frames(await reader.get(f"/threads/t/events?until=idle&snapshots=0&after={stream[-1][0]}"))
                    assert rest[1][1]["name"] == "ambient:gap"
                    stream += rest
                elif gaps:
                    outcomes.add("gap in the stream" if stream[1][1] is not gaps[0] else "gap at the start")
            messages = (await writer.get("/message_snapshot/t")).json()["messages"]
            info = await ledger.get_thread(KEY)
        assert info is not None
        assert stream[-1][0] == f"{info.epoch}.{info.last}"
        shown = {event["messageId"] for _, event in stream if event["type"] == "TEXT_MESSAGE_END"} | {
            message["id"]
            for _, event in stream
            if event["type"] == "MESSAGES_SNAPSHOT"
            for message in event["messages"]
        }
        assert {message["id"] for message in messages if message["role"] == "assistant"} <= shown
        if is_over:
            break
    assert is_over
    assert outcomes == {"gap at the start", "gap in the stream", "incomplete"}
