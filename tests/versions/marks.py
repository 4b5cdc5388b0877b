"""Marks for tests of what an SDK does only since a version. `docs/reference/versions.md` lists what older versions lack."""

from __future__ import annotations

import importlib.metadata

import pytest
from packaging.version import Version


def requires(package: str, version: str, reason: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test with an older version of the package."""
    is_older = Version(importlib.metadata.version(package)) < Version(version)
    return pytest.mark.skipif(is_older, reason=f"needs {package} {version}: {reason}")
