from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import msgspec
import pytest
from prometheus_client import REGISTRY

from ambient_runner.config import Settings
from ambient_runner.errors import ThreadBusy
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import Checkpoint, ThreadKey
from ambient_runner.projections.frames import Framer
from ambient_runner.projections.projectors import FEEDBACK, FEEDBACK_OWNER
from ambient_runner.projections.thread_event import ThreadIdentity
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.encode import PING
from ambient_runner.protocol.events import TextMessageContent, TextMessageStart
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import ThreadEpoch
from ambient_runner.server.direct_send import expose_server_send
from ambient_runner.server.end_conditions import EndCondition, NoEnd, UntilIdle, UntilRunEnds
from ambient_runner.server.event_stream import EventStream
from ambient_runner.server.runtime import ServerRuntime
from ambient_runner.server.stream_monitor import monitor_streams
from ambient_runner.server.stream_start import StreamStart
from tests.machine_speed import unless_hung
from tests.scripts import begun, forever, hello
from tests.server.demo_server import runtime_with
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, user

SERVICES: WeakKeyDictionary[EventStream, ServerRuntime] = WeakKeyDictionary()
RESTLESS = dataclasses.replace(SETTINGS, heartbeat=0.05, slow_reader=0.2)


class Client:
    """The other end of an ASGI connection. It stops reading at `stalls_at`, for ever or until `goes_on`."""

    def __init__(self, *, stalls_at: bytes | None = None) -> None:
        self.body = b""
        self.ended = False
        self.ends: list[bool] = []
        """One for each message: True if it ended the response."""
        self.leaves = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.stalled = asyncio.Event()
        self._stalls_at = stalls_at
        self._news = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            return
        if self._stalls_at is not None and self._stalls_at in message["body"]:
            self.stalled.set()
            await self.goes_on.wait()
        self.body += message["body"]
        self.ended = not message.get("more_body", False)
        self.ends.append(self.ended)
        self._news.set()
        self._news = asyncio.Event()

    async def has(self, part: bytes, times: int = 1) -> None:
        with unless_hung():
            while self.body.count(part) < times:
                await self._news.wait()


async def stream_of(
    runner: Runner,
    settings: Settings = SETTINGS,
    *,
    until: EndCondition | None = None,
    form: Any = "sse",
    **options: Any,
) -> tuple[EventStream, ServerRuntime]:
    """A stream of the thread from its beginning."""
    info = await runner.ledger.get_thread(KEY)
    assert info is not None
    service = runtime_with(runner.agents, settings)
    framer = Framer(info.epoch, wire_format=form, thread=ThreadIdentity.of_info(info))
    stream = EventStream(
        service,
        runner,
        ThreadEpoch(KEY, info.epoch),
        StreamStart(after=0, framer=framer),
        until=until or NoEnd(),
        **options,
    )
    SERVICES[stream] = service
    return stream, service


@asynccontextmanager
async def monitored(stream: EventStream) -> AsyncGenerator[None, None]:
    """Check the stream's client regularly, as its server does."""
    service = SERVICES[stream]
    settings = service.settings
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            partial(monitor_streams, service.streams, heartbeat=settings.heartbeat, slow_reader=settings.slow_reader)
        )
        yield
        tasks.cancel_scope.cancel()


async def answer(stream: EventStream, client: Client) -> None:
    async with monitored(stream):
        await stream({"type": "http"}, client.receive, client.send)


async def answer_directly(stream: EventStream, client: Client) -> None:
    async with monitored(stream):
        await expose_server_send(stream)({"type": "http"}, client.receive, client.send)


def counting(steps: list[asyncio.Event]) -> ScriptedAgent:
    """An agent that says a number after each step, alone, so that each is a batch of its own."""

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1")
        for number, step in enumerate(steps):
            await step.wait()
            yield TextMessageContent(message_id="m1", delta=f"number {number}, ")

    return ScriptedAgent(script)


def slow_readers_cut() -> float:
    return REGISTRY.get_sample_value("ambient_slow_clients_disconnected_total") or 0.0


async def test_the_last_frames_of_a_run_end_the_response_and_are_the_same_bytes_as_through_a_task() -> None:
    direct, through_task = Client(), Client()
    async with runner_of(ScriptedAgent(hello)) as runner:
        started = await runner.start(request(user("u1")))
        await events_of(runner, started)
        for respond, client in ((answer_directly, direct), (answer, through_task)):
            stream, _ = await stream_of(runner, until=UntilRunEnds(started.run))
            with unless_hung():
                await respond(stream, client)
    assert direct.ended
    assert through_task.ended
    assert direct.body == through_task.body
    assert (direct.ends, through_task.ends) == ([True], [False, True])
    assert b"RUN_FINISHED" in direct.body


