"""Outcome of a run of Claude: RUN_FINISHED from the CLI's result, or with what it waits for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.claude.client_tools import client_tool_name
from ambient_runner.bridges.claude.errors import error_for_kinds
from ambient_runner.bridges.claude.interrupts import to_interrupt
from ambient_runner.bridges.toolkit.interrupts import record_arguments
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.events import Cancelled, Interrupted, RunFinished, Success

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claude_agent_sdk import ResultMessage

    from ambient_runner.bridges.claude.interrupts import PermissionRequest
    from ambient_runner.bridges.claude.session import Session
    from ambient_runner.bridges.claude.translate import Translator
    from ambient_runner.protocol.events import Outcome, RunAgentInput, TokenUsage

__all__ = ["build_run_cancelled", "build_run_finished", "build_run_waiting", "find_interrupted_call"]


def build_run_finished(
    run_input: RunAgentInput, result: ResultMessage, translator: Translator, cost_before: float, *, cancelled: bool
) -> RunFinished:
    """Return the end of a turn. `cost_before` is the cost of the process before it. Raises: ClaudeError for a turn that failed."""
    if result.is_error and not cancelled:
        error = error_for_kinds(translator.error_kind, result.subtype)
        error.add_note(f"The CLI says: {result.subtype} {result.errors or result.result}")
        raise error
    return RunFinished(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        outcome=Cancelled() if cancelled else Success(),
        usage=_token_usage(result, translator.model),
        result=None if cancelled else _turn_summary(result, cost_before),
    )


def build_run_waiting(
    run_input: RunAgentInput,
    translator: Translator,
    session: Session,
    requests: Sequence[PermissionRequest],
    seconds: float,
) -> RunFinished:
    """Return the end of a run whose turn continues in another one: with these interrupts, else with calls of the client's tools."""
    interrupts = [
        to_interrupt(
            request,
            seconds=seconds,
            tool_call_id=translator.client_id_of(request.call_id),
            tool_name=client_tool_name(request.tool),
            subagent_id=translator.subagent_of(request.call_id),
        )
        for request in requests
    ]
    for request in requests:
        record_arguments(request.id, [find_interrupted_call(request)])
    pending = [call.client_id for call in session.calls.open_calls if call.client_id]
    outcome: Outcome = Interrupted(interrupts=interrupts) if interrupts else Success(pending_tool_call_ids=pending)
    return RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=outcome)


def find_interrupted_call(request: PermissionRequest) -> tuple[str, dict[str, Any]]:
    """Return the call that a permission request is about: name and arguments."""
    return client_tool_name(request.tool), request.input


def build_run_cancelled(run_input: RunAgentInput) -> RunFinished:
    """Return the end of a stopped run that has no result."""
    return RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=Cancelled())


def _turn_summary(result: ResultMessage, cost_before: float) -> dict[str, Any]:
    """Return the effort of the turn. The CLI sums its cost over the lifetime of the process."""
    summary: dict[str, Any] = {"turns": result.num_turns, "durationMs": result.duration_ms}
    if result.total_cost_usd is not None:
        summary["costUsd"] = round(max(result.total_cost_usd - cost_before, 0.0), 8)
    if result.structured_output is not None:
        summary["output"] = result.structured_output
    return summary


def _token_usage(result: ResultMessage, model: str | None) -> list[TokenUsage] | None:
    """Return the tokens of the turn. The provider counts cached tokens separately; here they are part of the input."""
    counts = result.usage or {}
    read, written = int(counts.get("cache_read_input_tokens") or 0), int(counts.get("cache_creation_input_tokens") or 0)
    sent, received = int(counts.get("input_tokens") or 0) + read + written, int(counts.get("output_tokens") or 0)
    if not sent + received:
        return None
    usage = Usage()
    usage.add_counts(
        {
            "input_tokens": sent,
            "output_tokens": received,
            "total_tokens": sent + received,
            "reasoning_tokens": _reasoning_tokens(counts) or None,
            "cached_input_tokens": read or None,
            "cache_write_input_tokens": written or None,
        },
        model=model,
        provider="anthropic",
    )
    return usage.tokens


def _reasoning_tokens(usage: dict[str, Any]) -> int:
    match usage:
        case {"output_tokens_details": {"thinking_tokens": int(tokens)}}:
            return tokens
        case _:
            return 0
