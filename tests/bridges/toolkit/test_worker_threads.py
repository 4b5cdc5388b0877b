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
from tests.machine_speed import HANG_SECONDS, unless_hung

NAME: ContextVar[str] = ContextVar("name", default="")


async def test_each_step_runs_in_another_thread_with_the_context_of_the_caller() -> None:
    def values() -> Iterator[tuple[bool, str]]:
        for _ in range(3):
            yield threading.current_thread() is threading.main_thread(), NAME.get()

    NAME.set("caller")
    assert [value async for value in iterate_in_thread(values())] == [(False, "caller")] * 3


async def test_all_steps_and_the_close_of_every_generator_run_in_one_thread_and_one_context() -> None:
    """Each step ran in whichever worker was idle, in a context of its own: locks, SQLite connections and `reset(token)` failed."""
    everyone, threads = threading.Barrier(6), list[set[int]]()

    def values() -> Iterator[str]:
        token, lock, seen = NAME.set("generator"), threading.RLock(), {threading.get_ident()}
        threads.append(seen)
        with lock:
            try:
                for _ in range(10):
                    everyone.wait(HANG_SECONDS)
                    yield NAME.get()
                    seen.add(threading.get_ident())
            finally:
                seen.add(threading.get_ident())
                NAME.reset(token)

    async def consume() -> None:
        async with aclosing(iterate_in_thread(values())) as stream:
            assert [await anext(stream) for _ in range(10)] == ["generator"] * 10

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(consume)
    assert [len(seen) for seen in threads] == [1] * 6
    assert len(set[int]().union(*threads)) == 6
    assert NAME.get() == ""


async def test_generators_that_block_do_not_hold_up_others() -> None:
    """At most 256 steps ran at the same time."""
    release = threading.Event()

    def blocked() -> Iterator[int]:
        release.wait(HANG_SECONDS)
        yield 1

    async def consume(iterator: Iterator[int]) -> list[int]:
        return [value async for value in iterate_in_thread(iterator)]

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            for _ in range(300):
                tasks.start_soon(consume, blocked())
            await anyio.wait_all_tasks_blocked()
            assert await consume(iter([1, 2])) == [1, 2]
            release.set()


async def test_a_generator_may_run_an_event_loop_of_its_own() -> None:
    async def answer() -> int:
        return 1

    def values() -> Iterator[int]:
        yield anyio.run(answer)

    assert [value async for value in iterate_in_thread(values())] == [1]


async def test_a_generator_that_blocks_forever_does_not_keep_the_process_alive() -> None:
    """The interpreter joins every thread that is not a daemon before it exits."""
    release, threads = threading.Event(), list[threading.Thread]()

    def values() -> Iterator[bool]:
        threads.append(threading.current_thread())
        yield True
        release.wait(HANG_SECONDS)

    with unless_hung():
        async with aclosing(iterate_in_thread(values())) as stream:
            await anext(stream)
            assert threads[0].daemon
            release.set()
        assert [value async for value in stream] == []


async def test_the_thread_ends_with_its_generator() -> None:
    threads: list[threading.Thread] = []

    def values() -> Iterator[int]:
        threads.append(threading.current_thread())
        yield 1

    with unless_hung():
        assert [value async for value in iterate_in_thread(values())] == [1]
        await anyio.to_thread.run_sync(threads[0].join)


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


async def test_other_tasks_continue_while_a_step_blocks() -> None:
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