@pytest.mark.parametrize("respond", [answer, answer_directly], ids=["task", "direct"])
async def test_a_silent_stream_is_pinged_again_and_again(respond: Any) -> None:
    client = Client()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        stream, _ = await stream_of(runner, RESTLESS)
        begin = anyio.current_time()  # Before the stream takes any time: a busy machine can only make it last longer.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond, stream, client)
            await client.has(PING, times=2)
            assert anyio.current_time() - begin >= 2 * RESTLESS.heartbeat * 0.9
            client.leaves.set()
        assert client.body.index(b"RUN_FINISHED") < client.body.index(PING)


@pytest.mark.parametrize("respond", [answer, answer_directly], ids=["task", "direct"])
@pytest.mark.parametrize("place", [PING, b"RUN_STARTED"], ids=["ping", "frame"])
async def test_a_reader_that_stops_reading_is_cut(place: bytes, respond: Any) -> None:
    client = Client(stalls_at=place)
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        stream, service = await stream_of(runner, RESTLESS)
        before = slow_readers_cut()
        with unless_hung():
            await respond(stream, client)
    assert client.stalled.is_set()
    assert slow_readers_cut() - before == 1
    assert not client.ended
    assert service.streams == set()


@pytest.mark.parametrize("respond", [answer, answer_directly], ids=["task", "direct"])
@pytest.mark.parametrize("place", [PING, b"RUN_STARTED"], ids=["ping", "frame"])
async def test_a_reader_that_continues_in_time_is_not_cut(place: bytes, respond: Any) -> None:
    client = Client(stalls_at=place)
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        stream, _ = await stream_of(runner, dataclasses.replace(RESTLESS, slow_reader=5.0))
        before = slow_readers_cut()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond, stream, client)
            with unless_hung():
                await client.stalled.wait()
            client.goes_on.set()
            await client.has(b"RUN_FINISHED")
            await client.has(PING)
            client.leaves.set()
    assert slow_readers_cut() == before


async def test_a_client_that_leaves_ends_the_stream_and_is_reported_once() -> None:
    client = Client()
    reports: list[str] = []

    async def report() -> None:
        reports.append("left")

    async with runner_of(ScriptedAgent(forever)) as runner:
        await runner.start(request(user("u1")))
        stream, service = await stream_of(runner, on_disconnect=report)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, stream, client)
            await client.has(b"TEXT_MESSAGE_CONTENT")
            assert service.streams == {stream}
            client.leaves.set()
    assert reports == ["left"]
    assert not client.ended
    assert service.streams == set()


async def test_a_client_that_stays_to_the_end_has_not_left() -> None:
    client = Client()
    reports: list[str] = []

    async def report() -> None:
        reports.append("left")

    async with runner_of(ScriptedAgent(hello)) as runner:
        started = await runner.start(request(user("u1")))
        stream, _ = await stream_of(runner, until=UntilRunEnds(started.run), on_disconnect=report)
        with unless_hung():
            await answer(stream, client)
    assert client.ended
    assert client.body.count(b"data: ") == 7
    assert reports == []


async def test_an_idle_stream_that_is_finished_ends_at_once() -> None:
    client = Client()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        stream, _ = await stream_of(runner)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, stream, client)
            await client.has(b"RUN_FINISHED")
            await anyio.wait_all_tasks_blocked()
            stream.finish()
    assert client.ended


async def test_a_finished_stream_delivers_stored_events_first() -> None:
    client = Client(stalls_at=b"RUN_STARTED")
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        stream, _ = await stream_of(runner)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, stream, client)
            with unless_hung():
                await client.stalled.wait()
                await run_once(runner, user("u2"))
            stream.finish()
            client.goes_on.set()
    assert client.ended
    assert client.body.count(b'"RUN_FINISHED"') == 2


async def test_a_stream_until_idle_waits_for_the_run_and_then_ends() -> None:
    client = Client()
    release = anyio.Event()

    async def held(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1")
        await release.wait()

    async with runner_of(ScriptedAgent(held)) as runner:
        await runner.start(request(user("u1")))
        stream, _ = await stream_of(runner, until=UntilIdle(runner.ledger, KEY))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, stream, client)
            await client.has(b"TEXT_MESSAGE_START")
            assert not client.ended
            release.set()
    assert client.ended
    assert b"RUN_FINISHED" in client.body


