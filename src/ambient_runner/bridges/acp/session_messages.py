"""The receiving side of a session: messages of the agent's process, in order, as a run needs them.

Requests are decided when they arrive, or kept open for a person. `session.py` starts and ends the process, and sends prompts.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.acp.buffered_messages import ENDED, BridgeEvent, MessageBuffer, TurnEnd, Update
from ambient_runner.bridges.acp.connection import AgentConnection
from ambient_runner.bridges.acp.elicitations import ELICITATION_DECLINED, is_web_url, normalize_elicitation
from ambient_runner.bridges.acp.errors import ACPError
from ambient_runner.bridges.acp.interrupts import AgentRequest
from ambient_runner.bridges.acp.known_calls import KnownCalls
from ambient_runner.bridges.acp.pending_interrupts import OpenRequests
from ambient_runner.bridges.acp.permissions import PermissionDecision, decide_request
from ambient_runner.bridges.acp.session_guard import ModeGuard
from ambient_runner.bridges.acp.session_state import SessionState, announced_mode
from ambient_runner.bridges.acp.text_chunks import parse_text_chunk
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.pending_calls import PendingCall, PendingCalls
from ambient_runner.processes.json_rpc_messages import Notification, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ambient_runner.bridges.acp.client_tools import ToolRelay
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.errors import BridgeError
    from ambient_runner.processes.json_rpc_messages import Message, RequestId

__all__ = ["SessionReceiver"]

logger = logging.getLogger(__name__)

_REPLAY_QUIET = 0.3
"""Seconds without output after which the late replay of a loaded session is over."""
_REPLAY_TIMEOUT = 5.0  # seconds
_LATE_CANCEL_DELAY = 1.0
"""Seconds for which an agent may keep a cancellation that came after the end of the turn."""
_CHUNK_KINDS = frozenset({"agent_message_chunk", "agent_thought_chunk"})
_STOPPED = "The user stopped the turn."
"""Result of a call of a client's tool that nobody will answer."""


