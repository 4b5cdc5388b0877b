"""Permission rules on their way from `ambient.toml` to the adapters."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ambient_runner import Settings, create_app
from ambient_runner.config import AgentSettings, PermissionRule, read_settings
from tests.server.demo_server import client_of, run_body
from tests.server.worker import WorkerBridge


async def test_an_adapter_gets_the_rules_of_the_file(tmp_path: Path) -> None:
    file, bridge = tmp_path / "ambient.toml", WorkerBridge(file_system=False, mcp=False)
    file.write_text('store = "memory://"\n[[permissions]]\ncommand = ["git", "status"]\ndecide = "allow"\n')
    async with client_of(create_app(read_settings(file, {}), {"worker": bridge})) as client:
        await client.post("/", json=run_body("hello"))
    assert [ctx.permissions for ctx in bridge.contexts] == [
        (PermissionRule(command=("git", "status"), decide="allow"),)
    ]


@pytest.mark.parametrize(
    ("agent", "warnings"), [("worker", 0), ("wroker", 1), ("", 0), ("configured", 0), ("something-else", 0)]
)
def test_a_rule_for_an_agent_whose_name_seems_misspelled_is_logged(
    agent: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(
        store="memory://",
        permissions=(PermissionRule(agent=agent, decide="ask"),),
        configured_agents=(AgentSettings(name="configured"), "other=demo"),
    )
    create_app(settings, {"worker": WorkerBridge(file_system=False, mcp=False)})
    logged = [one for one in caplog.records if one.levelno == logging.WARNING and "worker?" in one.getMessage()]
    assert len(logged) == warnings
