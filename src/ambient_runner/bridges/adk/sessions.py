"""ADK's session of a thread: opened, created, and brought in step with what the ledger says was said."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pydantic_core
from google.adk.events import Event, EventActions
from google.genai import types

from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.interrupts import CREDENTIAL, QUESTIONS, without_secrets
from ambient_runner.bridges.adk.messages import call_part, parts_of, result_part, text_part, user_content
from ambient_runner.bridges.adk.session_sync import Paused, live_events, plan, unanswered
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, UserTurn
from ambient_runner.projections.state import is_hidden

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from google.adk.runners import Runner
    from google.adk.sessions import Session

    from ambient_runner.bridges.adk.session_sync import Memory, Plan
    from ambient_runner.bridges.toolkit.turns import Turn
    from ambient_runner.protocol.events import AssistantMessage

__all__ = ["Place", "Sessions", "paused_invocation"]

_MOST_KEPT = 256 << 10
"""Bytes of a paused invocation that are remembered; of a longer one only what waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where ADK keeps a conversation."""

    app: str
    user: str
    session: str


class Sessions:
    """The session of one place. With `keeps_cuts` it is stored by someone else, who may want to see what was rewound."""

    def __init__(self, runner: Runner, place: Place, root: str, *, keeps_cuts: bool) -> None:
        self._runner = runner
        self._keeps_cuts = keeps_cuts
        self._service = runner.session_service
        self._place = place
        self._root = root
        self.known_calls: set[str] = set()
        """The calls of the session as it was found."""

    async def open(
        self,
        history: Sequence[Turn],
        memory: Memory | None,
        state: Mapping[str, Any],
        *,
        is_continuation: bool,
        spoken: Mapping[str, AssistantMessage],
    ) -> Session:
        """The session, saying what the thread says. `spoken` are the thread's own messages of its agents, by id."""
        session = await self.get() or await self._created(state)
        self.known_calls = {call.id for event in session.events for call in event.get_function_calls() if call.id}
        steps = plan(live_events(session.events), history, memory, is_continuation=is_continuation)
        if steps.rewind:
            session = await self._cut(session, steps, state)
        waiting = unanswered(live_events(session.events), history)
        await self.put(session, [result_part(one) for one in waiting if one.given])
        rebuilt = Rebuilder(self._root, spoken)
        taken = {event.id for event in session.events}
        for event in (*rebuilt.events(steps.before), *_restored(steps.paused), *rebuilt.events(steps.after)):
            if event.id in taken:  # what was cut stays stored, and an id is stored once
                event.id = Event.new_id()
            await self._service.append_event(session, event)
        return session

    async def give_up(self, session: Session, history: Sequence[Turn], answering: Collection[str | None]) -> None:
        """Answer the calls nobody waits for any more, as the thread does; not those that are being answered."""
        left = [one for one in unanswered(live_events(session.events), history) if one.call_id not in answering]
        await self.put(session, [result_part(one) for one in left])

    async def get(self) -> Session | None:
        place = self._place
        return await self._service.get_session(app_name=place.app, user_id=place.user, session_id=place.session)

    async def put(self, session: Session, parts: Sequence[types.Part]) -> None:
        """Put function responses into the session without running anything.

        Answers to questions stand apart: ADK keeps a whole event from the model when one of them is in it.
        """
        answers = [part for part in parts if part.function_response and part.function_response.name in QUESTIONS]
        for group in ([part for part in parts if part not in answers], answers):
            responses = [part.function_response for part in group if part.function_response]
            if responses:
                invocation = _invocation_of(session, responses[0].id or "") or new_invocation()
                event = Event(author="user", invocation_id=invocation, content=user_content(group))
                await self._service.append_event(session, event)

    async def _cut(self, session: Session, steps: Plan, state: Mapping[str, Any]) -> Session:
        """The session without what the thread knows nothing of.

        Stored sessions keep it, behind ADK's own mark of a rewind. An invocation that is to wait again cannot stand beside its old
        self, though: ADK looks for calls by their ids alone.
        """
        if self._keeps_cuts and not steps.paused:
            assert steps.rewind is not None
            place = self._place
            await self._runner.rewind_async(
                user_id=place.user, session_id=place.session, rewind_before_invocation_id=steps.rewind
            )
            return await self.get() or session
        await self.drop()
        fresh = await self._created(state)
        for event in steps.kept:
            await self._service.append_event(fresh, event)
        return fresh

    async def drop(self) -> None:
        place = self._place
        await self._service.delete_session(app_name=place.app, user_id=place.user, session_id=place.session)

    async def _created(self, state: Mapping[str, Any]) -> Session:
        place = self._place
        return await self._service.create_session(
            app_name=place.app, user_id=place.user, session_id=place.session, state=dict(state)
        )