class SessionReceiver:
    """Receives the messages of one process. Those for a run are in `messages`. `on_expiry` is called for a request that expires."""

    def __init__(
        self, launch: Launch, shared: ACPBridgeState, thread_id: str, *, on_expiry: Callable[[], None]
    ) -> None:
        self.launch = launch
        self.session_id = ""
        self.is_opening = False
        """True while the agent is asked to open a session. Its updates may come before its response."""
        self.dropped_messages = 0
        """Number of messages from before there was a session, and of other sessions until then."""
        self.relay: ToolRelay | None = None
        self.is_replaying = False
        """True while a loaded session is replayed. Clients have the conversation, so only the session's state counts."""
        self.is_cancelled = False
        """True if the turn was asked to end."""
        self.late_cancel_until = 0.0
        """Monotonic time until which a cancellation that came too late may hit the next turn. Some agents keep it for a moment."""
        self.has_ended = False
        """True if the process is gone, or shall be."""
        self.exited = anyio.Event()
        """Set when the process is gone."""
        self.turn_error: BridgeError | None = None
        """The failure of a turn that the agent reports as ended normally, or because of which it was stopped."""
        self.state = SessionState(is_safe=launch.audience == "safe")
        self.known_calls = KnownCalls()
        self.calls = PendingCalls(self._handle_client_call)
        self.connection = AgentConnection(
            shared.profile, self._handle_message, self._handle_exit, try_handle_line=self._try_handle_chunk
        )
        self.messages = MessageBuffer(self.connection)
        self.messages.discard_excess(is_discarding=True)  # An agent that cannot write opens no session.
        self.guard = ModeGuard(shared.profile, self.state, self.connection.send_request, thread_id)
        self.requests = OpenRequests(
            shared.waiting_limit, self, seconds=shared.config.interrupt_timeout, on_expiry=on_expiry
        )
        self.turn_over = anyio.Event()
        """Set when the response to the prompt has arrived, or the process is gone."""
        self.turn_over.set()
        self._profile = shared.profile
        self._thread_id = thread_id
        self._prompt_id: RequestId = None
        self._has_mode_chatter = shared.profile.quirks.has_mode_chatter
        """True if chunks have to be searched for announcements of a mode."""

    def assign(self, launch: Launch, thread_id: str) -> None:
        """Give the process to a thread."""
        self.launch = launch
        self._thread_id = self.guard.thread_id = thread_id

    def open_session(self, session_id: str) -> None:
        """Use this session from now on. What came before, and is of another one, is dropped."""
        self.session_id, self.is_opening = session_id, False
        for request in self.requests.all():
            if request.child_session not in (None, session_id):
                request.cancel()
            request.child_session = None
        self.dropped_messages += self.messages.revise(self._keep_of_session)
        if self.dropped_messages:
            logger.info(
                "Thread %s: %d messages of %s were dropped, because they came before its session.",
                self._thread_id,
                self.dropped_messages,
                self._profile.title,
            )

    def _keep_of_session(self, message: Any) -> Any:
        """Return a message from before the session was known, if it is not of another one; None if it is."""
        if not isinstance(message, Update) or message.child_session is None:
            return message
        return replace(message, child_session=None) if message.child_session == self.session_id else None

    def begin_turn(self, blocks: list[dict[str, Any]]) -> None:
        """Send a prompt, and forget the turn before. Raises: PeerClosed."""
        self.is_cancelled, self.turn_error, self.turn_over = False, None, anyio.Event()
        self.messages.drop_late()
        self.messages.discard_excess(is_discarding=False)
        self.guard.begin_turn()
        self.known_calls.clear()
        params = {"sessionId": self.session_id, "prompt": blocks}
        self._prompt_id = self.connection.send_request("session/prompt", params)

    def fail_abandoned_calls(self) -> None:
        """Answer the calls of client tools that a cancelled turn waits for, so that it can end."""
        if self.is_cancelled:
            self.calls.fail_calls(_STOPPED)

    async def wait_for_replay(self) -> None:
        """Wait until a replay that comes after the response is over."""
        with anyio.move_on_after(_REPLAY_TIMEOUT):
            received = -1
            while received != self.connection.received_bytes:
                received = self.connection.received_bytes
                await anyio.sleep(_REPLAY_QUIET)

    def report(self, name: str, **value: Any) -> None:
        """Add an event of the bridge, which clients get in the order of the agent's messages."""
        self.messages.put_update(BridgeEvent(name, value))

    def _handle_message(self, message: Message) -> None:
        """Receive a message of the process, in order."""
        if isinstance(message, Notification) and not self._has_session:
            self.dropped_messages += 1
            self.messages.skip()
            return
        match message:
            case Notification(method="session/update", params=params):
                self._handle_update(as_object(params))
            case Notification(method="$/cancel_request", params=params):
                self.requests.withdraw(as_object(params).get("requestId"))
            case Notification(method=method, params=params):
                if method == "elicitation/complete":
                    self.requests.complete(as_object(params).get("elicitationId"))
                self.messages.put_update(Update({"sessionUpdate": method, "params": params}))
            case Request():
                self._handle_request(message)
            case Response():
                self._handle_response(message)

    @property
    def _has_session(self) -> bool:
        """True if there is a session, or is about to be: before that, nothing that the agent sends can be for a thread."""
        return bool(self.session_id) or self.is_opening

    def _handle_response(self, response: Response) -> None:
        if response.id == self._prompt_id:
            error = None if response.error is None else self.connection.to_error("session/prompt", response.error)
            result = as_object(response.result)
            if self.is_cancelled and result.get("stopReason") != "cancelled":
                self.late_cancel_until = time.monotonic() + _LATE_CANCEL_DELAY
            self.turn_over.set()
            self.messages.put(TurnEnd(result, error))
        elif (update := self.guard.handle_response(response)) is not None:
            self.messages.put(Update(update))
        self._stop_if_unguarded()

    def _try_handle_chunk(self, line: bytes) -> bool:
        """Add a plain chunk of text. Return False for any other line, and in a phase in which chunks are no text of the turn."""
        chunk = parse_text_chunk(line)
        if (
            chunk is None
            or chunk.session_id != self.session_id
            or not self.session_id
            or self.is_opening
            or self.is_replaying
            or self._has_mode_chatter
        ):
            return False
        update = chunk.update
        self.messages.put_chunk(update.kind, update.message_id, update.content.text, is_late=self.is_cancelled)
        return True

    def _handle_update(self, params: Mapping[str, Any]) -> None:
        update = as_object(params.get("update"))
        if self.is_replaying:
            self.state.apply(update)
            return
        if meta := as_object(params.get("_meta")):
            update = {**update, "_meta": {**meta, **as_object(update.get("_meta"))}}
        child = self._child_session(params)
        kind = update.get("sessionUpdate")
        if kind in ("tool_call", "tool_call_update"):
            self.known_calls.add(update, None if self.relay is None else self.relay.own_tool(update))
        elif child is None and kind in self.guard.update_kinds:
            self._check_mode(update)
        elif kind == "session_info_update" and self._profile.quirks.reports_errors_as_text:
            self._note_failure(as_object(as_object(update.get("_meta")).get("codex")))
        self.messages.put_update(Update(update, child, is_late=self._is_late(update)))

    def _is_late(self, update: Mapping[str, Any]) -> bool:
        """Return True for text of a turn that was asked to end. What it says about tools and the session counts until the next prompt."""
        if not self.is_cancelled or update.get("sessionUpdate") not in _CHUNK_KINDS:
            return False
        return not (self._profile.quirks.has_mode_chatter and announced_mode(update))

    def _child_session(self, params: Mapping[str, Any]) -> str | None:
        """Return the id of the session that a message is from, if it is not this one. Of one that is being opened, it is not known yet."""
        session_id = params.get("sessionId")
        return session_id if isinstance(session_id, str) and session_id != self.session_id else None

    def _note_failure(self, status: Mapping[str, Any]) -> None:
        """Take over what Codex reports about a request to its model: that it tries again, or that the turn has failed.

        It ends such a turn as any other, with the error as text.
        """
        error = as_object(status.get("error"))
        if error.get("willRetry") is True:
            self.report("retry")
        if as_object(status.get("threadStatus")).get("type") == "systemError":
            self.turn_error = ACPError()
            self.turn_error.add_note(f"The agent reported: {error or status}")

    def _check_mode(self, update: Mapping[str, Any]) -> None:
        notice = self.guard.check(self.session_id, update)
        if notice is not None:
            self.messages.put(notice)
        self._stop_if_unguarded()

    def _stop_if_unguarded(self) -> None:
        """Stop an agent that cannot be kept in its mode."""
        if self.guard.has_failed and not self.has_ended:
            self.turn_error = ACPError(f"{self._profile.title} left its permission mode by itself and was stopped.")
            self.has_ended = True
            self.connection.kill()

    def _handle_request(self, message: Request) -> None:
        is_elicitation, params = message.method == "elicitation/create", as_object(message.params)
        request = AgentRequest(
            rpc_id=message.id,
            is_elicitation=is_elicitation,
            params=normalize_elicitation(params) if is_elicitation else params,
            child_session=self._child_session(params),
            respond=lambda response: self.connection.respond(message.id, response),
        )
        if self.is_cancelled or not self._has_session:
            request.cancel()
        elif is_elicitation and "url" in request.params and not is_web_url(request.params["url"]):
            self._refuse_url(request)
        elif (decision := self._decide(request)) is not None:
            decision.carry_out()
            self.messages.put(decision)
        else:
            self.messages.put(request)

    def _refuse_url(self, request: AgentRequest) -> None:
        """Decline an elicitation at a URL that no browser may be given."""
        request.resolve(ELICITATION_DECLINED)
        logger.warning(
            "Thread %s: %s asked a person to open a URL that does not begin with https:// or http://. It was declined.",
            self._thread_id,
            self._profile.title,
        )

    def _decide(self, request: AgentRequest) -> PermissionDecision | None:
        """Return the decision on a request that no person makes; None for one that is open now."""
        decision = None
        if request.left_out_options:
            logger.warning(
                "Thread %s: a permission request of %s has too many options; %d of them are not offered.",
                self._thread_id,
                self._profile.title,
                request.left_out_options,
            )
        if not request.is_elicitation:
            tool = None if self.relay is None else self.relay.own_tool(request.tool_call)
            earlier = self.known_calls.members_of(request.call_id)
            self.known_calls.add(request.tool_call, tool)
            decision = decide_request(request, self.launch, earlier, is_client_tool=tool is not None)
        if decision is None and not self.requests.add(request):
            decision = PermissionDecision(request=request, choice="reject", by="limit")
            logger.warning(
                "Thread %s: a request of %s was refused, because too many processes wait for an answer. Raise `parked` to allow more.",
                self._thread_id,
                self._profile.title,
            )
        return decision

    def _handle_client_call(self, call: PendingCall) -> None:
        self.messages.put(call)
        if self.is_cancelled:
            self.fail_abandoned_calls()

    def _handle_exit(self) -> None:
        self.has_ended = True
        self.exited.set()
        self.turn_over.set()
        self.requests.cancel_all()
        self.messages.put(ENDED)
