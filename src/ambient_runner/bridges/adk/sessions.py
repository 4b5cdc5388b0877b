"""ADK's session of a thread: opens or creates it and synchronizes it with the ledger, by the plan of `session_sync.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event, EventActions
from google.genai import types

from ambient_runner.bridges.adk.errors import SessionConflict
from ambient_runner.bridges.adk.external_events import find_external_events, origin_metadata
from ambient_runner.bridges.adk.interrupts import INTERRUPT_CALLS
from ambient_runner.bridges.adk.memory import new_invocation_id, restore_events
from ambient_runner.bridges.adk.messages import call_part, result_part, text_part, to_content_parts, user_content
from ambient_runner.bridges.adk.session_sync import live_events, pending_results, plan_sync
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, UserTurn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from google.adk.runners import Runner
    from google.adk.sessions import Session

    from ambient_runner.bridges.adk.memory import SessionMemory
    from ambient_runner.bridges.adk.session_sync import SyncPlan
    from ambient_runner.bridges.toolkit.turns import Turn
    from ambient_runner.protocol.events import AssistantMessage

__all__ = ["SessionLocation", "ThreadSession"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionLocation:
    """Key of a session in ADK's session service."""

    app: str
    user: str
    session: str


class ThreadSession:
    """The ADK session of one thread. With `keeps_rewound` rewound events stay in the user's own session service.

    `epoch` is the thread's; empty without a server.
    """

    def __init__(
        self, runner: Runner, location: SessionLocation, root_agent: str, *, keeps_rewound: bool, epoch: str = ""
    ) -> None:
        self._runner = runner
        self._keeps_rewound = keeps_rewound
        self._service = runner.session_service
        self._location = location
        self.root_agent = root_agent
        self.known_calls: set[str] = set()
        """Ids of the calls in the session when it was opened."""
        self.external_events: list[Event] = []
        """Events of another server that the thread did not have when the session was opened."""
        self._epoch = epoch

    async def open_synced(
        self,
        history: Sequence[Turn],
        memory: SessionMemory | None,
        state: Mapping[str, Any],
        *,
        is_continuation: bool,
        assistant_messages: Mapping[str, AssistantMessage],
    ) -> Session:
        """Return the session, synchronized with the thread. `assistant_messages` are the thread's assistant messages by id."""
        session = await self.load() or await self._create_or_load(state)
        self.known_calls = {call.id for event in session.events for call in event.get_function_calls() if call.id}
        live = live_events(session.events)
        if self._keeps_rewound and self._epoch:
            self.external_events = find_external_events(live, memory, self._epoch)
        sync_plan = plan_sync(
            live, history, memory, is_continuation=is_continuation, has_external=bool(self.external_events)
        )
        if sync_plan.rewind_invocation:
            session = await self._remove_events(session, sync_plan, state)
        waiting = pending_results(live_events(session.events), history)
        await self.append_responses(session, [result_part(result) for result in waiting if result.is_answered])
        builder = EventBuilder(self.root_agent, assistant_messages)
        used_ids = {event.id for event in session.events}
        for event in (
            *builder.build_events(sync_plan.turns_before),
            *restore_events(sync_plan.paused_events),
            *builder.build_events(sync_plan.turns_after),
        ):
            if event.id in used_ids:  # rewound events stay stored, and event ids are unique
                event.id = Event.new_id()
            await self._append_event(session, event)
        return session

    async def append_abandoned_results(
        self, session: Session, history: Sequence[Turn], excluded_ids: Collection[str | None]
    ) -> None:
        """Append the thread's results for abandoned calls, except those in `excluded_ids`, which this run answers."""
        results = pending_results(live_events(session.events), history)
        await self.append_responses(
            session, [result_part(result) for result in results if result.call_id not in excluded_ids]
        )

    async def load(self) -> Session | None:
        location = self._location
        return await self._service.get_session(
            app_name=location.app, user_id=location.user, session_id=location.session
        )

    async def append_responses(self, session: Session, parts: Sequence[types.Part]) -> None:
        """Append function responses to the session without a run.

        Answers to interrupts get their own event: ADK hides an event that contains one from the model.
        """
        answers = [part for part in parts if part.function_response and part.function_response.name in INTERRUPT_CALLS]
        for group in ([part for part in parts if part not in answers], answers):
            responses = [part.function_response for part in group if part.function_response]
            if responses:
                invocation = _invocation_of(session, responses[0].id or "") or new_invocation_id()
                event = Event(author="user", invocation_id=invocation, content=user_content(group))
                await self._append_event(session, event)

    async def _remove_events(self, session: Session, sync_plan: SyncPlan, state: Mapping[str, Any]) -> Session:
        """Return the session without the events that the thread does not have.

        A stored session keeps them before ADK's rewind marker, unless a paused invocation is restored: ADK finds calls by their ids
        alone, so the session must not contain the same calls twice.
        """
        if self._keeps_rewound and not sync_plan.paused_events:
            assert sync_plan.rewind_invocation is not None
            location = self._location
            await self._runner.rewind_async(
                user_id=location.user,
                session_id=location.session,
                rewind_before_invocation_id=sync_plan.rewind_invocation,
            )
            return await self.load() or session
        await self.delete()
        fresh = await self._create_session(state)
        for event in sync_plan.retained_events:
            await self._service.append_event(fresh, event)
        return fresh

    async def _append_event(self, session: Session, event: Event) -> None:
        event.custom_metadata = {**(event.custom_metadata or {}), **origin_metadata(self._epoch)} or None
        await self._service.append_event(session, event)

    async def delete(self) -> None:
        location = self._location
        await self._service.delete_session(app_name=location.app, user_id=location.user, session_id=location.session)

    async def _create_or_load(self, state: Mapping[str, Any]) -> Session:
        """Create the session; return the other one if another server has created it in the meantime."""
        try:
            return await self._create_session(state)
        except SessionConflict:
            session = await self.load()
            if session is None:
                raise
            return session

    async def _create_session(self, state: Mapping[str, Any]) -> Session:
        """Create the session. Raises: SessionConflict if there is one."""
        location = self._location
        try:
            return await self._service.create_session(
                app_name=location.app, user_id=location.user, session_id=location.session, state=dict(state)
            )
        except AlreadyExistsError as error:
            raise SessionConflict from error


