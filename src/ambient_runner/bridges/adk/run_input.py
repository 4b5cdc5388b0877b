"""What one run has to do: what is new in its input, put in the words ADK expects, on a session that is in step with the thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.interrupts import (
    CANCELLED,
    CREDENTIAL,
    QUESTIONS,
    answer_part,
    asked_about,
    has_secrets,
)
from ambient_runner.bridges.adk.messages import (
    is_failure,
    parts_of,
    response_part,
    result_part,
    shown_result,
    user_content,
)
from ambient_runner.bridges.adk.session_sync import live_events
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.turns import SystemTurn, calls_of, incoming
from ambient_runner.errors import BridgeError, NothingToResume
from ambient_runner.projections.state import is_hidden
from ambient_runner.protocol.agui_models import input_from_agui, input_to_agui
from ambient_runner.protocol.events import AssistantMessage, ToolCallResult, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from google.adk.sessions import Session
    from google.genai import types

    from ambient_runner.bridges.adk.config import InputTransformer
    from ambient_runner.bridges.adk.session_sync import Memory
    from ambient_runner.bridges.adk.sessions import Sessions
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.bridges.toolkit.turns import Incoming, Result
    from ambient_runner.protocol.events import Content, Event, Message, RunAgentInput

__all__ = ["Asked", "Job", "prepare"]

_LOST = {"error": "The sign-in was interrupted. Ask for it again."}


@dataclass(kw_only=True, slots=True)
class Job:
    """ADK is run with each of `messages`, one after the other; without any the run ends at once, because calls still wait."""

    messages: list[types.Content] = field(default_factory=list["types.Content"])
    since: str
    """The newest user message."""
    state_delta: dict[str, Any]
    instructions: list[str] = field(default_factory=list[str])
    context: list[types.Content] = field(default_factory=list["types.Content"])
    opening: list[Event] = field(default_factory=list["Event"])
    """What to tell clients first."""
    known_calls: set[str] = field(default_factory=set[str])
    """Every call of the conversation so far, also of what a rewind has cut."""
    still_open: list[str] = field(default_factory=list[str])
    """Calls that wait although others of their turn have been answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a run is asked for, and what is known of its thread. Without a server nobody says what was `accepted`."""

    posted: RunAgentInput
    memory: Memory | None
    is_continuation: bool
    accepted: Collection[str] | None
    convert: InputTransformer | None


async def prepare(asked: Asked, sessions: Sessions, state: StateStore) -> Job:
    """The run's job, with its session opened and in step."""
    posted = replace(asked.posted, messages=_one_voice(asked.posted.messages))
    converted, answered = await _converted(posted, asked.convert)
    news = incoming(converted, new=None if asked.accepted is None else {*asked.accepted, *answered})
    wanted = _visible(posted.state)
    session = await sessions.open(
        news.history,
        asked.memory,
        wanted,
        is_continuation=asked.is_continuation,
        spoken={m.id: m for m in posted.messages if isinstance(m, AssistantMessage)},
    )
    had = _visible(session.state)
    if asked.memory is None:
        # What a session knew before is news to the client; later on, a key that is missing was removed.
        state.keep({key: value for key, value in had.items() if key not in wanted})
    job = Job(
        since=next((m.id for m in reversed(posted.messages) if isinstance(m, UserMessage)), ""),
        state_delta=_state_delta(had, wanted, follows=asked.memory is not None),
        instructions=[turn.text for turn in news.history if isinstance(turn, SystemTurn)],
        context=_context(posted),
        opening=[_told(one) for one in news.results if one.call_id in answered.values()],
        known_calls=sessions.known_calls | {call.id for call in calls_of(posted.messages)},
    )
    await _decide(job, news, session, sessions)
    return job


async def _decide(job: Job, news: Incoming, session: Session, sessions: Sessions) -> None:
    waiting = _waiting(session)
    if news.user is not None:
        asked = [waiting[entry.interrupt_id].call for entry in news.resume if entry.interrupt_id in waiting]
        await sessions.give_up(session, news.history, {asked_about(one) for one in asked})
    parts = [*_answers(session, waiting, news, job), *(result_part(one) for one in news.results)]
    if news.user is not None:
        words = user_content(parts_of(news.user.content))
        acts = any(entry.status == "resolved" for entry in news.resume)
        beside, last = _split(parts) if acts else (parts, [])
        await sessions.put(session, beside)
        job.messages = [user_content(last), words] if last else [words]
        return
    if not parts:
        raise BridgeError("There is nothing to answer: the last message is not from the user.")
    given = {part.function_response.id for part in parts if part.function_response}
    turns = {one.invocation for call_id, one in waiting.items() if call_id in given}
    job.still_open = [name for name, one in waiting.items() if name not in given and one.invocation in turns]
    beside, last = (parts, []) if job.still_open else _split(parts)
    await sessions.put(session, beside)
    job.messages = [user_content(last)] if last else []


def _split(parts: Sequence[types.Part]) -> tuple[list[types.Part], list[types.Part]]:
    """What goes into the session first, and what ADK is run with.

    It keeps the whole message that answers a question from the model, so results beside the answer go before it.
    """
    answers = [part for part in parts if part.function_response and part.function_response.name in QUESTIONS]
    last = [part for part in answers if not _is_lost(part)] or [part for part in parts if part not in answers]
    return [part for part in parts if part not in last], last


