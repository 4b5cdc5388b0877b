"""A graph on a LangGraph server. The SDK's RemoteGraph speaks to it; here its words become those of a graph in this process."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langgraph.pregel.remote import RemoteGraph as SdkGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import StateSnapshot
from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError

from ambient_runner.bridges.langgraph.graph import MODES, Shape, checkpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from contextlib import AbstractAsyncContextManager

    from ambient_runner.bridges.langgraph.translate import Native

__all__ = ["RemoteGraph"]

_SPACE = uuid.UUID("5a3b4a1e-6b0c-5f0e-9a57-0d1f3c1b7a10")
"""Of our own, and the same for ever: a thread is found again by the UUID it was given."""
_KINDS: dict[str, Any] = {
    "AIMessageChunk": AIMessageChunk,
    "ai": AIMessage,
    "human": HumanMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}


class RemoteGraph:
    """The graph `graph_id` of the server at `url`. It keeps the conversation, as every such server does."""

    keeps = True

    def __init__(self, url: str, graph_id: str, api_key: str | None, headers: Mapping[str, str]) -> None:
        # Without a key none is looked for: the environment is not this bridge's to read.
        self._client: Any = get_client(url=url, api_key=api_key, headers=dict(headers))
        self._graph: Any = SdkGraph(graph_id, client=self._client)
        self._graph_id = graph_id
        self._shape: Shape | None = None

    async def shape(self) -> Shape:
        if self._shape is None:
            self._shape = await self._found_shape()
        return self._shape

    async def _found_shape(self) -> Shape:
        """What the server says the graph takes. Which keys are reduced it does not say, so all but messages are set as they are."""
        assistants: Any = await self._client.assistants.search(graph_id=self._graph_id, limit=1)
        assistant: dict[str, Any] = assistants[0] if assistants else {"assistant_id": self._graph_id}
        schemas: Any = await self._client.assistants.get_schemas(assistant["assistant_id"])
        config: dict[str, Any] = assistant.get("config") or {}
        return Shape(
            inputs=frozenset(_properties(schemas, "input_schema")),
            reduced=frozenset({"messages"}),
            has_context=bool(_properties(schemas, "context_schema")),
            recursion_limit=config.get("recursion_limit"),
        )

    def stream(
        self, given: Any, config: dict[str, Any], context: Any
    ) -> AbstractAsyncContextManager[AsyncGenerator[Native, None]]:
        return aclosing(self._natives(given, config, context))

    async def _natives(self, given: Any, config: dict[str, Any], context: Any) -> AsyncGenerator[Native, None]:
        stream: Any = self._graph.astream(
            given,
            config,
            context=context,
            stream_mode=[*MODES, "checkpoints"],
            subgraphs=True,
            on_disconnect="cancel",
            # The SDK leaves it out of the configuration.
            checkpoint_id=config["configurable"].get("checkpoint_id"),
        )
        async with aclosing(stream):
            async for ns, mode, data in stream:
                yield ns, mode, _native(mode, data)

    async def state(self, config: dict[str, Any]) -> StateSnapshot:
        # The server gives back what it was asked by, and the SDK wants the namespace to be there.
        asked = {"configurable": {"checkpoint_ns": "", **config["configurable"]}}
        try:
            found: Any = await self._graph.aget_state(asked)
        except NotFoundError:
            return StateSnapshot({}, (), cast("Any", config), None, None, None, (), ())
        return found._replace(values=_with_messages(found.values))

    async def newest(self, place: str) -> str | None:
        return checkpoint_of(await self.state({"configurable": {"thread_id": place}}))

    async def ask_again(self, config: dict[str, Any]) -> None:
        """A LangGraph server has no way to take an answer back. A question that fails on one can be cancelled."""

    async def was_answered(self, config: dict[str, Any]) -> bool:
        """A LangGraph server does not say what it was answered."""
        return False

    async def unfit(self, state: StateSnapshot, update: Mapping[str, Any]) -> list[str]:
        """A LangGraph server does not say what it would fail on."""
        return []

    def place(self, thread: str) -> str:
        """A LangGraph server names threads by UUIDs."""
        return str(uuid.uuid5(_SPACE, thread))

    async def forget(self, place: str) -> None:
        try:
            await self._client.threads.delete(place)
        except NotFoundError:
            return  # There has been no run yet.

    async def aclose(self) -> None:
        await self._client.aclose()


def _properties(schemas: Mapping[str, Any], name: str) -> list[str]:
    schema: Mapping[str, Any] = schemas.get(name) or {}
    return list(schema.get("properties") or ())


def _native(mode: str, data: Any) -> Any:
    """The event as a graph in this process would say it."""
    if mode == "messages":
        return _with_messages(data[0]), data[1]
    return _with_messages(data) if mode in {"updates", "values"} else data


def _with_messages(value: Any) -> Any:
    """The value with messages where the wire has objects."""
    match value:
        case {"type": str(kind), "content": _} if kind in _KINDS:
            said = cast("dict[str, Any]", value)
            return _KINDS[kind](**{key: item for key, item in said.items() if key != "type" and item is not None})
        case dict():
            return {key: _with_messages(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_with_messages(item) for item in cast("list[Any]", value)]
        case _:
            return value
