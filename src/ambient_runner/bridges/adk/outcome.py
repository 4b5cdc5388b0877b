"""Outcome of an ADK run: its terminal event, from the translator's findings and the calls that are still open. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.adk.interrupts import client_call_interrupt, interrupt_of
from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import Cancelled, Interrupted, RunError, RunFinished, Success

if TYPE_CHECKING:
    from ambient_runner.bridges.adk.run_input import AdkInput
    from ambient_runner.bridges.adk.translate import Translator
    from ambient_runner.protocol.events import Interrupt, Outcome, RunAgentInput, Terminal

__all__ = ["build_terminal"]


def build_terminal(run_input: RunAgentInput, adk_input: AdkInput, translator: Translator) -> Terminal:
    """Return RUN_FINISHED, or RUN_ERROR for an error that the model reported without an exception."""
    usage, error_code = translator.usage.tokens, translator.error_code
    if error_code is not None and not translator.is_aborted:
        return RunError(message=_public_error_message(error_code), code=_public_error_code(error_code), usage=usage)
    outcome = _run_outcome(adk_input, translator)
    return RunFinished(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        outcome=outcome,
        usage=usage,
        result=translator.result if isinstance(outcome, Success) else None,
    )


def _run_outcome(adk_input: AdkInput, translator: Translator) -> Outcome:
    if translator.is_aborted:
        return Cancelled()
    interrupts = _open_interrupts(translator)
    if interrupts:
        return Interrupted(interrupts=interrupts)
    open_calls = [*adk_input.unanswered_ids, *translator.pending_calls]
    return Success(pending_tool_call_ids=open_calls or None)


def _open_interrupts(translator: Translator) -> list[Interrupt]:
    """Return ADK's interrupts and, if there are any, the calls of client tools as interrupts too."""
    interrupts = [interrupt_of(pending.call, pending.lane) for pending in translator.interrupts.values()]
    if not interrupts:
        return []
    calls = translator.pending_calls.values()
    return [*interrupts, *(client_call_interrupt(pending.call, pending.lane) for pending in calls)]


def _public_error_code(code: str) -> str:
    """Return the model's own error code, such as SAFETY, if it is well-formed; otherwise the generic code."""
    return code if code.isascii() and code.replace("_", "").isupper() else BridgeError.code


def _public_error_message(code: str) -> str:
    is_public = _public_error_code(code) == code
    return f"The model ended its answer ({code})." if is_public else BridgeError().message
