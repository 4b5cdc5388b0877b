"""A compiled graph in this process: its stream, its checkpointer, and its schema as the SDK's objects describe it."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast, get_type_hints
from uuid import UUID

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.prebuilt import InjectedState
from langgraph.types import Interrupt

from ambient_runner.bridges.langgraph.graph import STREAM_MODES, StateSchema
from ambient_runner.bridges.langgraph.instrumentation import RunCallbacks
from ambient_runner.bridges.langgraph.request import REQUEST_KEY, OfferedTools
from ambient_runner.bridges.langgraph.sdk import PULL, REDUCERS, RESUME, BinaryOperatorAggregate, ManagedValue
from ambient_runner.bridges.langgraph.tools import declare_tools, own_tools
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import ConfigError
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from langgraph.types import StateSnapshot

    from ambient_runner.bridges.langgraph.graph import NativeStream
    from ambient_runner.protocol.events import Tool

__all__ = ["LocalGraph"]

_NO_TASK_ID = str(UUID(int=0))
"""The task id that a checkpoint gives to values that no node wrote."""
_ANY_STEP: Any = SimpleNamespace(step=0, stop=25)
"""The step of a run, from which the SDK derives `remaining_steps` and `is_last_step`."""
_REJECTED: Any = object()


class LocalGraph:
    """A compiled graph in this process. `close` releases the resources that were opened for it."""

    def __init__(self, graph: Any, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wrap the compiled graph. Raises: ConfigError if its checkpointer has no asynchronous methods."""
        self._graph = graph
        self._close = close
        saver: Any = graph.checkpointer
        _check_saver(saver)
        self._saver: Any = saver if isinstance(saver, BaseCheckpointSaver) else None
        self.has_checkpointer = self._saver is not None
        self._schema = _state_schema(graph)

    async def read_schema(self) -> StateSchema:
        return self._schema

    async def list_tools(self) -> list[Tool]:
        return declare_tools(own_tools(self._graph))

    @asynccontextmanager
    async def open_stream(
        self, graph_input: Any, config: dict[str, Any], context: Any
    ) -> AsyncGenerator[NativeStream, None]:
        modes = [*STREAM_MODES, "checkpoints"] if self.has_checkpointer else STREAM_MODES
        callbacks = RunCallbacks(_offered_tools(config))
        config = {**config, "callbacks": [callbacks]}
        natives: Any = self._graph.astream(graph_input, config, context=context, stream_mode=modes, subgraphs=True)
        try:
            async with aclosing(natives):
                yield natives
        finally:
            await callbacks.cancel_remaining_nodes()

    async def read_state(self, config: dict[str, Any]) -> StateSnapshot:
        return await self._graph.aget_state(config)

    async def newest_checkpoint_id(self, storage_id: str) -> str | None:
        stored = await self._saver.aget_tuple({"configurable": {"thread_id": storage_id}})
        return None if stored is None else stored.config["configurable"]["checkpoint_id"]

    async def discard_failed_answers(self, config: dict[str, Any]) -> None:
        await self._discard_answers_in(await self._graph.aget_state(config, subgraphs=True))

    async def _discard_answers_in(self, state: StateSnapshot) -> None:
        """Keep a task's answers to earlier interrupts: they are stored in the order of its interrupts."""
        configurable: dict[str, Any] = {"checkpoint_ns": "", **state.config.get("configurable", {})}
        stored = await self._saver.aget_tuple({"configurable": configurable})
        for task in state.tasks:
            inner: Any = task.state
            if hasattr(inner, "tasks"):
                await self._discard_answers_in(inner)
            earlier = None if task.error is None else _earlier_answers(stored, task, configurable["checkpoint_ns"])
            if earlier is not None:
                await self._saver.aput_writes(stored.config, [(RESUME, earlier)], task.id)

    async def has_stored_answers(self, config: dict[str, Any]) -> bool:
        state = await self._graph.aget_state(config)
        stored = await self._saver.aget_tuple(state.config)
        interrupted = [task for task in state.tasks if task.interrupts]
        return bool(interrupted) and all(_earlier_answers(stored, task, "") is not None for task in interrupted)

    async def rejected_keys(
        self, state: StateSnapshot, update: Mapping[str, Any], goto: Sequence[str] = ()
    ) -> list[str]:
        stored = await self._saver.aget_tuple(state.config)
        values: Mapping[str, Any] = stored.checkpoint["channel_values"] if stored else {}
        writes: list[Any] = (stored.pending_writes or []) if stored else []
        channels: Mapping[str, Any] = self._graph.channels
        updated = {
            name: _updated_value(channels[name], values, name, [*_pending_updates(writes, name), item])
            for name, item in update.items()
            if name in channels
        }
        rejected = [name for name, item in updated.items() if item is _REJECTED]
        return rejected or self._unreadable_keys({*goto, *_state_readers(state)}, as_object(state.values), updated)

    def _unreadable_keys(
        self, next_nodes: Collection[str], values: Mapping[str, Any], updated: Mapping[str, Any]
    ) -> list[str]:
        """Return the updated keys that a node reads whose input cannot be built from the updated state."""
        channels, new_values = self._graph.channels, {**values, **updated}
        nodes = [self._graph.nodes[name] for name in next_nodes if name in self._graph.nodes] if updated else []
        failed = [node for node in nodes if node.mapper and not _accepts_state(node, channels, new_values)]
        return [name for name in updated if any(name in node.channels for node in failed)]

    def storage_id(self, thread: str) -> str:
        return thread

    async def erase_thread(self, storage_id: str) -> None:
        if self._saver is not None:
            await self._saver.adelete_thread(storage_id)

    async def aclose(self) -> None:
        if self._close is not None:
            await self._close()


