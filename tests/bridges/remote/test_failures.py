"""However the other server fails, the run ends with a code and a calm sentence, and the thread goes on."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import httpx
import pytest

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.remote import RemoteBridge, RemoteLimits, RemoteTimeouts
from ambient_runner.errors import BridgeError, BridgeTimeout, ConfigError
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import (
    AssistantMessage,
    Event,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    SubagentError,
    SubagentStarted,
    TokenUsage,
)
from tests.bridges.remote.world import (
    CHUNKED_HEAD,
    OUR_HEAD,
    SSE_HEAD,
    Answer,
    UpstreamRequest,
    endless,
    framed,
    fronting,
    hosting,
    raw,
    status,
    stream,
)
from tests.machine_speed import unless_hung
from tests.world import run_once, said, user

STARTED = RunStarted(thread_id="x", run_id="y")
PART = stream(STARTED, *said("m1", "half an ans")[:2])
ALREADY_SAID = [user("u1"), AssistantMessage(id="m1", content="half an ans")]
GZIP_HEAD = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")


def code(events: list[Event]) -> str | None:
    assert isinstance(events[-1], RunError)
    return events[-1].code


async def silence(request: UpstreamRequest) -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


CUTS = {
    "a chunk": raw(CHUNKED_HEAD + b"%x\r\n" % (len(PART) + 100) + PART),
    "between chunks": raw(CHUNKED_HEAD + b"%x\r\n%b\r\n" % (len(PART), PART)),
    "the proper end": raw(SSE_HEAD, PART),
    "a frame": raw(SSE_HEAD, PART + b'data: {"type":"TEXT_MESSAGE_CONT'),
    "a longer body": raw(SSE_HEAD.replace(b"Connection", b"Content-Length: 9999\r\nConnection"), PART),
}


@pytest.mark.parametrize("where", CUTS)
async def test_a_response_that_breaks_off_is_an_error_and_its_events_are_stored(where: str) -> None:
    async with fronting(CUTS[where], framed(*said("m2", "well"))) as thread:
        assert code(await thread.run(user("u1"))) == "remote_ended_early"
        assert await thread.messages() == ALREADY_SAID
        assert isinstance((await thread.run(user("u2")))[-1], RunFinished)
        assert [message["content"] for message in thread.shown()] == ["hi", "half an ans", "hi"]


REFUSALS: dict[str, tuple[Answer, str]] = {
    "busy": (status("409 Conflict", b'{"error":{"code":"thread_busy","message":"x"}}'), "thread_busy"),
    "plain code": (status("400 Bad Request", b'{"code":"bad_thing"}'), "bad_thing"),
    "code as error": (status("403 Forbidden", b'{"error":"forbidden"}'), "forbidden"),
    "code in detail": (status("422 Unprocessable", b'{"detail":{"code":"shape"}}'), "shape"),
    "words": (status("401 Unauthorized", b'{"detail":"Bad token sk-live-123456"}'), "remote_refused"),
    "a word in detail": (status("401 Unauthorized", b'{"detail":"nope"}'), "remote_refused"),
    "a word as error": (status("401 Unauthorized", b'{"error":"Unauthorized","path":"/"}'), "remote_refused"),
    "a word beside a code": (status("401 Unauthorized", b'{"error":"Unauthorized","code":"stale"}'), "stale"),
    "a list": (status("404 Not Found", b"[1]"), "remote_refused"),
    "html": (status("404 Not Found", b"<h1>nope</h1>", "text/html"), "remote_refused"),
    "nothing": (status("418 I'm a teapot"), "remote_refused"),
    "failure": (status("500 Internal Server Error", b"Traceback: password=hunter22"), "remote_failed"),
    "unavailable": (status("503 Service Unavailable", b'{"error":{"code":"draining"}}'), "draining"),
    "large": (status("500 Oops", b'{"error":{"code":"late"},"x":"' + b"x" * 1_000_000 + b'"}'), "remote_failed"),
    "deep": (
        status("500 Oops", b'{"error":{"code":"late"},"x":' + b"[" * 64 + b"]" * 64 + b"}"),
        "remote_failed",
    ),
    "redirect": (
        raw(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
        "remote_redirects",
    ),
    "page": (status("200 OK", b"<html>hello</html>", "text/html"), "remote_not_agui"),
    "json": (status("200 OK", b"{}"), "remote_not_agui"),
    "empty stream": (raw(SSE_HEAD), "remote_not_agui"),
    "only comments": (raw(SSE_HEAD, b": ping\n\n" * 3), "remote_not_agui"),
    "compressed": (raw(GZIP_HEAD, gzip.compress(PART)), "remote_not_agui"),
    "not http": (raw(b"SSH-2.0-OpenSSH\r\n\r\n"), "remote_ended_early"),
    "hung up": (raw(), "remote_ended_early"),
}


@pytest.mark.parametrize("how", REFUSALS)
async def test_a_refusal_becomes_its_code_and_a_message_of_ours(how: str) -> None:
    answer, expected = REFUSALS[how]
    async with fronting(answer, framed(*said("m2", "well"))) as thread:
        events = await thread.run(user("u1"))
        assert isinstance((await thread.run(user("u2")))[-1], RunFinished)
        assert {request.path for request in thread.upstream.requests} == {"/"}
    last = events[-1]
    assert isinstance(last, RunError)
    assert last.code == expected
    assert last.message.endswith(".")
    assert [word for word in ("sk-live-123456", "hunter22", "teapot", "nope") if word in last.message] == []


async def test_without_a_server_a_failure_is_one_of_our_errors_with_its_cause() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    bridge = RemoteBridge(f"http://127.0.0.1:{port}/")
    adapter = bridge.create_adapter(PlatformContext())
    with pytest.raises(BridgeError) as failed, unless_hung():
        await anext(adapter.run(input_to_agui(RunAgentInput(thread_id="t", run_id="r", messages=[user("u1")]))))
    await bridge.aclose()
    assert (failed.value.code, type(failed.value.__cause__)) == ("remote_unreachable", httpx.ConnectError)


async def test_an_unreachable_server_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    async with hosting(RemoteBridge(f"http://127.0.0.1:{port}/")) as runner:
        assert code(await run_once(runner, user("u1"))) == "remote_unreachable"
    [record] = [record for record in caplog.records if record.name.startswith("ambient_runner")]
    cause = record.exc_text or ""
    assert (record.levelno, "Traceback" in cause) == (logging.WARNING, False)
    assert "ConnectError" in cause


@pytest.mark.parametrize(
    ("answer", "timeouts"),
    [
        (silence, RemoteTimeouts(answer=0.1)),
        (silence, RemoteTimeouts(idle=0.1)),
        (endless(*said("m1", "half")), RemoteTimeouts(idle=0.1)),
    ],
)
async def test_a_silent_server_times_out(answer: Answer, timeouts: RemoteTimeouts) -> None:
    async with fronting(answer, timeout=timeouts) as thread:
        assert code(await thread.run(user("u1"))) == "agent_timeout"
        await thread.upstream.left.wait()


async def test_seconds_are_a_timeout_too() -> None:
    async with fronting(endless(), timeout=0.1) as thread:
        assert code(await thread.run(user("u1"))) == "agent_timeout"


async def test_a_large_event_is_passed_over_and_an_endless_run_is_cut() -> None:
    async def floods(request: UpstreamRequest) -> AsyncIterator[bytes]:
        yield SSE_HEAD + stream(STARTED)
        while True:
            yield stream(*said("m1", "x" * 10_000)[:2])

    large = stream(*said("m1", "x" * 10_000))
    limits = RemoteLimits(event=5000, run=200_000)
    async with fronting(
        raw(SSE_HEAD, large, stream(STARTED, *said("m2", "small"), RunFinished(thread_id="x", run_id="y"))),
        floods,
        limits=limits,
    ) as thread:
        assert isinstance((await thread.run(user("u1")))[-1], RunFinished)
        assert [message.content for message in await thread.messages()] == ["hi", "", "small"]
        assert code(await thread.run(user("u2"))) == "remote_too_large"
        await thread.upstream.left.wait()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "demo",
        "ftp://host/",
        "http://",
        "http:///path",
        "//host/",
        "http://host:port/",
        "http://host/#part",
        "file:///etc/passwd",
        "http://user:secret-pass@host/",
    ],
)
def test_what_is_not_the_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RemoteBridge(url)
    assert "secret-pass" not in refused.value.message


FAILURE_TEXT = "OperationalError: cannot log in to postgres://admin:hunter2@db.internal/prod"
RUN_ERRORS = {
    None: ("agent_error", BridgeError().message),
    "agent_timeout": ("agent_timeout", BridgeTimeout().message),
    "model_tired": ("model_tired", "The agent failed on the other server. Try again in a moment."),
    "unauthorized": ("unauthorized", "The agent failed on the other server. Try again in a moment."),
    "not a code: hunter2": ("remote_failed", "The agent failed on the other server. Try again in a moment."),
    "hunter2-token": ("remote_failed", "The agent failed on the other server. Try again in a moment."),
}


@pytest.mark.parametrize("reported", RUN_ERRORS)
async def test_a_run_error_of_the_other_server_keeps_its_code_and_its_text_is_for_the_log(
    reported: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of a RUN_ERROR with a code reached clients, credentials included."""
    usage = [TokenUsage(model="m", input_tokens=3, output_tokens=5)]
    failed = RunError(
        message=f"{FAILURE_TEXT} hunter2-token", code=reported, usage=usage, metadata={"cause": "hunter2"}
    )
    answer = raw(SSE_HEAD, stream(STARTED, *said("m1", "half"), failed))
    async with fronting(answer, headers={"Authorization": "Bearer hunter2-token"}) as thread:
        last = (await thread.run(user("u1")))[-1]
    assert isinstance(last, RunError)
    assert (last.code, last.message, last.usage, last.metadata) == (*RUN_ERRORS[reported], usage, None)
    assert (FAILURE_TEXT in caplog.text, "hunter2-token" in caplog.text) == (True, False)


async def test_the_error_text_of_a_subagent_on_the_other_server_is_for_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed = SubagentError(subagent_run_id="s1", message=FAILURE_TEXT, code="tired")
    async with fronting(framed(SubagentStarted(subagent_run_id="s1", name="x"), failed)) as thread:
        events = await thread.run(user("u1"))
    [shown] = [event for event in events if isinstance(event, SubagentError)]
    assert (shown.code, shown.message) == ("tired", "The agent failed on the other server. Try again in a moment.")
    assert FAILURE_TEXT in caplog.text


async def test_another_ambient_runner_explains_its_errors_itself() -> None:
    """It has hidden the text of exceptions already. An answer that does not fit its interrupt gets an explanation."""
    failed = RunError(message="The answer does not fit. Send one of: ...", code="invalid_answer")
    async with fronting(raw(OUR_HEAD, stream(STARTED, failed))) as thread:
        last = (await thread.run(user("u1")))[-1]
    assert isinstance(last, RunError)
    assert (last.code, last.message) == (failed.code, failed.message)
