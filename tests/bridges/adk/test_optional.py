"""The SDK is optional: it is imported only when needed, and without it the error names the pip command."""

from __future__ import annotations

import subprocess
import sys

from tests.machine_speed import HANG_SECONDS

UNASKED = """
import sys
import ambient_runner, ambient_runner.bridges.registry, ambient_runner.bridges.adk
assert not [name for name in sys.modules if name.startswith("google.adk")]
"""
MISSING = """
import sys
sys.modules["google.adk"] = None
from ambient_runner.errors import BridgeUnavailable, ConfigError
from ambient_runner.bridges.registry import load_agent
try:
    load_agent("mine=ambient_runner.bridges.adk.bridge:ADKBridge")
except ConfigError as error:
    print(error.message)
"""


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    ).stdout


def test_nothing_imports_the_sdk_unasked() -> None:
    assert run(UNASKED) == ""


def test_a_missing_sdk_is_reported_with_the_install_command() -> None:
    assert "pip install 'ambient-runner[adk]'" in run(MISSING)