class Forgetful(MemoryLedger):
    """Drops everything when it is asked for a checkpoint: the retention of another process, at the worst moment."""

    forgets = False

    async def get_checkpoint(self, key: ThreadKey, at: int | None = None, *, epoch: str = "") -> Checkpoint | None:
        info = await self.get_thread(key)
        if self.forgets and info is not None:
            await self.trim_thread(key, Checkpoint(seq=info.last, body=ThreadView().to_checkpoint()))
        return await super().get_checkpoint(key, at, epoch=epoch)


async def test_a_stream_is_cut_when_its_snapshot_can_no_longer_be_folded() -> None:
    """A response that ends would look complete: the client has to resume, and then learns of the gap."""
    client = Client()
    agent = ScriptedAgent(hello)
    async with Forgetful() as ledger, Runner(ledger, {"agent": agent}, SETTINGS) as runner:
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
        stream, _ = await stream_of(runner)
        ledger.forgets = True
        with unless_hung():
            await answer(stream, client)
    assert not client.ended
    assert b"MESSAGES_SNAPSHOT" not in client.body


async def test_a_reader_of_an_erased_thread_gets_nothing_of_its_next_epoch() -> None:
    client = Client()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("mine"))
        stream, _ = await stream_of(runner)
        await runner.erase_thread(KEY)
        await run_once(runner, user("theirs"))
        with unless_hung():
            await answer(stream, client)
    assert (client.body, client.ended) == (b"", True)


async def test_a_live_reader_ends_when_its_thread_is_erased() -> None:
    client = Client()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("mine"))
        stream, _ = await stream_of(runner)
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer, stream, client)
                await client.has(b"RUN_FINISHED")
                await runner.erase_thread(KEY)
                await run_once(runner, user("theirs"))
    assert client.ended
    assert b"theirs" not in client.body


async def test_ndjson_has_no_pings_but_a_client_that_leaves_is_noticed() -> None:
    client = Client()
    async with runner_of(ScriptedAgent(hello)) as runner:
        await run_once(runner, user("u1"))
        stream, _ = await stream_of(runner, RESTLESS, form="ndjson")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, stream, client)
            await client.has(b"RUN_FINISHED")
            with anyio.move_on_after(3 * RESTLESS.heartbeat):
                await client.has(PING)
            client.leaves.set()
    assert PING not in client.body
    assert client.body.count(b"\n") == 7


@pytest.mark.parametrize("stalls_at", [None, b"number 1"], ids=["quick", "slow"])
async def test_a_direct_reader_gets_the_same_events_as_a_late_one(stalls_at: bytes | None) -> None:
    steps = [asyncio.Event() for _ in range(4)]
    live, late = Client(stalls_at=stalls_at), Client()
    async with runner_of(counting(steps)) as runner:
        started = await runner.start(request(user("u1")))
        stream, _ = await stream_of(runner, until=UntilRunEnds(started.run))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_directly, stream, live)
            await live.has(b"TEXT_MESSAGE_START")
            steps[0].set()
            await live.has(b"number 0")
            steps[1].set()
            if stalls_at:
                with unless_hung():
                    await live.stalled.wait()
            for step in steps[2:]:
                step.set()
            live.goes_on.set()
        again, _ = await stream_of(runner, until=UntilRunEnds(started.run))
        await answer(again, late)
    assert live.body == late.body
    assert [live.body.count(b'"delta":"number %d, "' % number) for number in range(4)] == [1, 1, 1, 1]
    assert live.ended


class Measuring(Client):
    """A client that notes how much it is sent at once."""

    largest = 0

    async def send(self, message: Any) -> None:
        self.largest = max(self.largest, len(message.get("body", b"")))
        await super().send(message)


