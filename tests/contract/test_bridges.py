"""The contract of `ambient_runner.testing`, run for every registered bridge. A new bridge is found here by its entry point."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.bridges.registry import BRIDGE_GROUP, load_agent
from ambient_runner.testing import BridgeContract
from tests.machine_speed import HANG_SECONDS, scaled

SCRIPTED = {
    "acp": "tests.bridges.acp.contract:scripted_bridge",
    "adk": "tests.bridges.adk.contract:scripted_agent",
    "agui": "tests.bridges.agui.contract:scripted_bridge",
    "claude": "tests.bridges.claude.contract:scripted_bridge",
    "demo": "demo",
    "langgraph": "tests.bridges.langgraph.contract:scripted_graph",
    "lines": "tests.bridges.lines.contract:scripted_bridge",
    "remote": "tests.bridges.remote.contract:scripted_bridge",
    "strands": "tests.bridges.strands.contract:scripted_bridge",
}
"""Agent of each bridge for the contract: the real framework with a scripted model."""
PROMPTS = {"claude": {"crash_prompt": "gnu crashes", "endless_prompt": "gnu goes on"}}
"""Prompts of scripted agents that do not understand the contract's own."""
WITH_HISTORY = {"acp", "adk", "agui", "langgraph", "lines", "strands"}
"""Bridges whose scripted agent answers `history` with the conversation that it knows."""

PROFILES = {"claude-acp", "codex", "gemini", "opencode"}
"""Names of the bridge `acp` with the settings of one agent."""

BRIDGES = sorted({point.name for point in entry_points(group=BRIDGE_GROUP)} - PROFILES | SCRIPTED.keys())


class TestRegisteredBridges(BridgeContract):
    hang_timeout = HANG_SECONDS

    @pytest.fixture(autouse=True, params=BRIDGES)
    def _select(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param
        if self.name not in SCRIPTED:
            pytest.skip(f"the bridge {self.name} of another package is tested there")
        self.stop_timeout = scaled(self.grace + 5)
        self.block_timeout = scaled(5)  # A thread that ends takes seconds on a busy machine.
        self.history_prompt = "history" if self.name in WITH_HISTORY else ""
        for attribute, prompt in PROMPTS.get(self.name, {}).items():
            setattr(self, attribute, prompt)

    def create_bridge(self) -> PlatformBridge:
        return load_agent(f"scripted={SCRIPTED[self.name]}")[1]
