"""What every bridge must do, run for each one that is registered. A new bridge is found here by its entry point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import entry_points
from typing import Any

import pytest

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.registry import load_agent
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.agui_models import coerce_event, input_to_agui
from ambient_runner.protocol.events import RunAgentInput, RunError, RunFinished
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.runner import Runner
from tests.machine_speed import promised_within, unless_hung
from tests.world import KEY, SETTINGS, events_of, request, user

PROMPTS = {
    "adk": {"text": "say hello there", "crash": "crash", "endless": "hang"},
    "agui": {"text": "say hello there", "crash": "crash", "endless": "hang"},
    "claude": {"text": "say hello there", "crash": "gnu crashes", "endless": "gnu goes on"},
    "demo": {"text": "say hello there", "crash": "crash", "endless": "hang"},
    "langgraph": {"text": "say hello there", "crash": "crash", "endless": "hang"},
    "remote": {"text": "say hello there", "crash": "crash", "endless": "hang"},
    "strands": {"text": "say hello there", "crash": "crash", "endless": "hang"},
}
"""What makes each bridge's scripted upstream answer with text, fail in the middle, and go on for ever."""

SCRIPTED = {
    "adk": "tests.bridges.adk.contract:scripted_agent",
    "claude": "tests.bridges.claude.contract:scripted_bridge",
    "agui": "tests.bridges.agui.contract:scripted_bridge",
    "langgraph": "tests.bridges.langgraph.contract:scripted_graph",
    "remote": "tests.bridges.remote.contract:scripted_bridge",
    "strands": "tests.bridges.strands.contract:scripted_bridge",
}
"""Where a bridge that needs a framework's agent gets one: the real framework, with a model that is scripted."""

BRIDGES = sorted({point.name for point in entry_points(group="ambient_runner.bridges")} | SCRIPTED.keys())
"""Those that have a name of their own, and those that are nothing without an agent."""


@pytest.fixture(params=BRIDGES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def bridge(name: str) -> PlatformBridge:
    return load_agent(f"scripted={SCRIPTED.get(name, name)}")[1]


def context() -> PlatformContext:
    return PlatformContext(session_id="t")


def asking(text: str) -> Any:
    return input_to_agui(RunAgentInput(thread_id="t", run_id="r", messages=[user("u1", text)]))


@asynccontextmanager
async def hosted(bridge: PlatformBridge) -> AsyncGenerator[Runner, None]:
    async with MemoryLedger() as ledger, Runner(ledger, {"agent": AgentHost("agent", bridge)}, SETTINGS) as runner:
        yield runner


def test_it_declares_its_capabilities(bridge: PlatformBridge) -> None:
    assert isinstance(bridge.capabilities(), FrameworkCapabilities)


async def test_its_events_are_events_and_a_run_of_them_verifies(name: str, bridge: PlatformBridge) -> None:
    async with hosted(bridge) as runner:
        with unless_hung():
            events = await events_of(runner, await runner.start(request(user("u1", PROMPTS[name]["text"]))))
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    assert isinstance(events[-1], RunFinished)


async def test_closing_its_events_early_leaves_no_task(name: str, bridge: PlatformBridge) -> None:
    adapter = bridge.create_adapter(context())
    before = asyncio.all_tasks()
    async with aclosing(adapter.run(asking(PROMPTS[name]["endless"]))) as events:
        with unless_hung():
            coerce_event(await anext(events))
    assert asyncio.all_tasks() == before


async def test_a_stop_ends_it_within_the_grace(name: str, bridge: PlatformBridge) -> None:
    async with hosted(bridge) as runner:
        started = await runner.start(request(user("u1", PROMPTS[name]["endless"])))
        with promised_within(SETTINGS.timeouts.grace + 5):
            await runner.stop(KEY)
            assert isinstance((await events_of(runner, started))[-1], RunFinished)


async def test_a_crash_of_its_upstream_is_an_error_and_the_thread_goes_on(name: str, bridge: PlatformBridge) -> None:
    async with hosted(bridge) as runner:
        with unless_hung():
            crashed = await events_of(runner, await runner.start(request(user("u1", PROMPTS[name]["crash"]))))
            next_run = await events_of(runner, await runner.start(request(user("u2", PROMPTS[name]["text"]))))
    assert isinstance(crashed[-1], RunError)
    assert isinstance(next_run[-1], RunFinished)


async def test_two_threads_at_once_do_not_mix(name: str, bridge: PlatformBridge) -> None:
    async with hosted(bridge) as runner:
        with unless_hung():
            runs = [
                await runner.start(request(user("u1", PROMPTS[name]["text"]), thread=thread)) for thread in ("a", "b")
            ]
            streams = [await events_of(runner, started) for started in runs]
    threads = [event.thread_id for stream in streams for event in stream if isinstance(event, RunFinished)]
    assert threads == ["a", "b"]
