"""Options of an ACP agent that cannot work are refused when the bridge is created, not in the first run."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ambient_runner.bridges.acp.bridge import ACPBridge
from ambient_runner.errors import ConfigError


@pytest.mark.parametrize(
    "options",
    [
        {"command": "my-agent --acp"},
        {"command": ["no-such-program"]},
        {"modle": "m"},
        {"home": "mine"},
        {"sandbox": "on"},
        {"parked": 0},
        {"spare": -1},
        {"spare": 8, "processes": 8},
        {"turn_timeout": 0},
        {"network": ["https://example.com/path"]},
        {"cwd": "relative"},
        {"options": {"mode": "yolo"}},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    keywords: dict[str, Any] = {"command": [sys.executable], **options}
    with pytest.raises(ConfigError):
        ACPBridge(**keywords)


def test_hosts_and_patterns_are_accepted() -> None:
    bridge = ACPBridge(command=[sys.executable], network=["example.com", "*.example.com:8443"])
    assert bridge.config.network == ["example.com", "*.example.com:8443"]
