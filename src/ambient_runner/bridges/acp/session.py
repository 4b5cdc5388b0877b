"""One agent process with one session of the Agent Client Protocol.

Its updates, its requests to a person, its calls of client tools and the ends of its turns come out of one buffer, in order. A process
outlives the run that started it: it waits for the next one, or for an answer. What it sends between runs stays in the buffer. It may be
started before there is a session: `process_pool.py` keeps such processes for new threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.acp.buffered_messages import ENDED
from ambient_runner.bridges.acp.errors import ACPExited
from ambient_runner.bridges.acp.session_messages import SessionReceiver
from ambient_runner.bridges.acp.session_options import apply_options
from ambient_runner.bridges.acp.session_start import PROTOCOL_VERSION, SessionStarter, check_version, has_ability
from ambient_runner.bridges.acp.translate import TurnState
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import BridgeError, BridgeTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from ambient_runner.bridges.acp.buffered_messages import QueuedPrompt
    from ambient_runner.bridges.acp.interrupts import AgentRequest
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.session_start import SessionStart
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.bridges.toolkit.turns import NewInput

__all__ = ["AgentSession"]

logger = logging.getLogger(__name__)

_CLIENT_CAPABILITIES: dict[str, Any] = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    "elicitation": {"form": {}, "url": {}},
    "session": {"compaction": {}, "configOptions": {"boolean": {}}, "notices": {}},
}
_CANCEL_TIMEOUT = 3.0
"""Seconds the agent has to end its turn after it was asked to."""
_CLOSE_TIMEOUT = 1.0
"""Seconds the agent has to close its session, such as to write its files, before its process is ended."""
_CALL_GRACE = 0.2
"""Seconds the agent has to give up its calls of client tools after it was asked to end its turn. Some do not."""


class AgentSession:
    """A process started with `launch`. Use `start`, then `send_prompt` and `next_message`; `aclose` ends it.

    A process without a thread can be started ahead with `start_process`, and given to a thread with `assign`.
    """

    def __init__(self, launch: Launch, shared: ACPBridgeState, thread_id: str = "") -> None:
        self.is_initialized = False
        """True once the process has told its capabilities."""
        self.is_in_run = False
        """True while a run uses it."""
        self.is_in_turn = False
        """True from a prompt until a run has received the end of the turn."""
        self.turn = TurnState()
        self.secrets: Sequence[str] = ()
        """Secrets that were granted to the process. A run that answers it has other grants, and must redact these too."""
        self.prompt_capabilities: Mapping[str, Any] = {}
        self.needs_instructions = False
        """True until the first prompt of a new session, which has the instructions: an agent keeps its own system prompt."""
        self.queued_prompts: list[QueuedPrompt] = []
        self.received: tuple[str, ...] = ()
        """Ids of the newest user messages that the process has, as the thread's memory has them. Another process may have got more."""
        self._shared = shared
        self._config = shared.config
        self._profile = shared.profile
        self._thread_id = thread_id
        self._receiver = SessionReceiver(launch, shared, thread_id, on_expiry=self.cancel_turn)
        self._connection = self._receiver.connection
        self._messages = self._receiver.messages
        self._first_message: Any = None
        self._agent: Mapping[str, Any] = {}
        self._resources = AsyncExitStack()
        self.state = self._receiver.state
        self.known_calls = self._receiver.known_calls
        self.requests = self._receiver.requests
        self.calls = self._receiver.calls

    @property
    def id(self) -> str:
        """The agent's id of the session."""
        return self._receiver.session_id

    @property
    def launch(self) -> Launch:
        """The launch of the process, with the options and permission rules of the newest run."""
        return self._receiver.launch

    @property
    def pid(self) -> int | None:
        return self._connection.pid

    @property
    def is_alive(self) -> bool:
        return bool(self.id) and self._has_process

    @property
    def is_busy(self) -> bool:
        """True from a prompt until its response has arrived."""
        return not self._receiver.turn_over.is_set()

    @property
    def is_cancelled(self) -> bool:
        """True if the turn was asked to end."""
        return self._receiver.is_cancelled

    @property
    def turn_error(self) -> BridgeError | None:
        """The failure of a turn that the agent reports as ended normally, or because of which it was stopped."""
        return self._receiver.turn_error

    @property
    def is_waiting(self) -> bool:
        """True if it needs an answer or a tool result to continue."""
        return bool(self.requests or self.calls.open_calls) and self.is_alive and not self.is_cancelled

    @property
    def is_idle(self) -> bool:
        """True if it can be ended without loss: no run uses it, and nobody's answer is awaited."""
        return not self.is_in_run and not self.requests

    def waits_for(self, new_input: NewInput) -> bool:
        """Return True if it waits for an answer or a tool result that this input brings.

        A new message in place of an answer ends the turn.
        """
        if not self.is_waiting:
            return False
        answers = [entry for entry in new_input.resume if self.requests.find(entry.interrupt_id) is not None]
        call_ids = {call.client_id for call in self.calls.open_calls}
        has_result = any(result.call_id in call_ids for result in new_input.results)
        return has_result or any(entry.status == "resolved" or new_input.user is None for entry in answers)

    def continues_without(self, new_input: NewInput) -> bool:
        """Return True if the turn goes on, or has ended by itself, although it waits for nothing that this input brings.

        The agent has withdrawn its request, or does not wait for the tool any more.
        """
        return self.is_in_turn and self.is_alive and not self.is_cancelled and new_input.user is None

    @property
    def is_spare(self) -> bool:
        """True if the process is ready for its first session."""
        return self.is_initialized and not (self.id or self.requests) and self._has_process

    def assign(self, launch: Launch, thread_id: str) -> None:
        """Give a process that was started ahead to a thread. `launch` is that of the thread's run."""
        self._thread_id = thread_id
        self._receiver.assign(launch, thread_id)

    def offers(self, ability: str) -> bool:
        """Return True if the agent offers this operation on its sessions, such as `close`."""
        return has_ability(self._agent, ability)

    async def start(self, session_id: str) -> SessionStart:
        """Start the process, unless it was started ahead, and open the session, or a new one if it is empty or the agent has lost it.

        Raises: BridgeUnavailable, of which ACPNotStarted is for a process that ends, BridgeTimeout, ACPAuthRequired, ACPError.
        """
        async with self._closing_on_failure():
            if not self.is_initialized:
                await self._start_process()
            return await self._open_session(session_id)

    async def start_process(self) -> None:
        """Start the process without a session. Raises: OSError, BridgeError."""
        async with self._closing_on_failure():
            await self._start_process()

    async def wait_for_exit(self) -> None:
        """Wait until the process is gone."""
        await self._receiver.exited.wait()

    async def delete_session(self, session_id: str) -> None:
        """Let the agent erase one of its sessions. Raises: BridgeError."""
        await self._call("session/delete", {"sessionId": session_id})

    async def send_prompt(self, blocks: Sequence[dict[str, Any]]) -> None:
        """Begin a turn. Raises: ACPExited if the process is gone."""
        await anyio.sleep(max(0.0, self._receiver.late_cancel_until - time.monotonic()))
        if not self.is_alive:
            raise self.exit_error()
        self.is_in_turn, self.needs_instructions = True, False
        self.turn.clear()
        self._receiver.begin_turn(list(blocks))

    async def wait_for_reaction(self) -> None:
        """Wait for the first message after a prompt. A process may be dead for a moment before that is known.

        Raises: ACPExited if there is no message: then nothing has been done; BridgeTimeout.
        """
        self._first_message = await self.next_message(self._config.turn_timeout)
        if self._first_message is None:
            raise self.silence_error()
        if self._first_message is ENDED:
            raise self.exit_error()

    def take_message(self) -> Any:
        """Return the next message without waiting; None if there is none."""
        if self._first_message is None:
            return self._messages.take()
        first, self._first_message = self._first_message, None
        return first

    async def next_message(self, seconds: float) -> Any:
        """Return the next Update, AgentRequest, PermissionDecision, PendingCall, TurnEnd or ENDED; None if nothing comes in time."""
        return self.take_message() or await self._messages.get(seconds)

    def cancel_turn(self) -> None:
        """Ask the agent to end its turn. What it waits for is answered: requests with `cancelled`, calls with an error.

        Outside of a turn nothing is sent: an agent may take it for the end of the next one.
        """
        if self.is_busy and not self.is_cancelled:
            self._receiver.is_cancelled = True
            self._messages.discard_excess(is_discarding=True)
            self._connection.notify("session/cancel", {"sessionId": self.id})
            asyncio.get_running_loop().call_later(_CALL_GRACE, self._receiver.fail_abandoned_calls)
        self.requests.cancel_all()

    async def end_turn(self) -> bool:
        """End an abandoned turn. What it has sent stays in the buffer. Return False if the process cannot be used again."""
        if self.is_alive:
            self.cancel_turn()
            with anyio.move_on_after(_CANCEL_TIMEOUT):
                await self._receiver.turn_over.wait()
        return self.is_alive and not self.is_busy

    def allow_mode_switch(self, request: AgentRequest) -> None:
        """Let the agent leave its mode if that is what it has asked for: a person allows it."""
        if request.tool_call.get("kind") == "switch_mode":
            self._receiver.guard.allow_switch()

    async def apply_options(self, launch: Launch) -> None:
        """Set the mode, the model and the config options that a run asks for, and use its permission rules. Raises: BridgeError."""
        self._receiver.launch, self._receiver.guard.options = launch, None
        await apply_options(self.id, self.state, launch, self._call)
        self._receiver.guard.options = launch.options

    def exit_error(self) -> BridgeError:
        """Return the reason why the process is gone."""
        return self.turn_error or self._connection.exit_error()

    def silence_error(self) -> BridgeError:
        """Return the error for an agent that says nothing for too long."""
        return self._connection.with_stderr(
            BridgeTimeout(
                f"{self._profile.title} sent nothing for {self._config.turn_timeout:g} seconds and was stopped."
            )
        )

    def kill(self) -> None:
        """Kill the process and everything it has started; also one that is starting."""
        self._receiver.has_ended = True
        self._connection.kill()

    async def aclose(self, *, now: bool = False) -> None:
        """End the process, after its session is closed. With `now`, or during a turn, it is killed: it has nothing left to write."""
        is_orderly = self.is_alive and not (now or self.is_busy)
        self._receiver.has_ended = True
        self.requests.cancel_all()
        self._shared.remove(self)
        with anyio.CancelScope(shield=True):
            try:
                if is_orderly and self.offers("close"):
                    await self._close_session()
                await self._connection.aclose(now=now or self.is_busy)
            finally:
                await self._resources.aclose()

    async def _close_session(self) -> None:
        """Let the agent close its session. One that cannot is ended all the same."""
        try:
            await self._connection.call("session/close", {"sessionId": self.id}, timeout=_CLOSE_TIMEOUT)
        except BridgeError as error:
            logger.info(
                "Thread %s: %s did not close its session.", self._thread_id, self._profile.title, exc_info=error
            )

    @property
    def _has_process(self) -> bool:
        return not self._receiver.has_ended and self._connection.is_alive

    @asynccontextmanager
    async def _closing_on_failure(self) -> AsyncGenerator[None]:
        """End the process if it does not get ready. Raises: ACPNotStarted if it has ended by itself."""
        try:
            yield
        except ACPExited:
            await self.aclose(now=True)
            raise self._connection.not_started_error(self.launch) from None
        except BaseException:
            await self.aclose(now=True)
            raise

    async def _start_process(self) -> None:
        """Start the process and let it tell its capabilities."""
        resources = await self.launch.open_resources(self._resources, self.calls, self._report_refused_host)
        self._receiver.relay = resources.relay
        await self._connection.start(self.launch, resources.command)
        if self._receiver.has_ended:
            raise self.exit_error()
        self._agent = as_object(await self._call("initialize", _initialize_params()))
        check_version(self._agent, self._profile.title)
        self.is_initialized = True

    async def _open_session(self, session_id: str) -> SessionStart:
        capabilities = as_object(self._agent.get("agentCapabilities"))
        self.prompt_capabilities = as_object(capabilities.get("promptCapabilities"))
        self._receiver.is_opening = True
        starter = SessionStarter(self.launch, self._agent, self._call, self._receiver, self._thread_id)
        started = await starter.start(session_id, self.launch.session_params(capabilities, self._receiver.relay))
        self._receiver.open_session(started.id)
        self.needs_instructions = started.how == "new"
        self.state.apply_session(started.settings)
        await self.apply_options(self.launch)
        return started.how

    def _report_refused_host(self, host: str) -> None:
        """Tell the thread that the sandbox kept the agent from a host."""
        self._receiver.report("network_refused", host=host)

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        return await self._connection.call(method, params, timeout=self._config.start_timeout)


def _initialize_params() -> dict[str, Any]:
    info = {"name": "ambient-runner", "title": "Ambient Runner", "version": version("ambient-runner")}
    return {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CLIENT_CAPABILITIES, "clientInfo": info}
