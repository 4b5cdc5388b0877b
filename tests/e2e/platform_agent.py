"""An agent for a server of its own: its child process says what it has, in plain words and as hashes that nothing takes out."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, current_run
from ambient_runner.config import base_environment
from ambient_runner.protocol.events import Event
from tests.server.worker import words

CHILD = """
import hashlib, json, os, sys
env = dict(os.environ)
print(json.dumps({"cwd": os.getcwd(), "hashes": {name: hashlib.sha256(env[name].encode()).hexdigest() for name in env}}))
print(json.dumps(env))
"""


class Worker:
    def __init__(self, ctx: PlatformContext) -> None:
        self.ctx = ctx

    async def run(self, input: Any) -> AsyncIterator[Event]:
        env = base_environment() | current_run().environment
        done = await anyio.run_process([sys.executable, "-c", CHILD], env=env, cwd=self.ctx.cwd_path)
        for line in done.stdout.decode().splitlines():
            for event in words(line):
                yield event


class WorkerBridge(PlatformBridge):
    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True, mcp=True)

    def create_adapter(self, ctx: PlatformContext) -> Worker:
        return Worker(ctx)