@pytest.mark.parametrize("respond", [answer, answer_directly], ids=["task", "direct"])
@pytest.mark.parametrize("delta", [100, 40_000, 900_000], ids=["many", "large", "huge"])
async def test_a_large_batch_is_sent_in_small_pieces(respond: Any, delta: int) -> None:
    """A server copies what it is given, and holds it for a client that does not read."""
    count = 2_000_000 // delta

    async def burst(run: Run) -> AsyncGenerator[Any, None]:
        yield TextMessageStart(message_id="m1")
        for number in range(count):
            yield TextMessageContent(message_id="m1", delta=f"{number} ".ljust(delta, "x"))

    live, late = Measuring(), Measuring()
    async with runner_of(ScriptedAgent(burst)) as runner:
        started = await begun(runner, user("u1"))
        stream, _ = await stream_of(runner, until=UntilRunEnds(started.run))
        with unless_hung():
            await respond(stream, live)
            again, _ = await stream_of(runner, until=UntilRunEnds(started.run))
            await respond(again, late)
    frames = [msgspec.json.decode(line[6:]) for line in live.body.splitlines() if line.startswith(b"data: ")]
    text = "".join(frame["delta"] for frame in frames if frame["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == "".join(f"{number} ".ljust(delta, "x") for number in range(count))
    assert live.body == late.body
    assert late.largest <= 1 << 16
    assert live.largest <= 1 << 19  # A batch that is sent where it is published is sent whole, if it is not larger.


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "is disconnected"])
async def test_a_direct_reader_that_stops_reading_does_not_block_others(leaves: bool) -> None:
    steps = [asyncio.Event() for _ in range(3)]
    slow, other = Client(stalls_at=b"number 1"), Client()
    async with runner_of(counting(steps)) as runner:
        started = await runner.start(request(user("u1")))
        stream, service = await stream_of(runner, RESTLESS, until=UntilRunEnds(started.run))
        beside, _ = await stream_of(runner, until=UntilRunEnds(started.run))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_directly, stream, slow)
            tasks.start_soon(answer_directly, beside, other)
            for number, step in enumerate(steps):
                step.set()
                await other.has(b"number %d" % number)
            with unless_hung():
                await slow.stalled.wait()
            if leaves:
                slow.leaves.set()
    assert other.ended
    assert b"RUN_FINISHED" in other.body
    assert not slow.ended
    assert b"number 1" not in slow.body
    assert service.streams == set()


async def test_a_reader_of_one_run_that_leaves_does_not_let_a_newer_message_stop_it() -> None:
    """It is not the run's own stream: whoever sent the message never read it, or still reads the thread elsewhere."""
    client = Client()
    async with runner_of(ScriptedAgent(forever)) as runner:
        started = await begun(runner, user("u1"))
        stream, _ = await stream_of(runner, until=UntilRunEnds(started.run, is_own_stream=False))
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer, stream, client)
                await client.has(b"TEXT_MESSAGE_CONTENT")
                client.leaves.set()
        with pytest.raises(ThreadBusy):
            await runner.start(request(user("u2")))


@pytest.mark.parametrize("respond", [answer, answer_directly], ids=["task", "direct"])
async def test_live_and_late_readers_get_the_same_thread_after_a_fact(respond: Any) -> None:
    """The times in `ambient:thread` are those of batches, which a live reader folds while it receives them."""
    live, late, runs = Client(), Client(), list[str]()
    async with runner_of(ScriptedAgent(hello)) as runner:
        runs.append((await begun(runner, user("u1"))).run)
        stream, _ = await stream_of(runner)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond, stream, live)
            await live.has(b"RUN_FINISHED")
            runs.append((await runner.start(request(user("u2")))).run)
            await live.has(b"RUN_FINISHED", times=2)
            rated = {"messageId": f"m-{runs[0]}", "metaType": "thumbs_up"}
            await runner.append_platform_fact(KEY, FEEDBACK_OWNER, FEEDBACK, rated)
            await live.has(b"ambient:thread")
            live.leaves.set()
        again, _ = await stream_of(runner, until=UntilIdle(runner.ledger, KEY))
        with unless_hung():
            await answer(again, late)
    assert live.body == late.body
    event = msgspec.json.decode(live.body.splitlines()[-2].removeprefix(b"data: "))
    assert event["value"]["feedback"] == {f"m-{runs[0]}": "thumbs_up"}
    assert event["value"]["lastRun"]["run"] == runs[1]


async def test_a_direct_stream_goes_on_after_its_app_has_returned() -> None:
    client, has_returned = Client(), asyncio.Event()
    step = asyncio.Event()
    async with runner_of(counting([step])) as runner:
        await runner.start(request(user("u1")))
        stream, _ = await stream_of(runner)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await stream(scope, receive, send)
            has_returned.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expose_server_send(app), {"type": "http"}, client.receive, client.send)
            with unless_hung():
                await has_returned.wait()
            assert not client.ended
            step.set()
            await client.has(b"number 0")
            client.leaves.set()
