"""Outcome of a run of an ACP agent: RUN_FINISHED from the end of its turn, or with what it waits for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.interrupts import to_interrupt
from ambient_runner.bridges.toolkit.interrupts import record_arguments
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.events import Cancelled, Interrupted, RunFinished, Success

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.bridges.acp.interrupts import AgentRequest
    from ambient_runner.bridges.acp.session import AgentSession
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.protocol.events import Interrupt, Outcome, RunAgentInput, TokenUsage

__all__ = ["build_run_cancelled", "build_run_finished", "build_run_waiting", "find_interrupted_call"]

_NORMAL_END = "end_turn"


def build_run_finished(
    run_input: RunAgentInput,
    result: Mapping[str, Any],
    *,
    is_stopped: bool,
) -> RunFinished:
    """Return the end of a turn."""
    stop_reason = result.get("stopReason")
    is_normal = stop_reason == _NORMAL_END or not isinstance(stop_reason, str)
    return RunFinished(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        outcome=Cancelled() if is_stopped else Success(),
        usage=_token_usage(as_object(result.get("usage"))),
        result=None if is_stopped or is_normal else {"stopReason": stop_reason},
    )


def build_run_waiting(
    run_input: RunAgentInput, session: AgentSession, requests: Sequence[AgentRequest], shared: ACPBridgeState
) -> RunFinished:
    """Return the end of a run whose turn continues in another one: with these interrupts, else with calls of the client's tools."""
    interrupts = [_build_interrupt(request, session, shared) for request in requests]
    for request in requests:
        record_arguments(request.id, [find_interrupted_call(request, session)])
    pending = [call.client_id for call in session.calls.open_calls if call.client_id]
    outcome: Outcome = Interrupted(interrupts=interrupts) if interrupts else Success(pending_tool_call_ids=pending)
    return RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=outcome)


def build_run_cancelled(run_input: RunAgentInput) -> RunFinished:
    """Return the end of a stopped run whose turn has no end."""
    return RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=Cancelled())


def find_interrupted_call(request: AgentRequest, session: AgentSession) -> tuple[str, Any]:
    """Return the call that a request is about, as it stands now: name and arguments. Without arguments its description counts."""
    record = session.turn.tool_calls.get(request.call_id)
    members = {**request.tool_call, **session.known_calls.members_of(request.call_id)}
    described = {key: members[key] for key in ("title", "content") if key in members}
    return record.name if record else "", members.get("rawInput", described)


def _build_interrupt(request: AgentRequest, session: AgentSession, shared: ACPBridgeState) -> Interrupt:
    record = session.turn.tool_calls.get(request.call_id)
    arguments = session.known_calls.members_of(request.call_id).get("rawInput")
    return to_interrupt(
        request,
        seconds=shared.config.interrupt_timeout,
        agent=shared.profile.title,
        tool_call_id=record.client_id if record and record.is_started else None,
        tool=record.name if record else "a tool",
        subagent_id=record.subagent_id if record else None,
        arguments=None if record is None or record.sent_input == arguments else arguments,
    )


def _token_usage(counts: Mapping[str, Any]) -> list[TokenUsage] | None:
    """Return the tokens of the turn, as the agent counts them."""
    sent, received = _count(counts, "inputTokens"), _count(counts, "outputTokens")
    if not sent + received:
        return None
    usage = Usage()
    usage.add_counts(
        {
            "input_tokens": sent,
            "output_tokens": received,
            "total_tokens": _count(counts, "totalTokens") or sent + received,
            "reasoning_tokens": _count(counts, "thoughtTokens") or None,
            "cached_input_tokens": _count(counts, "cachedReadTokens") or None,
            "cache_write_input_tokens": _count(counts, "cachedWriteTokens") or None,
        },
        model=None,
    )
    return usage.tokens


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and value > 0 else 0
