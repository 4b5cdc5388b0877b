"""LinesRun: one run of a command, from its input to its terminal event.

It starts a process that continues the agent's session, or a new one that is given the conversation. `provider.py` starts and reads it,
`translate.py` makes events of its output, `outcome.py` the terminal event, `memory.py` keeps the session.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ambient_runner.bridges.lines.config import PROMPT
from ambient_runner.bridges.lines.errors import LinesFailed, to_bridge_error
from ambient_runner.bridges.lines.launch import UNLIMITED, build_context, find_directory, find_thread_home
from ambient_runner.bridges.lines.memory import LinesMemory
from ambient_runner.bridges.lines.outcome import build_run_cancelled, build_run_finished
from ambient_runner.bridges.lines.provider import LinesProvider
from ambient_runner.bridges.lines.run_input import MAX_ARGUMENT_BYTES, build_prompt
from ambient_runner.bridges.lines.translate import Translator
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.interrupts import interrupt_lapsed_events, resolved_interrupt_ids
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.provider_turns import ProviderTurn
from ambient_runner.bridges.toolkit.turns import MISSING_RESULT, unanswered_tool_calls
from ambient_runner.config.private_dir import make_private_dir
from ambient_runner.protocol.events import RunError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.lines.provider import LinesHandle
    from ambient_runner.bridges.lines.shared import LinesBridgeState
    from ambient_runner.bridges.toolkit.provider import ProviderContext, StopReason
    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.bridges.toolkit.turns import Turn
    from ambient_runner.errors import RunnerError
    from ambient_runner.protocol.events import Event

__all__ = ["LinesRun"]

logger = logging.getLogger(__name__)

_STOP_TIMEOUT = 3.0
"""Seconds a process has to end after it was asked to."""


class LinesRun:
    """One run: an `AdapterRun`."""

    def __init__(
        self, context: RunContext, platform: PlatformContext, shared: LinesBridgeState, memory: LinesMemory
    ) -> None:
        self.memory = memory
        self.handle: LinesHandle | None = None
        self.is_stopping = False
        """True if the run was asked to stop."""
        self._context = context
        self._platform = platform
        self._shared = shared
        self._config = shared.config
        self._composer = Composer()
        self._translator = self._create_translator()
        self._continued_session = ""
        self._stop_reason: StopReason | None = None
        self._has_ended = anyio.Event()
        self._resources = ExitStack()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run a turn until it ends. Raises: BridgeError."""
        for event in self._close_earlier_items():
            yield event
        self._resources.enter_context(self._shared.admit_process())
        await self._create_home()
        history = self._context.new_input.history
        missing_turns = self.memory.find_missing_turns(history, self._directory)
        if missing_turns is not None and self._config.resume_command:
            async with aclosing(self._resume_turn(missing_turns)) as events:
                async for event in events:
                    yield event
        if self._stop_reason is None:
            started = "replayed" if history else "new"
            context = self._build_context(self._config.command, history)
            async with aclosing(self._run_turn(started, context)) as events:
                async for event in events:
                    yield event

    async def finish(self) -> list[Event]:
        """Return the last events, with RUN_FINISHED."""
        assert self._stop_reason is not None
        if self._stop_reason != "cancelled":
            session = self._translator.session_id or self._continued_session
            self.memory = LinesMemory.after_turn(session, self._directory, self._context.new_input)
        terminal = build_run_finished(self._context.run_input, self._stop_reason, self._translator.usage)
        return [
            *self._translator.close_calls(),
            *memory_events(self.memory.to_stored()),
            *self._composer.close(terminal),
            terminal,
        ]

    def map_error(self, error: Exception) -> RunnerError:
        return to_bridge_error(error)

    async def fail(self, error: RunnerError) -> list[Event]:
        """Return the last events of a failed run, before its error. A stopped run ends as cancelled instead: RUN_FINISHED is the last."""
        open_calls = self._translator.close_calls()
        if self.is_stopping:
            terminal = build_run_cancelled(self._context.run_input)
            return [*open_calls, *self._composer.close(terminal), terminal]
        self.memory = self.memory if self.handle is None else self.memory.after_failure()
        return [
            *open_calls,
            *memory_events(self.memory.to_stored()),
            *self._composer.close(RunError(message=error.message)),
        ]

    async def close(self) -> None:
        """End the process, and release what the run holds."""
        self._has_ended.set()
        try:
            await self._close_handle()
        finally:
            self._resources.close()

    async def stop(self) -> None:
        """End the turn: the process gets SIGTERM, and is killed with everything it has started if it does not end."""
        if self._has_ended.is_set():
            return
        self.is_stopping, handle = True, self.handle
        if handle is None:
            return
        handle.cancel()
        with anyio.move_on_after(_STOP_TIMEOUT):
            await self._has_ended.wait()
        if not self._has_ended.is_set():
            handle.kill()

    @property
    def _directory(self) -> str:
        return find_directory(self._config, self._platform)

    def _create_translator(self) -> Translator:
        return Translator(self._composer, self._config.format, self._context.used_ids)

    def _close_earlier_items(self) -> list[Event]:
        """Return events for the interrupts and calls of earlier runs that nothing will answer: no process waits for them."""
        events = list(interrupt_lapsed_events(resolved_interrupt_ids(self._context.new_input.resume)))
        for call in unanswered_tool_calls(self._context.run_input.messages):
            self._composer.continue_tool_call(call.id)
            events += self._composer.tool_result(call.id, MISSING_RESULT, is_error=True)
        return events

    async def _create_home(self) -> None:
        home = find_thread_home(self._config, self._platform)
        if home is not None:
            await anyio.to_thread.run_sync(make_private_dir, home)

    def _build_context(
        self, command: Sequence[str], missing_turns: Sequence[Turn], session_id: str = ""
    ) -> ProviderContext:
        """Return the context of a turn. Raises: LinesFailed if its prompt cannot be an argument."""
        limit = MAX_ARGUMENT_BYTES if any(PROMPT in word for word in command) else None
        instructions = "" if session_id else self._platform.system_prompt_append
        prompt = build_prompt(self._context, missing_turns, instructions=instructions, max_bytes=limit)
        if limit is not None and len(prompt.encode("utf-8", "replace")) > limit:
            raise LinesFailed("The message is too long for the agent's command, which takes it as an argument.")
        return build_context(self._shared, self._platform, self._context, command, prompt=prompt, session_id=session_id)

    async def _resume_turn(self, missing_turns: Sequence[Turn]) -> AsyncGenerator[Event, None]:
        """Run a turn that continues the agent's session. One that fails before it has begun leaves no stop reason."""
        context = self._build_context(self._config.resume_command, missing_turns, self.memory.session)
        self._continued_session = self.memory.session
        try:
            async with aclosing(self._run_turn("resumed", context)) as events:
                async for event in events:
                    yield event
        except LinesFailed as error:
            if self._translator.has_begun or self.is_stopping:
                raise
            logger.info(
                "Thread %s: the agent cannot continue its session; it gets the conversation again.",
                self._context.run_input.thread_id,
                exc_info=error,
            )
            await self._close_handle()
            self._translator, self._continued_session = self._create_translator(), ""

    async def _run_turn(self, started: str, context: ProviderContext) -> AsyncGenerator[Event, None]:
        """Start a process and yield the events of its turn. Raises: BridgeError."""
        yield self._composer.custom("lines:session", {"started": started, **UNLIMITED})[0]
        if self.is_stopping:
            raise LinesFailed
        provider = LinesProvider(self._config, self._translator)
        self.handle = await provider.spawn(context)
        if self.is_stopping:
            self.handle.cancel()
        turn = ProviderTurn(provider, self.handle)
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event
        self._report_skipped_lines()
        self._stop_reason = turn.stop_reason

    def _report_skipped_lines(self) -> None:
        if self._translator.oversized_lines:
            logger.warning(
                "Thread %s: %d lines of the agent's command were too long and have been skipped, %d bytes in all.",
                self._context.run_input.thread_id,
                self._translator.oversized_lines,
                self._translator.oversized_bytes,
            )

    async def _close_handle(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            await handle.aclose()
