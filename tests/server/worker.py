"""An agent that works on files: each turn starts a real child process with what was granted to the run, and says what the child printed."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import anyio

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, current_run
from ambient_runner.config import base_environment
from ambient_runner.protocol.events import Event, TextMessageContent, TextMessageEnd, TextMessageStart

PRINT = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"


def words(text: str, size: int = 7) -> list[Event]:
    """A message in small pieces, so that a secret is never whole in one of them."""
    name = str(uuid4())
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [
        TextMessageStart(message_id=name, role="assistant"),
        *(TextMessageContent(message_id=name, delta=piece) for piece in pieces),
        TextMessageEnd(message_id=name),
    ]


class Worker:
    def __init__(self, bridge: WorkerBridge, ctx: PlatformContext) -> None:
        self.bridge = bridge
        self.ctx = ctx

    async def run(self, input: Any) -> AsyncIterator[Event]:
        run = current_run()
        self.bridge.seen.append(input.messages)
        self.bridge.runs.append(run)
        said = next((message.content for message in reversed(input.messages) if message.role == "user"), "")
        if said == "wait":
            self.bridge.waiting.set()
            await self.bridge.go_on.wait()
        if said == "meet":
            await self.bridge.meet()
        if said == "refresh":
            run.secrets.add(["refreshed-token-value"])
            for event in words("I have refreshed-token-value now"):
                yield event
        env = base_environment() | run.environment
        cwd = self.ctx.cwd_path or None
        done = await anyio.run_process([sys.executable, "-c", PRINT], env=env, cwd=cwd)
        self.bridge.children.append((run.actor.owner, *json.loads(done.stdout)))
        for event in words(done.stdout.decode()):
            yield event

    async def aclose(self) -> None:
        self.bridge.closed += 1


class WorkerBridge(PlatformBridge):
    """Keeps what its adapters were made with, what they saw, and what their children had."""

    def __init__(self, *, file_system: bool = True, mcp: bool = True, meeting: int = 0) -> None:
        self.can = FrameworkCapabilities(file_system=file_system, mcp=mcp)
        self.contexts: list[PlatformContext] = []
        self.seen: list[Any] = []
        self.runs: list[Any] = []
        self.children: list[tuple[str, str, dict[str, str]]] = []
        self.closed = 0
        self.waiting = anyio.Event()
        self.go_on = anyio.Event()
        self._missing = meeting
        self._met = anyio.Event()

    def capabilities(self) -> FrameworkCapabilities:
        return self.can

    def create_adapter(self, ctx: PlatformContext) -> Worker:
        self.contexts.append(ctx)
        return Worker(self, ctx)

    async def meet(self) -> None:
        """Wait until all runs that were invited are here."""
        self._missing -= 1
        if not self._missing:
            self._met.set()
        await self._met.wait()
