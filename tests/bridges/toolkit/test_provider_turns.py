"""A turn of a provider as a stream: order, pauses, ends and failures. The provider is a fake without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from ambient_runner.bridges.toolkit.provider import ProviderAdapter, ProviderContext, StopReason
from ambient_runner.bridges.toolkit.provider_turns import ProviderTurn
from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import Custom, Event
from tests.machine_speed import unless_hung

CONTEXT = ProviderContext(command=("x",), environment={}, cwd="/", prompt="hi", thread_id="t")


@dataclass
class FakeHandle:
    """Prints numbers unless it is paused."""

    is_paused: bool = False
    pauses: int = 0
    is_cancelled: bool = False
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    def pause_output(self) -> None:
        self.is_paused = True
        self.pauses += 1
        self.resumed.clear()

    def resume_output(self) -> None:
        self.is_paused = False
        self.resumed.set()

    def cancel(self) -> None:
        self.is_cancelled = True

    def kill(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


class FakeProvider:
    """Counts to a number, then ends, fails or hangs."""

    def __init__(self, count: int, end: StopReason | BridgeError | None = "end_turn") -> None:
        self.count = count
        self.end: StopReason | BridgeError | None = end
        self.sent = 0
        self.has_ended = False

    async def spawn(self, context: ProviderContext) -> FakeHandle:
        return FakeHandle()

    async def decode_stream(self, handle: FakeHandle, sink: Callable[[Event], None]) -> StopReason:
        try:
            while self.sent < self.count:
                sink(Custom(name="number", value=self.sent))
                self.sent += 1
                if handle.is_paused:
                    await handle.resumed.wait()
            if self.end is None:
                await asyncio.Event().wait()
            if isinstance(self.end, BridgeError):
                raise self.end
            return self.end or "end_turn"
        finally:
            self.has_ended = True


async def _turn(provider: FakeProvider) -> tuple[ProviderTurn[FakeHandle], FakeHandle]:
    adapter: ProviderAdapter[FakeHandle] = provider
    handle = await adapter.spawn(CONTEXT)
    return ProviderTurn(adapter, handle), handle


def _numbers(events: list[Event]) -> list[int]:
    return [event.value for event in events if isinstance(event, Custom)]


async def test_events_come_in_order_and_the_stop_reason_after_them() -> None:
    turn, handle = await _turn(FakeProvider(10, "max_tokens"))
    with unless_hung():
        events = [event async for event in turn.events()]
    assert _numbers(events) == list(range(10))
    assert turn.stop_reason == "max_tokens"
    assert handle.pauses == 0


async def test_the_output_is_paused_while_nobody_takes_the_events() -> None:
    provider = FakeProvider(10_000)
    turn, handle = await _turn(provider)
    with unless_hung():
        async with aclosing(turn.events()) as events:
            first = await anext(events)
            assert provider.sent < 1100
            assert handle.is_paused
            rest = [event async for event in events]
    assert _numbers([first, *rest]) == list(range(10_000))
    assert not handle.is_paused


async def test_a_failure_comes_after_the_events_before_it() -> None:
    turn, _ = await _turn(FakeProvider(3, BridgeError("no")))
    with unless_hung():
        async with aclosing(turn.events()) as events:
            seen = [await anext(events) for _ in range(3)]
            with pytest.raises(BridgeError):
                await anext(events)
    assert _numbers(seen) == [0, 1, 2]
    assert turn.stop_reason is None


@pytest.mark.parametrize("end", [None, BridgeError("never seen")])
async def test_closing_the_events_early_ends_the_task(end: BridgeError | None) -> None:
    provider = FakeProvider(3, end)
    turn, _ = await _turn(provider)
    before = asyncio.all_tasks()
    with unless_hung():
        async with aclosing(turn.events()) as events:
            await anext(events)
    assert provider.has_ended
    assert asyncio.all_tasks() == before