class Rebuilder:
    """Turns of a transcript as ADK events, under the ids that were streamed."""

    def __init__(self, root: str, spoken: Mapping[str, AssistantMessage]) -> None:
        self._root = root
        self._spoken = spoken

    def events(self, turns: Sequence[Turn]) -> list[Event]:
        invocation = new_invocation()
        made: list[Event] = []
        author = self._root
        for turn in turns:
            match turn:
                case UserTurn():
                    invocation = new_invocation()
                    made.append(_event("user", invocation, "user", parts_of(turn.content)))
                case AssistantTurn():
                    made += self._said(turn, invocation)
                    author = self._author(turn.ids[-1])
                case ResultsTurn():
                    made.append(_event(author, invocation, "user", [result_part(one) for one in turn.results]))
                case _:
                    pass
        return made

    def _said(self, turn: AssistantTurn, invocation: str) -> list[Event]:
        """One event per message, so that each keeps its author; the calls are all in the last one."""
        signed = {call.id: call.encrypted_value for name in turn.ids for call in self._spoken[name].tool_calls or ()}
        calls = [call_part(call, signed.get(call.id)) for call in turn.calls]
        made: list[Event] = []
        for message in turn.ids:
            said = self._spoken[message]
            parts = [text_part(said.content, said.encrypted_value)] if said.content else []
            parts += calls if message == turn.ids[-1] else []
            if parts:
                event = _event(self._author(message), invocation, "model", parts)
                made.append(event.model_copy(update={"id": message}))
        if calls:
            made[-1].long_running_tool_ids = {call.id for call in turn.calls}
        return made

    def _author(self, message: str) -> str:
        return self._spoken[message].name or self._root


def paused_invocation(session: Session, since: str) -> Paused | None:
    """The session's last invocation if it left a call open, as it can be kept."""
    live = live_events(session.events)
    last = [event for event in live if live and event.invocation_id == live[-1].invocation_id]
    calls = {call.id for event in last for call in event.get_function_calls()}
    answered = {response.id for event in last for response in event.get_function_responses()}
    if not calls - answered:
        return None
    events = [_kept(event) for event in last]
    if len(json.dumps(events)) > _MOST_KEPT:
        begins = next(i for i, event in enumerate(last) if {call.id for call in event.get_function_calls()} - answered)
        events = [events[0], *events[max(begins - 1, 1) :]]
    return Paused(since=since, events=events)


def new_invocation() -> str:
    return f"e-{uuid.uuid4()}"


def _kept(event: Event) -> dict[str, Any]:
    """An event as it can be kept with the thread: plain JSON, without credentials and without state that is not the thread's."""
    kept = pydantic_core.to_jsonable_python(
        event, by_alias=True, exclude_none=True, serialize_unknown=True, bytes_mode="base64"
    )
    actions = kept.get("actions", {})
    actions.pop("requestedAuthConfigs", None)
    changes = actions.get("stateDelta", {})
    actions["stateDelta"] = {key: value for key, value in changes.items() if not is_hidden(key, HIDDEN)}
    for part in kept.get("content", {}).get("parts", ()):
        _forget_secrets(part)
    return kept


def _forget_secrets(part: dict[str, Any]) -> None:
    call, response = part.get("functionCall", {}), part.get("functionResponse", {})
    if call.get("name") == CREDENTIAL:
        call["args"] = without_secrets(call.get("args", {}))
    if response.get("name") == CREDENTIAL:
        response["response"] = {}


def _restored(kept: Sequence[dict[str, Any]]) -> list[Event]:
    """A paused invocation as it was, but for its id: the one it had may have been cut."""
    again = {"invocationId": new_invocation()}
    wanted = [{name: value for name, value in one.items() if name != "timestamp"} | again for one in kept]
    # From JSON, not from Python: bytes, such as the signature of a thought, are base64 in there.
    return [Event.model_validate_json(json.dumps(one)) for one in wanted]


def _event(author: str, invocation: str, role: str, parts: list[types.Part]) -> Event:
    return Event(
        author=author,
        invocation_id=invocation,
        content=types.Content(role=role, parts=parts),
        actions=EventActions(),
    )


def _invocation_of(session: Session, call_id: str) -> str | None:
    calls = ((call.id, event.invocation_id) for event in session.events for call in event.get_function_calls())
    return next((invocation for one, invocation in calls if one == call_id), None)
