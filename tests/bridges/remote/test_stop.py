"""A stop here ends the run over there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ambient_runner.bridges.remote.client import RemoteServerClient
from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts
from ambient_runner.config import Timeouts
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import Cancelled, RunAgentInput, RunFinished, RunStarted, TextMessageContent
from ambient_runner.runs.event_reader import follow_run
from tests.bridges.remote.world import (
    OUR_HEAD,
    SSE_HEAD,
    Answer,
    Thread,
    UpstreamRequest,
    endless,
    framed,
    fronting,
    status,
    stream,
    upstream,
)
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, request, said, structs_of, user

HALF = said("m1", "half ")[:2]
OK = status("200 OK", b"{}")
PATIENT = replace(SETTINGS, timeouts=Timeouts(grace=30))
"""Longer than a test may take: what ends here has not been cut."""


async def stopped_in_the_middle(thread: Thread) -> RunFinished:
    """Start a run, wait for its first words, stop it."""
    started = await thread.runner.start(request(user("u1")))
    async for event in follow_run(thread.runner.ledger, started):
        if isinstance(event, TextMessageContent):
            await thread.runner.stop(KEY)
        last = event
    assert isinstance(last, RunFinished)
    return last


def ends_when_asked(head: bytes) -> tuple[Answer, Answer]:
    """A run that goes on until its stop has come, and the answer to that."""
    asked_to = asyncio.Event()

    async def run(request: UpstreamRequest) -> AsyncIterator[bytes]:
        yield head
        yield stream(RunStarted(thread_id="x", run_id="y"), *HALF)
        await asked_to.wait()
        yield stream(RunFinished(thread_id="x", run_id="y", outcome=Cancelled()))

    async def stop(request: UpstreamRequest) -> AsyncIterator[bytes]:
        asked_to.set()
        async for piece in OK(request):
            yield piece

    return run, stop


async def test_another_ambient_runner_is_asked_to_stop_and_ends_the_run_itself() -> None:
    async with fronting(*ends_when_asked(OUR_HEAD), path="agents/helper") as thread:
        last = await stopped_in_the_middle(thread)
        run, stop = thread.upstream.requests
        assert not thread.upstream.left.is_set()
    assert last.outcome == Cancelled()
    assert (run.path, stop.method, stop.path, stop.body) == ("/agents/helper", "POST", "/interrupt", {"threadId": "t"})


async def test_any_server_is_stopped_at_the_configured_url() -> None:
    async with upstream(OK) as other, fronting(endless(*HALF), interrupt=f"{other.url}stop/it") as thread:
        last = await stopped_in_the_middle(thread)
        assert [(request.path, request.body) for request in other.requests] == [("/stop/it", {"threadId": "t"})]
        assert len(thread.upstream.requests) == 1
        await thread.upstream.left.wait()
    assert last.outcome == Cancelled()


@pytest.mark.parametrize("interrupt", [None, False])
async def test_the_answer_of_another_server_is_closed_at_once(interrupt: bool | None) -> None:
    async with fronting(endless(*HALF), interrupt=interrupt, settings=PATIENT) as thread:
        last = await stopped_in_the_middle(thread)
        await thread.upstream.left.wait()
        assert len(thread.upstream.requests) == 1
    assert last.outcome == Cancelled()


async def test_a_stop_that_is_refused_closes_the_answer() -> None:
    async with fronting(endless(*HALF, head=OUR_HEAD), status("404 Not Found"), settings=PATIENT) as thread:
        last = await stopped_in_the_middle(thread)
        await thread.upstream.left.wait()
    assert last.outcome == Cancelled()


async def test_the_request_says_that_a_disconnect_stops_the_run() -> None:
    async with fronting(framed()) as thread:
        await thread.run(user("u1"))
        assert thread.upstream.requests[0].headers["x-ambient-on-disconnect"] == "stop"


async def test_without_a_server_a_stopped_run_ends_as_cancelled() -> None:
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.remote import RemoteBridge

    async with upstream(endless(*HALF)) as served:
        bridge = RemoteBridge(served.url)
        adapter = bridge.create_adapter(PlatformContext())
        run_input = input_to_agui(RunAgentInput(thread_id="t", run_id="r", messages=[user("u1")]))
        with unless_hung():
            async for event in structs_of(adapter.run(run_input)):
                if isinstance(event, TextMessageContent):
                    await adapter.interrupt()
                last = event
        await bridge.aclose()
    assert last == RunFinished(thread_id="t", run_id="r", outcome=Cancelled())


async def test_an_erased_thread_is_erased_at_a_server_of_ours_too() -> None:
    async with fronting(framed(head=OUR_HEAD), status("204 No Content"), path="base/agents/helper") as thread:
        await thread.run(user("u1"))
        await thread.runner.erase_thread(KEY)
        assert [(request.method, request.path) for request in thread.upstream.requests] == [
            ("POST", "/base/agents/helper"),
            ("DELETE", "/base/thread/t"),
        ]


async def test_another_server_is_not_asked_to_erase() -> None:
    async with fronting(framed(head=SSE_HEAD)) as thread:
        await thread.run(user("u1"))
        await thread.runner.erase_thread(KEY)
        assert len(thread.upstream.requests) == 1


@pytest.mark.parametrize(
    ("url", "beside"),
    [
        ("http://host/", "http://host/interrupt"),
        ("http://host", "http://host/interrupt"),
        ("http://host/agents/a-b_1", "http://host/interrupt"),
        ("http://host/x/agents/a/", "http://host/x/interrupt"),
        ("http://host/agents/a/b", "http://host/agents/a/b/interrupt"),
        ("https://host:9/run?tenant=1", "https://host:9/run/interrupt?tenant=1"),
    ],
)
def test_the_stop_url_is_a_sibling_of_the_agent(url: str, beside: str) -> None:
    assert RemoteServerClient(url, timeouts=RemoteTimeouts(), limits=RemoteLimits()).sibling_url("/interrupt") == beside
