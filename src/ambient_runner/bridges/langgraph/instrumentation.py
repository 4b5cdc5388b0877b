"""Insertions into a graph's run: a LangChain callback handler that reports dispatched events and muted models, and ends nodes in time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from langchain_core.callbacks import AsyncCallbackHandler
from langgraph.config import get_stream_writer
from langgraph.constants import TAG_NOSTREAM

from ambient_runner.bridges.toolkit.json_values import plain_or_name
from ambient_runner.protocol.events import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from langchain_core.outputs import LLMResult

__all__ = ["SILENT", "Dispatched", "Silenced", "Wiring", "named"]

_CUSTOM = "langgraph:custom"
"""The name of what a node writes to its stream without a name."""
SILENT = ("emit-messages", "emit-tool-calls")
"""What a model's metadata may say is not to be heard: its text, its calls."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An event of `adispatch_custom_event`."""

    name: str
    data: Any


@dataclass(frozen=True, slots=True)
class Silenced:
    """A message of a model that is not streamed, and whose metadata say what of it is not to be heard: its node says it without them."""

    id: str
    meta: Mapping[str, Any]


def named(data: Any) -> tuple[str, Any]:
    """The name and value of what a node wrote or dispatched. Names that begin like ours are not for graphs to use."""
    name, value = _CUSTOM, data
    match data:
        case Dispatched():
            name, value = data.name, data.data
        case {"name": str(given), "value": said} if len(cast("Mapping[str, Any]", data)) == 2:
            name, value = given, said
        case _:
            pass
    return f"langgraph:{name}" if name.startswith(OURS) else name, plain_or_name(value)


class Wiring(AsyncCallbackHandler):
    """What happens inside one run of a graph: puts what nodes dispatch into the stream, and ends what is left of them.

    One handler for all: every handler is asked about every token, if only whether it wants it.
    """

    run_inline = True

    def __init__(self) -> None:
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._silent: dict[UUID, dict[str, Any]] = {}

    @property
    def ignore_llm(self) -> bool:
        return not self._silent

    async def on_chat_model_start(
        self,
        *args: Any,
        run_id: UUID,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model is asked. Of one that is not streamed, only its node's output will be seen."""
        said = {name: False for name in SILENT if (metadata or {}).get(name) is False}
        if said and TAG_NOSTREAM in (tags or ()):
            self._silent[run_id] = said

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        said = self._silent.pop(run_id, None)
        message: Any = getattr(response.generations[0][0], "message", None) if said else None
        if said and message is not None:
            get_stream_writer()(Silenced(message.id, said))

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._silent.pop(run_id, None)

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
        """`adispatch_custom_event` was called: in its place between the others."""
        get_stream_writer()(Dispatched(name, data))

    async def on_chain_start(self, *args: Any, tags: Sequence[str] | None = None, **kwargs: Any) -> None:
        """A node begins, or something inside one: only nodes have the graph's own tag."""
        task = asyncio.current_task()
        if task is not None and any(tag.startswith("graph:step:") for tag in tags or ()):
            self._tasks.add(task)

    async def end(self) -> None:
        """Cancel the nodes that are left, and wait for them. The SDK cancels once, and loses sight of them if it is cancelled again."""
        left = {task for task in self._tasks if not task.done()} - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
