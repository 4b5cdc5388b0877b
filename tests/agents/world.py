"""One real agent behind `ambient serve`, with a scripted model and directories of its own; and a conversation with it over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil

from ambient_runner.bridges.acp.profiles import PROFILES
from tests.agents.model import KEY, ScriptedModel
from tests.agents.packages import Package
from tests.e2e.server import Child, start
from tests.e2e.sse import Event, Frame, Stream, open_stream
from tests.e2e.talk import answer_of, ending, events_of, one_run, run_input

OPENAI_STYLE = ("codex", "opencode")
"""Agents whose base URL ends with the version of the API."""
MODELS = {"codex": "mock-model"}
"""Models of agents whose own do not fit the script. Codex shows the tools of MCP servers to its own models only after a search."""
POLL_INTERVAL = 0.05  # seconds
PATIENCE = 120.0  # seconds
"""Nothing in a scenario takes that long."""


@dataclass
class AgentWorld:
    """An agent, its model, and the directory of everything that a server of it keeps."""

    agent: str
    package: Package
    model: ScriptedModel
    directory: Path
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the agent besides its profile."""
    search_path: tuple[Path, ...] = ()
    """Directories that are searched for the command before the package's."""

    def serve(self) -> Child:
        """Start a server. Its store outlives it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "ambient.toml").write_text(self._config())
        return start(self.directory / "ambient.db", self.agent, env=self.variables(), cwd=self.directory)

    def _config(self) -> str:
        options = {"bridge": "acp", "profile": self.agent, **self.options}
        if self.agent in MODELS:
            options["model"] = MODELS[self.agent]
        lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
        return "\n".join([f'[agents."{self.agent}"]', *lines, ""])

    def variables(self) -> dict[str, str]:
        """Return the variables of a person who has installed this agent and has a key for its model."""
        profile = PROFILES[self.agent]
        base_url = f"{self.model.url}/v1" if self.agent in OPENAI_STYLE else self.model.url
        found = os.pathsep.join(str(path) for path in (*self.search_path, self.package.bin))
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{found}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            profile.key_variable: KEY,
            profile.base_url_variable: base_url,
            "AMBIENT_WORKSPACE": str(self.directory / "workspaces"),
        }

    def find_files(self, name: str) -> list[Path]:
        """Return the files of this name in all workspaces."""
        return sorted((self.directory / "workspaces").rglob(name))

    def agent_processes(self, server: Child) -> list[AgentProcess]:
        """Return the processes that the server has started for its agents, the oldest first."""
        try:
            started = psutil.Process(server.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        described = (describe_process(process) for process in started)
        found = [process for process in described if process is not None and "orphan_reaper" not in process.command]
        return sorted(found, key=lambda process: (process.began, process.handle.pid))

    def kill_agent(self, server: Child) -> None:
        """Kill the process that speaks ACP with SIGKILL: the oldest that runs the package's program."""
        for process in self.agent_processes(server):
            if process.name != "bwrap" and str(self.package.path) in f"{process.program} {process.command}":
                process.handle.kill()
                return
        raise AssertionError("the agent has no process")


@dataclass(frozen=True)
class AgentProcess:
    """A process as it was when it was seen."""

    handle: psutil.Process
    name: str
    program: str
    command: str
    began: float


def describe_process(process: psutil.Process) -> AgentProcess | None:
    """Return what can be seen of a process; None if it has ended."""
    try:
        with process.oneshot():
            words = " ".join(process.cmdline())
            return AgentProcess(process, process.name(), process.exe(), words, process.create_time())
    except psutil.Error:
        return None


async def wait_until(is_reached: Callable[[], Any], what: str) -> None:
    """Wait for something that only polling can see. Raises: AssertionError."""
    with anyio.move_on_after(PATIENCE):
        while not is_reached():
            await anyio.sleep(POLL_INTERVAL)
        return
    raise AssertionError(f"{what} did not happen within {PATIENCE:.0f} s")


class Conversation:
    """A thread as a client sees it."""

    def __init__(self, url: str, thread: str) -> None:
        self.url = url
        self.thread = thread

    @asynccontextmanager
    async def started(self, text: str | None = None, **fields: Any) -> AsyncGenerator[Stream]:
        """Begin a run, and stand at the beginning of its events. Raises: AssertionError when it is refused."""
        async with open_stream(f"{self.url}/", "POST", body=run_input(self.thread, text, **fields)) as stream:
            assert stream.status == 200, await stream.body()
            yield stream

    async def run(self, text: str | None = None, **fields: Any) -> list[Event]:
        """Return the events of a whole run."""
        with anyio.fail_after(PATIENCE):
            async with self.started(text, **fields) as stream:
                return one_run(events_of(await stream.rest()))

    async def resume(self, events: list[Event], payload: Any = None, status: str = "resolved") -> list[Event]:
        """Answer every interrupt of a run alike, and return the events of the next one."""
        entries = [
            {"interruptId": interrupt["id"], "status": status, **({} if payload is None else {"payload": payload})}
            for interrupt in interrupts_of(events)
        ]
        assert entries, f"no interrupt to answer: {events[-1]}"
        return await self.run(resume=entries)

    async def stop(self) -> None:
        """Stop the thread's run, or cancel its open interrupts."""
        async with open_stream(f"{self.url}/interrupt", "POST", body={"threadId": self.thread}) as stream:
            assert stream.status == 200, await stream.body()

    async def events(self) -> list[Event]:
        """Return everything the thread holds, once it is idle."""
        with anyio.fail_after(PATIENCE):
            async with open_stream(f"{self.url}/threads/{self.thread}/events?until=idle") as stream:
                assert stream.status == 200, await stream.body()
                return events_of(await stream.rest())


def interrupts_of(events: list[Event]) -> list[dict[str, Any]]:
    outcome = events[-1].get("outcome") or {}
    return outcome.get("interrupts", []) if outcome.get("type") == "interrupt" else []


async def read_text(stream: Stream, count: int) -> list[Frame]:
    """Read until the agent has said something in so many pieces: the platform's messages do not count."""
    frames: list[Frame] = []
    messages: set[str] = set()
    with anyio.fail_after(PATIENCE):
        while count:
            frame = await stream.frame()
            assert frame is not None, f"the run ended before its text: {[frame.type for frame in frames]}"
            frames.append(frame)
            if frame.type == "TEXT_MESSAGE_START" and frame.event.get("role", "assistant") == "assistant":
                messages.add(frame.event["messageId"])
            count -= frame.type == "TEXT_MESSAGE_CONTENT" and frame.event["messageId"] in messages
    return frames


def require(events: list[Event], text: str, *endings: str) -> None:
    """Check what the agent said last, and how the run ended."""
    assert ending(events) in (endings or ("success",)), f"the run ended with {events[-1]}"
    assert text in answer_of(events), f"the agent said {answer_of(events)!r}, not {text!r}"
