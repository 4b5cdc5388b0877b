from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput, TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent

from ambient_runner.bridges import agent_host
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.errors import BridgeError, ConfigError
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import RunError, RunFinished, TextMessageContent
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, events_of, request, user


class Adapter:
    """An adapter as the published ones are: `ag_ui.core` events from a plain async iterator."""

    def __init__(self, context: PlatformContext) -> None:
        self.context = context
        self.runs = 0
        self.closed = False

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:
        self.runs += 1
        name = f"m-{id(self)}-{self.runs}"
        yield TextMessageStartEvent(message_id=name, role="assistant")
        yield TextMessageContentEvent(message_id=name, delta=f"run {self.runs}")
        yield TextMessageEndEvent(message_id=name)

    async def aclose(self) -> None:
        self.closed = True


class Bridge(PlatformBridge):
    def __init__(self) -> None:
        self.made: list[Adapter] = []

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Adapter:
        self.made.append(Adapter(ctx))
        return self.made[-1]


@asynccontextmanager
async def running(hosted: AgentHost) -> AsyncGenerator[Runner, None]:
    async with MemoryLedger() as ledger, Runner(ledger, {"agent": hosted}, SETTINGS) as runner:
        yield runner


async def one_run(runner: Runner, message: str, thread: str = "t") -> None:
    events = await events_of(runner, await runner.start(request(user(message), thread=thread)))
    assert isinstance(events[-1], RunFinished)


async def test_an_adapter_is_made_once_per_thread_and_reused() -> None:
    bridge = Bridge()
    async with running(AgentHost("agent", bridge)) as runner:
        await one_run(runner, "u1")
        await one_run(runner, "u2")
        await one_run(runner, "u1", thread="other")
    assert [adapter.runs for adapter in bridge.made] == [2, 1]
    assert [adapter.context.session_id for adapter in bridge.made] == ["t", "other"]
    assert all(adapter.closed for adapter in bridge.made)


