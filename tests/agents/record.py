"""Record the real agents behind our server: `python -m tests.agents.record [AGENT]…` writes `tests/recordings/acp/AGENT/SCENARIO.jsonl`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from ambient_runner.bridges.acp.profiles import PROFILES
from tests.agents.cleaning import HOME, WORKSPACE, clean_recording
from tests.agents.model import scripted_model
from tests.agents.packages import AGENTS, DIRECTORY, ROOT, install_agent
from tests.agents.scenarios import (
    Try,
    allow_a_command,
    call_a_tool_of_the_client,
    decline_a_command,
    stop_in_a_question,
    stream_text,
)
from tests.agents.script import HELLO, build_script
from tests.agents.world import AgentWorld, Conversation, require

RECORDINGS = ROOT / "tests" / "recordings" / "acp"
RECORDER = Path(__file__).with_name("recorder.py")
MINUTE = 61.0  # seconds
"""Gemini loses a session that is loaded in the minute of its start."""


async def continue_with_another_server(this: Try) -> None:
    """Let a second process load the session of the first."""
    require(await this.conversation.run("otter greets"), HELLO)
    await allow_a_command(this)
    this.server.stop()
    await anyio.sleep(MINUTE if this.world.agent == "gemini" else 0)
    with this.world.serve() as server:
        require(await Conversation(server.url, this.thread).run("otter remembers"), "I remember.")


SCENARIOS: dict[str, Callable[[Try], Awaitable[None]]] = {
    "text": stream_text,
    "tool-allowed": allow_a_command,
    "tool-declined": decline_a_command,
    "cancelled": stop_in_a_question,
    "client-tool": call_a_tool_of_the_client,
    "load": continue_with_another_server,
    "resume": continue_with_another_server,
}
"""What is recorded. The file has the messages of the scenario's last process."""
HIDDEN = {"load": "resume"}
"""Capabilities that a scenario does not show to the client."""
WITHOUT = {"gemini": ("resume",)}
"""Scenarios that an agent cannot do."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=f"some of {', '.join(AGENTS)}")
    for agent in parser.parse_args().agents or AGENTS:
        record_agent(agent)


def record_agent(agent: str) -> None:
    """Write all recordings of one agent."""
    package = install_agent(agent)
    directory = Path(tempfile.mkdtemp(prefix="record-", dir=DIRECTORY))
    try:
        with scripted_model(build_script()) as model:
            for name, scenario in SCENARIOS.items():
                if name in WITHOUT.get(agent, ()):
                    continue
                # The recorder writes outside of the workspace, so there is no sandbox.
                world = AgentWorld(agent, package, model, directory / name, {"sandbox": "off"})
                world.search_path = (_write_wrapper(world, HIDDEN.get(name, "-")),)
                anyio.run(_run_scenario, world, scenario)
                _write_recording(world, name)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run_scenario(world: AgentWorld, scenario: Callable[[Try], Awaitable[None]]) -> None:
    with world.serve() as server:
        await scenario(Try(world, server, Conversation(server.url, "recorded")))


def _write_wrapper(world: AgentWorld, hidden: str = "-") -> Path:
    """Write a command of the agent's name that records it. Return its directory."""
    program = PROFILES[world.agent].command[0]
    directory = world.directory / "bin"
    directory.mkdir(parents=True)
    wrapper = directory / program
    words = [sys.executable, "-I", RECORDER, world.directory / "recorded", hidden, world.package.bin / program]
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(str(word) for word in words)} "$@"\n')
    wrapper.chmod(0o755)
    return directory


def _write_recording(world: AgentWorld, name: str) -> None:
    newest = max((world.directory / "recorded").iterdir())
    workspace = world.directory / "workspaces" / "default" / "local" / "recorded"
    paths = {
        str(workspace / "artifacts"): WORKSPACE,
        str(workspace / ".ambient" / f"home-{world.agent}"): HOME,
        str(workspace): f"{WORKSPACE}/..",
        str(world.directory): "/srv",
        str(world.package.path): "/opt/agent",
        str(ROOT): "/opt/ambient",
        sys.executable: "python3",
    }
    target = RECORDINGS / world.agent / f"{name}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(clean_recording(newest.read_text().splitlines(), paths))
    print(f"{target.relative_to(ROOT)}: {len(target.read_text().splitlines())} messages", flush=True)


if __name__ == "__main__":
    main()
