"""The example, as a person would use it but for the model."""

from __future__ import annotations

from pathlib import Path

from ambient_runner.config import Settings
from tests.bridges.claude.world import bridge_of
from tests.bridges.strands.test_examples import Page, example
from tests.server.demo_server import client_of, run_body


async def test_the_example_uses_its_own_tool_in_a_workspace(tmp_path: Path) -> None:
    settings = Settings(store="memory://", history="server", workspace=str(tmp_path / "workspaces"))
    app = example("claude_workspace").create(bridge_of(tmp_path / "home"), settings)
    async with client_of(app) as client:
        events = await Page(client).post(run_body("otter asks the tide"))
    results = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert results == ["High tide: 03:12 and 15:40"]
    assert events[-1]["type"] == "RUN_FINISHED"
