"""Answers to the interrupts of a graph that stores the conversation: the inputs that resume it, and the check of what they execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langgraph.types import Command

from ambient_runner.bridges.langgraph.interrupts import (
    GraphInterrupt,
    answers_by_interrupt,
    continues_after,
    find_interrupted_calls,
    is_breakpoint,
    is_executed,
)
from ambient_runner.bridges.langgraph.state_edits import to_storable
from ambient_runner.bridges.langgraph.tool_call_ids import message_key
from ambient_runner.bridges.toolkit.interrupts import framework_interrupt_id, has_same_arguments
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langgraph.types import StateSnapshot

    from ambient_runner.bridges.langgraph.graph import Graph, StateSchema
    from ambient_runner.bridges.langgraph.run_input import StoredThread
    from ambient_runner.protocol.events import ResumeEntry

__all__ = ["answer_inputs", "has_changed_arguments", "raised_interrupts", "read_injected_state", "retry_inputs"]


def answer_inputs(thread: StoredThread) -> list[Any] | None:
    """Return the inputs that resume a graph; None if it does not wait for these answers. Answers it has already used are left out.

    Raises: InvalidAnswer.
    """
    entries, state = thread.new_input.resume, thread.state
    if any(is_breakpoint(entry) for entry in entries):
        if not state.next:
            return None
        return [None] if all(map(continues_after, entries)) else []
    answers = answers_by_interrupt(entries, raised_interrupts(state), thread.context.schema.tool_names)
    answers = {name: to_storable(item) for name, item in answers.items()}
    return [Command(resume=answers)] if answers else None


def raised_interrupts(state: StateSnapshot) -> list[GraphInterrupt]:
    """Return the interrupts that are open in a stored state."""
    return [
        GraphInterrupt(
            id=interrupt.id, value=interrupt.value, response_schema=getattr(interrupt, "response_schema", None)
        )
        for interrupt in state.interrupts
    ]


def has_changed_arguments(thread: StoredThread) -> bool:
    """Return True if an answer would execute something else than what the person was asked about. Raises: InvalidAnswer."""
    raised = {interrupt.id: interrupt for interrupt in raised_interrupts(thread.state)}
    entries = [entry for entry in thread.new_input.resume if entry.status == "resolved"]
    answers = answers_by_interrupt(entries, raised.values(), thread.context.schema.tool_names)
    for entry in entries:
        interrupt = raised.get(framework_interrupt_id(entry.interrupt_id))
        if interrupt is None or not is_executed(answers[interrupt.id]):
            continue
        calls = find_interrupted_calls(interrupt)
        state = read_injected_state(thread.context.schema, calls, thread.values)
        if not has_same_arguments(entry.interrupt_id, calls, state=state) or _differ_from_stored(thread, entry, calls):
            return True
    return False


def _differ_from_stored(thread: StoredThread, entry: ResumeEntry, calls: Sequence[tuple[str, Any]]) -> bool:
    """Return True if the graph's conversation has one of these calls with other arguments: it executes that one."""
    run = current_run_or_none()
    asked = run.answered_interrupts.get(entry.interrupt_id) if run else None
    listed: Any = as_object(asked.interrupt.metadata if asked else None).get("toolCalls") or ()
    stored = thread.values.get(thread.context.config.messages_key)
    unanswered = {
        call_id: (call["name"], to_jsonable(call["args"]))
        for call_id, call in thread.context.call_ids.read_stored(stored).unanswered
    }
    shown = [as_object(item).get("toolCallId") for item in listed]
    return any(
        call_id in unanswered and unanswered[call_id] != call for call_id, call in zip(shown, calls, strict=False)
    )


def read_injected_state(
    schema: StateSchema, calls: Sequence[tuple[str, Any]], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of the state that the graph passes to the tools of these calls, as far as known."""
    keys = sorted({key for name, _ in calls for key in schema.injected_keys.get(name, ())})
    return {key: to_jsonable(values[key]) for key in keys if key in values}


async def retry_inputs(graph: Graph, thread: StoredThread) -> list[Any] | None:
    """Return the inputs that resume a graph again from an interrupt, when a message is retried that came together with the answer.

    The thread was rewound to there, and with it what the answer led to. If the results of all open calls are left, the graph does not need
    to produce them again.
    """
    context, state = thread.context, thread.state
    is_retry = context.new_ids is not None and not context.new_ids
    if not is_retry or not state.interrupts or context.requested_checkpoint:
        return None
    keys = {message_key(message) for message in thread.messages}
    unanswered = context.call_ids.read_stored(thread.values.get(context.config.messages_key)).unanswered
    if unanswered and all(call_id in keys for call_id, _ in unanswered):
        return None
    has_answers = await graph.has_stored_answers(cast("dict[str, Any]", state.config))
    return [Command(resume={})] if has_answers else None
