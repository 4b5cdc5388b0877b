"""ADKRun: one run of an ADK agent, from its input to its terminal event."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.errors import to_bridge_error
from ambient_runner.bridges.adk.event_hooks import EventHooks
from ambient_runner.bridges.adk.external_events import origin_metadata
from ambient_runner.bridges.adk.hooks import build_input_info, current_hook_request
from ambient_runner.bridges.adk.instrumentation import PAUSED_KEY, RunPlugin
from ambient_runner.bridges.adk.interrupts import find_interrupted_call
from ambient_runner.bridges.adk.memory import SessionMemory
from ambient_runner.bridges.adk.outcome import build_model_error, build_run_finished
from ambient_runner.bridges.adk.run_input import build_adk_input
from ambient_runner.bridges.adk.sessions import ThreadSession
from ambient_runner.bridges.adk.translate import Translator
from ambient_runner.bridges.toolkit.interrupts import framework_interrupt_id, record_arguments
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.turns import unanswered_tool_calls
from ambient_runner.projections.state import is_hidden
from ambient_runner.protocol.events import Cancelled, Interrupted, RunFinished, StateSnapshot

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable

    from google.adk.events import Event as ADKEvent
    from google.genai import types

    from ambient_runner.bridges.adk.bridge import ADKBridge
    from ambient_runner.bridges.adk.hooks import InputInfo
    from ambient_runner.bridges.adk.run_input import ADKInput, RunContext
    from ambient_runner.bridges.adk.sessions import SessionLocation
    from ambient_runner.errors import RunnerError
    from ambient_runner.protocol.events import Event, RunAgentInput, Terminal

__all__ = ["ADKRun"]


class ADKRun:
    """One run and what lives as long as it does: an `AdapterRun`. `abort` stops ADK; `keep_memory` gets the data for the next run."""

    _adk_input: ADKInput
    _terminal: Terminal

    def __init__(
        self,
        bridge: ADKBridge,
        context: RunContext,
        location: SessionLocation,
        instructions: list[str],
        abort: asyncio.Event,
        keep_memory: Callable[[dict[str, Any] | None], None],
    ) -> None:
        self._context, self._abort, self._keep_memory = context, abort, keep_memory
        self._run_input = run_input = context.run_input
        self._location = location
        self._run_config = bridge.run_config_for(run_input)
        self._server_state = bridge.server_state(run_input)
        self._state = StateStore(run_input.state, lambda key: is_hidden(key, HIDDEN))
        self._hooks = EventHooks(bridge.handlers, _hook_info(run_input, location), self._state)
        self._translator = Translator(
            bridge.root.name,
            self._state,
            structured_agents=bridge.structured_agents,
            # The id of an answered call may be used again.
            known_call_ids={call.id for call in unanswered_tool_calls(run_input.messages)},
            predictions=bridge.predictions,
            interrupt_calls=bridge.interrupt_calls,
            run_metadata=frozenset(self._run_config.custom_metadata or ()),
        )
        self._plugin = RunPlugin(
            self._translator.is_halted,
            location.session,
            agents=bridge.client_tools_for,
            toolsets=bridge.client_toolsets,
            own_tools=bridge.own_tool_names,
            instructions=instructions,
            waits_for_long_running_tools=bridge.waits_for_long_running_tools,
        )
        self._runner = bridge.create_runner(location, self._plugin)
        self._session = ThreadSession(
            self._runner, location, bridge.root.name, keeps_rewound=not bridge.owns_sessions, epoch=context.epoch
        )

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run ADK and yield its translated events, then the ends of everything open and the final state.

        A state handler sees the end of everything, so these events are sent before it is called.
        """
        async with aclosing(self._run_adk()) as events:
            async for event in events:
                yield event
        self._terminal = build_model_error(self._translator) or build_run_finished(
            self._run_input, self._adk_input, self._translator
        )
        for event in (*self._hooks.take_errors(), *self._translator.close(self._terminal)):
            yield event
        for event in await self._final_state_events():
            yield event

    async def finish(self) -> list[Event]:
        """Return the memory and the terminal event."""
        keeps_memory = bool(self._adk_input.asked_again) or not self._continues_after(self._terminal)
        remembered = [] if keeps_memory else await self._remember()
        await self._record_arguments()
        return [*remembered, self._terminal]

    def map_error(self, error: Exception) -> RunnerError:
        return to_bridge_error(error)

    async def fail(self, error: RunnerError) -> list[Event]:
        """Return the ends of everything open."""
        return self._translator.close()

    async def _record_arguments(self) -> None:
        """Record what the confirmations are about, as the session has it: an answer is compared with the same."""
        terminal = self._terminal
        outcome = terminal.outcome if isinstance(terminal, RunFinished) else None
        session = await self._session.load() if isinstance(outcome, Interrupted) else None
        if session is None or not isinstance(outcome, Interrupted):
            return
        calls = {call.id: call for event in session.events for call in event.get_function_calls()}
        for interrupt in outcome.interrupts:
            call = calls.get(framework_interrupt_id(interrupt.id))
            asked = find_interrupted_call(call) if call else None
            if asked is not None:
                record_arguments(interrupt.id, [asked])

    async def close(self) -> None:
        """Do nothing: the session belongs to the adapter."""

    async def _run_adk(self) -> AsyncGenerator[Event, None]:
        """Yield the translated events of ADK, until it ends or waits for the client."""
        self._adk_input = adk_input = await build_adk_input(self._context, self._session, self._state)
        for event in adk_input.first_events:
            yield event
        self._plugin.offer_client_tools(adk_input.tools)
        self._plugin.add_instructions(adk_input.instructions)
        self._plugin.reserve_call_ids(adk_input.known_calls)
        hooks, feed = self._hooks, self._translator.feed
        for message in adk_input.messages:
            async with aclosing(hooks.adk_events(self._start_adk(message))) as natives:
                async for native in natives:
                    for event in self._plugin.take_dropped_events():
                        yield event
                    if _is_paused(native):
                        if native.branch is None:
                            return
                        continue
                    is_default = hooks.uses_default_translation
                    for event in feed(native) if is_default else await hooks.translate_event(native, feed):
                        yield event

    def _continues_after(self, terminal: Terminal) -> bool:
        """Return True if the next run continues this session: the run was neither cancelled nor timed out, nor has it failed."""
        has_finished = isinstance(terminal, RunFinished) and not isinstance(terminal.outcome, Cancelled)
        return has_finished and not self._hooks.has_timed_out

    async def _remember(self) -> list[Event]:
        """Keep the data the next run needs; None when the session has no events. On a server it is stored with the thread."""
        memory = SessionMemory.from_session(await self._session.load(), self._adk_input.user_message_id)
        stored = None if memory is None else memory.to_stored()
        self._keep_memory(stored)
        return memory_events(stored)

    def _start_adk(self, message: types.Content) -> AsyncGenerator[ADKEvent, None]:
        adk_input = self._adk_input
        context = [*(self._run_config.model_input_context or []), *adk_input.context]
        state_delta = {**adk_input.state_delta, **self._server_state}
        return self._runner.run_async(
            user_id=self._location.user,
            session_id=self._location.session,
            new_message=message,
            state_delta=(state_delta or None) if message is adk_input.messages[0] else None,
            run_config=self._run_config.model_copy(
                update={"model_input_context": context or None, "custom_metadata": self._event_metadata() or None}
            ),
            abort_signal=self._abort,
        )

    def _event_metadata(self) -> dict[str, Any]:
        """Return the custom metadata of the events of this run: the user's, and their origin."""
        origin = origin_metadata(self._context.epoch, self._adk_input.user_message_id)
        return {**(self._run_config.custom_metadata or {}), **origin}

    async def _final_state_events(self) -> list[Event]:
        """Return the final state snapshot if the state has changed or a handler processes it."""
        if not (self._translator.has_state_changed or self._hooks.has_state_handler):
            return self._state.snapshot_if_changed()
        snapshot = await self._hooks.final_state(self._state.snapshot().snapshot)
        return [*self._hooks.take_errors(), *([] if snapshot is None else [StateSnapshot(snapshot=snapshot)])]


def _hook_info(run_input: RunAgentInput, location: SessionLocation) -> InputInfo:
    request = current_hook_request.get()
    if request is not None:
        return request.info
    return build_input_info(run_input, location.app, location.user, location.session)


def _is_paused(event: ADKEvent) -> bool:
    return event.custom_metadata is not None and PAUSED_KEY in event.custom_metadata
