"""How a run ends: what the CLI's result says, as RUN_FINISHED, or what waits for someone outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.claude.client_tools import shown_name
from ambient_runner.bridges.claude.errors import refusal
from ambient_runner.bridges.claude.interrupts import interrupt_of
from ambient_runner.protocol.events import Cancelled, Interrupted, RunFinished, Success, TokenUsage

if TYPE_CHECKING:
    from claude_agent_sdk import ResultMessage

    from ambient_runner.bridges.claude.session import Session
    from ambient_runner.bridges.claude.translate import Translator
    from ambient_runner.protocol.events import Outcome, RunAgentInput

__all__ = ["finished", "parked"]


def finished(given: RunAgentInput, translator: Translator, spent: float, *, cancelled: bool) -> RunFinished:
    """The end of a turn. `spent` is what the process had cost before. Raises: ClaudeError for a turn that failed."""
    result = translator.result
    assert result is not None
    if result.is_error and not cancelled:
        error = refusal(translator.trouble, result.subtype)
        error.add_note(f"The CLI says: {result.subtype} {result.errors or result.result}")
        raise error
    return RunFinished(
        thread_id=given.thread_id,
        run_id=given.run_id,
        outcome=Cancelled() if cancelled else Success(),
        usage=_usage(result, translator.model),
        result=None if cancelled else _summary(result, spent),
    )


def parked(given: RunAgentInput, translator: Translator, session: Session, seconds: float) -> RunFinished:
    """The end of a run whose turn goes on in another one: questions first, else calls of the client's tools."""
    questions = [
        interrupt_of(
            one,
            seconds=seconds,
            call=translator.id_of(one.call),
            shown=shown_name(one.tool),
            lane=translator.lane_of(one.call),
        )
        for one in session.open_questions
    ]
    waiting = [one.call for one in session.calls.open if one.call]
    outcome: Outcome = Interrupted(interrupts=questions) if questions else Success(pending_tool_call_ids=waiting)
    return RunFinished(thread_id=given.thread_id, run_id=given.run_id, outcome=outcome)


def _summary(result: ResultMessage, spent: float) -> dict[str, Any]:
    """What the turn took. The CLI sums its cost over the life of the process."""
    summary: dict[str, Any] = {"turns": result.num_turns, "durationMs": result.duration_ms}
    if result.total_cost_usd is not None:
        summary["costUsd"] = round(max(result.total_cost_usd - spent, 0.0), 8)
    if result.structured_output is not None:
        summary["output"] = result.structured_output
    return summary


def _usage(result: ResultMessage, model: str | None) -> list[TokenUsage] | None:
    """The tokens of the turn. The provider counts what it found in its cache apart; here it is part of the input."""
    used = result.usage or {}
    read, written = int(used.get("cache_read_input_tokens") or 0), int(used.get("cache_creation_input_tokens") or 0)
    sent, received = int(used.get("input_tokens") or 0) + read + written, int(used.get("output_tokens") or 0)
    if not sent + received:
        return None
    return [
        TokenUsage(
            provider="anthropic",
            model=model,
            input_tokens=sent,
            output_tokens=received,
            total_tokens=sent + received,
            reasoning_tokens=_thinking(used) or None,
            cached_input_tokens=read or None,
            cache_write_input_tokens=written or None,
        )
    ]


def _thinking(used: dict[str, Any]) -> int:
    match used:
        case {"output_tokens_details": {"thinking_tokens": int(tokens)}}:
            return tokens
        case _:
            return 0
