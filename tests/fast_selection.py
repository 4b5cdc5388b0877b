"""The part of the suite for the inner loop (`make test-fast`): no browsers, no Node, no kills, no child processes.

A test that starts a process all the same fails there, with the advice to name it here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.machine_speed import PROBE

__all__ = ["check_selection", "is_slow", "refuse_processes", "starts_a_process"]

_SLOW = (
    "adapters",
    "agents",
    "benchmarks/test_scenes.py",
    "bridges/acp/test_elicitations.py",
    "bridges/acp/test_ended_turns.py",
    "bridges/acp/test_hard_spots.py",
    "bridges/acp/test_interrupts.py",
    "bridges/acp/test_child_faults.py",
    "bridges/acp/test_client_tool_runs.py",
    "bridges/acp/test_held_elsewhere.py",
    "bridges/acp/test_permissions.py",
    "bridges/acp/test_process_pool.py",
    "bridges/acp/test_recorded_agents.py",
    "bridges/acp/test_run.py",
    "bridges/acp/test_session_ends.py",
    "bridges/acp/test_tool_relay.py",
    "bridges/adk/test_cuts.py",
    "bridges/adk/test_examples.py",
    "bridges/adk/test_hooks.py",
    "bridges/adk/test_optional.py",
    "bridges/adk/test_replicas.py",
    "bridges/adk/test_routes.py",
    "bridges/adk/test_sessions.py",
    "bridges/claude/test_examples.py",
    "bridges/claude/test_interrupts.py",
    "bridges/claude/test_memory.py",
    "bridges/claude/test_optional.py",
    "bridges/claude/test_permissions.py",
    "bridges/claude/test_process.py",
    "bridges/claude/test_state.py",
    "bridges/claude/test_text.py",
    "bridges/claude/test_tools.py",
    "bridges/langgraph/test_cuts.py",
    "bridges/langgraph/test_examples.py",
    "bridges/langgraph/test_optional.py",
    "bridges/langgraph/test_providers.py",
    "bridges/langgraph/test_remote_graph.py",
    "bridges/lines/test_run.py",
    "bridges/remote/test_examples.py",
    "bridges/remote/test_failures.py",
    "bridges/remote/test_optional.py",
    "bridges/strands/test_cuts.py",
    "bridges/strands/test_examples.py",
    "bridges/strands/test_facade.py",
    "bridges/strands/test_paused.py",
    "bridges/toolkit/test_sdk.py",
    "cli/test_agent_login.py",
    "cli/test_agent_sessions.py",
    "cli/test_run.py",
    "cli/test_run_acp.py",
    "cli/test_serve.py",
    "cli/test_stdio.py",
    "contract/test_bridges.py",
    "dojo",
    "e2e",
    "faults",
    "faults/test_blocked_loop.py",
    "faults/test_forged_events.py",
    "faults/test_workspace_records.py",
    "faults/test_retained_streams.py",
    "faults/test_replaced_store.py",
    "faults/test_restored_backup.py",
    "faults/test_schema_versions.py",
    "faults/test_serve_limits.py",
    "faults/test_stalled_readers.py",
    "faults/test_unwritable_store.py",
    "fuzz/test_secrets.py",
    "ledger/test_process_identity.py",
    "ledger/test_sqlite_processes.py",
    "processes/test_bubblewrap.py",
    "processes/test_child.py",
    "processes/test_orphan_reaper.py",
    "processes/test_sandbox.py",
    "processes/test_spawn.py",
    "runs/test_containment.py",
    "runs/test_loop_monitor.py",
    "server/routes/test_files.py",
    "server/routes/test_platform.py",
    "server/test_platform.py",
    "server/test_platform_example.py",
    "server/test_remote_platform.py",
    "server/test_request_grants.py",
    "server/test_secrets_everywhere.py",
    "services/mcp/test_bounds.py",
    "services/mcp/test_status.py",
    "services/test_blind_links.py",
    "services/test_bounded_http.py",
    "services/test_kills.py",
    "services/test_project.py",
    "services/test_setup.py",
    "services/test_setup_credentials.py",
    "services/workspaces",
    "telemetry/test_exporter.py",
    "telemetry/test_log_format.py",
    "telemetry/test_optional.py",
    "telemetry/test_receivers.py",
    "test_cli.py",
    "test_deploy_example.py",
    "testing/test_bridge.py",
)
"""Directories and files whose tests start processes, or wait for seconds."""
_SLOW_TESTS = ("[claude]", "test_importing_the_public_modules_imports_no_framework")
"""Parts of the names of tests that start processes in files that are fast otherwise."""
_PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})
_TESTS = Path(__file__).parent


def check_selection() -> None:
    """Raises: pytest.UsageError when a file named here was moved."""
    missing = [name for name in _SLOW if not (_TESTS / name).exists()]
    if missing:
        raise pytest.UsageError(f"tests/fast_selection.py names what is not there: {', '.join(missing)}")


def is_slow(path: Path) -> bool:
    """Return True for a file or directory that `make test-fast` does not even load."""
    return any(path.is_relative_to(_TESTS / name) for name in _SLOW)


def starts_a_process(item: pytest.Item) -> bool:
    """Return True for a slow test in a file that is fast otherwise."""
    return any(part in item.name for part in _SLOW_TESTS)


def refuse_processes() -> None:
    """Let whatever starts a process in this one fail, from now on."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _PROCESS_EVENTS and PROBE not in arguments:
        raise RuntimeError("A test of `make test-fast` starts a process. Name it in tests/fast_selection.py.")
