"""Outcome of a Strands run: the SDK's result as RUN_FINISHED."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.client_tools import CLIENT_TOOL_INTERRUPT
from ambient_runner.bridges.strands.errors import StrandsError
from ambient_runner.bridges.strands.interrupts import find_interrupted_call, to_interrupts
from ambient_runner.bridges.strands.subagents import has_failed
from ambient_runner.bridges.toolkit.interrupts import record_arguments
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.events import Cancelled, Custom, Interrupted, RunFinished, Success

if TYPE_CHECKING:
    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.translate import PendingInterrupt, Translator
    from ambient_runner.protocol.events import Event, Interrupt, Outcome, RunAgentInput, TokenUsage

__all__ = ["build_run_finished", "stop_reason_events"]

_TOKEN_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "cached_input_tokens": "cacheReadInputTokens",
    "cache_write_input_tokens": "cacheWriteInputTokens",
}
_ORDINARY_STOP_REASONS = {"end_turn", "tool_use", "stop_sequence", "interrupt", "cancelled", None}


def build_run_finished(
    run_input: RunAgentInput, translator: Translator, config: StrandsAgentConfig, *, cancelled: bool
) -> RunFinished:
    """Return RUN_FINISHED of a run that did not raise.

    Raises: StrandsError for a graph or swarm that failed, which the SDK reports in its result instead of an exception.
    """
    result = translator.result
    if has_failed(result):
        raise StrandsError
    return RunFinished(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        outcome=_run_outcome(translator, config, cancelled=cancelled),
        usage=_token_usage(result),
        result=_structured_output(result),
    )


def stop_reason_events(result: Any) -> list[Event]:
    """Return an `AgentStopped` event if the model stopped for an unusual reason, such as a guardrail, a filter or a limit."""
    reason = getattr(result, "stop_reason", None)
    return [] if reason in _ORDINARY_STOP_REASONS else [Custom(name="AgentStopped", value={"stop_reason": reason})]


def _run_outcome(translator: Translator, config: StrandsAgentConfig, *, cancelled: bool) -> Outcome:
    pending = translator.interrupts.values()
    asked = [item for item in pending if item.native.name != CLIENT_TOOL_INTERRUPT]
    if asked:
        return Interrupted(interrupts=_raise_interrupts(asked, config.interrupt_timeout))
    call_ids = [item.native.reason["call"] for item in pending if item.native.name == CLIENT_TOOL_INTERRUPT]
    return Cancelled() if cancelled else Success(pending_tool_call_ids=call_ids or None)


def _raise_interrupts(asked: list[PendingInterrupt], seconds: float | None) -> list[Interrupt]:
    """Return the AG-UI interrupts, and record what they are about."""
    interrupts = to_interrupts(asked, seconds)
    for item, interrupt in zip(asked, interrupts, strict=True):
        call = find_interrupted_call(item)
        if call is not None:
            record_arguments(interrupt.id, [call])
    return interrupts


def _token_usage(result: Any) -> list[TokenUsage] | None:
    """Return the token usage of this run: an agent's accumulated usage covers all its runs, so its latest invocation is read."""
    latest = getattr(getattr(result, "metrics", None), "latest_agent_invocation", None)
    reported = latest.usage if latest is not None else getattr(result, "accumulated_usage", None)
    if not reported or not reported.get("totalTokens"):
        return None
    usage = Usage()
    usage.add_counts({name: reported.get(native) for name, native in _TOKEN_COUNTS.items()}, model=None)
    return usage.tokens


def _structured_output(result: Any) -> Any:
    """Return the agent's structured output as JSON; None if it has none."""
    output = getattr(result, "structured_output", None)
    return None if output is None else output.model_dump(mode="json")
