"""The shipped contract fails for bridges that break it, each in one way."""

from __future__ import annotations

import asyncio
import faulthandler
import time
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit import Composer
from ambient_runner.testing import BridgeContract
from tests.contract import test_bridges
from tests.machine_speed import scaled


class Agent:
    """A toy framework: it keeps the conversation and the state in itself."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.state: Any = None
        self.stopped = anyio.Event()

    async def answer(self, prompt: str, state: Any) -> AsyncIterator[str]:
        self.messages.append(prompt)
        self.state = state or self.state
        yield "Well, "
        if prompt == "crash":
            raise RuntimeError("upstream is gone")
        if prompt == "hang":
            await self.stopped.wait()
            self.stopped = anyio.Event()
        yield str(self.messages) if prompt == "history" else "hello"


class Adapter:
    def __init__(self, agent: Agent, *, counts: bool = False) -> None:
        self.agent = agent
        self.counts = counts

    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        composer = Composer()
        async for delta in self.agent.answer(str(input.messages[-1].content), input.state):
            for event in composer.text(delta):
                yield event
        if self.counts:
            for event in composer.state({"runs": len(self.agent.messages)}):
                yield event
        for event in composer.close():
            yield event

    async def interrupt(self) -> None:
        self.agent.stopped.set()


class Bridge(PlatformBridge):
    def __init__(self, create: Callable[[], Any]) -> None:
        self.create = create

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Any:
        return self.create()


class TestToyBridge(BridgeContract):
    """A bridge of another package, as its author would test it."""

    block_timeout = scaled(5)
    history_prompt = "history"

    def create_bridge(self) -> PlatformBridge:
        return Bridge(lambda: Adapter(Agent(), counts=True))


class BlockingAdapter:
    """Its run is a plain generator, and it blocks."""

    def __init__(self) -> None:
        self.is_stopped = False

    def run(self, input: RunAgentInput) -> Iterator[Any]:
        prompt, composer = input.messages[-1].content, Composer()
        yield from composer.text("Well, ")
        while prompt == "hang" and not self.is_stopped:
            time.sleep(0.01)
        if prompt == "crash":
            raise RuntimeError("upstream is gone")
        yield from composer.text("hello")
        yield from composer.close()

    async def interrupt(self) -> None:
        self.is_stopped = True


class TestPlainGenerator(BridgeContract):
    block_timeout = scaled(5)

    def create_bridge(self) -> PlatformBridge:
        return Bridge(BlockingAdapter)


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """End the whole process with its stacks if the block hangs: nothing else ends a loop that does not close."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


SHARED = "Two threads share an agent object"


def contract_of(create: Callable[[], Any], history_prompt: str = "", **attributes: Any) -> BridgeContract:
    class Contract(BridgeContract):
        hang_timeout = 60.0

        def create_bridge(self) -> PlatformBridge:
            return Bridge(create)

    Contract.history_prompt = history_prompt
    for name, value in attributes.items():
        setattr(Contract, name, value)
    return Contract()


def failure_of(create: Callable[[], Any], test: str, **attributes: Any) -> str:
    """Run one test of the contract and return the text of its failure."""
    with pytest.raises(AssertionError) as raised:
        getattr(contract_of(create, **attributes), test)()
    return str(raised.value)


def shared(**options: Any) -> Callable[[], Adapter]:
    """An agent object that serves every thread: the bug that the contract has to find."""
    agents: list[Agent] = []

    def create() -> Adapter:
        # Each bridge of a test gets an agent of its own: `create` is called once or twice per bridge.
        agents.append(Agent())
        return Adapter(agents[0], **options)

    return create


def test_an_agent_whose_state_two_users_share_is_found() -> None:
    failure = failure_of(shared(counts=True), "test_a_user_sees_nothing_of_another_user")
    assert "depends on the runs of another user" in failure
    assert SHARED in failure


def test_an_agent_whose_history_two_users_share_is_found_with_a_history_prompt() -> None:
    contract_of(shared()).test_a_user_sees_nothing_of_another_user()
    failure = failure_of(shared(), "test_a_user_sees_nothing_of_another_user", history_prompt="history")
    assert "history of another user" in failure
    assert SHARED in failure


def test_a_history_prompt_that_proves_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="history_prompt"):
        contract_of(lambda: Adapter(Agent()), "something else").test_a_user_sees_nothing_of_another_user()


def test_a_stop_that_ends_the_run_of_another_thread_is_found() -> None:
    failure = failure_of(shared(), "test_a_stop_ends_only_its_own_thread")
    assert "Stopping one thread ended the run of another" in failure
    assert SHARED in failure


