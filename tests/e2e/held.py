"""Inside a server under test: runs that are held where a message says, and doors that tell what the server holds.

A message `cut 3` holds its run after three events, and an event that says so, until it is stopped or `POST /go/{thread}` comes.
`leaving.py` is the client's side.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.protocol.events import Custom, RunStarted, UserMessage
from ambient_runner.runs.containment import _contain_exit
from ambient_runner.runs.pipeline import is_written
from ambient_runner.runs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from fastapi import FastAPI

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Run, RunHandler
    from ambient_runner.server.runtime import ServerRuntime

HELD = "held"
"""Name of the event that is sent when a run is held."""
_SETTLES_WITHIN = 60.0  # seconds

gates: dict[str, anyio.Event] = defaultdict(anyio.Event)


def holding(handler: RunHandler) -> RunHandler:
    """Middleware: hold a run where its message says."""

    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        at, count = _place(run), 0
        async with aclosing(handler(run)) as events:
            async for event in events:
                yield event
                count += isinstance(event, RunStarted) or is_written(event)
                if count == at:
                    at = 0
                    yield Custom(name=HELD, value=None)
                    await _released(run)

    return handle


def _place(run: Run) -> int:
    newest = run.input.messages[-1]
    words = str(newest.content) if isinstance(newest, UserMessage) else ""
    return int(words.removeprefix("cut ")) if words.startswith("cut ") else 0


async def _released(run: Run) -> None:
    async with anyio.create_task_group() as tasks:
        for event in (gates[run.thread.id], run.stopping):
            tasks.start_soon(_first, event, tasks.cancel_scope)


async def _first(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def add_doors(app: FastAPI, service: ServerRuntime, *, sdk: str, playing: Callable[[], int]) -> None:
    """`POST /go/{thread}` and `GET /held`. `playing` counts the answers models have begun; `sdk` is the directory the SDK's code is in."""

    @app.post("/go/{thread}")
    async def go(thread: str) -> None:
        """Let a run go on that is held."""
        gates[thread].set()

    async def held_now() -> dict[str, Any]:
        runner = await service.ensure_runner()
        return {
            "active": len(runner._active),
            "left_behind": len(runner.uncancellable_tasks),
            "playing": playing(),
            "tasks": sorted(task.get_name() for task in _tasks_of_runs(sdk)),
            "sdk_tasks": sum(_is_of(task, sdk) for task in asyncio.all_tasks()),
        }

    @app.get("/held")
    async def held(wait: bool = False) -> dict[str, Any]:
        """What the server holds for runs; with `wait`, what it still holds when that does not end."""
        with anyio.move_on_after(_SETTLES_WITHIN if wait else 0):
            while any((await held_now()).values()):
                await asyncio.sleep(0.01)
        return await held_now()


def _tasks_of_runs(sdk: str) -> list[asyncio.Task[Any]]:
    return [
        task
        for task in asyncio.all_tasks()
        if Runner._run_task.__qualname__ in task.get_name()
        or _code_of(task) is _contain_exit.__code__
        or _is_of(task, sdk)
    ]


def _is_of(task: asyncio.Task[Any], sdk: str) -> bool:
    """Whether the SDK began this task."""
    code = _code_of(task)
    return code is not None and f"/site-packages/{sdk}/" in code.co_filename


def _code_of(task: asyncio.Task[Any]) -> Any:
    return getattr(task.get_coro(), "cr_code", None)
