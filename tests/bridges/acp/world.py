"""A thread of the fake agent behind a real Runner, in a workspace of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ambient_runner.bridges.acp.adapter import ACPAdapter
from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger import open_ledger
from ambient_runner.protocol.events import Event, ResumeEntry, Tool, UserMessage
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from tests.bridges.claude.world import ClaudeThread, _granting
from tests.bridges.strands.world import STREAMS, _tap
from tests.machine_speed import unless_hung
from tests.world import SETTINGS, events_of, request

__all__ = ["ACP_STREAMS", "FAKE_AGENT", "World", "answer", "fake_bridge", "fake_command", "serve"]

FAKE_AGENT = Path(__file__).with_name("fake_agent.py")
ACP_STREAMS: list[list[Event]] = []
"""Every run of every test here, for the official clients to judge."""


def fake_command(**options: str) -> list[str]:
    """Return the command of the fake agent. `fake_agent.py` lists its options."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return [sys.executable, "-I", str(FAKE_AGENT), *words]


def fake_bridge(options: dict[str, str] | None = None, **settings: Any) -> ACPBridge:
    """Return a bridge to the fake agent, without a sandbox unless one is asked for."""
    return ACPBridge(**{"command": fake_command(**(options or {})), "sandbox": "off", **settings})


def answer(interrupt_id: str, **payload: Any) -> list[ResumeEntry]:
    return [ResumeEntry(interrupt_id=interrupt_id, status="resolved", payload=payload)]


@dataclass
class World:
    """One server: its threads, and what is behind them."""

    runner: Runner
    hosted: AgentHost
    directory: Path

    def thread(self, name: str = "t", tools: list[Tool] | None = None) -> ClaudeThread:
        return ClaudeThread(self.runner, name, tools=tools or [])

    def adapter(self, name: str = "t") -> ACPAdapter:
        return next(kept.adapter for slot, kept in self.hosted._adapters.items() if slot[0].id == name)

    def received(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of what the agent has received, if it writes a journal."""
        lines = (self.directory / "journal.jsonl").read_text().splitlines()
        messages = [json.loads(line)["msg"] for line in lines]
        return [message.get("params") for message in messages if message.get("method") == method]

    def received_at(self, method: str) -> list[float]:
        """Return the monotonic times at which the agent has received messages of this method."""
        entries = [json.loads(line) for line in (self.directory / "journal.jsonl").read_text().splitlines()]
        return [entry["t"] for entry in entries if entry["msg"].get("method") == method]

    async def stored(self, text: str, thread: str = "t", message_id: str = "u1", **options: Any) -> list[Event]:
        """Return the events that the server keeps of one run, also when it fails."""
        with unless_hung():
            message = UserMessage(id=message_id, content=text)
            return await events_of(self.runner, await self.runner.start(request(message, thread=thread, **options)))


@asynccontextmanager
async def serve(
    directory: Path,
    options: dict[str, str] | None = None,
    *,
    store: Path | None = None,
    context: dict[str, Any] | None = None,
    granted: Callable[[Run], dict[str, str]] | None = None,
    settings: Settings | None = None,
    bridge: ACPBridge | None = None,
    **config: Any,
) -> AsyncGenerator[World, None]:
    """Serve the fake agent. `directory` holds the workspaces; with `store` threads are in a file that another server may open."""
    taps: dict[str, list[Any]] = {}

    def offered(run: Run) -> PlatformContext:
        workspace = directory / "work" / run.thread.id
        workspace.mkdir(parents=True, exist_ok=True)
        paths = {"workspace_path": str(workspace), "cwd_path": str(workspace)}
        return PlatformContext(session_id=run.thread.id, **{**paths, **(context or {})})

    flags = {"journal": str(directory / "journal.jsonl"), "sessions": str(directory / "sessions"), **(options or {})}
    hosted = AgentHost("agent", bridge or fake_bridge(flags, **config), context=offered)
    chosen = settings or Settings(
        store=SETTINGS.store, history="server", lease=SETTINGS.lease, timeouts=Timeouts(grace=4)
    )
    middleware = [_tap(taps), *([_granting(granted)] if granted else [])]
    url = f"sqlite:///{store}" if store else "memory://"
    async with open_ledger(url) as ledger, Runner(ledger, {"agent": hosted}, chosen, middleware) as runner:
        runner.taps = taps  # type: ignore[attr-defined]
        before = len(STREAMS)
        try:
            yield World(runner, hosted, directory)
        finally:
            ACP_STREAMS.extend(STREAMS[before:])
