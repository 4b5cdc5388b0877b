"""`ambient serve claude` with the scripted model: over HTTP, through a restart, and without leaving a process behind."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.bridges.claude.mock import model_url
from tests.bridges.claude.world import children, gone
from tests.machine_speed import unless_hung

from .server import start
from .talk import answer_of, ending, events_of, one_run, run, run_input

if TYPE_CHECKING:
    from pathlib import Path

    from .server import Child
    from .sse import Event


def serve(directory: Path) -> Child:
    variables = {
        "HOME": str(directory),
        "CLAUDE_CONFIG_DIR": str(directory / ".claude"),
        "ANTHROPIC_BASE_URL": model_url(),
        "ANTHROPIC_API_KEY": "sk-ant-scripted-model",
        "AMBIENT_WORKSPACE": str(directory / "workspaces"),
    }
    return start(directory / "ambient.db", "claude", env=variables)


async def run_message(server: Child, thread: str, text: str) -> list[Event]:
    with unless_hung():
        return one_run(events_of(await run(server.url, run_input(thread, text))))


async def test_a_served_claude_continues_after_a_restart_and_leaves_no_process(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        first = await run_message(server, "t", "walrus begins")
        assert (answer_of(first), ending(first)) == ("I begin.", "success")
        processes = children(server.pid)
        assert len(processes) == 1
        assert server.stop() == 0
        await gone(processes)
    with serve(tmp_path) as server:
        second = await run_message(server, "t", "walrus remembers")
        assert answer_of(second) == "I remember."
        processes = children(server.pid)
    await gone(processes)
    transcripts = [path.read_text() for path in (tmp_path / ".claude" / "projects").rglob("*.jsonl")]
    assert len(transcripts) == 1
    assert [words for words in ("walrus begins", "walrus remembers") if words in transcripts[0]] == [
        "walrus begins",
        "walrus remembers",
    ]


async def test_a_server_that_is_killed_takes_claude_with_it(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        await run_message(server, "t", "walrus begins")
        processes = children(server.pid)
        assert len(processes) == 1
        server.signal(signal.SIGKILL)
        server.wait()
        await gone(processes)
