"""The terminal event of a run: what the graph waits for, or success. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.bridges.langgraph.errors import CheckpointerRequired
from ambient_runner.bridges.langgraph.interrupts import breakpoint_interrupt, to_interrupt
from ambient_runner.bridges.toolkit.interrupts import asked_again_id
from ambient_runner.protocol.events import Interrupted, RunFinished, Success
from ambient_runner.protocol.profiles import mark_event_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.langgraph.run_input import RunContext
    from ambient_runner.bridges.langgraph.translate import Translator
    from ambient_runner.protocol.events import Outcome

__all__ = ["build_run_finished"]


def build_run_finished(
    context: RunContext,
    translator: Translator,
    checkpoint_id: str | None,
    next_nodes: Sequence[str],
    *,
    is_asking_again: bool = False,
) -> RunFinished:
    """Return RUN_FINISHED. `checkpoint_id` is the graph's newest, `next_nodes` are those it would run next.

    With `is_asking_again`, interrupts get new ids. Raises: CheckpointerRequired.
    """
    if translator.is_waiting and not context.has_checkpointer:
        raise CheckpointerRequired
    outcome = _run_outcome(context, translator, checkpoint_id, next_nodes)
    return RunFinished(
        thread_id=context.run_input.thread_id,
        run_id=context.run_input.run_id,
        outcome=_with_new_ids(outcome) if is_asking_again else outcome,
        usage=translator.usage.tokens,
        metadata={"checkpointId": checkpoint_id} if checkpoint_id else None,
    )


def _run_outcome(
    context: RunContext, translator: Translator, checkpoint_id: str | None, next_nodes: Sequence[str]
) -> Outcome:
    seconds, client_call_id = context.config.interrupt_timeout, context.call_ids.latest_client_id
    if translator.interrupts:
        raised, pending = translator.interrupts.values(), translator.pending_calls()
        interrupts = [to_interrupt(interrupt, seconds, client_call_id, pending) for interrupt in raised]
        if not context.config.emit_interrupt_outcome:
            interrupts = [mark_event_only(interrupt) for interrupt in interrupts]
        return Interrupted(interrupts=interrupts)
    if translator.is_paused:
        return Interrupted(interrupts=[breakpoint_interrupt(checkpoint_id or "", next_nodes, seconds)])
    return Success(pending_tool_call_ids=translator.pending_client_calls() or None)


def _with_new_ids(outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Interrupted):
        return outcome
    return Interrupted(interrupts=[replace(asked, id=asked_again_id(asked.id)) for asked in outcome.interrupts])
