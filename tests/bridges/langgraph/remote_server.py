"""A LangGraph server in small: the routes that RemoteGraph uses, over a real graph, on a real socket of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pydantic_core
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from langgraph.types import Command

from tests.machine_speed import unless_hung


@asynccontextmanager
async def serving(graph: Any, *, key: str = "", has_output: bool = True) -> AsyncGenerator[str, None]:
    """The address of a server that has the graph as `agent`, and wants this key if there is one. It may not know the graph's output."""
    server = _Server(uvicorn.Config(_app(graph, key, has_output), port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve())
    try:
        with unless_hung():
            await server.listens.wait()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """One that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = anyio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listens.set()


def _app(graph: Any, key: str, has_output: bool) -> FastAPI:
    app = FastAPI()
    threads: set[str] = set()

    @app.middleware("http")
    async def authorize(request: Request, call_next: Any) -> Any:
        if request.headers.get("x-api-key", "") != key:
            return StreamingResponse(iter(["no"]), status_code=401)
        return await call_next(request)

    @app.post("/assistants/search")
    async def search() -> Any:
        return [{"assistant_id": "a1", "graph_id": "agent", "config": graph.config or {}}]

    @app.get("/assistants/{assistant}/schemas")
    async def schemas(assistant: str) -> Any:
        schemas = {"input_schema": graph.get_input_jsonschema(), "context_schema": None}
        if not has_output:
            return schemas
        properties = {name: {} for keys in graph.builder.schemas.values() for name in keys}
        return {**schemas, "output_schema": graph.get_output_jsonschema(), "state_schema": {"properties": properties}}

    @app.post("/threads/{thread}/state/checkpoint")
    async def state(thread: str, request: Request) -> Any:
        if thread not in threads:
            raise HTTPException(404)
        wanted = (await request.json())["checkpoint"]
        return _plain(_stated(await graph.aget_state({"configurable": {**wanted, "thread_id": thread}}), wanted))

    @app.delete("/threads/{thread}")
    async def delete(thread: str) -> Any:
        if thread not in threads:
            raise HTTPException(404)
        threads.remove(thread)
        await graph.checkpointer.adelete_thread(thread)
        return None

    @app.post("/threads/{thread}/runs/stream")
    async def run(thread: str, request: Request) -> Any:
        threads.add(thread)
        return StreamingResponse(_run(graph, thread, await request.json()), media_type="text/event-stream")

    return app


async def _run(graph: Any, thread: str, body: dict[str, Any]) -> AsyncIterator[str]:
    config = body["config"]
    at = {"checkpoint_id": body["checkpoint_id"]} if body.get("checkpoint_id") else {}
    config["configurable"] = {**config.get("configurable", {}), **at, "thread_id": thread}
    graph_input = body.get("input")
    if body.get("command"):
        graph_input = Command(**{name: item for name, item in body["command"].items() if item})
    modes = [mode.replace("messages-tuple", "messages") for mode in body["stream_mode"]]
    frames: asyncio.Queue[str | None] = asyncio.Queue()

    async def work() -> None:
        try:
            async for ns, mode, data in graph.astream(graph_input, config, stream_mode=modes, subgraphs=True):
                frames.put_nowait(_frame("|".join([mode, *ns]), data))
        except Exception as error:  # noqa: BLE001  whatever a graph raises is reported
            frames.put_nowait(_frame("error", {"error": type(error).__name__, "message": str(error)}))
        finally:
            frames.put_nowait(None)

    task = asyncio.create_task(work())
    try:
        while (frame := await frames.get()) is not None:
            yield frame
    finally:
        task.cancel()  # In a task of its own, which is cancelled once: the SDK does not end well when it is cancelled again meanwhile.
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task})


def _frame(event: str, data: Any) -> str:
    return f"event: {event}\ndata: {json.dumps(_plain(data))}\n\n"


def _stated(snapshot: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """A state as the server sends it: with the configuration of the request, if that was complete."""
    named = wanted if "checkpoint_id" in wanted else {"checkpoint_id": None, **snapshot.config["configurable"]}
    return {
        "values": snapshot.values,
        "next": snapshot.next,
        "checkpoint": named,
        "metadata": snapshot.metadata or {},
        "created_at": snapshot.created_at,
        "parent_checkpoint": None,
        "tasks": [
            {
                "id": task.id,
                "name": task.name,
                "error": None,
                "interrupts": [{"value": one.value, "id": one.id} for one in task.interrupts],
                "state": None,
                "checkpoint": None,
            }
            for task in snapshot.tasks
        ],
    }


def _plain(value: Any) -> Any:
    return pydantic_core.to_jsonable_python(value, fallback=str)
