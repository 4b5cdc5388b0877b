"""ClaudeRun: one run of Claude, from its input to its terminal event.

It finds or starts a CLI process, sends the prompt or the answers, streams its events, and ends or waits. `session.py` talks to the process,
`translate.py` turns its messages into events, `outcome.py` makes the terminal event, `memory.py` keeps the position in the CLI's files.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.claude.client_tools import build_toolbox
from ambient_runner.bridges.claude.errors import ClaudeExited, SessionLost, to_bridge_error
from ambient_runner.bridges.claude.interrupts import PermissionRequest, is_executed, to_permission_result
from ambient_runner.bridges.claude.launch import build_launch
from ambient_runner.bridges.claude.memory import SessionPosition, last_user_id
from ambient_runner.bridges.claude.outcome import (
    build_run_cancelled,
    build_run_finished,
    build_run_waiting,
    find_interrupted_call,
)
from ambient_runner.bridges.claude.predict_state import Predictions
from ambient_runner.bridges.claude.run_input import build_prompt
from ambient_runner.bridges.claude.session import ENDED, Session
from ambient_runner.bridges.claude.state_tool import StateUpdate
from ambient_runner.bridges.claude.translate import Translator
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.interrupts import (
    has_same_arguments,
    interrupt_lapsed_events,
    resolved_interrupt_ids,
)
from ambient_runner.bridges.toolkit.pending_calls import PendingCall
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.turns import MISSING_RESULT, unanswered_tool_calls
from ambient_runner.errors import BridgeError, BridgeTimeout, RunnerError
from ambient_runner.protocol.events import RunError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from claude_agent_sdk import ResultMessage

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.claude.launch import Launch
    from ambient_runner.bridges.claude.memory import ClaudeMemoryStore
    from ambient_runner.bridges.claude.shared import ClaudeBridgeState
    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import Event, ResumeEntry

__all__ = ["ClaudeRun"]

logger = logging.getLogger(__name__)

_QUIET_INTERVAL = 0.05
"""Seconds without a message after which a waiting process has sent everything."""
_QUESTION_DELAY = 0.5
"""Seconds until a question is shown while another subagent, or Claude itself, still streams."""
_STOP_TIMEOUT = 2.0
"""Seconds a turn may continue after the process was asked to end it."""


class ClaudeRun:
    """One run: an `AdapterRun`. It begins with the `session` of the run before, if there is one, and leaves its own for the next."""

    def __init__(
        self,
        context: RunContext,
        platform: PlatformContext,
        shared: ClaudeBridgeState,
        memory_store: ClaudeMemoryStore,
        session: Session | None,
    ) -> None:
        self.session = session
        self.is_stopping = False
        """True if the run was asked to stop."""
        self._context = context
        self._platform = platform
        self._shared = shared
        self._config = shared.config
        self._memory_store = memory_store
        self._composer = Composer()
        self._state = StateStore(context.run_input.state)
        self._predictions = Predictions(shared.config.predict_state, self._state)
        self._translator: Translator | None = None
        self._has_ended = anyio.Event()
        self._keeps_session = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run a turn until it ends, or until the process waits for an answer or a tool result. Raises: BridgeError."""
        for event in build_toolbox(self._context.run_input.tools, self._platform.custom_tools).dropped_events():
            yield event
        new_input, session = self._context.new_input, self.session
        is_answer = session is not None and session.waits_for(new_input)
        if session is None or not is_answer:
            for event in interrupt_lapsed_events(resolved_interrupt_ids(new_input.resume)):
                yield event
            for event in self._close_unanswered_calls():
                yield event
            session = await self._acquire_session()
        self._attach_run(session)
        answered = {result.call_id for result in new_input.results}
        self._translator = translator = Translator(
            self._composer, session.tool_calls, answered, self._context.used_ids, session.streams
        )
        if is_answer:
            self._deliver_answers(session)
        else:
            for event in await self._memory_store.save(self._context, session.last_user_id):
                yield event
        has_more = is_answer and new_input.user is not None
        while True:
            async with aclosing(self._receive_turn(session, translator)) as events:
                async for event in events:
                    yield event
            if translator.result is None or not has_more or self.is_stopping:
                break
            has_more, translator.result = False, None
            await self._send_prompt(session, replace(new_input, results=(), resume=()))

    async def finish(self) -> list[Event]:
        """Return the last events, with RUN_FINISHED: the turn has ended, or waits. The process stays. Raises: ClaudeError."""
        session, translator = self.session, self._translator
        assert session is not None
        assert translator is not None
        self._keeps_session = True
        if translator.result is None:
            return await self._finish_waiting(session, translator)
        return await self._finish_turn(session, translator, translator.result)

    def map_error(self, error: Exception) -> RunnerError:
        return to_bridge_error(error)

    async def fail(self, error: RunnerError) -> list[Event]:
        """Return the last events of a failed run, before its error. A stopped run ends as cancelled instead: RUN_FINISHED is the last."""
        if self.is_stopping:
            terminal = build_run_cancelled(self._context.run_input)
            return [*self._composer.close(terminal), terminal]
        return self._composer.close(RunError(message=error.message))

    async def close(self) -> None:
        """Release what the run holds. The process stays only if the run has finished."""
        self._has_ended.set()
        if not self._keeps_session:
            await self.close_session(now=True)

    async def close_session(self, *, now: bool = False) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.aclose(now=now)

    async def stop(self) -> None:
        """End the turn, also one that waits for an answer after this run. The process stays, unless it does not react."""
        session = self.session
        if self._has_ended.is_set():
            if session is not None and session.is_waiting and not await session.wait_idle():
                await self.close_session(now=True)
            return
        self.is_stopping = True
        if session is not None:
            await session.interrupt_turn()
            with anyio.move_on_after(_STOP_TIMEOUT):
                await self._has_ended.wait()
            if not self._has_ended.is_set():
                session.kill()

    def _close_unanswered_calls(self) -> list[Event]:
        """Return results for the calls of earlier runs that nothing will answer: their process is gone, or gives them up."""
        events: list[Event] = []
        for call in unanswered_tool_calls(self._context.run_input.messages):
            self._composer.continue_tool_call(call.id)
            events += self._composer.tool_result(call.id, MISSING_RESULT, is_error=True)
        return events

    def _attach_run(self, session: Session) -> None:
        """Make this the run of the process: its tools use it, and its secrets are redacted here."""
        session.run = self._context.run
        if session.run is not None:
            session.run.secrets.add(session.secrets)

    def _deliver_answers(self, session: Session) -> None:
        new_input = self._context.new_input
        entries = {entry.interrupt_id: entry for entry in new_input.resume}
        if new_input.resume:
            for request in session.open_requests:
                if request.is_shown:  # The others came after that run had ended. This run shows them.
                    self._answer_request(session, request, entries.get(request.id))
        if new_input.results:
            session.calls.deliver_results(new_input.results)

    def _answer_request(self, session: Session, request: PermissionRequest, entry: ResumeEntry | None) -> None:
        """Give the answer to the process. A call with other arguments than those that were shown is asked about again."""
        result, call = to_permission_result(request, entry), find_interrupted_call(request)
        if is_executed(result) and not has_same_arguments(request.id, [call]):
            logger.warning(
                "Run %s on thread %s: the arguments of an approved call have changed. It is not executed; it is asked again.",
                self._context.run_input.run_id,
                self._context.run_input.thread_id,
            )
            session.ask_again(request)
        else:
            request.resolve(result)

    async def _acquire_session(self) -> Session:
        """Return a process that has the conversation, with the turn begun."""
        run, history = self._context.run, self._context.new_input.history
        launch = build_launch(
            self._config,
            self._platform,
            self._context.run_input,
            self._shared.base_variables,
            {} if run is None else run.environment,
        )
        await self._memory_store.load(self._context)
        warm = await self._reuse_warm_session(launch)
        if warm is not None:
            return warm
        await self.close_session()
        position = self._memory_store.memory.find_position(history)
        try:
            session = await self._start_session(launch, position)
        except SessionLost:
            position = SessionPosition(missing_turns=history)
            session = await self._start_session(launch, position)
        await self._send_prompt(session, self._context.new_input, position.missing_turns)
        return session

    async def _reuse_warm_session(self, launch: Launch) -> Session | None:
        """Return the process of the run before, with the turn begun, if it is equivalent to a new one."""
        warm, new_input = self.session, self._context.new_input
        if warm is None or warm.launch != launch or warm.last_user_id != last_user_id(new_input.history):
            return None
        if not await warm.wait_idle():
            return None
        with suppress(ClaudeExited):
            await self._send_prompt(warm, new_input)
            return warm
        return None

    async def _start_session(self, launch: Launch, position: SessionPosition) -> Session:
        if self.is_stopping:
            raise BridgeError
        session = self.session = Session(
            launch, position, self._config, self._shared.waiting_limit, self._context.run_input.thread_id
        )
        if self._context.run is not None:
            session.secrets = launch.secret_values(self._context.run.secrets)
        await session.start()
        return session

    async def _send_prompt(self, session: Session, new_input: NewInput, missing_turns: Sequence[Turn] = ()) -> None:
        session.last_user_id = new_input.user.id if new_input.user is not None else last_user_id(new_input.history)
        await session.send_prompt(build_prompt(self._context.run_input, new_input, missing_turns))

    async def _receive_turn(self, session: Session, translator: Translator) -> AsyncGenerator[Event, None]:
        """Stream the events of the process until its turn ends, or it waits for an answer or a tool result."""
        while translator.result is None:
            question_due = _seconds_to_question(session, translator)
            if question_due <= 0:
                return
            may_wait = session.is_waiting and not translator.is_streaming
            limit = _QUIET_INTERVAL if may_wait else self._config.turn_timeout
            message = await session.next_message(min(limit, question_due))
            if message is None and may_wait and session.is_waiting:
                return
            if message is None and (may_wait or question_due < limit):
                continue
            if message is None:
                raise BridgeTimeout(f"Claude sent nothing for {self._config.turn_timeout:g} seconds and was stopped.")
            if message is ENDED:
                raise session.exit_error()
            session.handle_message(message)
            match message:
                case PendingCall():
                    session.match_pending_calls()
                case PermissionRequest():
                    message.received_at = time.monotonic()
                case _:
                    pass
            retries = translator.retry_count
            for event in self._to_events(message, translator):
                yield event
            if translator.retry_count > retries == 0:
                self._log_retry()

    def _to_events(self, message: Any, translator: Translator) -> list[Event]:
        if isinstance(message, StateUpdate):
            return self._state.update_with_snapshot(message.changes)
        return [event for translated in translator.feed(message) for event in self._predictions.feed(translated)]

    async def _finish_waiting(self, session: Session, translator: Translator) -> list[Event]:
        requests = session.open_requests
        saved = await self._memory_store.save(
            self._context, session.last_user_id, translator.session_id, is_waiting=bool(requests)
        )
        calls = translator.cut_streamed_calls()
        for request in requests:
            request.is_shown = True
            calls += translator.emit_requested_call(request.call_id, request.tool, request.input)
        session.match_pending_calls()
        terminal = build_run_waiting(
            self._context.run_input, translator, session, requests, self._config.interrupt_timeout
        )
        return [*saved, *calls, *self._composer.close(terminal), terminal]

    async def _finish_turn(self, session: Session, translator: Translator, result: ResultMessage) -> list[Event]:
        session.tool_calls.clear()
        session.streams.clear()
        cost_before, session.cost_usd = session.cost_usd, result.total_cost_usd or session.cost_usd
        session_id, entry_id = translator.session_id, translator.last_entry_id
        saved = await self._memory_store.save(self._context, session.last_user_id, session_id, entry_id)
        terminal = build_run_finished(
            self._context.run_input, result, translator, cost_before, cancelled=self.is_stopping
        )
        return [*saved, *self._composer.close(terminal), terminal]

    def _log_retry(self) -> None:
        logger.warning(
            "Run %s on thread %s: a request of Claude to its model failed and is retried. If this continues, check "
            "ANTHROPIC_BASE_URL, the network (proxies, firewalls) and the key; the run's claude:retry events have the "
            "provider's HTTP status, if it answered.",
            self._context.run_input.run_id,
            self._context.run_input.thread_id,
        )


def _seconds_to_question(session: Session, translator: Translator) -> float:
    """Return the seconds until an open permission request must be shown. The message with the call is completed first."""
    received = [
        request.received_at
        for request in session.open_requests
        if request.received_at is not None and not translator.is_caller_streaming(request.call_id)
    ]
    return min(received) + _QUESTION_DELAY - time.monotonic() if received else math.inf
