"""Insertions into a graph's run: a LangChain callback handler that reports dispatched events and muted models and cancels nodes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from langchain_core.callbacks import AsyncCallbackHandler
from langgraph.config import get_stream_writer
from langgraph.constants import TAG_NOSTREAM

from ambient_runner.bridges.langgraph.copilotkit import emit_flags
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable_or_type_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from langchain_core.outputs import LLMResult

    from ambient_runner.bridges.langgraph.request import OfferedTools

__all__ = ["DispatchedEvent", "MutedMessage", "RunCallbacks", "ToolChain", "name_custom_event"]

_UNNAMED = "langgraph:custom"
"""Name of a custom event that a node writes to its stream without a name."""
_UNNAMED_CHAINS = ("LangGraph", "Runnable")
"""Beginnings of the names that the SDK gives to graphs and other runnables without one."""


@dataclass(frozen=True, slots=True)
class DispatchedEvent:
    """An event of `adispatch_custom_event`."""

    name: str
    data: Any


@dataclass(frozen=True, slots=True)
class MutedMessage:
    """A message of a model that is not streamed. `flags` hide parts of it; its node's output does not carry them."""

    id: str
    flags: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class ToolChain:
    """A runnable that a tool calls. If it is a graph, it is a subagent of this name."""

    node: str
    """Path of the node that executes the tool."""
    name: str
    tool_call_id: str
    is_over: bool = False


def name_custom_event(data: Any) -> tuple[str, Any]:
    """Return the name and value of what a node wrote or dispatched."""
    name, value = _UNNAMED, data
    match data:
        case DispatchedEvent():
            name, value = data.name, data.data
        case {"name": str(written_name), "value": written} if len(cast("Mapping[str, Any]", data)) == 2:
            name, value = written_name, written
        case _:
            pass
    return name, to_jsonable_or_type_name(value)


class RunCallbacks(AsyncCallbackHandler):
    """Callbacks of one run of a graph: writes dispatched events into the stream and cancels nodes that are left at its end.

    There is one handler for everything: the SDK asks every handler about every token, if only whether it wants it.
    """

    run_inline = True

    def __init__(self, tools: OfferedTools | None = None) -> None:
        self._offered = tools
        self._node_tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._muted_calls: dict[UUID, dict[str, Any]] = {}
        self._running_tools: dict[UUID, tuple[str, str]] = {}
        self._chains: dict[UUID, ToolChain] = {}

    @property
    def ignore_llm(self) -> bool:
        return not self._muted_calls

    async def on_chat_model_start(
        self,
        *args: Any,
        run_id: UUID,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the tools of a model call, and its flags if it is not streamed: only its node's output will show its message."""
        if self._offered is not None:
            self._offered.record_model_call(as_object(kwargs.get("invocation_params")).get("tools"))
        flags = emit_flags(metadata or {})
        if flags and TAG_NOSTREAM in (tags or ()):
            self._muted_calls[run_id] = flags

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        flags = self._muted_calls.pop(run_id, None)
        message: Any = getattr(response.generations[0][0], "message", None) if flags else None
        if flags and message is not None:
            get_stream_writer()(MutedMessage(message.id, flags))

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._muted_calls.pop(run_id, None)

    async def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write an event of `adispatch_custom_event` into the stream, in order with the others."""
        get_stream_writer()(DispatchedEvent(name, data))

    async def on_chain_start(
        self,
        *args: Any,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the task of a node that begins. Chains inside a node begin here too; only nodes have the graph's own tag."""
        task = asyncio.current_task()
        if any(tag.startswith("graph:step:") for tag in tags or ()):
            if task is not None:
                self._node_tasks.add(task)
        elif parent_run_id is not None and parent_run_id in self._running_tools:
            node = (metadata or {}).get("langgraph_checkpoint_ns")
            self._start_chain(run_id, str(node or ""), kwargs.get("name"), *self._running_tools[parent_run_id])

    def _start_chain(self, run_id: UUID, node: str, name: str | None, tool: str, tool_call_id: str) -> None:
        """Write a chain of a tool into the stream. One without a name of its own has the tool's."""
        own_name = tool if not name or name.startswith(_UNNAMED_CHAINS) else name
        chain = self._chains[run_id] = ToolChain(node, own_name, tool_call_id)
        with suppress(RuntimeError, KeyError):  # A tool that runs in a thread of its own may have no stream.
            get_stream_writer()(chain)

    async def on_chain_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._end_chain(run_id)

    async def on_chain_error(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._end_chain(run_id)

    def _end_chain(self, run_id: UUID) -> None:
        chain = self._chains.pop(run_id, None)
        if chain is not None:
            chain.is_over = True

    async def on_tool_start(
        self, serialized: Mapping[str, Any] | None, *args: Any, run_id: UUID, **kwargs: Any
    ) -> None:
        """Record a tool that begins: a graph it calls works for it."""
        self._running_tools[run_id] = (str((serialized or {}).get("name") or ""), str(kwargs.get("tool_call_id") or ""))

    async def on_tool_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._running_tools.pop(run_id, None)

    async def on_tool_error(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._running_tools.pop(run_id, None)

    async def cancel_remaining_nodes(self) -> None:
        """Cancel the nodes that still run, and wait for them. The SDK cancels once, and loses track of them if it is cancelled again."""
        running = {task for task in self._node_tasks if not task.done()} - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
