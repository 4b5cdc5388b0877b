"""A thread of Claude behind a real Runner, in a workspace of its own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.claude.adapter import ClaudeAdapter
from ambient_runner.bridges.claude.bridge import ClaudeBridge
from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger import open_ledger
from ambient_runner.processes.orphan_reaper import MARK
from ambient_runner.protocol.events import Event, Message, Tool, UserMessage
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.bridges.claude.mock import model_url
from tests.bridges.strands.world import STREAMS, Thread, _tap, no, summarize, tool_message, yes
from tests.machine_speed import unless_hung
from tests.world import SETTINGS, events_of, request

__all__ = [
    "CLAUDE_STREAMS",
    "PAINT",
    "TOOLS",
    "World",
    "bridge_of",
    "children",
    "claude",
    "gone",
    "no",
    "tool_message",
    "yes",
]

TOOLS = ["AskUserQuestion", "Bash", "Read", "Task", "WebFetch", "Write"]
"""Few of the CLI's tools: aimock's journal keeps no request above 64 KiB."""
CLAUDE_STREAMS: list[list[Event]] = []
"""Every run of every test here, for the official clients to judge (`tests/e2e/test_claude_streams.py`)."""
PAINT = Tool(
    name="change_background",
    description="Change the colour of the page.",
    parameters={"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]},
)


def bridge_of(home: Path, **settings: Any) -> ClaudeBridge:
    """Claude with the scripted model and a home of its own."""
    home.mkdir(parents=True, exist_ok=True)
    variables = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_BASE_URL": model_url(),
        "ANTHROPIC_API_KEY": "sk-ant-scripted-model",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    return ClaudeBridge(**{"tools": TOOLS, **settings, "env": {**variables, **settings.get("env", {})}})


@dataclass
class World:
    """One server: its threads, and what is behind them."""

    runner: Runner
    hosted: AgentHost
    directory: Path

    def thread(self, name: str = "t", tools: list[Tool] | None = None) -> ClaudeThread:
        return ClaudeThread(self.runner, name, tools=tools or [])

    def adapter(self, name: str = "t") -> ClaudeAdapter:
        return next(kept.adapter for slot, kept in self.hosted._adapters.items() if slot[0].id == name)

    async def stored(self, thread: Thread, text: str) -> list[Event]:
        """Return the events that the server keeps of one run, also when it fails."""
        thread.count += 1
        message = UserMessage(id=f"u{thread.count}", content=text)
        with unless_hung():
            return await events_of(self.runner, await self.runner.start(request(message, thread=thread.name)))


class ClaudeThread(Thread):
    """A conversation whose runs may also bring `forwarded_props`."""

    async def run(self, *messages: Message, **options: Any) -> list[str]:
        with unless_hung():
            extra = {name: options.pop(name) for name in ("context", "forwarded_props") if name in options}
            run_request = request(*messages, thread=self.name, **{"tools": self.tools, **options})
            run_request = dataclasses.replace(run_request, input=msgspec.structs.replace(run_request.input, **extra))
            await events_of(self.runner, await self.runner.start(run_request))
        self.events = self.runner.taps[self.name]  # type: ignore[attr-defined]
        return summarize(self.events)


@asynccontextmanager
async def claude(
    directory: Path,
    *,
    store: Path | None = None,
    context: dict[str, Any] | None = None,
    granted: Callable[[Run], dict[str, str]] | None = None,
    settings: Settings | None = None,
    idle: float = 900.0,
    **bridge: Any,
) -> AsyncGenerator[World, None]:
    """A server with Claude. `directory` holds the home and the workspaces; with `store` threads are in a file that another may open.

    `idle` is the time in seconds that an unused thread keeps its process.
    """
    taps: dict[str, list[Any]] = {}

    def offered(run: Run) -> PlatformContext:
        workspace = directory / "work" / run.thread.id
        workspace.mkdir(parents=True, exist_ok=True)
        paths = {"workspace_path": str(workspace), "cwd_path": str(workspace)}
        return PlatformContext(session_id=run.thread.id, **{**paths, **(context or {})})

    hosted = AgentHost("agent", bridge_of(directory / "home", **bridge), context=offered, idle_timeout=idle)
    url = f"sqlite:///{store}" if store else "memory://"
    middleware = [_tap(taps), *([_granting(granted)] if granted else [])]
    chosen = settings or Settings(
        store=SETTINGS.store, history="server", lease=SETTINGS.lease, timeouts=Timeouts(grace=3)
    )
    async with open_ledger(url) as ledger, Runner(ledger, {"agent": hosted}, chosen, middleware) as runner:
        runner.taps = taps  # type: ignore[attr-defined]
        before = len(STREAMS)
        try:
            yield World(runner, hosted, directory)
        finally:
            CLAUDE_STREAMS.extend(STREAMS[before:])


def _granting(granted: Callable[[Run], dict[str, str]]) -> Any:
    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Any, None]:
            run.environment.update(granted(run))
            async for event in handler(run):
                yield event

        return handle

    return wrap


def children(server: int | None = None) -> list[psutil.Process]:
    """Every CLI that this process, or that server, has started, and whatever those have started."""
    mark = f"{server or os.getpid()}-"
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(mark) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


async def gone(processes: list[psutil.Process]) -> None:
    """Wait until they have ended."""
    with unless_hung():
        while any(map(_is_running, processes)):
            await anyio.sleep(0.02)


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # It has ended since.
        return False
