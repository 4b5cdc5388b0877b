"""ADK warns about agents it calls deprecated and features it calls experimental; our users have both."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

HERE = Path(__file__).parent
KNOWN = [
    r"\[EXPERIMENTAL\]",
    ".*deprecated in favor of Workflow",
    "The `plugins` argument is deprecated",
    "This method is deprecated. Use credential_key",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for known in KNOWN:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{known}"))


def pytest_sessionfinish() -> None:
    """Write every stream to a file if requested: `tests/e2e/test_adk_streams.py` does."""
    path = os.environ.get("STREAMS_OF_TESTS")
    if path:
        from tests.bridges.adk.world import STREAMS

        Path(path).write_bytes(b"".join(msgspec.json.encode(stream) + b"\n" for stream in STREAMS))
