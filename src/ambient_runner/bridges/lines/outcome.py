"""Outcome of a run of a command: RUN_FINISHED from the end of its turn. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import Cancelled, RunFinished, Success

if TYPE_CHECKING:
    from ambient_runner.bridges.toolkit.provider import StopReason
    from ambient_runner.bridges.toolkit.usage import Usage
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["build_run_cancelled", "build_run_finished"]


def build_run_finished(run_input: RunAgentInput, stop_reason: StopReason, usage: Usage) -> RunFinished:
    """Return the end of a turn."""
    return RunFinished(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        outcome=Cancelled() if stop_reason == "cancelled" else Success(),
        usage=usage.tokens,
        result=None if stop_reason in ("end_turn", "cancelled") else {"stopReason": stop_reason},
    )


def build_run_cancelled(run_input: RunAgentInput) -> RunFinished:
    """Return the end of a stopped run whose turn has no end."""
    return RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=Cancelled())
