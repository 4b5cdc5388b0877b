"""F28: a thread whose record and entries disagree is refused and logged, for writes and for reads. No request retries without end."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import ThreadDamaged
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, thread_damage
from ambient_runner.protocol.events import RunFinished, RunStarted, encode_event
from ambient_runner.runs.runner import Runner
from tests.e2e.server import serving
from tests.e2e.sse import Truncated, open_stream
from tests.e2e.talk import run, run_input
from tests.machine_speed import unless_hung
from tests.scripts import hello
from tests.server.demo_server import SETTINGS as SERVER_SETTINGS
from tests.server.demo_server import demo, error_of, run_body
from tests.world import KEY, SETTINGS, ScriptedAgent, request, run_once, user

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import httpx

    from ambient_runner import Settings

NEWEST_ROW = "SELECT max(b.no) FROM batch b JOIN thread t ON t.no = b.thread_no WHERE t.id = 't'"
FOLDS = ("/message_snapshot/t", "/state_snapshot/t")
STREAMS = ("/threads/t/events?until=idle", "/threads/t/events?from=snapshot&until=idle")
CONNECT: dict[str, object] = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [], "state": {}}
REFUSED = (503, "thread_damaged")
MIDDLE_ROW = """
SELECT b.no FROM batch b JOIN thread t ON t.no = b.thread_no JOIN run r ON r.key = b.run
WHERE t.id = 't' AND b.first > r.first ORDER BY b.no LIMIT 1 OFFSET 1
"""
"""A row with events of the second run, of more than one entry."""


def damage_file(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages of the errors that were logged, and forget them."""
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    caplog.clear()
    return found


async def write_threads(settings: Settings) -> None:
    """Write three runs on the thread `t` and one on another."""
    async with demo(settings) as client:
        for number in range(3):
            await client.post("/", json=run_body("hi", message=f"u{number}"))
        await client.post("/", json=run_body("hi", thread="another"))