def _check_saver(saver: Any) -> None:
    """Refuse a checkpointer without asynchronous methods: the graph would fail in its first run. Raises: ConfigError."""
    kind = cast("Any", type(saver))
    names = {(base.__module__, base.__name__) for base in kind.__mro__}
    inherited: Any = getattr(BaseCheckpointSaver, "aget_tuple")  # noqa: B009  pyright does not know its type
    if ("langgraph.checkpoint.sqlite", "SqliteSaver") in names or getattr(kind, "aget_tuple", None) is inherited:
        name = kind.__name__
        raise ConfigError(
            f"The graph is compiled with {name}, which has no asynchronous methods. Use Async{name}: open it in an "
            "@asynccontextmanager function that yields the graph, and pass this function to LangGraphBridge."
        )


def _offered_tools(config: dict[str, Any]) -> OfferedTools | None:
    tools = config["configurable"].get(REQUEST_KEY, {}).get("tools")
    return tools if isinstance(tools, OfferedTools) else None


def _state_readers(state: StateSnapshot) -> list[str]:
    """Return the nodes that run next and read their input from the state. Others get theirs with a `Send`."""
    tasks: Any = state.tasks
    return [task.name for task in tasks if task.path[0] == PULL]


def _pending_updates(writes: list[Any], name: str) -> list[Any]:
    """Return the stored values of a key that no node wrote: the next step applies them first."""
    return [value for task, key, value in writes if task == _NO_TASK_ID and key == name]


def _updated_value(channel: Any, values: Mapping[str, Any], name: str, updates: list[Any]) -> Any:
    """Return the value of a key of the state, as stored, after these updates in one step. `_REJECTED` if it does not accept them."""
    copy = channel.from_checkpoint(values[name]) if name in values else channel.copy()
    with isolate(f"trying an update of the state key {name!r}"):
        copy.update(updates)
        return copy.get()
    return _REJECTED


def _is_managed(channel: Any) -> bool:
    """Return True for a value that the SDK computes for each step, such as `remaining_steps`."""
    return isinstance(channel, type) and issubclass(channel, ManagedValue)


def _accepts_state(node: Any, channels: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return True if the node's input, a model or a dataclass, can be built from these values of the state."""
    known = {name: values[name] for name in node.channels if name in values}
    managed = {name: channels[name].get(_ANY_STEP) for name in node.channels if _is_managed(channels[name])}
    with isolate("trying an update of the state on the input of a node"):
        node.mapper({**known, **managed})
        return True
    return False


def _earlier_answers(stored: Any, task: Any, namespace: str) -> list[Any] | None:
    """Return a task's answers from before the interrupt it has open; None if that one has no answer."""
    writes: list[Any] = stored.pending_writes if stored else []
    answers: list[Any] = next((write[2] for write in writes if write[:2] == (task.id, RESUME)), list[Any]())
    name = "|".join([*([namespace] if namespace else []), f"{task.name}:{task.id}"])
    open_ids = {interrupt.id for interrupt in task.interrupts}
    count = next((count for count in range(len(answers)) if _interrupt_id(name, count) in open_ids), None)
    return None if count is None else answers[:count]


def _interrupt_id(task: str, answer_count: int) -> str:
    """Return the id of the interrupt that a task raises after this many answers."""
    return cast("Any", Interrupt).from_ns(None, f"{task}|{answer_count}" if answer_count else task).id


def _state_schema(graph: Any) -> StateSchema:
    channels: Mapping[str, Any] = graph.channels
    builder: Any = getattr(graph, "builder", None)
    schemas: Mapping[Any, Mapping[str, Any]] = getattr(builder, "schemas", {})
    input_keys = schemas.get(getattr(builder, "input_schema", None))
    output_keys = schemas.get(getattr(builder, "output_schema", None))
    config: Mapping[str, Any] = graph.config or {}
    return StateSchema(
        input_keys=None if input_keys is None else frozenset(input_keys),
        output_keys=None if output_keys is None else frozenset(output_keys),
        private_keys=frozenset[str]().union(*schemas.values()).difference(output_keys or channels),
        reduced_keys=frozenset(name for name, channel in channels.items() if isinstance(channel, REDUCERS)),
        initial_types=dict(_initial_types(channels)),
        has_context=getattr(graph, "context_schema", None) is not None,
        recursion_limit=config.get("recursion_limit"),
        tool_names=frozenset(own_tools(graph)),
        injected_keys=dict(_injected_keys(graph)),
    )


def _initial_types(channels: Mapping[str, Any]) -> Iterator[tuple[str, type]]:
    for name, channel in channels.items():
        if isinstance(channel, BinaryOperatorAggregate) and channel.is_available():
            initial: Any = cast("Any", channel).value
            yield name, type(initial)


def _injected_keys(graph: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the tools in the graph's own tool nodes that are given keys of the state, each with these keys."""
    for node in graph.nodes.values():
        tools: Mapping[str, Any] = getattr(node.bound, "tools_by_name", None) or {}
        for name, tool in tools.items():
            with isolate(f"reading the state keys of the tool {name!r}"):
                hints = get_type_hints(tool.get_input_schema(), include_extras=True)
                markers = [marker for hint in hints.values() for marker in getattr(hint, "__metadata__", ())]
                keys = frozenset(each.field for each in markers if isinstance(each, InjectedState) and each.field)
                if keys:
                    yield name, keys
