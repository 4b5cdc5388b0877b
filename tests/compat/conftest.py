"""Settings of the examples of published packages, which know nothing of this server's."""

from __future__ import annotations

import pytest


@pytest.fixture
def memory_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the threads of apps that read their settings from the environment in memory."""
    monkeypatch.setenv("AMBIENT_STORE", "memory://")
    monkeypatch.setenv("AMBIENT_HISTORY", "server")
