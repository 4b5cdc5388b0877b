"""LangGraphRun: one run of a graph, from its input to its terminal event.

`run_input.py` decides what the graph receives, `translate.py` turns its native events into ours, `outcome.py` makes the terminal event.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.langgraph.answers import raised_interrupts, read_injected_state
from ambient_runner.bridges.langgraph.errors import InvalidState, LangGraphError, Unreachable, to_bridge_error
from ambient_runner.bridges.langgraph.history import GraphHistory, HistoryContext
from ambient_runner.bridges.langgraph.interrupts import find_interrupted_calls
from ambient_runner.bridges.langgraph.memory import GraphMemory
from ambient_runner.bridges.langgraph.outcome import build_run_finished
from ambient_runner.bridges.langgraph.request import REQUEST_KEY, OfferedTools
from ambient_runner.bridges.langgraph.run_input import (
    forwarded_prop,
    plan_input,
)
from ambient_runner.bridges.langgraph.translate import Translator, TranslatorContext
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.bridges.toolkit.interrupts import (
    framework_interrupt_id,
    interrupt_lapsed_events,
    record_arguments,
)
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.turns import AssistantTurn, to_turns, unanswered_tool_calls
from ambient_runner.protocol.dropped_events import dropped_tool_events
from ambient_runner.protocol.events import Interrupted, RunError
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

    from ambient_runner.bridges.langgraph.graph import Graph
    from ambient_runner.bridges.langgraph.run_input import GraphInput, RunContext
    from ambient_runner.bridges.langgraph.subagents import Namespace
    from ambient_runner.bridges.langgraph.translate import Native
    from ambient_runner.errors import RunnerError
    from ambient_runner.protocol.events import Event, RunFinished

__all__ = ["LangGraphRun"]

logger = logging.getLogger(__name__)

_DEFAULT_RECURSION_LIMIT = 100
"""Maximum number of steps per run if neither the config nor the graph sets it."""


class LangGraphRun:
    """One run: an `AdapterRun`. Its `memory` is what the next run needs."""

    def __init__(self, context: RunContext, graph: Graph, keep_memory: Callable[[GraphMemory | None], None]) -> None:
        self._keep_memory = keep_memory
        memory = context.memory
        self.memory = memory
        self._context = context
        self._graph = graph
        self._plan: GraphInput | None = None
        self._state = StateStore(context.run_input.state, context.unshared_keys.__contains__)
        self._translator = Translator(self._state, _translator_context(context), context.call_ids)
        self._history = GraphHistory(_history_context(context, self._translator))
        self._checkpoint_id: str | None = None
        self._next_nodes: list[str] = []
        self._undelivered: tuple[str, ...] = ()
        self._edits_with_answer = memory.edits_with_answer if memory else ()
        self._remembered_aliases = len(context.call_ids.aliases)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run the graph on everything it has to receive. Raises: BridgeError, and whatever the graph raises."""
        self._plan = plan = await plan_input(self._graph, self._context)
        for event in self._start(plan):
            yield event
        graph_context = await self._graph_context()
        configurable, inputs = dict(plan.configurable), deque(plan.inputs)
        fast_delta, record = self._translator.fast_delta, self._history.apply_event
        while inputs and not self._translator.is_waiting:
            try:
                graph_input = self._take_input(inputs)
                config = self._run_config(configurable)
                async with self._graph.open_stream(graph_input, config, graph_context) as natives:
                    async for native in natives:
                        if (delta := fast_delta(native)) is not None:
                            record(delta)
                            yield delta  # Nearly all of a stream, so it takes the shortest path.
                            continue
                        for event in self._feed(native):
                            yield event
            except Exception as error:
                fallback = self._fallback_inputs(plan, to_bridge_error(error))
                if fallback is None:
                    raise
                logger.warning(
                    "Run %s on thread %s: the graph failed on a cancelled interrupt, which is dropped.",
                    self._context.run_input.run_id,
                    self._context.run_input.thread_id,
                )
                logger.debug("The error of the graph on the cancelled interrupt:", exc_info=error)
                inputs = deque(fallback)
            else:
                configurable.pop("checkpoint_id", None)  # From here on the graph has newer ones.

    async def finish(self) -> list[Event]:
        """Return the ends of everything open, the final state, the memory and RUN_FINISHED. Raises: CheckpointerRequired."""
        is_asking_again = self._plan is not None and self._plan.is_asking_again
        terminal = build_run_finished(
            self._context, self._translator, self._checkpoint_id, self._next_nodes, is_asking_again=is_asking_again
        )
        await self._record_arguments(terminal)
        self._state.update_silently(self._translator.shared_state())
        return [
            *self._record_events(self._translator.close(terminal)),
            *self._history.correct_unkept(is_resuming=self._translator.is_resuming),
            *self._state.snapshot_if_changed(),
            *self._report_ignored_tools(),
            *self._remember(is_whole=True),
            terminal,
        ]

    async def _record_arguments(self, terminal: RunFinished) -> None:
        """Record what the interrupts are about, as the graph has stored them: an answer is compared with the same."""
        asked = terminal.outcome.interrupts if isinstance(terminal.outcome, Interrupted) else []
        if not asked or not self._translator.interrupts:
            return
        configurable = {"thread_id": self._context.storage_id, "checkpoint_id": self._checkpoint_id}
        state = await self._graph.read_state({"configurable": configurable})
        stored = {interrupt.id: interrupt for interrupt in raised_interrupts(state)}
        for interrupt in asked:
            calls = find_interrupted_calls(stored.get(framework_interrupt_id(interrupt.id)))
            injected = read_injected_state(self._context.schema, calls, as_object(state.values))
            if calls:
                record_arguments(interrupt.id, calls, state=injected)

    def map_error(self, error: Exception) -> RunnerError:
        return to_bridge_error(error)

    async def fail(self, error: RunnerError) -> list[Event]:
        """Return the last events of a failed run, before its error: the state is rolled back and everything open ends."""
        return [
            *await self._roll_back_state(error),
            *self._translator.close(RunError(message=error.message)),
            *self._state.snapshot_if_changed(),
        ]

    async def close(self) -> None:
        """Keep the memory for the next run of the adapter. On a server it is stored with the thread."""
        self._keep_memory(self.memory)

    def _start(self, plan: GraphInput) -> list[Event]:
        """Return the first events. Raises: InvalidState."""
        run_input = self._context.run_input
        self._checkpoint_id = plan.checkpoint_id
        self._undelivered = plan.undelivered_ids
        if plan.edits.invalid_keys:
            logger.warning(
                "Run %s on thread %s: the client's state has another type than the graph's for: %s",
                run_input.run_id,
                run_input.thread_id,
                ", ".join(plan.edits.invalid_keys),
            )
            raise InvalidState
        self._translator.is_resuming = plan.is_resuming
        self._translator.mark_known(plan.stored_ids)
        self._history.add_known(plan.stored_messages, is_stored=True)
        self._edits_with_answer = plan.edits_with_answer
        snapshot: list[Event] = [self._state.snapshot()] if self._state.value else []
        return [
            *snapshot,
            *self._context.tools.dropped_events(),
            *interrupt_lapsed_events(plan.lapsed_ids),
            *self._remember(is_whole=False),
        ]

    async def _graph_context(self) -> dict[str, Any] | None:
        """Return the run's context: what the client may set, overridden by what the hook returns. None if the graph takes none."""
        if not self._context.schema.has_context:
            return None
        config = self._context.config
        from_client = _select_members(forwarded_prop(self._context.run_input, "context"), config.client_context)
        from_hook: dict[str, Any] = (
            await call_hook(config.context, self._context.agui_input) if config.context is not None else {}
        )
        return {**from_client, **from_hook}

    def _run_config(self, configurable: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's configuration. A client sets only what it may, and never overrides our values."""
        config, schema = self._context.config, self._context.schema
        from_client = _select_members(forwarded_prop(self._context.run_input, "configurable"), config.configurable)
        limit = config.recursion_limit or schema.recursion_limit or _DEFAULT_RECURSION_LIMIT
        return {"configurable": {**from_client, **configurable}, "recursion_limit": limit}

    def _take_input(self, inputs: deque[Any]) -> Any:
        """Return the next input. One with messages delivers all that were undelivered."""
        graph_input: Any = inputs.popleft()
        if isinstance(graph_input, dict):
            self._undelivered = ()
            self._history.add_known(cast("dict[str, Any]", graph_input).get(self._context.config.messages_key))
        return cast("Any", graph_input)

    def _feed(self, native: Native) -> list[Event]:
        """Return the events of a native event that is not a `fast_delta`."""
        namespace, mode, data = native
        if mode == "checkpoints":
            return self._on_checkpoint(namespace, data)
        events, aliases = self._record_events(self._translator.feed(native)), self._context.call_ids.aliases
        if mode == "values" and not namespace:
            events += self._history.compare_messages(self._translator.values.get(self._context.config.messages_key))
        if len(aliases) > self._remembered_aliases:
            self._remembered_aliases = len(aliases)
            events += self._remember(is_whole=False)  # The client may answer the call even if this run is cut off.
        return events

    def _record_events(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._history.apply_event(event)
        return events

    def _on_checkpoint(self, namespace: Namespace, payload: Mapping[str, Any]) -> list[Event]:
        """Record the graph's position after a step."""
        if namespace:
            return []
        previous, self._checkpoint_id = self._checkpoint_id, payload["config"]["configurable"]["checkpoint_id"]
        if self._checkpoint_id != previous:
            self._edits_with_answer = ()
        self._next_nodes = list(payload["next"])
        return self._remember(is_whole=False)

    def _fallback_inputs(self, plan: GraphInput, error: RunnerError) -> Sequence[Any] | None:
        """Return the inputs to use after the graph failed, if it only had to cancel interrupts and made no step; otherwise None."""
        resume = self._context.run_input.resume
        if not resume or not self._translator.is_resuming or isinstance(error, Unreachable):
            return None
        if self._checkpoint_id != plan.checkpoint_id or any(entry.status != "cancelled" for entry in resume):
            return None
        self._translator.interrupts.clear()
        self._translator.is_resuming = False
        return plan.fallback_inputs

    def _report_ignored_tools(self) -> list[Event]:
        """Return the event for client tools that the graph does not offer to its models. The log names them once per adapter."""
        tools: OfferedTools = self._plan.configurable[REQUEST_KEY]["tools"] if self._plan else OfferedTools()
        names = tools.ignored_names()
        reported = self._context.reported_tools
        if not reported.issuperset(names):
            reported.update(names)
            logger.warning(
                "Thread %s: the graph does not offer the client's tools to its model: %s. Add the middleware ClientTools() to "
                "create_agent, or bind client_tools() in the node of the model.",
                self._context.run_input.thread_id,
                ", ".join(names),
            )
        return dropped_tool_events("not_offered", names)

    async def _roll_back_state(self, error: RunnerError) -> list[Event]:
        """Remove the client's changes of the state that the graph could not use: every later run would fail on them.

        A graph that failed before a node began continues from its checkpoint before the run, or from nothing. Clients get a snapshot: a
        patch would show that the run has acted on the answer it brought, and the interrupt would be closed.
        """
        plan = self._plan
        failed_at_start = type(error) is LangGraphError and not self._translator.has_begun
        if plan is None or not (failed_at_start or isinstance(error, InvalidState)):
            return []
        if self._checkpoint_id is not None and self._checkpoint_id != plan.checkpoint_id:
            if plan.checkpoint_id is None:
                with isolate(f"erasing the first checkpoints of thread {self._context.run_input.thread_id}"):
                    await self._graph.erase_thread(self._context.storage_id)
            self._checkpoint_id = plan.checkpoint_id
        for name in plan.edits.values:
            self._state.remove_silently(name)
        self._state.update_silently(plan.edits.previous)
        return self._remember(is_whole=False)

    def _remember(self, *, is_whole: bool) -> list[Event]:
        """Update the memory. Return the event that stores it, if it has changed."""
        adopted = self.memory.adopted if self.memory else self._context.adopted
        memory = GraphMemory(
            checkpoint=self._checkpoint_id,
            is_whole=is_whole,
            adopted=tuple(dict.fromkeys([*adopted, *sorted(self._translator.adopted_ids)])),
            aliases=dict(self._context.call_ids.aliases),
            message_ids=dict(self._context.call_ids.message_ids),
            attempted=self._history.attempted_ids() if is_whole else (),
            undelivered=self._undelivered,
            edits_with_answer=self._edits_with_answer,
        )
        if memory == self.memory:
            return []
        self.memory = memory
        return memory_events(memory.to_stored())


def _select_members(value: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the members of an object that are listed."""
    return {name: item for name, item in as_object(value).items() if name in names}


def _translator_context(context: RunContext) -> TranslatorContext:
    messages, config = context.run_input.messages, context.config
    return TranslatorContext(
        client_tools=frozenset(context.tools.client_tools),
        message_ids=frozenset([*(message.id for message in messages), *context.call_ids.message_ids]),
        earlier_calls={call.id: call.function.name for call in unanswered_tool_calls(messages)},
        messages_key=config.messages_key,
        hidden_keys=config.hidden_keys,
        shared_keys=None if context.schema.output_keys is None else {*context.schema.output_keys, *config.shared_state},
        private_keys=context.private_keys,
        predictions=[mapping.to_payload() for mapping in config.predict_state],
    )


def _history_context(context: RunContext, translator: Translator) -> HistoryContext:
    messages = context.run_input.messages
    turns = [] if context.has_checkpointer else to_turns(messages)
    return HistoryContext(
        messages=messages,
        call_ids=context.call_ids,
        streamed=translator.messages,
        has_checkpointer=context.has_checkpointer,
        is_reduced=context.config.messages_key in context.schema.reduced_keys,
        attempted=context.memory.attempted if context.memory else (),
        merged_ids={turn.ids[0]: turn.ids for turn in turns if isinstance(turn, AssistantTurn)},
    )
