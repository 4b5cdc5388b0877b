"""A graph on a LangGraph server. The SDK's RemoteGraph talks to it; this module converts its data to that of a graph in this process."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langgraph.pregel.remote import RemoteGraph as SdkGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import StateSnapshot
from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError

from ambient_runner.bridges.langgraph.graph import STREAM_MODES, StateSchema, checkpoint_id_of
from ambient_runner.bridges.langgraph.streamed_messages import is_run_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ambient_runner.bridges.langgraph.graph import NativeStream
    from ambient_runner.bridges.langgraph.translate import Native
    from ambient_runner.protocol.events import Tool

__all__ = ["RemoteGraph"]

_THREAD_NAMESPACE = uuid.UUID("5a3b4a1e-6b0c-5f0e-9a57-0d1f3c1b7a10")
"""Namespace of the UUIDs of threads. It must never change: a thread is found again by its UUID."""
_MESSAGE_TYPES: dict[str, Any] = {
    "AIMessageChunk": AIMessageChunk,
    "ai": AIMessage,
    "human": HumanMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}


class RemoteGraph:
    """The graph `graph_id` of the server at `url`. Every such server stores the conversation."""

    has_checkpointer = True

    def __init__(self, url: str, graph_id: str, api_key: str | None, headers: Mapping[str, str]) -> None:
        # An explicit None keeps the SDK from reading a key from the environment, which bridges must not do.
        self._client: Any = get_client(url=url, api_key=api_key, headers=dict(headers))
        self._graph: Any = SdkGraph(graph_id, client=self._client)
        self._graph_id = graph_id
        self._schema: StateSchema | None = None

    async def read_schema(self) -> StateSchema:
        if self._schema is None:
            self._schema = await self._fetch_schema()
        return self._schema

    async def _fetch_schema(self) -> StateSchema:
        """Ask the server for the graph's schemas. They do not tell which keys are reduced, so all but messages are set as they are."""
        assistants: Any = await self._client.assistants.search(graph_id=self._graph_id, limit=1)
        assistant: dict[str, Any] = assistants[0] if assistants else {"assistant_id": self._graph_id}
        schemas: Any = await self._client.assistants.get_schemas(assistant["assistant_id"])
        config: dict[str, Any] = assistant.get("config") or {}
        output_keys = frozenset(_schema_properties(schemas, "output_schema"))
        return StateSchema(
            input_keys=frozenset(_schema_properties(schemas, "input_schema")),
            output_keys=output_keys or None,
            private_keys=frozenset(_schema_properties(schemas, "state_schema") if output_keys else ()) - output_keys,
            reduced_keys=frozenset({"messages"}),
            is_remote=True,
            has_context=bool(_schema_properties(schemas, "context_schema")),
            recursion_limit=config.get("recursion_limit"),
        )

    async def list_tools(self) -> list[Tool]:
        """Return nothing: a LangGraph server does not tell which tools a graph has."""
        return []

    def open_stream(
        self, graph_input: Any, config: dict[str, Any], context: Any
    ) -> AbstractAsyncContextManager[NativeStream]:
        return aclosing(self._stream_natives(graph_input, config, context))

    async def _stream_natives(
        self, graph_input: Any, config: dict[str, Any], context: Any
    ) -> AsyncGenerator[Native, None]:
        stream: Any = self._graph.astream(
            graph_input,
            config,
            context=context,
            stream_mode=[*STREAM_MODES, "checkpoints"],
            subgraphs=True,
            on_disconnect="cancel",
            # The SDK does not take it from the configuration.
            checkpoint_id=config["configurable"].get("checkpoint_id"),
        )
        calls = _ModelCalls()
        async with aclosing(stream):
            async for namespace, mode, data in stream:
                native = _to_native_data(mode, data)
                yield namespace, mode, calls.with_shared_metadata(*native) if mode == "messages" else native

    async def read_state(self, config: dict[str, Any]) -> StateSnapshot:
        # The server returns the configuration of the request, and the SDK requires the namespace in it.
        request = {"configurable": {"checkpoint_ns": "", **config["configurable"]}}
        try:
            state: Any = await self._graph.aget_state(request)
        except NotFoundError:
            return StateSnapshot({}, (), cast("Any", config), None, None, None, (), ())
        return state._replace(values=_revive_messages(state.values))

    async def newest_checkpoint_id(self, storage_id: str) -> str | None:
        return checkpoint_id_of(await self.read_state({"configurable": {"thread_id": storage_id}}))

    async def discard_failed_answers(self, config: dict[str, Any]) -> None:
        """Do nothing: a LangGraph server cannot delete an answer. An interrupt that fails on one can be cancelled."""

    async def has_stored_answers(self, config: dict[str, Any]) -> bool:
        """Return False: a LangGraph server does not expose stored answers."""
        return False

    async def rejected_keys(
        self, state: StateSnapshot, update: Mapping[str, Any], goto: Sequence[str] = ()
    ) -> list[str]:
        """Return no keys: a LangGraph server does not expose what it would fail on."""
        return []

    def storage_id(self, thread: str) -> str:
        """Return a UUID: a LangGraph server names threads by UUIDs."""
        return str(uuid.uuid5(_THREAD_NAMESPACE, thread))

    async def erase_thread(self, storage_id: str) -> None:
        try:
            await self._client.threads.delete(storage_id)
        except NotFoundError:
            return  # There has been no run yet.

    async def aclose(self) -> None:
        await self._client.aclose()


class _ModelCalls:
    """The latest model call of each node. All chunks of a call get the same metadata object, as they have it in this process.

    A server sends no id of the call. But chunks of one call have at most one id that LangChain made and one of the provider, and
    the same metadata.
    """

    def __init__(self) -> None:
        self._latest: dict[str, tuple[Any, dict[bool, str]]] = {}

    def with_shared_metadata(self, message: Any, metadata: Any) -> tuple[Any, Any]:
        if not isinstance(message, AIMessage) or not message.id:
            return message, metadata
        task, kind = str(metadata.get("langgraph_checkpoint_ns")), is_run_id(message.id)
        known, ids = self._latest.get(task, (None, dict[bool, str]()))
        if known != metadata or ids.get(kind, message.id) != message.id:
            known, ids = metadata, dict[bool, str]()
        self._latest[task] = known, {**ids, kind: message.id}
        return message, known


def _schema_properties(schemas: Mapping[str, Any], name: str) -> list[str]:
    schema: Mapping[str, Any] = schemas.get(name) or {}
    return list(schema.get("properties") or ())


def _to_native_data(mode: str, data: Any) -> Any:
    """Return the data of an event as a graph in this process streams it."""
    if mode == "messages":
        return _revive_messages(data[0]), data[1]
    return _revive_messages(data) if mode in {"updates", "values"} else data


def _revive_messages(value: Any) -> Any:
    """Return the value with LangChain messages in place of their JSON objects."""
    match value:
        case {"type": str(kind), "content": _} if kind in _MESSAGE_TYPES:
            members = cast("dict[str, Any]", value)
            fields = {key: item for key, item in members.items() if key != "type" and item is not None}
            return _MESSAGE_TYPES[kind](**fields)
        case dict():
            return {key: _revive_messages(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_revive_messages(item) for item in cast("list[Any]", value)]
        case _:
            return value
