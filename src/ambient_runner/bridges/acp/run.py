"""ACPRun: one run of an ACP agent, from its input to its terminal event.

It finds or starts a process, sends the prompt or the answers, and ends or waits. `session.py` talks to the process, `run_stream.py` makes
events of what it sends, `outcome.py` makes the terminal event, `memory.py` keeps the agent's session of the thread.
"""

from __future__ import annotations

import logging
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.acp.buffered_messages import QueuedPrompt
from ambient_runner.bridges.acp.errors import ACPExited, ACPNotStarted, to_bridge_error
from ambient_runner.bridges.acp.interrupt_answers import deliver_answers
from ambient_runner.bridges.acp.launch import build_launch
from ambient_runner.bridges.acp.memory import ACPMemory
from ambient_runner.bridges.acp.outcome import build_run_cancelled, build_run_finished, build_run_waiting
from ambient_runner.bridges.acp.run_input import build_prompt
from ambient_runner.bridges.acp.run_stream import RunStream
from ambient_runner.bridges.acp.session import AgentSession
from ambient_runner.bridges.toolkit.held_elsewhere import holder_record
from ambient_runner.bridges.toolkit.interrupts import interrupt_lapsed_events, resolved_interrupt_ids
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.session_turns import received_ids
from ambient_runner.bridges.toolkit.turns import MISSING_RESULT, unanswered_tool_calls
from ambient_runner.errors import BridgeError, BridgeTimeout, RunnerError
from ambient_runner.protocol.events import RunError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ambient_runner.bridges.acp.buffered_messages import TurnEnd
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.session_start import SessionStart
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.bridges.acp.tool_records import TurnState
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import Event

__all__ = ["ACPRun"]

logger = logging.getLogger(__name__)

_STOP_TIMEOUT = 3.0
"""Seconds a turn may continue after the process was asked to end it."""


