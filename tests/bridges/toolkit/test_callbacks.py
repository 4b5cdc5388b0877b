"""Hooks of every kind."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

import anyio
import pytest

from ambient_runner.bridges.toolkit.callbacks import (
    call_hook,
    hook_error,
    required_parameters,
    stream_hook,
    try_hook,
    try_stream,
)
from ambient_runner.protocol.events import Custom
from ambient_runner.protocol.reserved_events import PlatformEvent
from tests.machine_speed import unless_hung


async def listed(values: AsyncGenerator[Any, None]) -> list[Any]:
    async with aclosing(values):
        return [value async for value in values]


async def slow(n: int) -> int:
    await anyio.lowlevel.checkpoint()
    return n + 1


class Adder:
    def __call__(self, n: int) -> int:
        return n + 1


class AsyncAdder:
    async def __call__(self, n: int) -> int:
        return n + 1


@pytest.mark.parametrize(
    "hook",
    [lambda n: n + 1, slow, Adder(), AsyncAdder(), partial(slow), lambda n: slow(n)],
    ids=["lambda", "async", "object", "async-object", "partial", "lambda-of-async"],
)
async def test_a_hook_may_be_any_callable(hook: Callable[[int], Any]) -> None:
    assert await call_hook(hook, 1) == 2


async def agen(n: int) -> AsyncGenerator[int, None]:
    yield n
    yield n + 1


def gen(n: int) -> Iterator[int]:
    yield n
    yield n + 1


async def coroutine_of(value: Any) -> Any:
    return value


class Stream:
    """An async iterator that is no generator and cannot be closed."""

    def __init__(self, *values: int) -> None:
        self._values = list(values)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> int:
        if not self._values:
            raise StopAsyncIteration
        return self._values.pop(0)


class AwaitableStream(Stream):
    """What some SDKs give: it can be awaited and iterated. Iterating is what was meant."""

    def __await__(self) -> Any:
        raise NotImplementedError


EVENT = Custom(name="x:y", value={"a": 1})


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (agen, [1, 2]),
        (gen, [1, 2]),
        (lambda n: [n, n + 1], [1, 2]),
        (lambda n: (n, n + 1), [1, 2]),
        (lambda n: Stream(n, n + 1), [1, 2]),
        (lambda n: AwaitableStream(n, n + 1), [1, 2]),
        (lambda n: coroutine_of(agen(n)), [1, 2]),
        (lambda n: coroutine_of(gen(n)), [1, 2]),
        (lambda n: coroutine_of([n]), [1]),
        (lambda n: coroutine_of(n), [1]),
        (lambda n: None, []),
        (lambda n: coroutine_of(None), []),
        (lambda n: [], []),
        (lambda n: "text", ["text"]),
        (lambda n: {"a": n}, [{"a": 1}]),
        (lambda n: EVENT, [EVENT]),
        (lambda n: False, [False]),
    ],
)
async def test_every_value_of_a_hook_is_yielded_separately(hook: Callable[[int], Any], expected: list[Any]) -> None:
    assert await listed(stream_hook(hook, 1)) == expected


async def test_a_hook_whose_caller_stops_early_is_closed() -> None:
    closed: list[str] = []

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                yield 1
        finally:
            closed.append("async")

    def endless_too() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("sync")

    for hook in (endless, endless_too):
        async with aclosing(stream_hook(hook)) as values:
            assert await anext(values) == 1
    assert closed == ["async", "sync"]


def fails(*_: Any) -> Any:
    raise ValueError("secret detail")


async def fails_later() -> AsyncGenerator[int, None]:
    yield 1
    raise ValueError("secret detail")


async def test_a_hook_that_fails_is_named_to_clients_and_explained_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        value, events = await try_hook("state_from_args", fails, 1, tool="paint")
    assert value is None
    assert events == [PlatformEvent(name="ambient:hook_error", value={"hook": "state_from_args", "tool": "paint"})]
    assert "secret detail" in caplog.text


async def test_a_hook_that_works_has_nothing_to_report() -> None:
    assert await try_hook("h", slow, 1) == (2, [])
    assert await listed(try_stream("h", agen, 1)) == [1, 2]


@pytest.mark.parametrize(("hook", "before"), [(fails, []), (fails_later, [1])])
async def test_a_stream_that_fails_ends_with_the_report(hook: Callable[[], Any], before: list[int]) -> None:
    assert await listed(try_stream("h", hook)) == [*before, hook_error("h")]


async def test_a_hook_can_be_cancelled() -> None:
    started = anyio.Event()

    async def waits() -> None:
        started.set()
        await anyio.sleep_forever()

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(try_hook, "h", waits)
            await started.wait()
            tasks.cancel_scope.cancel()


class Maker:
    def __init__(self, first: Any, second: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda: None, []),
        (lambda first: None, ["first"]),
        (lambda first, /, second: None, ["first", "second"]),
        (lambda model="small": None, []),
        (lambda *args, **options: None, []),
        (lambda *, only: None, []),
        (partial(lambda first, second: None, 1), ["second"]),
        (Maker, ["first"]),
        (Adder(), ["n"]),
        (dict, []),
    ],
    ids=["none", "one", "two", "default", "any", "keyword", "partial", "class", "object", "no signature"],
)
def test_the_arguments_a_call_has_to_give(function: Callable[..., Any], names: list[str]) -> None:
    assert [one.name for one in required_parameters(function)] == names
