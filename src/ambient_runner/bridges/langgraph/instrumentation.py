"""Insertions into a graph's run: a LangChain callback handler that reports dispatched events and muted models and cancels nodes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from langchain_core.callbacks import AsyncCallbackHandler
from langgraph.config import get_stream_writer
from langgraph.constants import TAG_NOSTREAM

from ambient_runner.bridges.toolkit.json_values import to_jsonable_or_type_name
from ambient_runner.protocol.events import CUSTOM_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from langchain_core.outputs import LLMResult

__all__ = ["EMIT_FLAGS", "DispatchedEvent", "MutedMessage", "RunCallbacks", "name_custom_event"]

_UNNAMED = "langgraph:custom"
"""Name of a custom event that a node writes to its stream without a name."""
EMIT_FLAGS = ("emit-messages", "emit-tool-calls")
"""Metadata of a model call. False hides its text or its tool calls from clients."""


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


def name_custom_event(data: Any) -> tuple[str, Any]:
    """Return the name and value of what a node wrote or dispatched. Names with our prefix are not for graphs to use."""
    name, value = _UNNAMED, data
    match data:
        case DispatchedEvent():
            name, value = data.name, data.data
        case {"name": str(written_name), "value": written} if len(cast("Mapping[str, Any]", data)) == 2:
            name, value = written_name, written
        case _:
            pass
    return f"langgraph:{name}" if name.startswith(CUSTOM_PREFIX) else name, to_jsonable_or_type_name(value)


class RunCallbacks(AsyncCallbackHandler):
    """Callbacks of one run of a graph: writes dispatched events into the stream and cancels nodes that are left at its end.

    There is one handler for everything: the SDK asks every handler about every token, if only whether it wants it.
    """

    run_inline = True

    def __init__(self) -> None:
        self._node_tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._muted_calls: dict[UUID, dict[str, Any]] = {}

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
        """Record the flags of a model call that is not streamed: only its node's output will show its message."""
        flags = {name: False for name in EMIT_FLAGS if (metadata or {}).get(name) is False}
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

    async def on_chain_start(self, *args: Any, tags: Sequence[str] | None = None, **kwargs: Any) -> None:
        """Record the task of a node that begins. Chains inside a node begin here too; only nodes have the graph's own tag."""
        task = asyncio.current_task()
        if task is not None and any(tag.startswith("graph:step:") for tag in tags or ()):
            self._node_tasks.add(task)

    async def cancel_remaining_nodes(self) -> None:
        """Cancel the nodes that still run, and wait for them. The SDK cancels once, and loses track of them if it is cancelled again."""
        running = {task for task in self._node_tasks if not task.done()} - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
