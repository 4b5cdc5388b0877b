"""Middleware of a server, and the middleware a bridge brings along."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import ag_ui.core
import msgspec
import pytest

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.errors import BridgeError, BridgeTimeout, ProtocolViolation
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.events import Custom, Event, RunError, RunFinished, TextMessageContent, type_of
from ambient_runner.runs.run import Middleware, Run, RunHandler, current_run
from ambient_runner.runs.runner import Runner
from tests.scripts import hello
from tests.world import SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, said, user


def marking(mark: str) -> Middleware:
    """Puts a mark on every piece of text."""

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            async for event in handler(run):
                if isinstance(event, TextMessageContent):
                    event = msgspec.structs.replace(event, delta=event.delta + mark)
                yield event

        return handle

    return wrap


def texts(events: list[Event]) -> list[str]:
    return [event.delta for event in events if isinstance(event, TextMessageContent)]


async def test_the_bridges_own_middleware_is_inside_the_servers_and_the_first_is_the_outermost() -> None:
    agent = ScriptedAgent(hello, middleware=[marking("2"), marking("1")])
    async with runner_of(agent, middleware=[marking("4"), marking("3")]) as runner:
        events = await run_once(runner, user("u1"))
    assert texts(events) == ["hel1234", "lo1234"]


async def test_it_sees_the_whole_frame_and_the_run_it_belongs_to() -> None:
    seen: list[str] = []

    def watching(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            assert current_run() is run
            async for event in handler(run):
                seen.append(type_of(event))
                yield event

        return handle

    async with runner_of(ScriptedAgent(hello, middleware=[watching])) as runner:
        await run_once(runner, user("u1"))
    assert (seen[0], seen[-2:]) == ("RUN_STARTED", ["MESSAGES_SNAPSHOT", "RUN_FINISHED"])


async def test_one_that_fails_ends_the_run_like_an_agent_that_fails() -> None:
    def failing(error: Exception) -> Middleware:
        def wrap(handler: RunHandler) -> RunHandler:
            async def handle(run: Run) -> AsyncGenerator[Event, None]:
                async for event in handler(run):
                    yield event
                    if isinstance(event, TextMessageContent):
                        raise error

            return handle

        return wrap

    for error, code in ((ValueError("secret detail"), BridgeError.code), (BridgeTimeout(), BridgeTimeout.code)):
        async with runner_of(ScriptedAgent(hello, middleware=[failing(error)])) as runner:
            events = await run_once(runner, user("u1"))
            again = await run_once(runner, user("u2"))
        end = events[-1]
        assert isinstance(end, RunError)
        assert (end.code, "secret" in end.message) == (code, False)
        assert texts(events) == ["hel"]
        assert isinstance(again[-1], RunError)


async def test_one_that_cannot_even_wrap_fails_the_run_and_not_the_server() -> None:
    def broken(handler: RunHandler) -> RunHandler:
        raise ValueError

    async with runner_of(ScriptedAgent(hello, middleware=[broken])) as runner:
        events = await run_once(runner, user("u1"))
    assert isinstance(events[-1], RunError)


async def _handler_of_nothing(run: Run) -> None: ...


def _one_event(event: Any) -> Middleware:
    """Return middleware that yields `event` before the terminal event."""

    def yielding(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Any, None]:
            async with aclosing(handler(run)) as events:
                async for passed in events:
                    if isinstance(passed, RunFinished):
                        yield event
                    yield passed

        return handle

    return yielding


def returns_nothing(handler: RunHandler) -> Any:
    return None


def returns_a_coroutine(handler: RunHandler) -> Any:
    return _handler_of_nothing


def returns_a_list(handler: RunHandler) -> Any:
    return lambda run: []


@pytest.mark.parametrize("wrong", [returns_nothing, returns_a_coroutine, returns_a_list])
@pytest.mark.parametrize("around", [(), (marking("!"),)])
async def test_the_log_names_middleware_that_returns_no_run_handler(
    wrong: Any, around: tuple[Middleware, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with runner_of(ScriptedAgent(hello), middleware=[*around, wrong, marking("?")]) as runner:
        events = await run_once(runner, user("u1"))
    assert events[-1] == msgspec.structs.replace(
        RunError(message=BridgeError().message, code=BridgeError.code), timestamp=events[-1].timestamp
    )
    (failed,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{__name__}.{wrong.__qualname__}" in (failed.exc_text or "").splitlines()[-1]


async def test_middleware_may_yield_events_of_ag_ui(caplog: pytest.LogCaptureFixture) -> None:
    added = [
        ag_ui.core.CustomEvent(name="mine:total", value=3),
        {"type": "CUSTOM", "name": "mine:total", "value": 3},
        Custom(name="mine:total", value=3),
    ]
    for event in added:
        async with runner_of(ScriptedAgent(hello), middleware=[marking("!"), _one_event(event)]) as runner:
            events = await run_once(runner, user("u1"))
        assert [(e.name, e.value) for e in events if isinstance(e, Custom)] == [("mine:total", 3)]
        assert isinstance(events[-1], RunFinished)
    assert caplog.records == []


async def test_a_terminal_event_of_ag_ui_ends_the_run() -> None:
    event = ag_ui.core.RunErrorEvent(message="Used up.", code="mine_budget")
    async with runner_of(ScriptedAgent(hello), middleware=[_one_event(event)]) as runner:
        events = await run_once(runner, user("u1"))
    assert isinstance(events[-1], RunError)
    assert (events[-1].message, events[-1].code) == ("Used up.", "mine_budget")


@pytest.mark.parametrize(
    "value", ["text", None, {"type": "NONSENSE"}, ag_ui.core.CustomEvent(name="x", value=object())]
)
async def test_the_log_names_middleware_that_yields_no_event(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with runner_of(ScriptedAgent(hello), middleware=[_one_event(value)]) as runner:
        events = await run_once(runner, user("u1"))
    assert isinstance(events[-1], RunError)
    assert events[-1].code == ProtocolViolation.code
    (failed,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{__name__}._one_event" in (failed.exc_text or "")


class Shouting(PlatformBridge):
    """A bridge with middleware of its own; the adapter is the bridge."""

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Any:
        return self

    def middleware(self) -> Sequence[Middleware]:
        return [marking("!")]

    async def run(self, input: Any) -> AsyncIterator[Event]:
        for event in said("m1", "hi"):
            yield event


async def test_a_bridge_brings_its_middleware_to_its_own_runs_only() -> None:
    agents = {"agent": AgentHost("agent", Shouting()), "other": ScriptedAgent(hello)}
    async with MemoryLedger() as ledger, Runner(ledger, agents, SETTINGS) as runner:
        loud = await run_once(runner, user("u1"))
        start_request = dataclasses.replace(request(user("u1"), thread="o"), agent="other")
        quiet = await events_of(runner, await runner.start(start_request))
    assert texts(loud) == ["hi!"]
    assert texts(quiet) == ["hel", "lo"]
    assert isinstance(quiet[-1], RunFinished)