def test_an_adapter_that_serves_two_threads_is_found() -> None:
    adapter = Adapter(Agent())
    with pytest.raises(AssertionError, match="new object for each thread"):
        contract_of(lambda: adapter).test_every_thread_has_its_own_adapter()


class SwallowsCancellation(Adapter):
    """It catches CancelledError and goes on, until the end of the test."""

    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        for event in Composer().text("Well, "):
            yield event
        while True:
            with suppress(asyncio.CancelledError):
                await anyio.sleep(3600)

    interrupt = None  # type: ignore[assignment]


class KeepsUpstreamOpen(Adapter):
    """It keeps the framework's stream in itself and does not close it."""

    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        composer = Composer()
        self.upstream = self.agent.answer(str(input.messages[-1].content), input.state)
        async for delta in self.upstream:
            for event in composer.text(delta):
                yield event


class Blocks(Adapter):
    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        time.sleep(0.8)  # noqa: ASYNC251  the fault
        async for event in super().run(input):
            yield event


class Yields(Adapter):
    """It yields these events, whatever the input is."""

    def __init__(self, *events: Any) -> None:
        super().__init__(Agent())
        self.events = events

    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        for event in self.events:
            yield event


START = {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}
CONTENT = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "hello"}
END = {"type": "TEXT_MESSAGE_END", "messageId": "m1"}
LEGAL = "test_the_events_of_a_run_are_legal"


def test_an_adapter_that_swallows_its_cancellation_fails_and_does_not_hang() -> None:
    """The contract did not end: asyncio waits for all tasks before it closes a loop."""
    with time_limit(30):
        failure = failure_of(lambda: SwallowsCancellation(Agent()), "test_a_stop_ends_the_run")
    assert (
        "did not end within 2 s after they were cancelled: SwallowsCancellation.run (tests/testing/test_bridge.py, line"
        in failure
    )
    assert "Raise asyncio.CancelledError again" in failure


def test_a_test_that_hangs_reports_where() -> None:
    with time_limit(30):
        failure = failure_of(lambda: Hangs(Agent()), LEGAL, hang_timeout=0.5)
    assert "did not end within 0.5 s" in failure
    assert "Hangs.run (tests/testing/test_bridge.py, line " in failure


class Hangs(Adapter):
    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        await anyio.sleep_forever()
        yield START


def test_an_upstream_generator_that_stays_open_is_found() -> None:
    failure = failure_of(lambda: KeepsUpstreamOpen(Agent()), "test_closing_the_events_early_leaves_no_task")
    assert "async generators open: Agent.answer (tests/testing/test_bridge.py, line " in failure
    assert "aclosing" in failure


def test_an_end_of_another_message_is_found_and_its_rule_is_named() -> None:
    failure = failure_of(lambda: Yields(START, CONTENT, END | {"messageId": "other"}), LEGAL)
    assert failure.startswith("TEXT_MESSAGE_END is out of order: nothing with this id is open")
    assert '"messageId":"other"' in failure
    assert 'ambient_repairs_total{rule="text-not-open"}' in failure
    assert "Composer" in failure


def test_a_message_that_never_ends_is_found() -> None:
    failure = failure_of(lambda: Yields(START, CONTENT), LEGAL)
    assert failure.startswith("TEXT_MESSAGE_END is missing: the run ended before this was closed")
    assert '"messageId":"m1"' in failure
    assert 'rule="left-open"' in failure


def test_a_message_id_that_every_run_uses_again_is_found() -> None:
    failure = failure_of(lambda: Yields(START, CONTENT, END), LEGAL)
    assert "an earlier message or call of the thread has this id" in failure
    assert 'rule="id-reused"' in failure


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([{"type": "CUSTOM", "name": "ambient:repo_added", "value": {}}, START], "reserved-name"),
        ([START | {"role": "system"}], "text-role"),
    ],
)
def test_an_event_in_the_name_of_others_is_found(events: list[Any], rule: str) -> None:
    failure = failure_of(lambda: Yields(*events, CONTENT, END), LEGAL)
    assert failure.startswith(f"{events[0]['type']} is not the agent's to send")
    assert f'ambient_repairs_total{{rule="{rule}"}}' in failure


def test_chunks_are_legal_and_need_no_end() -> None:
    contract_of(lambda: YieldsChunk(Agent())).test_the_events_of_a_run_are_legal()


class YieldsChunk(Adapter):
    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": uuid.uuid4().hex, "role": "assistant", "delta": "hello"}


