"""How a run ends: what the SDK's result says, as RUN_FINISHED."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.errors import StrandsError
from ambient_runner.bridges.strands.instrumentation import FRONTEND
from ambient_runner.bridges.strands.interrupts import questions_of
from ambient_runner.bridges.strands.subagents import has_failed
from ambient_runner.protocol.events import Cancelled, Custom, Interrupted, RunFinished, Success, TokenUsage

if TYPE_CHECKING:
    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.translate import Translator
    from ambient_runner.protocol.events import Event, Outcome, RunAgentInput

__all__ = ["finished", "stop_signals"]

_ORDINARY = {"end_turn", "tool_use", "stop_sequence", "interrupt", "cancelled", None}


def finished(
    given: RunAgentInput, translator: Translator, config: StrandsAgentConfig, *, cancelled: bool
) -> RunFinished:
    """The end of a run that did not raise. Raises: StrandsError for a graph or swarm that failed without saying so."""
    result = translator.result
    if has_failed(result):
        raise StrandsError
    return RunFinished(
        thread_id=given.thread_id,
        run_id=given.run_id,
        outcome=_outcome(translator, config, cancelled=cancelled),
        usage=_usage(result),
        result=_structured(result),
    )


def stop_signals(result: Any) -> list[Event]:
    """What clients should know when the model did not simply finish: a guardrail, a filter, a limit."""
    reason = getattr(result, "stop_reason", None)
    return [] if reason in _ORDINARY else [Custom(name="AgentStopped", value={"stop_reason": reason})]


def _outcome(translator: Translator, config: StrandsAgentConfig, *, cancelled: bool) -> Outcome:
    asked = questions_of(translator.questions.values(), config.interrupt_seconds)
    if asked:
        return Interrupted(interrupts=asked)
    waiting = [one.interrupt.reason["call"] for one in translator.questions.values() if one.interrupt.name == FRONTEND]
    return Cancelled() if cancelled else Success(pending_tool_call_ids=waiting or None)


def _usage(result: Any) -> list[TokenUsage] | None:
    """What this run used. An agent's own sum goes on over all its runs, so the latest one is asked for."""
    latest = getattr(getattr(result, "metrics", None), "latest_agent_invocation", None)
    counted = latest.usage if latest is not None else getattr(result, "accumulated_usage", None)
    if not counted or not counted.get("totalTokens"):
        return None
    return [
        TokenUsage(
            input_tokens=counted["inputTokens"],
            output_tokens=counted["outputTokens"],
            total_tokens=counted["totalTokens"],
            cached_input_tokens=counted.get("cacheReadInputTokens"),
            cache_write_input_tokens=counted.get("cacheWriteInputTokens"),
        )
    ]


def _structured(result: Any) -> Any:
    """The agent's structured output, if it was asked for one."""
    output = getattr(result, "structured_output", None)
    return None if output is None else output.model_dump(mode="json")
