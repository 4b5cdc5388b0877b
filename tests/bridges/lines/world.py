"""A thread of the fake command behind a real Runner, in a workspace of its own."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.lines.adapter import LinesAdapter
from ambient_runner.bridges.lines.bridge import LinesBridge
from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger import open_ledger
from ambient_runner.protocol.events import Event, TextMessageContent, UserMessage
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Run, Started
from ambient_runner.runs.runner import Runner
from tests.bridges.claude.world import ClaudeThread, _granting
from tests.bridges.strands.world import STREAMS, _tap
from tests.machine_speed import unless_hung
from tests.world import SETTINGS, events_of, request

__all__ = ["LINES_STREAMS", "World", "fake_bridge", "fake_command", "serve", "shown_text"]

FAKE_CLI = Path(__file__).with_name("fake_cli.py")
LINES_STREAMS: list[list[Event]] = []
"""Every run of every test here, for the official clients to judge (`tests/e2e/test_lines_streams.py`)."""


def fake_command(**options: str) -> list[str]:
    """Return the command of the fake agent. `fake_cli.py` lists its options."""
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return [sys.executable, "-I", str(FAKE_CLI), *words]


def fake_bridge(options: dict[str, str] | None = None, **settings: Any) -> LinesBridge:
    return LinesBridge(**{"command": fake_command(**(options or {})), **settings})


def shown_text(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextMessageContent))


@dataclass
class World:
    """One server: its threads, and what is behind them."""

    runner: Runner
    hosted: AgentHost
    directory: Path

    def thread(self, name: str = "t") -> ClaudeThread:
        return ClaudeThread(self.runner, name)

    def adapter(self, name: str = "t") -> LinesAdapter:
        return next(kept.adapter for slot, kept in self.hosted._adapters.items() if slot[0].id == name)

    async def stored(self, text: str, thread: str = "t", message_id: str = "u1", **options: Any) -> list[Event]:
        """Return the events that the server keeps of one run, also when it fails."""
        with unless_hung():
            message = UserMessage(id=message_id, content=text)
            return await events_of(self.runner, await self.runner.start(request(message, thread=thread, **options)))

    async def start(self, text: str, thread: str = "t", message_id: str = "u1") -> Started:
        """Start a run and return when it has sent text."""
        with unless_hung():
            started = await self.runner.start(request(UserMessage(id=message_id, content=text), thread=thread))
            async for event in follow_run(self.runner.ledger, started):
                if isinstance(event, TextMessageContent):
                    break
        return started


@asynccontextmanager
async def serve(
    directory: Path,
    options: dict[str, str] | None = None,
    *,
    store: Path | None = None,
    context: dict[str, Any] | None = None,
    granted: Callable[[Run], dict[str, str]] | None = None,
    **config: Any,
) -> AsyncGenerator[World, None]:
    """Serve the fake command. `directory` holds the workspaces; with `store` threads are in a file that another server may open."""
    taps: dict[str, list[Any]] = {}

    def offered(run: Run) -> PlatformContext:
        workspace = directory / "work" / run.thread.id
        workspace.mkdir(parents=True, exist_ok=True)
        paths = {"workspace_path": str(workspace), "cwd_path": str(workspace)}
        return PlatformContext(session_id=run.thread.id, **{**paths, **(context or {})})

    hosted = AgentHost("agent", fake_bridge(options, **config), context=offered)
    settings = Settings(store=SETTINGS.store, history="server", lease=SETTINGS.lease, timeouts=Timeouts(grace=4))
    middleware = [_tap(taps), *([_granting(granted)] if granted else [])]
    url = f"sqlite:///{store}" if store else "memory://"
    async with open_ledger(url) as ledger, Runner(ledger, {"agent": hosted}, settings, middleware) as runner:
        runner.taps = taps  # type: ignore[attr-defined]
        before = len(STREAMS)
        try:
            yield World(runner, hosted, directory)
        finally:
            LINES_STREAMS.extend(STREAMS[before:])
