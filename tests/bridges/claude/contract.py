"""The scripted upstream of `tests/contract/test_bridges.py`: the real SDK and CLI, and a scripted model."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ambient_runner.bridges.base import PlatformBridge
from tests.bridges.claude.world import bridge_of


def scripted_bridge() -> PlatformBridge:
    return bridge_of(_home())


@cache
def _home() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="ambient-claude-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