@asynccontextmanager
async def server_on_damaged_thread(
    tmp_path: Path, statement: str, *, retain: int = 0
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A server on a store with the thread `t`, after someone else has changed the file."""
    path = tmp_path / "ledger.db"
    settings = dataclasses.replace(SERVER_SETTINGS, store=f"sqlite:///{path}", retain=retain)
    await write_threads(settings)
    damage_file(path, statement)
    async with demo(settings) as client:
        yield client


async def check_refused(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, *paths: str) -> None:
    """Check that each of these reads, and a run, is refused with one error in the log, and that another thread is not affected."""
    for path in paths:
        assert (path, error_of(await client.get(path))) == (path, REFUSED)
        [logged] = errors_in(caplog)
        assert logged.startswith("Thread t of ")
    assert (await client.post("/copilotkit/agent/demo/connect", json=CONNECT)).status_code == 503
    assert len(errors_in(caplog)) == 1
    assert error_of(await client.post("/", json=run_body("hi", message="u9"))) == REFUSED
    assert len(errors_in(caplog)) == 1
    assert (await client.get("/threads/another/events?until=idle")).status_code == 200
    assert (await client.post("/", json=run_body("hi", thread="another", message="u9"))).status_code == 200
    assert errors_in(caplog) == []


@asynccontextmanager
async def runner_on_damaged_thread(path: Path, statement: str) -> AsyncGenerator[Runner, None]:
    """A runner on a store with a run that was not ended, after someone else has changed the file."""
    async with SqliteLedger(path) as ledger:
        async with await ledger.acquire_lease(KEY, "dead") as writer:
            started = Fact(owner=RUNTIME, kind="RUN_STARTED", body=encode_event(RunStarted(thread_id="t", run_id="r")))
            await writer.begin_run([started, started], run_id="r", agent="agent", claim=None)
        damage_file(path, statement)
        async with Runner(ledger, {"agent": ScriptedAgent(hello)}, SETTINGS) as runner:
            yield runner


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE run SET last = 1", id="the record has ended and the entries have not"),
        pytest.param("DELETE FROM run", id="the run has no record"),
        pytest.param("UPDATE place SET last = 9", id="entries are missing"),
    ],
)
async def test_f28_m1_a_thread_whose_record_and_entries_disagree_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    async with runner_on_damaged_thread(tmp_path / "ledger.db", statement) as runner:
        caplog.clear()  # Recovery has logged what it could not close.
        with unless_hung(), pytest.raises(ThreadDamaged) as refused:
            await runner.start(request(user("u1")))
        assert refused.value.status == 503
        assert [record.levelno for record in caplog.records if record.name == thread_damage.__name__] == [logging.ERROR]
        with unless_hung():
            events = await run_once(runner, user("u2"), thread="another")
        assert isinstance(events[-1], RunFinished)


async def test_f28_m1_every_read_of_a_thread_without_its_newest_entries_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reads were 409 `stale_cursor` without a cursor and without retention, at every attempt, and nothing was logged."""
    statement = f"DELETE FROM batch WHERE no = ({NEWEST_ROW})"
    async with server_on_damaged_thread(tmp_path, statement) as client:
        with unless_hung():
            await check_refused(client, caplog, *FOLDS, *STREAMS, "/threads/t/runs")


async def test_f28_m1_every_read_of_a_trimmed_thread_without_its_checkpoint_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_on_damaged_thread(tmp_path, "DELETE FROM checkpoint", retain=5) as client:
        with unless_hung():
            await check_refused(client, caplog, *FOLDS, *STREAMS)


async def test_f28_m1_every_fold_of_a_trimmed_thread_with_a_damaged_checkpoint_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was 500 `internal_error`."""
    async with server_on_damaged_thread(tmp_path, "UPDATE checkpoint SET body = x'7b7b'", retain=5) as client:
        with unless_hung():
            await check_refused(client, caplog, *FOLDS)


async def test_f28_m1_a_run_whose_record_is_ahead_of_the_entries_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_on_damaged_thread(tmp_path, "UPDATE run SET last = last + 1000") as client:
        with unless_hung():
            assert error_of(await client.get("/threads/t/runs")) == REFUSED
        assert len(errors_in(caplog)) == 1


async def test_f28_m1_every_read_of_a_thread_with_a_hole_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The numbering jumped over the missing entries: every read was 200, and nothing was logged."""
    async with server_on_damaged_thread(tmp_path, f"DELETE FROM batch WHERE no = ({MIDDLE_ROW})") as client:
        with unless_hung():
            await check_refused(client, caplog, *FOLDS, *STREAMS)


async def test_f28_m1_a_stream_is_cut_at_a_hole_and_its_resume_is_refused(tmp_path: Path) -> None:
    """The server has the folded thread in memory, so that it finds the hole only as it sends."""
    path, store = "/threads/t/events", tmp_path / "ambient.db"
    with serving(store) as server, unless_hung():
        for _ in range(3):
            await run(server.url, run_input("t", "hi"))
        damage_file(store, f"DELETE FROM batch WHERE no = ({MIDDLE_ROW})")
        async with open_stream(f"{server.url}{path}") as stream:
            assert stream.status == 200
            with pytest.raises(Truncated):
                await stream.rest()
        async with open_stream(f"{server.url}{path}", headers={"Last-Event-ID": stream.last_id}) as resumed:
            assert resumed.status == 503
        await run(server.url, run_input("another", "hi"))
    errors = [line for line in server.lines if "ERROR" in line]
    assert ["Thread t of " in line for line in errors] == [True, True], errors


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("x'7b7b'", id="not JSON"),
        pytest.param("""CAST('{"type":"NO_EVENT"}' AS BLOB)""", id="not an event"),
        pytest.param("replace(CAST(body AS TEXT), char(10), '')", id="text in one line"),
        pytest.param("CAST(body || char(10) || '{}' AS BLOB)", id="one line too many"),
        pytest.param("x''", id="nothing"),
    ],
)
@pytest.mark.parametrize("lines", ["one", "all"])
async def test_f28_m1_every_read_of_a_thread_with_a_damaged_row_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: str, lines: str
) -> None:
    """Every route was 500 `internal_error`. With one line, the row has as many lines as entries, and only decoding finds the damage."""
    last = "last = first, " if lines == "one" else ""
    statement = f"UPDATE batch SET {last}body = {body} WHERE no = ({NEWEST_ROW})"
    async with server_on_damaged_thread(tmp_path, statement) as client:
        with unless_hung():
            await check_refused(client, caplog, *FOLDS, *STREAMS)
