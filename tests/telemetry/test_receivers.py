"""Receivers of traces that answer as none should: with a redirect, without an end, or a byte now and then."""

from __future__ import annotations

import logging
import socket
from functools import partial

import pytest
from anyio import to_thread
from prometheus_client import REGISTRY

from ambient_runner.config import OtlpSettings, TracingSettings
from ambient_runner.telemetry import exporter
from ambient_runner.telemetry.exporter import SPANS_LOST
from ambient_runner.telemetry.tracing import Tracing
from tests.machine_speed import HANG_SECONDS, promised_within
from tests.raw import Raw, Speech, endless, raw_server, trickling
from tests.receiver import TRACES, receiving
from tests.scripts import hello
from tests.world import ScriptedAgent, run_once, runner_of, user

KEY = (("api-key", "sk-of-the-collector"),)


async def traced(url: str) -> None:
    """One run, traced to this receiver to the end."""
    tracing = Tracing(TracingSettings(otlp=OtlpSettings(endpoint=url + TRACES, headers=KEY)))
    async with tracing.run_exporters(), runner_of(ScriptedAgent(hello), middleware=[tracing.middleware]) as runner:
        await run_once(runner, user("u1"))


def lost() -> float:
    SPANS_LOST.labels("otlp")
    return REGISTRY.get_sample_value("ambient_spans_lost_total", {"receiver": "otlp"}) or 0


def moved(status: int, to: str) -> Speech:
    def speak(server: Raw, client: socket.socket) -> None:
        head = f"HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        server.send(client, head.encode())
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):
            pass

    return speak


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_what_was_sent_is_lost(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """307 and 308 took the spans, and the key in the header, to whatever host they named."""
    caplog.set_level(logging.INFO, "ambient_runner")
    before = lost()
    with receiving() as other, raw_server(moved(status, other.url.replace("127.0.0.1", "localhost") + TRACES)) as here:
        await traced(here.url)
    assert other.posts == []
    assert lost() - before == 2
    assert len([record for record in caplog.records if record.name == exporter.logger.name]) == 1


@pytest.mark.parametrize("status", [b"200 OK", b"307 Moved\r\nLocation: /elsewhere", b"500 No"])
async def test_of_an_endless_answer_little_is_read(status: bytes) -> None:
    """All of it was read and kept for as long as it came."""
    with raw_server(endless(b"HTTP/1.1 " + status + b"\r\n\r\n", most=256 << 20)) as loud:
        await traced(loud.url)
        assert await to_thread.run_sync(partial(loud.left.acquire, timeout=HANG_SECONDS))
        # What the two ends of a connection hold by themselves is the system's to choose.
        assert loud.sent < 32 << 20


async def test_an_answer_that_trickles_in_is_left_when_the_batchs_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_BATCH_TIMEOUT", 0.3)
    with raw_server(trickling(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as slow:
        with promised_within(2.5):
            await traced(slow.url)
            assert await to_thread.run_sync(partial(slow.left.acquire, timeout=HANG_SECONDS))


async def test_a_connection_is_used_again_for_the_next_batch() -> None:
    with receiving() as receiver:
        tracing = Tracing(TracingSettings(otlp=OtlpSettings(endpoint=receiver.url + TRACES)))
        async with tracing.run_exporters(), runner_of(ScriptedAgent(hello), middleware=[tracing.middleware]) as runner:
            for at in range(2):
                await run_once(runner, user(f"u{at}"))
                await receiver.until(lambda seen, at=at: len(seen.spans()) == 2 * (at + 1))
    assert len({post.client for post in receiver.posts}) == 1
