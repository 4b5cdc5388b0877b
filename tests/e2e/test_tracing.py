"""The real server traces to receivers on loopback, and goes on as before when nobody receives."""

from __future__ import annotations

import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.machine_speed import HANG_SECONDS, promised_within, unless_hung
from tests.receiver import LANGFUSE_TRACES, TRACES, receiving

from .server import start
from .sse import open_stream
from .talk import ending, events_of, new_id, run, run_input

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.receiver import Receiver, Seen

    from .server import Child

SECRET_KEY, PUBLIC_KEY, DEMO_SECRET = "sk-lf-0123456789", "pk-lf-0123456789", "sk-demo-5f2a9c71e04b8d36"
LOG_DETAIL = "a detail for the log only"
"""Part of what the demo agent raises."""
RUNS_WITHIN, ENDS_WITHIN = 5.0, 8.0
ASKED = "count 100 every 5ms"
LOST = re.compile(r"^ambient_spans_lost_total\{.*\} (\S+)$", re.MULTILINE)


def to_langfuse(receiver: Receiver) -> dict[str, str]:
    return {
        "AMBIENT_TRACING": "langfuse",
        "LANGFUSE_BASE_URL": receiver.url,
        "LANGFUSE_PUBLIC_KEY": PUBLIC_KEY,
        "LANGFUSE_SECRET_KEY": SECRET_KEY,
        "LANGFUSE_TRACING_ENVIRONMENT": "testing",
    }


async def started(store: Path, env: dict[str, str]) -> Child:
    return await anyio.to_thread.run_sync(lambda: start(store, env=env))


async def stopped(server: Child) -> None:
    await anyio.to_thread.run_sync(server.stop)


def roots(spans: list[Seen]) -> list[Seen]:
    return [span for span in spans if span.name == "invoke_agent demo"]


async def post(url: str, path: str, body: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, timeout=HANG_SECONDS) as client:
        return await client.post(path, json=body)


async def test_langfuse_has_the_tree_the_user_the_session_and_the_score(tmp_path: Path) -> None:
    thread = new_id("thread")
    with receiving() as langfuse, unless_hung():
        server = await started(tmp_path / "ambient.db", to_langfuse(langfuse))
        try:
            told = events_of(await run(server.url, run_input(thread, "weather Oslo")))
            message = next(event["messageId"] for event in told if event["type"] == "TEXT_MESSAGE_START")
            payload = {"messageId": message, "comment": "cold"}
            liked = {"type": "META", "metaType": "thumbs_up", "threadId": thread, "payload": payload}
            answer = await post(server.url, "/feedback", liked)
            await langfuse.until(lambda seen: len(seen.spans()) == 3)
        finally:
            await stopped(server)
    trace = told[0]["metadata"]["traceId"]
    assert {"type": "CUSTOM", "name": "ambient:trace_id", "value": {"traceId": trace}}.items() <= told[1].items()
    root, tool, said = langfuse.spans(LANGFUSE_TRACES)
    assert [span.name for span in (root, tool, said)] == ["invoke_agent demo", "execute_tool get_weather", "chat"]
    assert [(span.trace, span.parent) for span in (root, tool, said)] == [
        (trace, ""),
        (trace, root.id),
        (trace, root.id),
    ]
    everywhere = {
        (span.attributes["session.id"], span.attributes["user.id"], span.attributes["langfuse.environment"])
        for span in langfuse.spans()
    }
    assert everywhere == {(thread, "local", "testing")}
    assert tool.attributes["langfuse.observation.input"] == '{"city": "Oslo"}'
    assert '"celsius"' in tool.attributes["langfuse.observation.output"]
    assert said.attributes["langfuse.observation.type"] == "generation"
    assert answer.json()["event"]["recorded"] is True
    [score] = langfuse.scores
    assert (score["traceId"], score["value"], score["comment"]) == (trace, 1, "cold")
    assert [key for key in (SECRET_KEY, PUBLIC_KEY) if key in server.output + str(told)] == []


