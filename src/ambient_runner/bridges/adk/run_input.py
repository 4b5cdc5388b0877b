"""Input of one ADK run: the new part of the RunAgentInput as ADK contents, for a session that is synchronized with the thread."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.external_events import adopted_messages, adopted_state, insert_adopted
from ambient_runner.bridges.adk.input_edits import edit_input
from ambient_runner.bridges.adk.interrupts import (
    CANCELLED_RESPONSE,
    CREDENTIAL_CALL,
    INTERRUPT_CALLS,
    answer_part,
    client_call_interrupt,
    find_interrupted_call,
    has_secrets,
    is_confirmed,
    target_call_id,
    to_interrupt,
)
from ambient_runner.bridges.adk.messages import (
    is_failure,
    is_initial_result,
    response_part,
    result_content,
    result_part,
    to_content_parts,
    user_content,
)
from ambient_runner.bridges.adk.session_sync import live_events
from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.content import context_text
from ambient_runner.bridges.toolkit.interrupts import asked_again_id, check_restored_calls, framework_interrupt_id
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.turns import SystemTurn, collect_tool_calls, find_new_input
from ambient_runner.errors import InterruptNotOpen, NoUserMessage
from ambient_runner.projections.json_patch import json_equal
from ambient_runner.projections.state import is_hidden
from ambient_runner.protocol.events import AssistantMessage, ToolCallResult, ToolMessage, UserMessage
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from google.adk.sessions import Session
    from google.genai import types

    from ambient_runner.bridges.adk.config import InputTransformer
    from ambient_runner.bridges.adk.memory import SessionMemory
    from ambient_runner.bridges.adk.sessions import ThreadSession
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.bridges.toolkit.turns import NewInput, TurnToolResult
    from ambient_runner.protocol.events import Content, Event, Interrupt, Message, RunAgentInput, Tool

logger = logging.getLogger(__name__)

__all__ = ["ADKInput", "RunContext", "build_adk_input"]

_SIGN_IN_LOST = {"error": "The sign-in was interrupted. Ask for it again."}


@dataclass(kw_only=True, slots=True)
class ADKInput:
    """ADK is run with each of `messages` in order. Without messages the run ends at once, because calls still wait."""

    messages: list[types.Content] = field(default_factory=list["types.Content"])
    user_message_id: str
    """Id of the newest user message."""
    state_delta: dict[str, Any]
    tools: Sequence[Tool] = ()
    """The client's tools."""
    instructions: list[str] = field(default_factory=list[str])
    context: list[types.Content] = field(default_factory=list["types.Content"])
    first_events: list[Event] = field(default_factory=list["Event"])
    """Events to send before the first event of ADK."""
    known_calls: set[str] = field(default_factory=set[str])
    """Ids of all calls of the conversation so far, including rewound ones."""
    unanswered_ids: list[str] = field(default_factory=list[str])
    """Ids of calls that still wait although other calls of their turn have results."""
    asked_again: list[Interrupt] = field(default_factory=list["Interrupt"])
    """The interrupts that were answered, to be raised again: the arguments of one of them have changed, and ADK is not run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Input of a run and the known facts about its thread. `new_ids` is None without a server."""

    run_input: RunAgentInput
    memory: SessionMemory | None
    is_continuation: bool
    new_ids: Collection[str] | None
    convert: InputTransformer | None
    epoch: str = ""
    """Epoch of the thread; empty without a server."""
    structured_agents: Collection[str] = ()


