"""The shipped contract fails for bridges that break it, each in one way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit import Composer
from ambient_runner.testing import BridgeContract
from tests.contract import test_bridges


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
    def create_bridge(self) -> PlatformBridge:
        return Bridge(BlockingAdapter)


def contract_of(create: Callable[[], Any], history_prompt: str = "") -> BridgeContract:
    class Contract(BridgeContract):
        hang_timeout = 60.0

        def create_bridge(self) -> PlatformBridge:
            return Bridge(create)

    Contract.history_prompt = history_prompt
    return Contract()


def shared(**options: Any) -> Callable[[], Adapter]:
    """An agent object that serves every thread: the bug that the contract has to find."""
    agents: list[Agent] = []

    def create() -> Adapter:
        # Each bridge of a test gets an agent of its own: `create` is called once or twice per bridge.
        agents.append(Agent())
        return Adapter(agents[0], **options)

    return create


def test_an_agent_whose_state_two_users_share_is_found() -> None:
    with pytest.raises(AssertionError, match="share an agent object"):
        contract_of(shared(counts=True)).test_a_user_sees_nothing_of_another_user()


def test_an_agent_whose_history_two_users_share_is_found_with_a_history_prompt() -> None:
    contract_of(shared()).test_a_user_sees_nothing_of_another_user()
    with pytest.raises(AssertionError, match="history of another user"):
        contract_of(shared(), "history").test_a_user_sees_nothing_of_another_user()


def test_a_history_prompt_that_proves_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="history_prompt"):
        contract_of(lambda: Adapter(Agent()), "something else").test_a_user_sees_nothing_of_another_user()


def test_a_stop_that_ends_the_run_of_another_thread_is_found() -> None:
    with pytest.raises(AssertionError, match="ended the run of another"):
        contract_of(shared()).test_a_stop_ends_only_its_own_thread()


def test_an_adapter_that_serves_two_threads_is_found() -> None:
    adapter = Adapter(Agent())
    with pytest.raises(AssertionError, match="new object for each thread"):
        contract_of(lambda: adapter).test_every_thread_has_its_own_adapter()


def test_a_contract_without_a_bridge_says_what_to_override() -> None:
    with pytest.raises(NotImplementedError, match="create_bridge"):
        BridgeContract().test_capabilities_are_declared()


def test_a_bridge_of_another_package_in_the_environment_is_skipped() -> None:
    class Request:
        param = "of_another_package"

    contract = test_bridges.TestRegisteredBridges()
    select = test_bridges.TestRegisteredBridges.__dict__["_select"]
    with pytest.raises(pytest.skip.Exception, match="of_another_package"):
        getattr(select, "__wrapped__", select)(contract, Request())
