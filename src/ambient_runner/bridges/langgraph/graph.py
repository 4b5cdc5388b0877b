"""A graph as this bridge uses it: its stream, its stored state, and what its state is made of. Here those of this process."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote
from uuid import UUID

from langgraph.channels.binop import BinaryOperatorAggregate  # pyright: ignore[reportMissingTypeStubs]
from langgraph.channels.delta import DeltaChannel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import RESUME
from langgraph.types import Interrupt

from ambient_runner.bridges.langgraph.client_tools import TOOLS
from ambient_runner.bridges.langgraph.instrumentation import Wiring
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

    from langgraph.types import StateSnapshot

    from ambient_runner.bridges.langgraph.translate import Native
    from ambient_runner.ledger.base import ThreadKey

    Natives = AsyncGenerator[Native, None]

__all__ = ["MODES", "Graph", "LocalGraph", "Shape", "checkpoint_of", "place_of"]

MODES = ["messages", "custom", "tasks", "updates", "values"]
"""What of a run is streamed, wherever the graph is. One that keeps its state says `checkpoints` too."""


_NOBODY = str(UUID(int=0))
"""The task of what no node wrote, by its id in a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What is known of a graph's state. It is found out once for each graph."""

    inputs: frozenset[str] | None
    """Keys of the input; None when the graph takes anything."""
    reduced: frozenset[str] = frozenset()
    """Keys whose updates are combined with what is there, so that setting one needs a word of its own."""
    kinds: Mapping[str, type] = field(default_factory=dict[str, type])
    """Of reduced keys, the type of the value they begin with: another type cannot be added to."""
    has_context: bool = False
    recursion_limit: int | None = None
    """How many steps a run may take, if the graph says it."""
    tools: frozenset[str] = frozenset()
    """The graph's own tools, as far as they are known: a client's tool of the same name is left out, or it could answer in their place."""


class Graph(Protocol):
    """A graph here or elsewhere."""

    keeps: bool
    """Whether it has a checkpointer: then it knows the conversation, and is given only what is new."""

    async def shape(self) -> Shape: ...

    def stream(self, given: Any, config: dict[str, Any], context: Any) -> AbstractAsyncContextManager[Natives]:
        """The native events of a run. Leaving ends it."""
        ...

    async def state(self, config: dict[str, Any]) -> StateSnapshot:
        """The stored state; one without `created_at` when there is none."""
        ...

    async def newest(self, place: str) -> str | None:
        """The id of the last checkpoint there, whether its state can be read or not."""
        ...

    async def ask_again(self, config: dict[str, Any]) -> None:
        """Take back the answers on which a node failed, so that new ones can be given."""
        ...

    async def was_answered(self, config: dict[str, Any]) -> bool:
        """Whether the questions asked there have their answers stored with them: `Command(resume={})` goes on with those again."""
        ...

    async def unfit(self, state: StateSnapshot, update: Mapping[str, Any]) -> list[str]:
        """The keys of a command's update that it fails on. An update is stored before it is looked at, so a bad one would stay."""
        ...

    def place(self, thread: str) -> str:
        """The id under which a thread is stored."""
        ...

    async def forget(self, place: str) -> None:
        """Erase what is stored there."""
        ...

    async def aclose(self) -> None: ...


class LocalGraph:
    """A compiled graph in this process. `close` gives up what was opened for it."""

    def __init__(self, graph: Any, close: Callable[[], Awaitable[None]] | None = None) -> None:
        self._graph = graph
        self._close = close
        saver: Any = graph.checkpointer
        self._saver: Any = saver if isinstance(saver, BaseCheckpointSaver) else None
        self.keeps = self._saver is not None
        self._shape = _shape(graph)

    async def shape(self) -> Shape:
        return self._shape

    @asynccontextmanager
    async def stream(self, given: Any, config: dict[str, Any], context: Any) -> AsyncGenerator[Natives, None]:
        modes = [*MODES, "checkpoints"] if self.keeps else MODES
        wiring = Wiring()
        config = {**config, "callbacks": [wiring]}
        natives: Any = self._graph.astream(given, config, context=context, stream_mode=modes, subgraphs=True)
        try:
            async with aclosing(natives):
                yield natives
        finally:
            await wiring.end()

    async def state(self, config: dict[str, Any]) -> StateSnapshot:
        return await self._graph.aget_state(config)

    async def newest(self, place: str) -> str | None:
        stored = await self._saver.aget_tuple({"configurable": {"thread_id": place}})
        return None if stored is None else stored.config["configurable"]["checkpoint_id"]

    async def ask_again(self, config: dict[str, Any]) -> None:
        await self._ask_again(await self._graph.aget_state(config, subgraphs=True))

    async def _ask_again(self, state: StateSnapshot) -> None:
        """The answers of a task are kept in the order of its questions: those before the open one stay."""
        place: dict[str, Any] = {"checkpoint_ns": "", **state.config.get("configurable", {})}
        stored = await self._saver.aget_tuple({"configurable": place})
        for task in state.tasks:
            inner: Any = task.state
            if hasattr(inner, "tasks"):
                await self._ask_again(inner)
            before = None if task.error is None else _answers_before(stored, task, place["checkpoint_ns"])
            if before is not None:
                await self._saver.aput_writes(stored.config, [(RESUME, before)], task.id)

    async def was_answered(self, config: dict[str, Any]) -> bool:
        state = await self._graph.aget_state(config)
        stored = await self._saver.aget_tuple(state.config)
        asking = [task for task in state.tasks if task.interrupts]
        return bool(asking) and all(_answers_before(stored, task, "") is not None for task in asking)

    async def unfit(self, state: StateSnapshot, update: Mapping[str, Any]) -> list[str]:
        stored = await self._saver.aget_tuple(state.config)
        values: Mapping[str, Any] = stored.checkpoint["channel_values"] if stored else {}
        before: list[Any] = (stored.pending_writes or []) if stored else []
        channels: Mapping[str, Any] = self._graph.channels
        return [
            name
            for name, item in update.items()
            if name in channels and not _takes(channels[name], values, name, [*_written(before, name), item])
        ]

    def place(self, thread: str) -> str:
        return thread

    async def forget(self, place: str) -> None:
        if self._saver is not None:
            await self._saver.adelete_thread(place)

    async def aclose(self) -> None:
        if self._close is not None:
            await self._close()