async def test_other_tasks_run_before_many_messages_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends RUN_STARTED in that turn."""
    order, seen = list[str](), list[Run]()

    def convert(run_input: Any, *reused: Any) -> RunAgentInput:
        order.append("converted")
        return input_to_agui(run_input, *reused)

    def remember_run(run: Run) -> PlatformContext:
        seen.append(run)
        return PlatformContext()

    hosted = AgentHost("agent", Bridge(), context=remember_run)
    async with running(hosted) as runner:
        started = await runner.start(request(*(user(f"u{number}") for number in range(500))))
        await events_of(runner, started)
        monkeypatch.setattr(agent_host, "input_to_agui", convert)
        asyncio.get_running_loop().call_soon(order.append, "others")
        async with hosted.open_run(seen[0]) as events:
            assert [type(event) async for event in events][-1] is TextMessageEndEvent
    assert order == ["others", "converted"]


class Reader(Adapter):
    """Remembers the ids of the models that its runs got. Runs that post `keep` keep their input, those that post `change` change it."""

    def __init__(self, context: PlatformContext) -> None:
        super().__init__(context)
        self.models: list[list[int]] = []
        self.texts: list[list[str]] = []
        self.kept: list[RunAgentInput] = []

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:
        self.models.append([id(message) for message in input.messages])
        self.texts.append([str(message.content) for message in input.messages])
        if input.messages[-1].id == "keep":
            self.kept.append(input)
        if input.messages[-1].id == "change":
            for message in input.messages:
                setattr(message, "content", "changed")  # noqa: B010  not every kind has a text
        async for event in super().run(input):
            yield event


class ReaderBridge(Bridge):
    def create_adapter(self, ctx: PlatformContext) -> Adapter:
        self.made.append(Reader(ctx))
        return self.made[-1]


@pytest.mark.parametrize("text", ["hi", "long " * 2_000], ids=["on the event loop", "in a thread"])
async def test_the_models_of_a_long_thread_are_used_again_unless_a_run_keeps_or_changes_them(text: str) -> None:
    bridge = ReaderBridge()
    async with running(AgentHost("agent", bridge)) as runner:
        await events_of(runner, await runner.start(request(*(user(f"u{number}", text) for number in range(300)))))
        for message in ("keep", "then", "change", "last", "end"):
            await one_run(runner, message)
    (adapter,) = bridge.made
    assert isinstance(adapter, Reader)
    first, keeping, then, changing, last, end = (models[:300] for models in adapter.models)
    assert first == keeping
    assert not set(keeping) & set(then)
    assert then == changing
    assert last == end
    assert all(texts[:300] == adapter.texts[0] for texts in adapter.texts)


async def test_the_models_of_a_deleted_thread_are_forgotten() -> None:
    class Watcher(Adapter):
        async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:
            seen.append(weakref.ref(input.messages[0]))
            async for event in super().run(input):
                yield event

    seen = list[weakref.ref[Any]]()

    class WatchedBridge(Bridge):
        def create_adapter(self, ctx: PlatformContext) -> Adapter:
            return Watcher(ctx)

    hosted = AgentHost("agent", WatchedBridge())
    async with running(hosted) as runner:
        await events_of(runner, await runner.start(request(*(user(f"u{number}") for number in range(300)))))
        assert seen[0]() is not None
        await hosted.erase_thread(KEY)
        assert seen[0]() is None


async def test_a_changed_configuration_rebuilds_it_between_runs_as_a_continuation() -> None:
    bridge = Bridge()
    models = iter(["small", "small", "large"])
    hosted = AgentHost("agent", bridge, context=lambda run: PlatformContext(model=next(models)))
    async with running(hosted) as runner:
        for message in ("u1", "u2", "u3"):
            await one_run(runner, message)
        assert [(a.runs, a.closed) for a in bridge.made] == [(2, True), (1, False)]
    assert [(a.context.model, a.context.is_continuation) for a in bridge.made] == [("small", False), ("large", True)]


async def test_an_adapter_that_waits_for_an_answer_gets_it_and_a_change_applies_from_the_next_run() -> None:
    class Patient(Adapter):
        def waits_for(self, input: RunAgentInput) -> bool:
            return input.messages[-1].id == "answer"

    class PatientBridge(Bridge):
        def create_adapter(self, ctx: PlatformContext) -> Adapter:
            self.made.append(Patient(ctx))
            return self.made[-1]

    bridge = PatientBridge()
    models = iter(["small", "large", "large", "huge"])
    hosted = AgentHost("agent", bridge, context=lambda run: PlatformContext(model=next(models)))
    async with running(hosted) as runner:
        for message in ("u1", "answer", "u2", "something else"):
            await one_run(runner, message)
    assert [(a.context.model, a.runs) for a in bridge.made] == [("small", 2), ("large", 1), ("huge", 1)]


async def test_idle_adapters_are_closed_and_created_again_as_a_continuation() -> None:
    bridge = Bridge()
    hosted = AgentHost("agent", bridge, idle_timeout=0.0)
    async with running(hosted) as runner:
        await one_run(runner, "u1")
        await hosted.evict_idle()
        assert bridge.made[0].closed
        await one_run(runner, "u2")
    assert [adapter.context.is_continuation for adapter in bridge.made] == [False, True]


async def test_an_adapter_that_waits_for_an_answer_is_neither_evicted_nor_replaced_by_another() -> None:
    class Patient(Adapter):
        is_waiting = True

    class PatientBridge(Bridge):
        def create_adapter(self, ctx: PlatformContext) -> Adapter:
            self.made.append(Patient(ctx))
            return self.made[-1]

    bridge = PatientBridge()
    hosted = AgentHost("agent", bridge, max_adapters=1, idle_timeout=0.0)
    async with running(hosted) as runner:
        for thread in ("a", "b"):
            await one_run(runner, "u1", thread=thread)
        await hosted.evict_idle()
        assert [adapter.closed for adapter in bridge.made] == [False, False]
        for adapter in bridge.made:
            adapter.is_waiting = False
        await hosted.evict_idle()
        assert [adapter.closed for adapter in bridge.made] == [True, True]


async def test_no_more_adapters_are_cached_than_allowed() -> None:
    bridge = Bridge()
    async with running(AgentHost("agent", bridge, max_adapters=2)) as runner:
        for thread in ("a", "b", "c"):
            await one_run(runner, "u1", thread=thread)
        assert [adapter.closed for adapter in bridge.made] == [True, False, False]


async def test_an_adapter_that_comes_when_all_others_are_running_is_not_closed_before_it_is_used() -> None:
    release = anyio.Event()

    class Holding(Adapter):
        closed_at_start = False

        async def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:
            self.closed_at_start = self.closed
            if input.thread_id == "first":
                await release.wait()
            async for event in super().run(input):
                yield event

    class HoldingBridge(Bridge):
        def create_adapter(self, ctx: PlatformContext) -> Adapter:
            self.made.append(Holding(ctx))
            return self.made[-1]

    bridge = HoldingBridge()
    async with running(AgentHost("agent", bridge, max_adapters=1)) as runner:
        with unless_hung():
            first = await runner.start(request(user("u1"), thread="first"))
            await anyio.wait_all_tasks_blocked()
            await one_run(runner, "u1", thread="second")
            release.set()
            events = await events_of(runner, first)
    assert isinstance(events[-1], RunFinished)
    assert [(adapter.runs, adapter.closed_at_start) for adapter in bridge.made if isinstance(adapter, Holding)] == [
        (1, False),
        (1, False),
    ]


async def test_erasing_a_thread_abandons_its_adapter() -> None:
    bridge = Bridge()
    async with running(AgentHost("agent", bridge)) as runner:
        await one_run(runner, "u1")
        await runner.erase_thread(KEY)
        assert bridge.made[0].closed


async def test_two_actors_never_share_an_adapter() -> None:
    bridge = Bridge()
    async with running(AgentHost("agent", bridge)) as runner:
        mine = request(user("u1"))
        theirs = dataclasses.replace(mine, actor=dataclasses.replace(mine.actor, owner="bob"))
        for one in (mine, theirs):
            await events_of(runner, await runner.start(one))
    assert len(bridge.made) == 2


async def test_a_bridge_that_cannot_make_its_adapter_is_a_run_error_and_the_next_run_tries_again() -> None:
    class Flaky(Bridge):
        def create_adapter(self, ctx: PlatformContext) -> Adapter:
            if not self.made:
                self.made.append(Adapter(ctx))
                raise RuntimeError("not yet")
            return super().create_adapter(ctx)

    async with running(AgentHost("agent", Flaky())) as runner:
        failed = await events_of(runner, await runner.start(request(user("u1"))))
        await one_run(runner, "u2")
    assert [type(event).__name__ for event in failed] == ["RunStarted", "MessagesSnapshot", "RunError"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "ä"])
def test_an_agent_name_must_fit_in_a_url(name: str) -> None:
    with pytest.raises(ConfigError):
        AgentHost(name, Bridge())


class Wrong(PlatformBridge):
    """A bridge whose adapter is the value it is built with."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Any:
        return self._adapter