async def build_adk_input(context: RunContext, sessions: ThreadSession, state: StateStore) -> ADKInput:
    """Open and synchronize the session, and return the input for ADK. Raises: NoUserMessage, InterruptNotOpen."""
    posted = replace(context.run_input, messages=_merge_subagent_messages(context.run_input.messages))
    edited = await edit_input(posted, context.convert, context.new_ids)
    run_input, answered = edited.run_input, edited.answered
    new_input = find_new_input(run_input, new_ids=None if context.new_ids is None else {*context.new_ids, *answered})
    state_events = _apply_state_edits(state, posted.state, run_input.state)
    client_state = _visible_state(run_input.state)
    session = await sessions.open_synced(
        new_input.history,
        context.memory,
        client_state,
        is_continuation=context.is_continuation,
        assistant_messages={m.id: m for m in run_input.messages if isinstance(m, AssistantMessage)},
    )
    adopted_events = _adopt_external_events(context, sessions, state)
    client_state |= _newer_state(context, sessions)
    session_state = _visible_state(session.state)
    if context.memory is None:
        # In the first run the client does not know the session's keys yet. Later, a missing key was removed by the client.
        state.update_silently({key: value for key, value in session_state.items() if key not in client_state})
    results = [_result_event(result) for result in new_input.results if result.call_id in answered.values()]
    adk_input = ADKInput(
        user_message_id=next((m.id for m in reversed(posted.messages) if isinstance(m, UserMessage)), ""),
        state_delta=_state_delta(session_state, client_state, is_continuation=context.memory is not None),
        tools=run_input.tools,
        instructions=[turn.text for turn in new_input.history if isinstance(turn, SystemTurn)],
        context=_context_contents(run_input),
        first_events=[*state_events, *adopted_events, *results],
        known_calls=sessions.known_calls | {call.id for call in collect_tool_calls(posted.messages)},
    )
    await _choose_messages(adk_input, new_input, session, sessions)
    return adk_input


def _adopt_external_events(context: RunContext, sessions: ThreadSession, state: StateStore) -> list[Event]:
    """Return the events that add what another server wrote to the session to the thread: its messages, and its state if that is newer."""
    messages = adopted_messages(
        sessions.external_events,
        sessions.root_agent,
        structured_agents=context.structured_agents,
        known_call_ids=sessions.known_calls,
    )
    correction = insert_adopted(messages, context.run_input.messages, context.new_ids or ())
    if correction is not None:
        thread_id = context.run_input.thread_id
        logger.info("Thread %s: adopted messages that another server wrote to its ADK session.", thread_id)
    state_events = state.update_with_snapshot(_newer_state(context, sessions)) if sessions.external_events else []
    return [*([] if correction is None else [correction]), *state_events]


def _newer_state(context: RunContext, sessions: ThreadSession) -> dict[str, Any]:
    """Return the state that another server set since the last run. In the first run of a thread the client's state is newer."""
    return adopted_state(sessions.external_events) if context.is_continuation else {}


def _apply_state_edits(state: StateStore, posted: Any, edited: Any) -> list[Event]:
    """Apply the application's edits of the client's state, and return the events with which the client follows."""
    before, after = _visible_state(posted), _visible_state(edited)
    if json_equal(before, after):
        return []
    for key in before.keys() - after.keys():
        state.remove_silently(key)
    return state.update_with_snapshot(after)


async def _choose_messages(adk_input: ADKInput, new_input: NewInput, session: Session, sessions: ThreadSession) -> None:
    open_calls = _open_calls(session)
    new_input, shown_ids = _with_framework_ids(new_input)
    adk_input.asked_again = _changed_interrupts(open_calls, new_input, shown_ids)
    if adk_input.asked_again:
        return
    if new_input.user is not None:
        resumed = [
            open_calls[entry.interrupt_id].call for entry in new_input.resume if entry.interrupt_id in open_calls
        ]
        await sessions.append_abandoned_results(session, new_input.history, {target_call_id(call) for call in resumed})
    parts = [
        *_answer_parts(session, open_calls, new_input, adk_input),
        *(result_part(result) for result in new_input.results),
    ]
    if new_input.user is not None:
        user_message = user_content(to_content_parts(new_input.user.content))
        has_answer = any(entry.status == "resolved" for entry in new_input.resume)
        appended, last = _split_parts(parts) if has_answer else (parts, [])
        await sessions.append_responses(session, appended)
        adk_input.messages = [user_content(last), user_message] if last else [user_message]
    elif parts:
        adk_input.unanswered_ids = _unanswered_ids(open_calls, parts)
        appended, last = (parts, []) if adk_input.unanswered_ids else _split_parts(parts)
        await sessions.append_responses(session, appended)
        adk_input.messages = [user_content(last)] if last else []
    else:
        raise NoUserMessage


