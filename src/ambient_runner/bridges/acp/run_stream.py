"""The events of a run: what an agent's process sends, translated, until its turn ends or it waits for a client.

`run.py` decides what is sent to the process, and how the run ends.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.buffered_messages import ENDED, BridgeEvent, TextChunks, TurnEnd, Update, is_late
from ambient_runner.bridges.acp.interrupts import AgentRequest
from ambient_runner.bridges.acp.permissions import PermissionDecision
from ambient_runner.bridges.acp.session_state import STATE_KEY
from ambient_runner.bridges.acp.translate import Translator
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.pending_calls import PendingCall
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.protocol.events import ToolMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ambient_runner.bridges.acp.session import AgentSession
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.bridges.acp.tool_records import TurnState
    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.protocol.events import Event

__all__ = ["RunStream"]

_QUIET_INTERVAL = 0.05
"""Seconds without a message after which a waiting process has sent everything."""
_INTERRUPT_DELAY = 0.5
"""Seconds until an interrupt is shown while another subagent or tool still streams."""
_CALL_DELAY = 2.0
"""Seconds until the client gets a call of its tool while something else still streams. Further calls may follow."""
_REFUSED = "refusal"
"""Stop reason of a turn that the agent has refused. It forgets the prompt and everything after it."""
_SILENCE_INTERVAL = 60.0
"""Seconds of silence of a working tool after which clients are informed that it still works."""


class RunStream:
    """Events of one run. `attach` it to a process; `turn_end` is set when its turn has ended.

    `on_refusal` is called for a turn that the agent has refused.
    """

    def __init__(self, context: RunContext, shared: ACPBridgeState, *, on_refusal: Callable[[TurnState], None]) -> None:
        self.composer = Composer()
        self.state = StateStore(context.run_input.state)
        self.turn_end: TurnEnd | None = None
        self._on_refusal = on_refusal
        self._context = context
        self._config = shared.config
        self._profile = shared.profile
        self._used_ids = context.used_ids
        self._translator: Translator | None = None
        self._session: AgentSession | None = None
        self._call_since: float | None = None
        """Monotonic time at which a call of the client's tools was received."""

    @property
    def is_attached(self) -> bool:
        return self._session is not None

    @property
    def translator(self) -> Translator:
        assert self._translator is not None
        return self._translator

    @property
    def session(self) -> AgentSession:
        """The process that the events are from."""
        assert self._session is not None
        return self._session

    def attach(self, session: AgentSession) -> None:
        """Translate from now on what this process sends."""
        self._session = session
        self.state.update_silently({STATE_KEY: session.state.take_value()})
        self._translator = Translator(
            self.composer,
            session.turn,
            session=session.state,
            used_ids=self._used_ids,
            answered={result.call_id for result in self._context.new_input.results},
            own_tool=session.known_calls.own_tool,
            has_mode_chatter=self._profile.quirks.has_mode_chatter,
        )

    def pending_events(self) -> list[Event]:
        """Return the events of what the process has sent since the last run. A turn that has no end is abandoned.

        Text of a turn that was asked to end is no part of the next answer.
        """
        events: list[Event] = []
        while (message := self.session.take_message()) not in (None, ENDED):
            events += [] if is_late(message) else self._to_events(message)
            if self.turn_end is not None:
                events += self.end_turn(is_error=self.turn_end.error is not None)
        if self.session.is_in_turn:
            events += self.end_turn(is_error=True)
        return [*events, *self.composer.end_text(), *self.composer.end_reasoning()]

    def end_turn(self, *, is_error: bool = False) -> list[Event]:
        """Return the events that close everything the turn has left open. Another turn may follow in the same run."""
        finished = self.translator.finish_turn(is_error=is_error)
        closing = [*finished, *self.composer.close(), *self.refusal_events()]
        self.turn_end, self.session.is_in_turn = None, False
        self.session.turn.clear()
        self.attach(self.session)
        return closing

    def refusal_events(self) -> list[Event]:
        """Return the event for a turn that has ended with a refusal: the agent has forgotten these messages. Else nothing."""
        if self.turn_end is None or self.turn_end.result.get("stopReason") != _REFUSED:
            return []
        turn = self.session.turn
        calls = {record.client_id for record in turn.tool_calls.values()}
        for message in self._context.run_input.messages:
            if isinstance(message, ToolMessage) and message.tool_call_id in calls:
                turn.message_ids[message.id] = None
        self._on_refusal(turn)
        return self.composer.custom("acp:refusal", {"messageIds": list(turn.message_ids)})

    def show_call(self, request: AgentRequest) -> list[Event]:
        """Return the events of the call that a request is about, with its arguments."""
        if not request.tool_call:
            return []
        return self.translator.emit_requested_call(request.tool_call, request.child_session)

    async def receive_turn(self) -> AsyncGenerator[Event, None]:
        """Stream the events of the process until its turn ends, or it waits for an answer or a tool result. Raises: BridgeError."""
        session, silent_since = self.session, time.monotonic()
        self._call_since = time.monotonic() if session.calls.open_calls else None
        while self.turn_end is None:
            due = self._seconds_to_wait()
            if due <= 0:
                return
            message = session.take_message()
            if message is None:
                may_wait = session.is_waiting and not self.translator.is_streaming
                limit = _QUIET_INTERVAL if may_wait else self._silence_limit
                message = await session.next_message(min(limit, due))
                if message is None and may_wait and session.is_waiting:
                    return
                if message is None and (may_wait or due < limit):
                    continue
            if message is None:
                for event in self._report_silence(time.monotonic() - silent_since):
                    yield event
                continue
            silent_since = time.monotonic()
            if message is ENDED:
                raise session.exit_error()
            for event in self._to_events(message):
                yield event

    def _seconds_to_wait(self) -> float:
        """Return the seconds until the run must end with what it waits for, even while something else still streams."""
        session = self.session
        if not session.calls.open_calls:
            self._call_since = None
        if session.is_cancelled or (not session.requests and self._call_since is None):
            return math.inf
        dues = [
            request.received_at + _INTERRUPT_DELAY
            for request in session.requests.all()
            if request.received_at is not None
        ]
        if self._call_since is not None:
            dues.append(self._call_since + _CALL_DELAY)
        return min(dues, default=math.inf) - time.monotonic()

    @property
    def _silence_limit(self) -> float:
        limit = self._config.turn_timeout
        return min(_SILENCE_INTERVAL, limit) if self.translator.is_tool_working else limit

    def _report_silence(self, seconds: float) -> list[Event]:
        """Return the events that show that a tool works in silence. Raises: BridgeTimeout if none does."""
        if not self.translator.is_tool_working:
            raise self.session.silence_error()
        return self.translator.report_silence(seconds)

    def _to_events(self, message: Any) -> list[Event]:
        session, translator = self.session, self.translator
        match message:
            case TextChunks():
                return translator.feed(message.update)
            case Update(value=value, child_session=child):
                events = translator.feed(value, child)
                if session.state.is_changed:
                    events = [*events, *self.state.apply_patch(session.state.take_patch())]
                return events
            case BridgeEvent(name=name, value=value):
                return translator.emit_bridge_event(name, value)
            case PendingCall():
                self._call_since = self._call_since or time.monotonic()
                record, events = translator.emit_client_call(message.tool, message.arguments, message.agent_id)
                session.calls.assign_client_id(message, record.client_id)
                return events
            case AgentRequest():
                message.received_at = time.monotonic()
                return self.show_call(message) if message.is_open else []
            case PermissionDecision():
                return message.events(translator)
            case TurnEnd():
                self.turn_end, session.is_in_turn = message, False
                return []
            case _:
                return []