class AsyncFactory(Wrong):
    async def create_adapter(self, ctx: PlatformContext) -> Any:
        return self._adapter


class Running:
    """An adapter whose `run` is the function it is built with."""

    def __init__(self, run: Any) -> None:
        self.run = run


async def _events_later(input: RunAgentInput) -> Any:
    return [
        TextMessageStartEvent(message_id="m", role="assistant"),
        TextMessageContentEvent(message_id="m", delta="later"),
        TextMessageEndEvent(message_id="m"),
    ]


async def _nothing(input: RunAgentInput) -> None: ...


def _text(input: RunAgentInput) -> str:
    return "text"


def _mapping(input: RunAgentInput) -> dict[str, str]:
    return {"type": "CUSTOM"}


@pytest.mark.parametrize(
    ("bridge", "named"),
    [
        (AsyncFactory(Running(_events_later)), "AsyncFactory.create_adapter"),
        (Wrong(None), "Wrong.create_adapter returned None"),
        (Wrong(object()), "Wrong.create_adapter returned object"),
        (Wrong(Running("no function")), "Wrong.create_adapter returned Running"),
        (Wrong(Running(_nothing)), "Running.run returned None"),
        (Wrong(Running(_text)), "Running.run returned str"),
        (Wrong(Running(_mapping)), "Running.run returned dict"),
    ],
)
async def test_the_log_names_what_is_wrong_with_a_bridge_and_clients_do_not_see_it(
    bridge: PlatformBridge, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(AgentHost("agent", bridge)) as runner:
        events = await events_of(runner, await runner.start(request(user("u1"))))
    assert isinstance(events[-1], RunError)
    assert (events[-1].code, events[-1].message) == (BridgeError.code, BridgeError().message)
    assert named in caplog.text


@pytest.mark.parametrize("is_async", [True, False])
async def test_run_may_return_a_list_of_events(is_async: bool) -> None:
    events = await _events_later(RunAgentInput.model_construct())

    def run(input: RunAgentInput) -> Any:
        return events

    adapter = Running(_events_later if is_async else run)
    async with running(AgentHost("agent", Wrong(adapter))) as runner:
        seen = await events_of(runner, await runner.start(request(user("u1"))))
    assert [event.delta for event in seen if isinstance(event, TextMessageContent)] == ["later"]
    assert isinstance(seen[-1], RunFinished)


async def test_run_may_be_a_coroutine_function_that_returns_a_generator() -> None:
    async def open_stream(input: RunAgentInput) -> Any:
        return Adapter(PlatformContext()).run(input)

    async with running(AgentHost("agent", Wrong(Running(open_stream)))) as runner:
        await one_run(runner, "u1")
