"""A server of ADK agents on the real SDK with scripted models, for tests that talk to it over sockets. Run by uvicorn.

The agents of `tests/bridges/adk/test_cuts.py` by name, and `root` of `test_replicas.py`, which also tells what it has heard. A message
`cut 3` holds its run after three events until it is stopped or `POST /go/{thread}` comes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.sessions import DatabaseSessionService

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from ambient_runner.projections.memory import is_memory
from ambient_runner.protocol.events import MessagesSnapshot, UserMessage
from tests.bridges.adk.scripted import HANG, Scripted, piece, seen, text
from tests.bridges.adk.test_cuts import CASES, models, one
from tests.bridges.adk.test_replicas import answer, made

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Run, RunHandler

gates: dict[str, anyio.Event] = defaultdict(anyio.Event)


def holding(handler: RunHandler) -> RunHandler:
    """Hold a run where its message says."""

    async def handle(run: Run) -> AsyncGenerator[Event, None]:
        at, count = _place(run), 0
        async with aclosing(handler(run)) as events:
            async for event in events:
                yield event
                count += not (is_memory(event) or isinstance(event, MessagesSnapshot))
                if count == at:
                    at = 0
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


def listening(llm_request: Any) -> list[Any]:
    """As `answer`, but it tells what it has heard when it is asked to."""
    last = llm_request.contents[-1].parts[-1]
    return [json.dumps(seen(llm_request)[:-1])] if last.text == "tell" else answer(llm_request)


def root() -> LlmAgent:
    agent, _ = made()
    agent.model = Scripted.of(listening, loop=True)
    return agent


database = os.environ.get("ADK_DATABASE")
config = RunnerConfig(session_service=DatabaseSessionService(f"sqlite+aiosqlite:///{database}") if database else None)
cases = {name: make() for name, make in CASES.items()} | {"hanging": one(piece(text("A")), HANG)}
app = FastAPI()
service = add_ambient_endpoints(
    app,
    agents={"root": ADKBridge(root(), runner_config=config)} | {name: ADKBridge(one) for name, one in cases.items()},
    middleware=[holding],
)


@app.post("/go/{thread}")
async def go(thread: str) -> None:
    """Let a run go on that is held."""
    gates[thread].set()


@app.get("/held")
async def held(wait: bool = False) -> dict[str, Any]:
    """What the server holds for runs; with `wait`, of those that do not end."""
    runner = await service.runner()
    if wait and (tasks := _tasks_of_runs()):
        await asyncio.wait(tasks, timeout=5)
    return {
        "active": len(runner._active),
        "left_behind": len(runner.left_behind),
        "playing": sum(model.playing for agent in cases.values() for model in models(agent)),
        "tasks": sorted(task.get_name() for task in _tasks_of_runs()),
    }


def _tasks_of_runs() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "_own" in task.get_name() or "_contained" in repr(task.get_coro())]
