from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import aclosing
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ambient_runner.bridges.toolkit import iterate_in_thread
from tests.machine_speed import unless_hung

NAME: ContextVar[str] = ContextVar("name", default="")


async def test_each_step_runs_in_another_thread_with_the_context_of_the_caller() -> None:
    def values() -> Iterator[tuple[bool, str]]:
        for _ in range(3):
            yield threading.current_thread() is threading.main_thread(), NAME.get()

    NAME.set("caller")
    assert [value async for value in iterate_in_thread(values())] == [(False, "caller")] * 3


async def test_an_error_of_the_generator_reaches_the_caller() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    async with aclosing(iterate_in_thread(values())) as stream:
        assert await anext(stream) == 1
        with pytest.raises(ValueError, match="broken"):
            await anext(stream)


async def test_closing_early_closes_the_generator() -> None:
    closed = threading.Event()

    def values() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.set()

    async with aclosing(iterate_in_thread(values())) as stream:
        assert await anext(stream) == 1
    assert closed.is_set()


async def test_a_step_that_blocks_does_not_hold_up_a_cancellation_and_closes_the_generator_later() -> None:
    release, closed, blocked = threading.Event(), threading.Event(), threading.Event()

    def values() -> Iterator[int]:
        try:
            blocked.set()
            release.wait(60)
            yield 1
        finally:
            closed.set()

    with unless_hung():
        async with anyio.create_task_group() as tasks:

            async def consume() -> None:
                async with aclosing(iterate_in_thread(values())) as stream:
                    async for _ in stream:
                        raise AssertionError

            tasks.start_soon(consume)
            await anyio.to_thread.run_sync(blocked.wait)
            tasks.cancel_scope.cancel()
        assert not closed.is_set()
        release.set()
        await anyio.to_thread.run_sync(closed.wait)


async def test_other_tasks_go_on_while_a_step_blocks() -> None:
    release = threading.Event()

    def values() -> Iterator[int]:
        assert release.wait(60)
        yield 1

    with unless_hung():
        async with anyio.create_task_group() as tasks:

            async def consume() -> None:
                assert [value async for value in iterate_in_thread(values())] == [1]

            tasks.start_soon(consume)
            await anyio.lowlevel.checkpoint()
            release.set()
