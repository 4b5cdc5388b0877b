"""The part of the suite for the inner loop (`make test-fast`): no browsers, no Node, no kills, no child processes.

A test that starts a process all the same fails there, with the advice to name its file here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.machine_speed import PROBE

__all__ = ["fast_only", "refuse_processes"]

_SLOW = (
    "adapters",
    "bridges/adk/test_optional.py",
    "bridges/adk/test_replicas.py",
    "bridges/claude/test_examples.py",
    "bridges/claude/test_interrupts.py",
    "bridges/claude/test_memory.py",
    "bridges/claude/test_optional.py",
    "bridges/claude/test_process.py",
    "bridges/claude/test_text.py",
    "bridges/claude/test_tools.py",
    "bridges/langgraph/test_optional.py",
    "bridges/langgraph/test_remote_graph.py",
    "bridges/remote/test_optional.py",
    "bridges/strands/test_facade.py",
    "bridges/strands/test_paused.py",
    "cli/test_run.py",
    "e2e",
    "ledger/test_process_identity.py",
    "ledger/test_sqlite_processes.py",
    "runs/test_containment.py",
    "server/routes/test_files.py",
    "server/routes/test_platform.py",
    "server/test_granted.py",
    "server/test_platform.py",
    "server/test_platform_example.py",
    "services/mcp/test_bounds.py",
    "services/mcp/test_status.py",
    "services/test_blind_links.py",
    "services/test_kills.py",
    "services/test_project.py",
    "services/test_setup.py",
    "services/test_setup_credentials.py",
    "services/workspaces",
    "telemetry/test_exporter.py",
    "telemetry/test_optional.py",
    "telemetry/test_receivers.py",
    "test_cli.py",
    "test_deploy_example.py",
)
"""Folders and files whose tests start processes, or wait for seconds."""
_REAL_CLI = "[claude]"
"""In the names of the contract's tests."""
_STARTS_A_PROCESS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})
_TESTS = Path(__file__).parent


def fast_only(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the fast tests in `items`."""
    slow = [_TESTS / name for name in _SLOW]
    missing = [str(path) for path in slow if not path.exists()]
    if missing:
        raise pytest.UsageError(f"tests/fast_selection.py names files that are not there: {', '.join(missing)}")
    left_out = [
        item for item in items if _REAL_CLI in item.name or any(item.path.is_relative_to(path) for path in slow)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def refuse_processes() -> None:
    """Let whatever starts a process in this one fail, from now on."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _STARTS_A_PROCESS and PROBE not in arguments:
        raise RuntimeError("A test of `make test-fast` starts a process. Name its file in tests/fast_selection.py.")
