"""The graph as this bridge uses it: its stream, stored state and state schema. `local_graph.py` and `remote_graph.py` implement it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from langgraph.types import StateSnapshot

    from ambient_runner.bridges.langgraph.translate import Native
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Tool

    NativeStream = AsyncGenerator[Native, None]

__all__ = ["STREAM_MODES", "Graph", "NativeStream", "StateSchema", "checkpoint_id_of", "qualified_thread_id"]

STREAM_MODES = ["messages", "custom", "tasks", "updates", "values"]
"""Stream modes of every graph. One with a checkpointer also streams `checkpoints`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSchema:
    """The schema of a graph's state, read once per graph."""

    input_keys: frozenset[str] | None
    """Keys of the input; None if the graph accepts anything."""
    output_keys: frozenset[str] | None = None
    """Keys of the output; None if the graph does not declare them."""
    private_keys: frozenset[str] = frozenset()
    """Keys of the state that are not in the output."""
    reduced_keys: frozenset[str] = frozenset()
    """Keys whose updates are combined with the stored value, so that replacing it takes an `Overwrite`."""
    initial_types: Mapping[str, type] = field(default_factory=dict[str, type])
    """Types of the initial values of reduced keys: a value of another type cannot be combined with them."""
    is_remote: bool = False
    """True if the graph is on a LangGraph server, which does not say how its keys are reduced."""
    has_context: bool = False
    recursion_limit: int | None = None
    """Maximum number of steps per run, if the graph sets it."""
    tool_names: frozenset[str] = frozenset()
    """The graph's own tools, as far as known. A client's tool of the same name is left out: it could answer in their place."""
    injected_keys: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Keys of the state that are passed to a tool (`InjectedState`), by the name of the tool, as far as known."""


class Graph(Protocol):
    """A graph in this process or on a LangGraph server."""

    has_checkpointer: bool
    """True if the graph stores the conversation itself; then it receives only what is new."""

    async def read_schema(self) -> StateSchema:
        """Return the schema of the graph's state."""
        ...

    async def list_tools(self) -> list[Tool]:
        """Return the declarations of the graph's own tools, as far as they can be found."""
        ...

    def open_stream(
        self, graph_input: Any, config: dict[str, Any], context: Any
    ) -> AbstractAsyncContextManager[NativeStream]:
        """Run the graph and stream its native events. Leaving the context ends the run."""
        ...

    async def read_state(self, config: dict[str, Any]) -> StateSnapshot:
        """Return the stored state; it has no `created_at` if nothing is stored."""
        ...

    async def newest_checkpoint_id(self, storage_id: str) -> str | None:
        """Return the id of the newest checkpoint, even if its state cannot be read."""
        ...

    async def discard_failed_answers(self, config: dict[str, Any]) -> None:
        """Delete the answers on which a node failed, so that new ones can be given."""
        ...

    async def has_stored_answers(self, config: dict[str, Any]) -> bool:
        """Return True if all interrupts of the checkpoint have stored answers: `Command(resume={})` continues with those again."""
        ...

    async def rejected_keys(
        self, state: StateSnapshot, update: Mapping[str, Any], goto: Sequence[str] = ()
    ) -> list[str]:
        """Return the keys of a command's update that the graph fails on, also where it builds the input of the nodes it runs next.

        Updates are stored before they are applied: a bad one stays.
        """
        ...

    def storage_id(self, thread: str) -> str:
        """Return the id under which the graph stores a thread."""
        ...

    async def erase_thread(self, storage_id: str) -> None:
        """Erase everything stored under this id."""
        ...

    async def aclose(self) -> None: ...


def qualified_thread_id(thread: ThreadKey) -> str:
    """Return an id of the thread that is unique in a store shared by many owners: two of them may choose the same thread id."""
    return "/".join(quote(part, safe="") for part in (thread.tenant, thread.owner, thread.id))


def checkpoint_id_of(state: StateSnapshot) -> str | None:
    """Return the id of the state's checkpoint; None if nothing is stored."""
    return state.config.get("configurable", {}).get("checkpoint_id") if state.created_at is not None else None