def _answers(session: Session, waiting: Mapping[str, _OpenCall], news: Incoming, job: Job) -> list[types.Part]:
    """The answers to open questions; those ADK will not repeat are said to clients first.

    Raises: NothingToResume when ADK knows no such question.
    """
    parts: list[types.Part] = []
    for entry in news.resume:
        if entry.interrupt_id not in waiting:
            raise NothingToResume
        call = waiting[entry.interrupt_id].call
        args = call.args or {}
        part = answer_part(call, entry)
        if call.name == CREDENTIAL and not has_secrets(args):
            # ADK would call the tool again on this answer, without what it asked for: the model has to.
            lost = asked_about(call) or ""
            parts.append(response_part(lost, _name_of(session, lost), _LOST))
            part = response_part(call.id or "", CREDENTIAL, _LOST)
            job.opening.append(_said(lost, part))
        elif call.name not in QUESTIONS:
            job.opening.append(_said(call.id or "", part))
        elif entry.status == "cancelled" and news.user is not None:
            parts += _given_up(session, call, job)
        parts.append(part)
    return parts


@dataclass(frozen=True, slots=True)
class _OpenCall:
    call: types.FunctionCall
    invocation: str


def _waiting(session: Session) -> dict[str, _OpenCall]:
    """Calls of the session that wait for someone outside."""
    live = live_events(session.events)
    answered = {response.id for event in live for response in event.get_function_responses()}
    return {
        call.id: _OpenCall(call, event.invocation_id)
        for event in live
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ()) and call.id and call.id not in answered
    }


def _given_up(session: Session, question: types.FunctionCall, job: Job) -> list[types.Part]:
    """The end of the call a question was about, when its person has gone on to something else: nobody will run it."""
    call_id = asked_about(question)
    if call_id is None:
        return []
    part = response_part(call_id, _name_of(session, call_id), CANCELLED)
    job.opening.append(_said(call_id, part))
    return [part]


def _is_lost(part: types.Part) -> bool:
    return part.function_response is not None and part.function_response.response == _LOST


def _name_of(session: Session, call_id: str) -> str:
    calls = (call for event in session.events for call in event.get_function_calls())
    return next((call.name or "" for call in calls if call.id == call_id), "")


async def _converted(posted: RunAgentInput, convert: InputTransformer | None) -> tuple[RunAgentInput, dict[str, str]]:
    """The input as the transformer leaves it, and the results it gave: message to call. Only calls that wait can be answered."""
    if convert is None:
        return posted, {}
    pending = _calls_of_last_turn(posted.messages)
    changed = input_from_agui(await call_hook(convert, input_to_agui(posted), dict(pending)))
    known = {message.id for message in posted.messages}
    results = [
        message
        for message in changed.messages
        if isinstance(message, ToolMessage) and message.id not in known and message.tool_call_id in pending
    ]
    newest = posted.messages[-1] if posted.messages else None
    kept = [m for m in posted.messages if m is not newest or not isinstance(m, UserMessage)]
    asked = next((m for m in changed.messages if isinstance(newest, UserMessage) and m.id == newest.id), None)
    messages = [*kept, *results, *([asked] if asked is not None else [])]
    return replace(posted, messages=messages, context=changed.context), {one.id: one.tool_call_id for one in results}


def _calls_of_last_turn(messages: Sequence[Message]) -> dict[str, str]:
    """The calls of the newest turn that nobody has answered, id to tool name."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    last = next((m for m in reversed(messages) if isinstance(m, AssistantMessage) and m.tool_calls), None)
    calls = (last.tool_calls or []) if last else []
    return {
        call.id: call.function.name for call in calls if call.id not in answered and call.function.name not in QUESTIONS
    }


def _told(result: Result) -> ToolCallResult:
    return _result(result.call_id, result.content, is_error=result.is_error)


def _said(call_id: str, part: types.Part) -> ToolCallResult:
    given = part.function_response
    assert given is not None
    return _result(call_id, shown_result(given), is_error=is_failure(given))


def _result(call_id: str, content: Content, *, is_error: bool) -> ToolCallResult:
    return ToolCallResult(
        message_id=random_id("result"),
        tool_call_id=call_id,
        content=content,
        role="tool",
        metadata={"isError": True} if is_error else None,
    )


def _one_voice(messages: Sequence[Message]) -> list[Message]:
    """What agents said beside the main one is part of the conversation: a model may be asked about it.

    Of their calls only those are that wait, or waited, for someone outside.
    """
    done = {m.tool_call_id for m in messages if isinstance(m, ToolMessage) and m.subagent_run_id is not None}
    kept: list[Message] = []
    for message in messages:
        if message.subagent_run_id is None:
            kept.append(message)
        elif isinstance(message, AssistantMessage):
            calls = [call for call in message.tool_calls or () if call.id not in done]
            kept.append(replace(message, subagent_run_id=None, tool_calls=calls or None))
    return kept


def _visible(state: Any) -> dict[str, Any]:
    given = cast("dict[str, Any]", state) if isinstance(state, dict) else {}
    return {key: value for key, value in given.items() if not is_hidden(key, HIDDEN)}


def _state_delta(had: Mapping[str, Any], wanted: Mapping[str, Any], *, follows: bool) -> dict[str, Any]:
    """What the client changed. ADK has no word for a removed key: its value is None from then on."""
    changed = {key: value for key, value in wanted.items() if key not in had or had[key] != value}
    gone = {key: None for key, value in had.items() if key not in wanted and value is not None} if follows else {}
    return {**changed, **gone}


def _context(posted: RunAgentInput) -> list[types.Content]:
    """What the client's application says about itself, for this run's model calls only."""
    if not posted.context:
        return []
    lines = [f"{one.description}: {one.value}" for one in posted.context]
    return [user_content(parts_of("Context of the application:\n" + "\n".join(lines)))]
