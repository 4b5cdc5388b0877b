"""Outcome of an ADK run: RUN_FINISHED with the calls that are still open, or RUN_ERROR of the model. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.adk.errors import ADKError
from ambient_runner.bridges.adk.interrupts import client_call_interrupt, to_interrupt
from ambient_runner.protocol.events import Cancelled, Interrupted, RunError, RunFinished, Success

if TYPE_CHECKING:
    from google.adk.events import Event as ADKEvent

    from ambient_runner.bridges.adk.run_input import ADKInput
    from ambient_runner.bridges.adk.translate import Translator
    from ambient_runner.protocol.events import Interrupt, Outcome, RunAgentInput

__all__ = ["build_model_error", "build_run_finished", "is_root_output"]


def is_root_output(event: ADKEvent) -> bool:
    """Return True if the event has the output of the root node, such as a workflow. Paths of inner nodes have several parts."""
    node = event.node_info
    has_output = event.output is not None or bool(node.message_as_output)
    return has_output and any(path and "/" not in path for path in (node.path, *(node.output_for or ())))


def build_model_error(translator: Translator) -> RunError | None:
    """Return RUN_ERROR for an error that the model reported without an exception; None if there is none."""
    code = translator.error_code
    if code is None or translator.is_aborted:
        return None
    return RunError(message=_public_error_message(code), code=_public_error_code(code), usage=translator.usage.tokens)


def build_run_finished(run_input: RunAgentInput, adk_input: ADKInput, translator: Translator) -> RunFinished:
    """Return RUN_FINISHED of a run whose model reported no error."""
    outcome = _run_outcome(adk_input, translator)
    return RunFinished(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        outcome=outcome,
        usage=translator.usage.tokens,
        result=translator.result if isinstance(outcome, Success) else None,
    )


def _run_outcome(adk_input: ADKInput, translator: Translator) -> Outcome:
    if translator.is_aborted:
        return Cancelled()
    interrupts = adk_input.asked_again or _open_interrupts(translator)
    if interrupts:
        return Interrupted(interrupts=interrupts)
    open_calls = [*adk_input.unanswered_ids, *translator.pending_calls]
    return Success(pending_tool_call_ids=open_calls or None)


def _open_interrupts(translator: Translator) -> list[Interrupt]:
    """Return ADK's interrupts and, if there are any, the calls of client tools as interrupts too."""
    interrupts = [to_interrupt(pending.call, pending.subagent_id) for pending in translator.interrupts.values()]
    if not interrupts:
        return []
    calls = translator.pending_calls.values()
    return [*interrupts, *(client_call_interrupt(pending.call, pending.subagent_id) for pending in calls)]


def _public_error_code(code: str) -> str:
    """Return the model's own error code, such as SAFETY, if it is well-formed; otherwise the generic code."""
    return code if code.isascii() and code.replace("_", "").isupper() else ADKError.code


def _public_error_message(code: str) -> str:
    is_public = _public_error_code(code) == code
    return f"The model ended its answer ({code})." if is_public else ADKError().message