def _unanswered_ids(open_calls: Mapping[str, _OpenCall], parts: Sequence[types.Part]) -> list[str]:
    """Return the open calls of the invocations that these parts answer, without those that they answer."""
    answered = {part.function_response.id for part in parts if part.function_response}
    invocations = {pending.invocation for call_id, pending in open_calls.items() if call_id in answered}
    return [
        call_id
        for call_id, pending in open_calls.items()
        if call_id not in answered and pending.invocation in invocations
    ]


def _with_framework_ids(new_input: NewInput) -> tuple[NewInput, dict[str, str]]:
    """Return the input with ADK's ids in its answers, and the ids that clients have by ADK's."""
    ids = {framework_interrupt_id(entry.interrupt_id): entry.interrupt_id for entry in new_input.resume}
    entries = tuple(
        replace(entry, interrupt_id=framework_interrupt_id(entry.interrupt_id)) for entry in new_input.resume
    )
    return dataclasses.replace(new_input, resume=entries), ids


def _changed_interrupts(
    open_calls: Mapping[str, _OpenCall], new_input: NewInput, shown_ids: Mapping[str, str]
) -> list[Interrupt]:
    """Return the interrupts to raise again, all of them, if a call would be executed with other arguments than were shown; else none.

    Raises: ArgumentsWithheld for arguments of which the thread has only a redacted copy.
    """
    changed = set[str]()
    for entry in new_input.resume:
        pending = open_calls.get(entry.interrupt_id)
        asked = find_interrupted_call(pending.call) if pending and is_confirmed(pending.call, entry) else None
        if asked is not None and not check_restored_calls(shown_ids[entry.interrupt_id], [asked]):
            changed.add(entry.interrupt_id)
    if not changed:
        return []
    logger.warning(
        "The arguments of a confirmed call have changed in the ADK session. It is not executed; it is asked again."
    )
    return [
        _ask_again(open_calls[call_id].call, shown, is_changed=call_id in changed)
        for call_id, shown in shown_ids.items()
        if call_id in open_calls
    ]


def _ask_again(call: types.FunctionCall, shown_id: str, *, is_changed: bool) -> Interrupt:
    """Return an interrupt that is raised again; with a new id if its arguments have changed."""
    run = current_run_or_none()
    asked = run.answered_interrupts.get(shown_id) if run else None
    subagent_id = asked.interrupt.subagent_run_id if asked else None
    raise_again = to_interrupt if call.name in INTERRUPT_CALLS else client_call_interrupt
    return replace(raise_again(call, subagent_id), id=asked_again_id(shown_id) if is_changed else shown_id)


def _split_parts(parts: Sequence[types.Part]) -> tuple[list[types.Part], list[types.Part]]:
    """Return the parts to append to the session first, and the parts to run ADK with.

    ADK hides the whole message that answers an interrupt from the model, so results in the same request are appended before it.
    """
    answers = [part for part in parts if part.function_response and part.function_response.name in INTERRUPT_CALLS]
    last = [part for part in answers if not _is_lost_sign_in(part)] or [part for part in parts if part not in answers]
    return [part for part in parts if part not in last], last


def _answer_parts(
    session: Session, open_calls: Mapping[str, _OpenCall], new_input: NewInput, adk_input: ADKInput
) -> list[types.Part]:
    """Return the answers to open interrupts. Answers that ADK will not echo are added to `first_events`.

    Raises: InterruptNotOpen when ADK has no such interrupt.
    """
    parts: list[types.Part] = []
    for entry in new_input.resume:
        if entry.interrupt_id not in open_calls:
            raise InterruptNotOpen
        call = open_calls[entry.interrupt_id].call
        args = call.args or {}
        part = answer_part(call, entry)
        if call.name == CREDENTIAL_CALL and not has_secrets(args):
            # On this answer ADK would call the tool again without the credential. An error makes the model call it again.
            target_id = target_call_id(call) or ""
            parts.append(response_part(target_id, _call_name(session, target_id), _SIGN_IN_LOST))
            part = response_part(call.id or "", CREDENTIAL_CALL, _SIGN_IN_LOST)
            adk_input.first_events.append(_response_event(target_id, part))
        elif call.name not in INTERRUPT_CALLS:
            adk_input.first_events.append(_response_event(call.id or "", part))
        elif entry.status == "cancelled" and new_input.user is not None:
            parts += _cancel_target_call(session, call, adk_input)
        parts.append(part)
    return parts


