"""The SDK is optional: nothing imports it before it is needed, and without it the error has the pip line."""

from __future__ import annotations

from tests.bridges.adk.test_optional import run

UNASKED = """
import sys
import ambient_runner, ambient_runner.bridges.registry, ambient_runner.bridges.langgraph, ambient_runner.bridges.langgraph.config
assert not [name for name in sys.modules if name.startswith(("langgraph", "langchain"))]
"""
MISSING = """
import sys
sys.modules["langgraph"] = None
from ambient_runner.errors import ConfigError
from ambient_runner.bridges.registry import load_agent
try:
    load_agent("langgraph")
except ConfigError as error:
    print(error.message)
"""


def test_nothing_imports_the_sdk_before_it_is_needed() -> None:
    assert run(UNASKED) == ""


def test_a_missing_sdk_is_reported_with_the_install_command() -> None:
    assert "pip install 'ambient-runner[langgraph]'" in run(MISSING)
