"""httpx is optional: nothing imports it unasked, and without it the pip line is said."""

from __future__ import annotations

import subprocess
import sys

from tests.machine_speed import HANG_SECONDS

UNASKED = """
import sys
import ambient_runner, ambient_runner.bridges.registry
from ambient_runner.bridges.registry import load_agent
load_agent("demo")
assert not [name for name in sys.modules if name.partition(".")[0] in ("httpx", "pydantic_ai")]
"""
MISSING = """
import sys
sys.modules["httpx"] = None
from ambient_runner.errors import ConfigError
from ambient_runner.bridges.registry import load_agent
try:
    load_agent("front=http://127.0.0.1:9000/")
except ConfigError as error:
    print(error.message)
"""


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    ).stdout


def test_importing_the_package_does_not_import_the_bridge() -> None:
    assert run(UNASKED) == ""


def test_a_missing_package_is_reported_with_its_install_command() -> None:
    assert "pip install 'ambient-runner[remote]'" in run(MISSING)