class EventBuilder:
    """Builds ADK events from the turns of a transcript, with the message ids that were streamed."""

    def __init__(self, root_agent: str, assistant_messages: Mapping[str, AssistantMessage]) -> None:
        self._root_agent = root_agent
        self._assistant_messages = assistant_messages

    def build_events(self, turns: Sequence[Turn]) -> list[Event]:
        invocation = new_invocation_id()
        events: list[Event] = []
        author = self._root_agent
        for turn in turns:
            match turn:
                case UserTurn():
                    invocation = new_invocation_id()
                    events.append(_build_event("user", invocation, "user", to_content_parts(turn.content)))
                case AssistantTurn():
                    events += self._assistant_events(turn, invocation)
                    author = self._author_of(turn.ids[-1])
                case ResultsTurn():
                    parts = [result_part(result) for result in turn.results]
                    events.append(_build_event(author, invocation, "user", parts))
                case _:
                    pass
        return events

    def _assistant_events(self, turn: AssistantTurn, invocation: str) -> list[Event]:
        """Return one event per message, so that each keeps its author. The last one contains all calls."""
        messages = [self._assistant_messages[message_id] for message_id in turn.ids]
        signatures = {call.id: call.encrypted_value for message in messages for call in message.tool_calls or ()}
        calls = [call_part(call, signatures.get(call.id)) for call in turn.calls]
        events: list[Event] = []
        for message_id, message in zip(turn.ids, messages, strict=True):
            parts = [text_part(message.content, message.encrypted_value)] if message.content else []
            parts += calls if message_id == turn.ids[-1] else []
            if parts:
                event = _build_event(self._author_of(message_id), invocation, "model", parts)
                events.append(event.model_copy(update={"id": message_id}))
        if calls:
            events[-1].long_running_tool_ids = {call.id for call in turn.calls}
        return events

    def _author_of(self, message: str) -> str:
        return self._assistant_messages[message].name or self._root_agent


def _build_event(author: str, invocation: str, role: str, parts: list[types.Part]) -> Event:
    return Event(
        author=author,
        invocation_id=invocation,
        content=types.Content(role=role, parts=parts),
        actions=EventActions(),
    )


def _invocation_of(session: Session, call_id: str) -> str | None:
    calls = ((call.id, event.invocation_id) for event in session.events for call in event.get_function_calls())
    return next((invocation for known_id, invocation in calls if known_id == call_id), None)
