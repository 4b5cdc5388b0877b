"""OpenTelemetry's SDK is optional: a server without tracing does not import it, and an error names the missing package."""

from __future__ import annotations

import subprocess
import sys

from tests.machine_speed import HANG_SECONDS

UNASKED = """
import sys
from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
create_app(Settings(store="memory://"), {"demo": DemoBridge()})
assert not [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
"""
MISSING = """
import sys
sys.modules["opentelemetry.sdk"] = sys.modules["opentelemetry.exporter"] = None
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.telemetry import tracing_from_settings
try:
    tracing_from_settings(read_settings(environ={"AMBIENT_TRACING": "otlp"}).tracing)
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
    assert "pip install 'ambient-runner[otel]'" in run(MISSING)
