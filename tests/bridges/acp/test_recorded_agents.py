"""The bridge with the recorded agents: Claude Code, Codex, Gemini and OpenCode as they were, none of them installed."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.protocol.events import Tool
from tests.bridges.acp.words import select_words, spoken
from tests.bridges.acp.world import World, serve
from tests.bridges.claude.world import yes
from tests.world import KEY

RECORDINGS = Path(__file__).parents[2] / "recordings" / "acp"
AGENTS = ("claude-acp", "codex", "gemini", "opencode")
WITH_RESUME = tuple(agent for agent in AGENTS if (RECORDINGS / agent / "resume.jsonl").exists())
PLAY = """
import sys
from pathlib import Path
from ambient_runner.cli.playback import play_recording
sys.stderr = open(sys.argv[2], "a")
play_recording(Path(sys.argv[1]))
"""
PICK_NUMBER = Tool(
    name="pick_number",
    description="Ask the page for a number.",
    parameters={"type": "object", "properties": {"max": {"type": "integer"}}, "required": ["max"]},
)


@asynccontextmanager
async def playing(directory: Path, agent: str, scenario: str, store: Path | None = None) -> AsyncGenerator[World, None]:
    """Serve a recorded agent. Afterwards nothing may have been asked that the recording has no answer to."""
    reports = directory / "reports.txt"
    recording = RECORDINGS / agent / f"{scenario}.jsonl"
    command = [sys.executable, "-c", PLAY, str(recording), str(reports)]
    bridge = ACPBridge(profile=agent, command=command, home="thread", sandbox="off")
    async with serve(directory, bridge=bridge, store=store) as world:
        yield world
    unexpected = [line for line in reports.read_text().splitlines() if "recorded was" not in line]
    assert unexpected == []


@pytest.mark.parametrize("agent", AGENTS)
async def test_text_is_streamed(tmp_path: Path, agent: str) -> None:
    async with playing(tmp_path, agent, "text") as world:
        words = await world.thread().say("otter greets")
    assert spoken(words).endswith("Hello from the scripted model.")
    assert words[-1] == "RF success"


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_command_that_is_allowed_is_executed(tmp_path: Path, agent: str) -> None:
    async with playing(tmp_path, agent, "tool-allowed") as world:
        thread = world.thread()
        asked = await thread.say("otter touches")
        (interrupt,) = thread.interrupts
        answered = await thread.resume(yes(interrupt, {"approved": True}))
    (start,) = select_words(asked, "CS")
    assert start.split()[1] == interrupt.tool_call_id
    assert [word.split()[1] for word in select_words(answered, "CR")] == [interrupt.tool_call_id]
    assert (spoken(answered), answered[-1]) == ("The command has ended.", "RF success")


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_command_that_is_declined_has_a_result_and_the_thread_goes_on(tmp_path: Path, agent: str) -> None:
    async with playing(tmp_path, agent, "tool-declined") as world:
        thread = world.thread()
        await thread.say("otter touches")
        (interrupt,) = thread.interrupts
        declined = await thread.resume(yes(interrupt, {"approved": False}))
        words = await thread.say("otter greets")
    assert [word.split()[1] for word in select_words(declined, "CR")] == [interrupt.tool_call_id]
    assert declined[-1] == "RF success"
    assert (spoken(words), words[-1]) == ("Hello from the scripted model.", "RF success")


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_question_that_is_cancelled_ends_the_turn_and_the_thread_goes_on(tmp_path: Path, agent: str) -> None:
    async with playing(tmp_path, agent, "cancelled") as world:
        thread = world.thread()
        await thread.say("otter touches")
        assert len(thread.interrupts) == 1
        await world.runner.stop(KEY)
        words = await thread.say("otter remembers")
    assert (spoken(words), words[-1]) == ("I remember.", "RF success")


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_tool_of_the_client_needs_no_permission(tmp_path: Path, agent: str) -> None:
    async with playing(tmp_path, agent, "client-tool") as world:
        words = await world.thread(tools=[PICK_NUMBER]).say("otter picks")
    assert [word.split()[2] for word in select_words(words, "CS")] == ["pick_number"]
    assert (spoken(words).endswith("The page has answered."), words[-1]) == (True, "RF success")


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_replay_of_a_loaded_session_is_not_sent_again(tmp_path: Path, agent: str) -> None:
    await _continue(tmp_path, agent, "load")


@pytest.mark.parametrize("agent", WITH_RESUME)
async def test_a_session_is_resumed_by_another_process(tmp_path: Path, agent: str) -> None:
    await _continue(tmp_path, agent, "resume")


async def _continue(directory: Path, agent: str, scenario: str) -> None:
    """Begin a thread with one server, and go on with another."""
    store = directory / "threads.db"
    async with playing(directory, agent, "text", store) as world:
        await world.thread().say("otter greets")
    async with playing(directory, agent, scenario, store) as world:
        thread = world.thread()
        thread.count = 1
        words = await thread.say("otter remembers")
    assert (spoken(words), select_words(words, "CS"), words[-1]) == ("I remember.", [], "RF success")