def place_of(thread: ThreadKey) -> str:
    """The name of a thread in a store that many owners share: two of them may choose the same id."""
    return "/".join(quote(part, safe="") for part in (thread.tenant, thread.owner, thread.id))


def checkpoint_of(state: StateSnapshot) -> str | None:
    """The id of the checkpoint that a state is; None when nothing is stored."""
    return state.config.get("configurable", {}).get("checkpoint_id") if state.created_at is not None else None


def _written(writes: list[Any], name: str) -> list[Any]:
    """What is stored for a key that no node wrote: the next step begins with it."""
    return [value for task, key, value in writes if task == _NOBODY and key == name]


def _takes(channel: Any, values: Mapping[str, Any], name: str, given: list[Any]) -> bool:
    """Whether a key of the state, as it is stored, can be updated with all these in one step."""
    twin = channel.from_checkpoint(values[name]) if name in values else channel.copy()
    with isolate(f"trying an update of the key {name!r}"):
        twin.update(given)
        return True
    return False


def _answers_before(stored: Any, task: Any, ns: str) -> list[Any] | None:
    """The answers a task had before that to the question it asks; None when that has none."""
    writes: list[Any] = stored.pending_writes if stored else []
    answers: list[Any] = next((write[2] for write in writes if write[:2] == (task.id, RESUME)), list[Any]())
    name = "|".join([*([ns] if ns else []), f"{task.name}:{task.id}"])
    asked = {one.id for one in task.interrupts}
    before = next((at for at in range(len(answers)) if _question(name, at) in asked), None)
    return None if before is None else answers[:before]


def _question(task: str, answered: int) -> str:
    """The id of the question that a task asks after so many answers."""
    return Interrupt[Any].from_ns(None, f"{task}|{answered}" if answered else task).id


def _shape(graph: Any) -> Shape:
    channels: Mapping[str, Any] = graph.channels
    builder: Any = getattr(graph, "builder", None)
    schemas: Mapping[Any, Mapping[str, Any]] = getattr(builder, "schemas", {})
    inputs = schemas.get(getattr(builder, "input_schema", None))
    reduced = (BinaryOperatorAggregate, DeltaChannel)
    config: Mapping[str, Any] = graph.config or {}
    return Shape(
        inputs=None if inputs is None else frozenset(inputs),
        reduced=frozenset(name for name, channel in channels.items() if isinstance(channel, reduced)),
        kinds=dict(_kinds(channels)),
        has_context=getattr(graph, "context_schema", None) is not None,
        recursion_limit=config.get("recursion_limit"),
        tools=frozenset(_tools(graph)),
    )


def _kinds(channels: Mapping[str, Any]) -> Iterator[tuple[str, type]]:
    for name, channel in channels.items():
        if isinstance(channel, BinaryOperatorAggregate) and channel.is_available():
            first: Any = cast("Any", channel).value
            yield name, type(first)


def _tools(graph: Any) -> Iterator[str]:
    """The names of the tools in the graph's tool nodes, and in those of its subgraphs."""
    for one in [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]:
        for node in getattr(one, "nodes", {}).values():
            wrapped: Any = getattr(node.bound, "afunc", None)
            yield from getattr(node.bound, "tools_by_name", None) or getattr(wrapped, TOOLS, ())
