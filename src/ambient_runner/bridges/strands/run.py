"""StrandsRun: one run of a Strands agent, from its input to its terminal event."""

from __future__ import annotations

import dataclasses
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.config import normalize_predict_state
from ambient_runner.bridges.strands.driver import open_native_stream
from ambient_runner.bridges.strands.errors import to_bridge_error
from ambient_runner.bridges.strands.outcome import build_run_finished, stop_reason_events
from ambient_runner.bridges.strands.run_input import build_run_context
from ambient_runner.bridges.strands.tool_behaviors import ToolBehaviors
from ambient_runner.bridges.strands.tool_names import normalize_tool_name, select_tools
from ambient_runner.bridges.strands.translate import MARKER_TYPES, Translator, TranslatorContext
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox, callable_tools
from ambient_runner.bridges.toolkit.turns import collect_tool_calls
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.events import RunError, RunFinished, Success, ToolMessage
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.driver import Driver, DriverSlot
    from ambient_runner.bridges.strands.run_input import RunContext
    from ambient_runner.bridges.strands.translate import Marker
    from ambient_runner.errors import RunnerError
    from ambient_runner.protocol.events import Event, RunAgentInput

__all__ = ["StrandsRun"]


class StrandsRun:
    """One run and the objects that live as long as it does: an `AdapterRun`. `stored` is the data of the previous run.

    `own_memory` is the adapter's own copy of it, without redactions; it may be of an earlier run.
    """

    _driver: Driver
    _context: RunContext

    def __init__(
        self,
        agui_input: AguiInput,
        config: StrandsAgentConfig,
        drivers: DriverSlot,
        stored: dict[str, Any],
        invocation_state: dict[str, Any] | None,
        on_close: Callable[[StrandsRun], None],
        own_memory: dict[str, Any] | None = None,
    ) -> None:
        self._composer = Composer()
        self._drivers, self._stored, self._on_close = drivers, stored, on_close
        self._own_memory = own_memory or {}
        self._invocation_state = invocation_state
        self.memory: dict[str, Any] | None = None
        """Data for the next run; None until this run has finished."""
        self._agui_input, self._run_input = agui_input, input_from_agui(agui_input)
        self._config = config
        self._state = StateStore(self._run_input.state)
        self._behaviors = ToolBehaviors(config, agui_input, self._composer, self._state, SNAPSHOT_MARKER)
        self._translator: Translator | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run the agent and yield its translated events."""
        self._driver = driver = await self._drivers.acquire(self._agui_input)
        if self._state.value or self._has_input_state():
            yield self._state.snapshot()
        tools = Toolbox(
            callable_tools(self._run_input.tools),
            self._config.server_tools(driver.tool_names),
            normalize=normalize_tool_name,
        )
        for event in tools.dropped_events():
            yield event
        self._context, hook_errors = await self._build_context(tools, driver)
        for event in hook_errors:
            yield event
        if not self._context.needs_model:
            return
        feed = self._create_translator(tools, driver).feed
        async with open_native_stream(driver, self._context) as natives:
            async for native in natives:
                for item in feed(native):
                    if type(item) not in MARKER_TYPES:
                        yield item
                        continue
                    async with aclosing(self._expand_marker(item)) as expanded:
                        async for event in expanded:
                            yield event

    async def _build_context(self, tools: Toolbox, driver: Driver) -> tuple[RunContext, list[Event]]:
        """Return the context of the run, and the events of hooks that failed."""
        context, hook_errors = await build_run_context(
            self._run_input, self._agui_input, tools, self._config, self._stored
        )
        allowed_tools = await select_tools(self._config, self._agui_input, driver.tool_names)
        own = dataclasses.replace(
            context,
            own_memory=self._own_memory,
            invocation_state=self._invocation_state,
            allowed_tools=allowed_tools,
        )
        return own, hook_errors

    async def finish(self) -> list[Event]:
        """Close what is open and return the last events. Raises: StrandsError for a graph or swarm that failed."""
        self._drivers.detach(self._driver)
        if self._translator is None:
            return [self._finish_without_model()]
        finished = build_run_finished(
            self._run_input, self._translator, self._config, cancelled=self._driver.is_stopping
        )
        self.memory = self._driver.dump_memory(is_paused=bool(self._translator.interrupts))
        has_new_memory = self.memory != self._context.memory
        last_events = [
            *stop_reason_events(self._translator.result),
            *self._composer.close(finished),
            *self._state.snapshot_if_changed(),
            *(memory_events(self.memory) if has_new_memory else []),
            finished,
        ]
        self._drivers.put_back(self._driver)
        return last_events

    def _finish_without_model(self) -> RunFinished:
        """Return RUN_FINISHED of a run that only took results of client tools."""
        self.memory = self._stored
        self._drivers.put_back(self._driver)
        outcome = Success(pending_tool_call_ids=list(self._context.pending_call_ids) or None)
        return RunFinished(thread_id=self._run_input.thread_id, run_id=self._run_input.run_id, outcome=outcome)

    def map_error(self, error: Exception) -> RunnerError:
        has_given_up = self._translator is not None and self._translator.force_stopped
        return to_bridge_error(error, force_stopped=has_given_up)

    async def fail(self, error: RunnerError) -> list[Event]:
        """Return the ends of everything open."""
        return self._composer.close(RunError(message=error.message))

    async def close(self) -> None:
        self._on_close(self)

    def _has_input_state(self) -> bool:
        """Return True if the client sent a state, also an empty one. On a server, `state` is that of the thread."""
        run = current_run_or_none()
        return self._run_input.state is not None if run is None else run.has_input_state

    def _create_translator(self, tools: Toolbox, driver: Driver) -> Translator:
        context = _translator_context(self._run_input, tools, self._config)
        for tool_use_id in context.earlier_calls.keys() - set(context.answered_call_ids):
            self._composer.continue_tool_call(tool_use_id)
        self._translator = Translator(self._composer, context, lambda: driver.is_stopping)
        return self._translator

    async def _expand_marker(self, marker: Marker) -> AsyncGenerator[Event, None]:
        async with aclosing(self._behaviors.expand_marker(marker)) as events:
            async for event in events:
                yield event
        if self._behaviors.has_final_result:
            self._driver.stop_after_tools()


def _translator_context(run_input: RunAgentInput, tools: Toolbox, config: StrandsAgentConfig) -> TranslatorContext:
    behaviors = config.tool_behaviors
    predictions = {
        name: [mapping.to_payload() for mapping in normalize_predict_state(behavior.predict_state)]
        for name, behavior in behaviors.items()
    }
    messages = run_input.messages
    return TranslatorContext(
        client_tools=tools.client_tools,
        continuing_tools=config.continuing_tools,
        streamer_tools={name for name, behavior in behaviors.items() if behavior.args_streamer is not None},
        handled_tools={name for name, behavior in behaviors.items() if behavior.tool_stream_event_handler is not None},
        predictions=predictions,
        earlier_calls={call.id: (call.function.name, call.function.arguments) for call in collect_tool_calls(messages)},
        answered_call_ids={message.tool_call_id for message in messages if isinstance(message, ToolMessage)},
    )
