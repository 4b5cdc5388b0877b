"""AgentCapabilities in the shape of the official models."""

from __future__ import annotations

import ag_ui.core as ag
import pydantic
import pytest

from ambient_runner.bridges.base import FrameworkCapabilities
from ambient_runner.protocol.capabilities import agent_capabilities


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "framework",
    [
        FrameworkCapabilities(),
        FrameworkCapabilities(
            file_system=True, mcp=True, session_persistence=True, streaming=False, thinking=True, tool_use=False
        ),
    ],
)
def test_the_official_models_know_every_field(framework: FrameworkCapabilities, durable: bool) -> None:
    capabilities = agent_capabilities("helper", framework, durable=durable)
    model = ag.AgentCapabilities.model_validate(capabilities)
    groups = [group for _, group in model if isinstance(group, pydantic.BaseModel)]
    assert not model.model_extra
    assert not any(group.model_extra for group in groups)
    assert model.model_dump(by_alias=True) == capabilities


def test_what_a_bridge_declares_is_what_a_client_reads() -> None:
    framework = FrameworkCapabilities(mcp=True, thinking=True)
    assert agent_capabilities("helper", framework, durable=True, features=["mcp_diagnostics"]) == {
        "identity": {"name": "helper"},
        "transport": {
            "streaming": True,
            "websocket": False,
            "httpBinary": False,
            "pushNotifications": False,
            "resumable": True,
        },
        "tools": {"supported": True},
        "state": {"snapshots": True, "persistentState": True},
        "reasoning": {"supported": True, "streaming": True},
        "custom": {
            "ambient": {
                "durable": True,
                "audience": "open",
                "fileSystem": False,
                "mcp": True,
                "sessionPersistence": False,
                "features": ["mcp_diagnostics"],
            }
        },
    }