async def test_an_interrupt_answered_after_a_restart_is_linked_and_a_caller_is_continued(tmp_path: Path) -> None:
    thread, trace, parent = new_id("thread"), "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    store, headers = tmp_path / "ambient.db", {"traceparent": f"00-{trace}-{parent}-01"}
    with receiving() as receiver, unless_hung():
        env = {"AMBIENT_TRACING": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        server = await started(store, env)
        try:
            asked = events_of(await run(server.url, run_input(thread, "approve it"), headers=headers))
        finally:
            await stopped(server)
        question = asked[-1]["outcome"]["interrupts"][0]["id"]
        again = await started(store, env)
        try:
            answer = [{"interruptId": question, "status": "resolved", "payload": {"approved": True}}]
            await run(again.url, run_input(thread, resume=answer))
        finally:
            await stopped(again)
    first, second = roots(receiver.spans(TRACES))
    assert (first.trace, first.parent) == (trace, parent)
    assert second.trace != trace
    assert second.links == [(trace, first.id)]
    assert [name for span in receiver.spans() for name in span.attributes if name.startswith("langfuse.")] == []
    assert "approval" not in str(receiver.spans())


async def test_a_client_that_leaves_and_a_crash_end_their_traces_and_no_secret_goes_along(tmp_path: Path) -> None:
    gone, crashed = new_id("thread"), new_id("thread")
    with receiving() as langfuse, unless_hung():
        env = to_langfuse(langfuse) | {"AMBIENT_STOP_GRACE": "1", "DEMO_TOKEN": DEMO_SECRET}
        server = await started(tmp_path / "ambient.db", env)
        try:
            leave = {"X-Ambient-On-Disconnect": "stop"}
            async with open_stream(f"{server.url}/", "POST", body=run_input(gone, "hang"), headers=leave) as stream:
                await stream.until("TEXT_MESSAGE_CONTENT")
            await langfuse.until(lambda seen: len(roots(seen.spans())) == 1)
            await run(server.url, run_input(gone, f"say {DEMO_SECRET}"))
            await run(server.url, run_input(crashed, "crash"))
            await langfuse.until(lambda seen: len(roots(seen.spans())) == 3)
        finally:
            await stopped(server)
    outcomes = [(span.attributes["session.id"], span.attributes["ambient.outcome"]) for span in roots(langfuse.spans())]
    assert outcomes == [(gone, "cancelled"), (gone, "success"), (crashed, "error")]
    assert len({span.trace for span in roots(langfuse.spans())}) == 3
    for private in (DEMO_SECRET, LOG_DETAIL):
        assert private not in str([post.body for post in langfuse.posts])
        assert private not in str(langfuse.spans())
    assert "[redacted]" in str(langfuse.spans())


@contextmanager
def nobody() -> Generator[str]:
    """An address at which connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def silence() -> Generator[str]:
    """An address at which traces are taken and never answered."""
    with receiving(answer=0) as hole:
        yield hole.url


@pytest.mark.parametrize("down", [nobody, silence])
async def test_a_receiver_that_is_down_holds_up_neither_runs_nor_the_end(
    down: Callable[[], AbstractContextManager[str]], tmp_path: Path
) -> None:
    """From the first attempt to send until its spans are given up. What a run costs meanwhile, `python -m benchmarks` says."""
    with down() as url, unless_hung():
        server = await started(tmp_path / "ambient.db", {"AMBIENT_TRACING": "otlp", "AMBIENT_OTLP_ENDPOINT": url})
        try:
            while not await lost(server):
                with promised_within(RUNS_WITHIN):
                    assert ending(events_of(await run(server.url, run_input(new_id("thread"), ASKED)))) == "success"
        finally:
            with promised_within(ENDS_WITHIN):
                await stopped(server)


async def lost(server: Child) -> float:
    """How many spans the server counts as lost."""
    async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
        metrics = (await client.get("/metrics")).text
    return sum(float(count) for count in LOST.findall(metrics))