@dataclass(frozen=True, slots=True)
class _OpenCall:
    call: types.FunctionCall
    invocation: str


def _open_calls(session: Session) -> dict[str, _OpenCall]:
    """Return the long-running calls of the session that have no response, by id."""
    live = live_events(session.events)
    responses = [response for event in live for response in event.get_function_responses()]
    answered = {response.id for response in responses if not is_initial_result(response)}
    return {
        call.id: _OpenCall(call, event.invocation_id)
        for event in live
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ()) and call.id and call.id not in answered
    }


def _cancel_target_call(session: Session, interrupt_call: types.FunctionCall, adk_input: ADKInput) -> list[types.Part]:
    """Return a cancelled response for the call an interrupt is about. The user has sent a new message, so it will not run."""
    call_id = target_call_id(interrupt_call)
    if call_id is None:
        return []
    part = response_part(call_id, _call_name(session, call_id), CANCELLED_RESPONSE)
    adk_input.first_events.append(_response_event(call_id, part))
    return [part]


def _is_lost_sign_in(part: types.Part) -> bool:
    return part.function_response is not None and part.function_response.response == _SIGN_IN_LOST


def _call_name(session: Session, call_id: str) -> str:
    calls = (call for event in session.events for call in event.get_function_calls())
    return next((call.name or "" for call in calls if call.id == call_id), "")


def _result_event(result: TurnToolResult) -> ToolCallResult:
    return _tool_call_result(result.call_id, result.content, is_error=result.is_error)


def _response_event(call_id: str, part: types.Part) -> ToolCallResult:
    response = part.function_response
    assert response is not None
    return _tool_call_result(call_id, result_content(response), is_error=is_failure(response))


def _tool_call_result(call_id: str, content: Content, *, is_error: bool) -> ToolCallResult:
    return ToolCallResult(
        message_id=random_id("result"),
        tool_call_id=call_id,
        content=content,
        role="tool",
        metadata={"isError": True} if is_error else None,
    )


def _merge_subagent_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with those of subagents as part of the main conversation: a user may ask the model about them.

    Of a subagent's calls, those without a result in the subagent are retained: they wait, or waited, for the client.
    """
    answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage) and m.subagent_run_id is not None}
    merged: list[Message] = []
    for message in messages:
        if message.subagent_run_id is None:
            merged.append(message)
        elif isinstance(message, AssistantMessage):
            calls = [call for call in message.tool_calls or () if call.id not in answered]
            merged.append(replace(message, subagent_run_id=None, tool_calls=calls or None))
    return merged


def _visible_state(state: Any) -> dict[str, Any]:
    return {key: value for key, value in as_object(state).items() if not is_hidden(key, HIDDEN)}


def _state_delta(
    session_state: Mapping[str, Any], client_state: Mapping[str, Any], *, is_continuation: bool
) -> dict[str, Any]:
    """Return the client's changes. ADK cannot remove a key, so a removed key is set to None."""
    changed = {
        key: value for key, value in client_state.items() if key not in session_state or session_state[key] != value
    }
    removed = (
        {key: None for key, value in session_state.items() if key not in client_state and value is not None}
        if is_continuation
        else {}
    )
    return {**changed, **removed}


def _context_contents(run_input: RunAgentInput) -> list[types.Content]:
    """Return the `context` of the input as contents for the model calls of this run only."""
    text = context_text(run_input.context)
    return [user_content(to_content_parts(text))] if text else []
