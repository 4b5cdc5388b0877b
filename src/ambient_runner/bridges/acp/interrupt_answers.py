"""Answers of a person, and results of the client's tools, for the process that waits for them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.buffered_messages import QueuedPrompt
from ambient_runner.bridges.acp.interrupts import decline_message, is_executed, to_response
from ambient_runner.bridges.acp.outcome import find_interrupted_call
from ambient_runner.bridges.acp.permissions import answer_event
from ambient_runner.bridges.toolkit.interrupts import has_same_arguments

if TYPE_CHECKING:
    from ambient_runner.bridges.acp.interrupts import AgentRequest
    from ambient_runner.bridges.acp.session import AgentSession
    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.protocol.events import Event, ResumeEntry

__all__ = ["deliver_answers"]

logger = logging.getLogger(__name__)


def deliver_answers(session: AgentSession, context: RunContext) -> list[Event]:
    """Answer what was shown to clients. Return the events that tell who decided what.

    Requests that came after the run had ended that showed the others are shown by this one. Raises: InvalidInput, before any is answered.
    """
    new_input = context.new_input
    entries = {entry.interrupt_id: entry for entry in new_input.resume}
    shown = [request for request in session.requests.all() if request.is_shown] if new_input.resume else []
    events: list[Event] = []
    for request, response in [(request, to_response(request, entries.get(request.id))) for request in shown]:
        if request.is_elicitation:
            _answer_elicitation(session, request, response, entries.get(request.id))
        else:
            events += _answer_request(session, request, response, entries.get(request.id), context)
    session.calls.deliver_results(new_input.results)
    return events


def _answer_elicitation(
    session: AgentSession, request: AgentRequest, response: dict[str, Any], entry: ResumeEntry | None
) -> None:
    request.resolve(response)
    if response["action"] == "decline":
        _queue_message(session, entry)


def _answer_request(
    session: AgentSession,
    request: AgentRequest,
    response: dict[str, Any],
    entry: ResumeEntry | None,
    context: RunContext,
) -> list[Event]:
    """Give the answer to the process. A call with other arguments than those that were shown is asked about again."""
    is_allowed, call = is_executed(request, response), find_interrupted_call(request, session)
    if is_allowed and not has_same_arguments(request.id, [call]):
        logger.warning(
            "Run %s on thread %s: the arguments of an approved call have changed. It is not executed; it is asked again.",
            context.run_input.run_id,
            context.run_input.thread_id,
        )
        session.requests.ask_again(request)
        return []
    if is_allowed:
        session.allow_mode_switch(request)
    else:
        _queue_message(session, entry)
    request.resolve(response)
    record = session.turn.tool_calls.get(request.call_id)
    status = None if entry is None else entry.status
    return [answer_event(response, record, context.run, is_allowed=is_allowed, status=status)]


def _queue_message(session: AgentSession, entry: ResumeEntry | None) -> None:
    """Let the agent know, when its turn has ended, what the user said with a rejection."""
    if said := decline_message(entry):
        session.queued_prompts.append(QueuedPrompt([{"type": "text", "text": said}]))
