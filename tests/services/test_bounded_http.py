"""One small request: it has one time for all of the answer, however slowly that comes, and a bound for its size."""

from __future__ import annotations

import http.client
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from ambient_runner.config import LangfuseSettings
from ambient_runner.services.bounded_http import HttpResponse, send_request
from ambient_runner.services.feedback import LangfuseScores, Score
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.raw import Raw, endless, raw_server, trickling
from tests.server.worker import WorkerBridge
from tests.services.world import by_header, ending, server, settings_of, talk

HEADERS_ONLY = b"HTTP/1.1 200 OK\r\nX-Slow: "
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n"


async def send_get(url: str, *, limit: int, timeout: float = 0.3) -> HttpResponse:
    call = partial(send_request, "GET", url, headers={}, timeout=timeout, limit=limit)
    with unless_hung():
        return await to_thread.run_sync(call, abandon_on_cancel=True)


async def gone(server: Raw) -> None:
    """Comes back when a client has closed its connection."""
    assert await to_thread.run_sync(partial(server.left.acquire, timeout=HANG_SECONDS))


@pytest.mark.parametrize("head", [b"", HEADERS_ONLY, BODY, CHUNKS], ids=["status", "headers", "body", "chunks"])
async def test_a_slow_response_is_abandoned_at_the_timeout(head: bytes) -> None:
    """The time was counted anew with every byte, and the thread that waited never came back."""
    with raw_server(trickling(head)) as slow:
        with pytest.raises(TimeoutError):
            await send_get(slow.url, limit=1000)
        await gone(slow)


@pytest.mark.parametrize("head", [b"", HEADERS_ONLY, BODY, CHUNKS], ids=["status", "headers", "body", "chunks"])
async def test_an_answer_that_fails_is_closed(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to the garbage collector, it was closed after what it reads from: an error in whatever ran at that moment."""
    answers: list[http.client.HTTPResponse] = []

    class Watched(http.client.HTTPResponse):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            answers.append(self)

    monkeypatch.setattr(http.client, "HTTPResponse", Watched)
    with raw_server(trickling(head)) as slow, pytest.raises(TimeoutError):
        await send_get(slow.url, limit=1000)
    assert [answer.closed for answer in answers] == [True]


async def test_of_an_endless_answer_only_the_limit_is_taken() -> None:
    with raw_server(endless(b"HTTP/1.1 200 OK\r\n\r\n")) as loud:
        answer = await send_get(loud.url, limit=1000, timeout=HANG_SECONDS)
        assert (answer.status, len(answer.body)) == (200, 1000)
        await gone(loud)


async def test_an_answer_that_breaks_off_is_none() -> None:
    """Half of an answer, or nothing of one, was taken for the whole: a run went on without the credentials it was promised."""
    with raw_server(lambda server, client: server.send(client, BODY)) as broken, pytest.raises(ConnectionError):
        await send_get(broken.url, limit=1000, timeout=HANG_SECONDS)


async def test_a_langfuse_that_trickles_keeps_no_thread() -> None:
    with raw_server(trickling(HEADERS_ONLY)) as slow:
        scores = LangfuseScores(LangfuseSettings(url=slow.url, public_key="pk", secret_key="sk"), timeout=0.3)
        assert await scores.send_score(Score(id="1", trace_id="a", value=True)) is False
        await gone(slow)


async def test_many_requests_for_slow_credentials_delay_nothing_else(tmp_path: Path) -> None:
    """They took every thread of the server; requests for files had to wait until the credentials arrived."""
    with raw_server(trickling(BODY)) as slow:
        settings = settings_of(tmp_path, credentials_url=slow.url)
        async with server(WorkerBridge(), settings, authorize=by_header) as client:

            async def wait(number: int) -> None:
                events = await talk(client, "hi", "u", thread=f"t{number}", headers={"x-owner": "ann"})
                assert ending(events) == ("RUN_ERROR", "credentials_error")

            async with anyio.create_task_group() as tasks:
                for number in range(45):
                    tasks.start_soon(wait, number)
                await to_thread.run_sync(lambda: [slow.came.acquire(timeout=HANG_SECONDS) for _ in range(8)])
                with unless_hung():
                    response = await client.get("/files?threadId=t", headers={"x-owner": "bob"})
                assert response.status_code == 200
                slow.over.set()