@pytest.mark.parametrize("test", [LEGAL, "test_two_threads_run_at_the_same_time"])
def test_an_adapter_that_blocks_the_event_loop_is_found(test: str) -> None:
    failure = failure_of(lambda: Blocks(Agent()), test, block_timeout=0.2)
    assert failure.startswith("The bridge blocks the event loop: Blocks.run (tests/testing/test_bridge.py, line ")
    assert "asyncio.to_thread" in failure


def test_creating_the_bridge_may_block() -> None:
    class Contract(BridgeContract):
        block_timeout = scaled(1)

        def create_bridge(self) -> PlatformBridge:
            time.sleep(1.5 * self.block_timeout)
            return Bridge(lambda: Adapter(Agent()))

    Contract().test_capabilities_are_declared()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "TEXT_MESAGE_START"}, "there is no type TEXT_MESAGE_START. Did you mean TEXT_MESSAGE_START?"),
        ({"messageId": "m1"}, "it has no `type`."),
        ({"type": "TEXT_MESSAGE_END"}, "TEXT_MESSAGE_END.messageId: Field required."),
        ("hello", "expected an AG-UI event, not str."),
    ],
)
@pytest.mark.parametrize("test", [LEGAL, "test_closing_the_events_early_leaves_no_task"])
def test_something_that_is_no_event_is_shown_with_the_reason(test: str, event: Any, reason: str) -> None:
    failure = failure_of(lambda: Yields(event), test)
    assert f"not an AG-UI event: {reason} It was {event!r}." in failure
    assert len(failure) < 400


@pytest.mark.parametrize(
    "test",
    ["test_a_stop_ends_the_run", "test_two_threads_run_at_the_same_time", "test_a_stop_ends_only_its_own_thread"],
)
def test_an_agent_that_ignores_the_endless_prompt_is_found(test: str) -> None:
    failure = failure_of(lambda: Adapter(Agent()), test, endless_prompt="not known")
    assert failure.startswith(
        "The agent ended on endless_prompt ('not known') by itself, with RUN_FINISHED, outcome success."
    )
    assert "run until it is stopped" in failure
    assert SHARED not in failure


def test_a_failing_run_names_the_error_of_the_adapter() -> None:
    failure = failure_of(lambda: Adapter(Agent()), LEGAL, text_prompt="crash")
    assert "RUN_ERROR agent_error" in failure
    assert "because the adapter raised RuntimeError: upstream is gone (tests/testing/test_bridge.py, line " in failure


def test_an_error_turned_into_text_is_found() -> None:
    failure = failure_of(
        lambda: Adapter(Agent()), "test_a_crash_is_an_error_and_the_thread_goes_on", crash_prompt="not known"
    )
    assert "crash_prompt ('not known') ended with RUN_FINISHED" in failure


class AsyncBridge(Bridge):
    async def create_adapter(self, ctx: PlatformContext) -> Any:  # type: ignore[override]
        return self.create()


class ReturnsList(Adapter):
    async def run(self, input: RunAgentInput) -> Any:  # type: ignore[override]
        composer = Composer()
        return [*composer.text("hello"), *composer.close()]


def test_a_bridge_of_the_wrong_shape_is_described() -> None:
    class Contract(BridgeContract):
        def create_bridge(self) -> PlatformBridge:
            return AsyncBridge(lambda: Adapter(Agent()))

    with pytest.raises(TypeError, match=r"AsyncBridge\.create_adapter is a coroutine function"):
        Contract().test_every_thread_has_its_own_adapter()
    with pytest.raises(TypeError, match=r"Bridge\.create_adapter returned object, which has no method `run\(input\)`"):
        contract_of(object).test_every_thread_has_its_own_adapter()
    assert "without an event" in failure_of(Yields, "test_closing_the_events_early_leaves_no_task")


def test_a_run_may_return_a_list() -> None:
    contract_of(lambda: ReturnsList(Agent())).test_the_events_of_a_run_are_legal()


def test_a_failure_shows_only_the_test_and_its_text() -> None:
    with pytest.raises(AssertionError) as raised:
        contract_of(lambda: Yields(START, CONTENT)).test_the_events_of_a_run_are_legal()
    shown = raised.traceback.filter(raised)
    assert [entry.name for entry in shown][1:] == [LEGAL]


def test_a_contract_without_a_bridge_reports_what_to_override() -> None:
    with pytest.raises(NotImplementedError, match="create_bridge"):
        BridgeContract().test_capabilities_are_declared()


def test_a_bridge_of_another_package_in_the_environment_is_skipped() -> None:
    class Request:
        param = "of_another_package"

    contract = test_bridges.TestRegisteredBridges()
    select = test_bridges.TestRegisteredBridges.__dict__["_select"]
    with pytest.raises(pytest.skip.Exception, match="of_another_package"):
        getattr(select, "__wrapped__", select)(contract, Request())
