"""The SDK is optional: nothing imports it before it is needed, and without it the error has the pip line."""

from __future__ import annotations

import subprocess
import sys

import ambient_runner.claude as facade
from ambient_runner.bridges.claude.bridge import ClaudeBridge
from tests.bridges.adk.test_optional import run
from tests.machine_speed import HANG_SECONDS

UNASKED = """
import sys
import ambient_runner, ambient_runner.bridges.registry, ambient_runner.bridges.claude, ambient_runner.bridges.claude.config
assert not [name for name in sys.modules if name.startswith("claude_agent_sdk")]
"""
MISSING = """
import sys
sys.modules["claude_agent_sdk"] = None
from ambient_runner.errors import ConfigError
from ambient_runner.bridges.registry import load_agent
try:
    load_agent("claude")
except ConfigError as error:
    print(error.message)
"""


def test_nothing_imports_the_sdk_before_it_is_needed() -> None:
    assert run(UNASKED) == ""


def test_a_missing_sdk_is_reported_with_the_install_command() -> None:
    assert "pip install 'ambient-runner[claude]'" in run(MISSING)


def test_the_public_names_are_a_decision() -> None:
    assert facade.__all__ == ["ClaudeBridge", "PredictStateMapping"]
    assert facade.ClaudeBridge is ClaudeBridge


def test_without_the_sdk_the_public_module_names_the_line_to_type() -> None:
    code = "import sys; sys.modules['claude_agent_sdk'] = None; import ambient_runner.claude"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert "BridgeUnavailable" in done.stderr
    assert "pip install 'ambient-runner[claude]'" in done.stderr
