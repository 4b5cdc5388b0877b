"""F30: retention drops entries that an established, slow stream has not sent yet. No client misses them without being told."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ambient_runner.cli.thread_export import open_entry_lines, safe_entry_lines
from ambient_runner.errors import StaleCursor
from ambient_runner.ledger.records import Checkpoint
from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.projections.thread_view import ThreadView
from tests import e2e
from tests.e2e.server import start
from tests.e2e.sse import Truncated
from tests.e2e.talk import TERMINALS, events_of, new_id, run, run_input, split_runs
from tests.faults.comparison import position_of
from tests.faults.slow_clients import open_slow_stream
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.world import KEY, ScriptedAgent, request, run_once, runner_of, said, user
from tests.world import events_of as events_of_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.runs.run import Run
    from tests.e2e.sse import Event, Frame, Stream

CLIENTS = Path(e2e.__file__).with_name("clients")
RETAIN = 200
RUNS = 8
NUMBERS = 6000
"""More events in a run than the buffers between server and client hold."""


async def read_to_the_cut(stream: Stream, last: int) -> tuple[list[Frame], bool]:
    """Return the frames up to the entry `last`, and True if the stream ended incomplete before it."""
    frames: list[Frame] = []
    try:
        while frame := await stream.frame():
            frames.append(frame)
            if frame.id and position_of(frame.id) >= last:
                return frames, False
    except Truncated:
        return frames, True
    raise AssertionError("a stream without an end ended as if it were complete")


def positions_of(frames: Sequence[Frame]) -> list[int]:
    return [position_of(frame.id) for frame in frames if frame.id]


def missing_after(frames: Sequence[Frame]) -> list[tuple[int, int]]:
    """Return where the numbering jumps without a gap that says so, by more than the few entries of a run's start that no client gets."""
    announced = {gap["value"]["after"] for gap in gaps_in(events_of(frames))}
    return [(a, b) for a, b in pairwise(positions_of(frames)) if b - a > 5 and a not in announced]


def whole_runs(events: Sequence[Event]) -> list[Event]:
    """Return the events up to the last terminal one: the stream may end incomplete in the middle of a run."""
    ends = [at for at, event in enumerate(events) if event["type"] in TERMINALS]
    return list(events[: ends[-1] + 1]) if ends else []


def gaps_in(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.get("name") == "ambient:gap"]


@pytest.fixture(scope="module")
async def slow_streams(tmp_path_factory: pytest.TempPathFactory) -> list[list[Frame]]:
    """The frames of a slow client of a thread that retention overtook: one stream, and a second one if the first ended incomplete."""
    thread, store = new_id("thread"), tmp_path_factory.mktemp("slow") / "ambient.db"
    path = f"/threads/{thread}/events"
    with unless_hung(), start(store, env={"AMBIENT_RETAIN": str(RETAIN)}) as server:
        await run(server.url, run_input(thread, "count 100"))
        async with open_slow_stream(server.url, path) as stream:
            frames = await stream.read(5)
            runs = [await run(server.url, run_input(thread, f"count {NUMBERS}")) for _ in range(RUNS)]
            last = position_of(runs[-1][-1].id)
            rest, was_cut = await read_to_the_cut(stream, last)
        streams = [[*frames, *rest]]
        if was_cut:
            async with open_slow_stream(server.url, path, {"Last-Event-ID": stream.last_id}) as resumed:
                streams.append((await read_to_the_cut(resumed, last))[0])
        assert "ASGI" not in server.output
    return streams


def verify_with_official_client(streams: Sequence[Sequence[Event]]) -> list[str | None]:
    """Return the error of the official client for each stream; None if it accepts the stream."""
    done = subprocess.run(
        ["node", "verify.mjs", "ag-ui-client-1.0"],
        cwd=CLIENTS,
        input=b"".join(msgspec.json.encode(stream) + b"\n" for stream in streams),
        capture_output=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return [json.loads(line)["error"] for line in done.stdout.splitlines()]


async def test_f30_m2_a_slow_reader_learns_of_entries_that_retention_dropped(slow_streams: list[list[Frame]]) -> None:
    received = [frame for stream in slow_streams for frame in stream]
    assert missing_after(received) == []
    assert len(gaps_in(events_of(received))) == 1, "the reader was not slow enough for retention to overtake it"
    for stream in slow_streams:
        split_runs(whole_runs(events_of(stream)))


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed, so no official client can judge")
@pytest.mark.skipif(
    not (CLIENTS / "node_modules" / "ag-ui-client-1.0").is_dir(),
    reason="run `npm install` in tests/e2e/clients for the official clients",
)
async def test_f30_m2_the_official_client_accepts_what_a_slow_reader_gets(slow_streams: list[list[Frame]]) -> None:
    errors = verify_with_official_client([whole_runs(events_of(stream)) for stream in slow_streams])
    assert errors == [None] * len(slow_streams)


async def chat(run: Run) -> AsyncGenerator[Any, None]:
    for event in said(f"m-{run.key}", *["x" * 50_000] * 30):
        yield event


async def trim_all_entries(ledger: Ledger) -> None:
    info = await ledger.get_thread(KEY)
    assert info is not None
    await ledger.trim_thread(KEY, Checkpoint(seq=info.last, body=ThreadView().to_checkpoint()))


async def test_f30_m2_a_follower_of_a_run_does_not_wait_for_an_end_that_was_dropped() -> None:
    async with runner_of(ScriptedAgent(chat)) as runner:
        started = await runner.start(request(user("u1")))
        with unless_hung():
            await runner.ledger.wait_released(KEY, HANG_SECONDS)
            await trim_all_entries(runner.ledger)
            with pytest.raises(StaleCursor):
                await events_of_run(runner, started)


@pytest.mark.parametrize("audience", ["open", "safe"])
async def test_f30_m2_an_export_fails_when_entries_are_dropped_under_it(audience: str) -> None:
    async with runner_of(ScriptedAgent(chat)) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
        info = await runner.ledger.get_thread(KEY)
        assert info is not None
        entries = (
            open_entry_lines(runner.ledger, info)
            if audience == "open"
            else safe_entry_lines(runner.ledger, info, ExposureRules())
        )
        async with aclosing(entries):
            await anext(entries)
            await trim_all_entries(runner.ledger)
            await run_once(runner, user("u3"))
            with pytest.raises(StaleCursor):
                async for _ in entries:
                    pass