class ACPRun:
    """One run: an `AdapterRun`. It begins with the `session` of the run before, if there is one, and leaves its own for the next."""

    def __init__(
        self,
        context: RunContext,
        platform: PlatformContext,
        shared: ACPBridgeState,
        memory: ACPMemory,
        session: AgentSession | None,
    ) -> None:
        self.session = session
        self.memory = memory
        self.is_stopping = False
        """True if the run was asked to stop."""
        self._context = context
        self._platform = platform
        self._shared = shared
        self._stream = RunStream(context, shared, on_refusal=self._forget_turn)
        self._has_ended = anyio.Event()
        self._keeps_session = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run a turn until it ends, or until the process waits for an answer or a tool result. Raises: BridgeError."""
        new_input, session = self._context.new_input, self.session
        for event in interrupt_lapsed_events(self._lapsed_ids()):
            yield event
        is_answer = session is not None and session.waits_for(new_input)
        if session is not None and (is_answer or session.continues_without(new_input)):
            for event in self._continue_turn(session, is_answer=is_answer):
                yield event
        else:
            async with aclosing(self._begin_turn()) as events:
                async for event in events:
                    yield event
        for event in [*self._save_memory(), *self._stream.state.snapshot_if_changed()]:
            yield event
        while True:
            async with aclosing(self._stream.receive_turn()) as events:
                async for event in events:
                    yield event
            if not self._has_next_prompt():
                return
            for event in self._stream.end_turn():
                yield event
            await self._send_queued_prompts()

    async def finish(self) -> list[Event]:
        """Return the last events, with RUN_FINISHED: the turn has ended, or waits. The process stays. Raises: BridgeError."""
        self._keeps_session = True
        if self._stream.turn_end is None:
            return self._finish_waiting()
        return self._finish_turn(self._stream.turn_end)

    def map_error(self, error: Exception) -> RunnerError:
        return to_bridge_error(error)

    async def fail(self, error: RunnerError) -> list[Event]:
        """Return the last events of a failed run, before its error. A stopped run ends as cancelled instead: RUN_FINISHED is the last."""
        composer = self._stream.composer
        is_attached = self._stream.is_attached
        open_calls = self._stream.translator.finish_turn(is_error=not self.is_stopping) if is_attached else []
        if self.is_stopping:
            terminal = build_run_cancelled(self._context.run_input)
            return [*open_calls, *composer.close(terminal), terminal]
        return [*open_calls, *composer.close(RunError(message=error.message))]

    async def close(self) -> None:
        """Release what the run holds. The process stays only if the run has finished."""
        self._has_ended.set()
        if self.session is not None:
            self.session.is_in_run = False
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
            if session is not None and session.is_waiting and not await session.end_turn():
                await self.close_session(now=True)
            return
        self.is_stopping = True
        if session is None:
            return
        session.cancel_turn()
        if not session.is_busy and not session.is_alive:
            session.kill()  # It is still starting: there is no turn to end.
        with anyio.move_on_after(_STOP_TIMEOUT):
            await self._has_ended.wait()
        if not self._has_ended.is_set():
            session.kill()

    def _lapsed_ids(self) -> list[str]:
        """Return the ids of the interrupts that are answered in this run and that nobody waits for any more."""
        session = self.session
        is_open = session is not None and session.is_alive
        ids = resolved_interrupt_ids(self._context.new_input.resume)
        return [name for name in ids if session is None or not is_open or session.requests.find(name) is None]

    def _continue_turn(self, session: AgentSession, *, is_answer: bool) -> list[Event]:
        """Give the process what it waits for. What else the input brings is sent when the turn has ended."""
        new_input = self._context.new_input
        self._attach(session)
        events = deliver_answers(session, self._context) if is_answer else []
        results = () if is_answer else new_input.results
        if new_input.user is not None or results:
            session.queued_prompts.append(
                QueuedPrompt(
                    self._build_prompt(session, replace(new_input, results=results, resume=())),
                    user_id=None if new_input.user is None else new_input.user.id,
                )
            )
        return events

    async def _begin_turn(self) -> AsyncGenerator[Event, None]:
        """Send the prompt to a process that has the conversation. Yields what the process of the run before has sent meanwhile."""
        new_input, warm = self._context.new_input, self.session
        launch = build_launch(self._shared, self._platform, self._context, self.memory)
        self.memory = replace(self.memory, cwd=launch.bound_directory)
        position = self.memory.find_position(new_input.history)
        is_usable = False
        if warm is not None and warm.id == position.session and warm.received == self.memory.received:
            self._attach(warm)
            is_usable = await warm.end_turn()
            for event in self._stream.pending_events():
                yield event
        for event in self._close_unanswered_calls():
            yield event
        is_usable = is_usable and not position.missing_turns
        if warm is not None and is_usable and await self._prompt_warm_session(warm, launch):
            return
        await self.close_session()
        session, how = await self._start_session(launch, position.session)
        is_new = how == "new"
        if is_new:
            received = received_ids(new_input.history)
            self.memory = ACPMemory(cwd=launch.bound_directory, received=received, refused=self.memory.refused)
        self.memory = replace(self.memory, session=session.id)
        self._attach(session)
        started = "replayed" if is_new and new_input.history else how
        yield self._stream.composer.custom("acp:session", {"started": started, **launch.isolation.describe()})[0]
        for event in [*self._save_memory(), *self._stream.pending_events()]:
            yield event
        await self._send_prompt(session, new_input, new_input.history if is_new else position.missing_turns)

    async def _prompt_warm_session(self, warm: AgentSession, launch: Launch) -> bool:
        """Return False if the process was started differently, or turns out to be gone, before it has done anything."""
        if warm.launch != launch:
            return False
        before = self.memory
        with suppress(ACPExited):
            await warm.apply_options(launch)
            await self._send_prompt(warm, self._context.new_input)
            await warm.wait_for_reaction()
            return True
        self.memory = before
        return False

    async def _start_session(self, launch: Launch, session_id: str) -> tuple[AgentSession, SessionStart]:
        """Open the session in a process that was started ahead, or in a new one. Then start further ones ahead."""
        self._check_not_stopping()
        started = await self._start_in_spare(launch, session_id) or await self._start_in_new_process(launch, session_id)
        if self._context.run is not None:
            self._shared.erasure.track_session(self._context.run.thread, started[0])
        self._shared.start_spares(launch)
        return started

    async def _start_in_spare(self, launch: Launch, session_id: str) -> tuple[AgentSession, SessionStart] | None:
        """Return None if there is no fitting process, or if it fails: it was started some time ago."""
        session = self._shared.take_spare(launch)
        if session is None:
            return None
        session.assign(launch, self._context.run_input.thread_id)
        self._use_session(session, launch)
        try:
            return session, await session.start(session_id)
        except BridgeError as error:
            if self.is_stopping:
                raise
            logger.info(
                "Thread %s: the spare process failed; another one is started.",
                self._context.run_input.thread_id,
                exc_info=error,
            )
            return None

    async def _start_in_new_process(self, launch: Launch, session_id: str) -> tuple[AgentSession, SessionStart]:
        """Start a process. If it fails over the earlier session, start another with a new one."""
        session = self._create_session(launch)
        await self._shared.admit(session)
        try:
            return session, await session.start(session_id)
        except (ACPNotStarted, BridgeTimeout):
            if not session_id or not session.is_initialized or self.is_stopping:
                raise
            logger.warning(
                "Thread %s: the agent failed over its earlier session; it gets the conversation again.",
                self._context.run_input.thread_id,
                exc_info=True,
            )
        session = self._create_session(launch)
        await self._shared.admit(session)
        return session, await session.start("")

    def _create_session(self, launch: Launch) -> AgentSession:
        self._check_not_stopping()
        session = AgentSession(launch, self._shared, self._context.run_input.thread_id)
        self._use_session(session, launch)
        return session

    def _use_session(self, session: AgentSession, launch: Launch) -> None:
        """Make this process, whose session is about to start, the one of the run."""
        self.session, session.is_in_run = session, True
        if self._context.run is not None:
            session.secrets = launch.secret_values(self._context.run.secrets)

    def _attach(self, session: AgentSession) -> None:
        """Make this the run of the process: its secrets are redacted here."""
        session.is_in_run = True
        self._shared.touch(session)
        if self._context.run is not None:
            self._context.run.secrets.add(session.secrets)
        self._stream.attach(session)

    def _close_unanswered_calls(self) -> list[Event]:
        """Return results for the calls of earlier runs that nothing will answer: their process is gone, or gives them up."""
        events: list[Event] = []
        for call in unanswered_tool_calls(self._context.run_input.messages):
            self._stream.composer.continue_tool_call(call.id)
            events += self._stream.composer.tool_result(call.id, MISSING_RESULT, is_error=True)
        return events

    def _build_prompt(
        self, session: AgentSession, new_input: NewInput, missing_turns: Sequence[Turn] = ()
    ) -> list[dict[str, Any]]:
        return build_prompt(
            self._context.run_input,
            new_input,
            self.memory.without_refused(missing_turns),
            capabilities=session.prompt_capabilities,
            instructions=session.launch.instructions if session.needs_instructions else "",
        )

    async def _send_prompt(
        self, session: AgentSession, new_input: NewInput, missing_turns: Sequence[Turn] = ()
    ) -> None:
        self._check_not_stopping()
        blocks = self._build_prompt(session, new_input, missing_turns)
        user_id = new_input.user.id if new_input.user is not None else None
        self._add_received(session, user_id)
        session.queued_prompts.clear()
        await session.send_prompt(blocks)
        session.turn.has_earlier_turns = bool(missing_turns)
        session.turn.message_ids |= {} if user_id is None else {user_id: None}

    def _has_next_prompt(self) -> bool:
        """Return True if the turn has ended well and there is more to say: with a rejection, or beside the answers."""
        end, session = self._stream.turn_end, self._stream.session
        has_failed = end is None or end.error is not None or session.turn_error is not None
        return not has_failed and not self.is_stopping and bool(session.queued_prompts)

    async def _send_queued_prompts(self) -> None:
        session = self._stream.session
        prompts, session.queued_prompts = session.queued_prompts, []
        for prompt in prompts:
            self._add_received(session, prompt.user_id)
        await session.send_prompt([block for prompt in prompts for block in prompt.blocks])
        session.turn.message_ids |= {prompt.user_id: None for prompt in prompts if prompt.user_id is not None}

    def _add_received(self, session: AgentSession, user_id: str | None) -> None:
        self.memory = self.memory.add_received(user_id)
        session.received = self.memory.received

    def _check_not_stopping(self) -> None:
        """Raises: BridgeError if the run was stopped meanwhile. It ends as cancelled."""
        if self.is_stopping:
            raise BridgeError

    def _save_memory(self, *, is_waiting: bool = False) -> list[Event]:
        return memory_events({**self.memory.to_stored(), **(holder_record() if is_waiting else {})})

    def _forget_turn(self, turn: TurnState) -> None:
        """Remember that the agent has refused this turn, and what it has forgotten with it."""
        self.memory = self.memory.add_refused(turn.message_ids, is_all_forgotten=turn.has_earlier_turns)

    def _finish_waiting(self) -> list[Event]:
        session, translator = self._stream.session, self._stream.translator
        requests = session.requests.all()
        calls: list[Event] = []
        for request in requests:
            session.requests.show(request)
            if request.received_at is None:
                calls += self._stream.show_call(request)
        calls += translator.cut_streamed_calls()
        terminal = build_run_waiting(self._context.run_input, session, requests, self._shared)
        return [
            *self._save_memory(is_waiting=bool(requests)),
            *calls,
            *self._stream.composer.close(terminal),
            terminal,
        ]

    def _finish_turn(self, end: TurnEnd) -> list[Event]:
        session = self._stream.session
        error = end.error or session.turn_error
        if error is not None and not self.is_stopping:
            raise error
        terminal = build_run_finished(self._context.run_input, end.result, is_stopped=self.is_stopping)
        closing = [*self._stream.translator.finish_turn(), *self._stream.refusal_events()]
        session.turn.clear()
        return [*closing, *self._save_memory(), *self._stream.composer.close(terminal), terminal]
