"""Anthropic's API with scripted models, in a thread of this process, for Claude's own command line."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.dojo.script import RESULT, Reply, Script, ScriptRequest, argument_pieces, find_reply, text_pieces

__all__ = ["start_api"]

USAGE = {"input_tokens": 10, "output_tokens": 5}


def start_api(scripts: Mapping[str, Script]) -> str:
    """Start the API and return its address. The model of a script is below `/NAME`."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))

    async def answer(request: Request) -> Response:
        body = await request.json()
        reply = find_reply(scripts[request.path_params["name"]], _to_request(body["messages"]))
        return StreamingResponse(_frames(reply, body), media_type="text/event-stream")

    app = Starlette(routes=[Route("/{name}/v1/messages", answer, methods=["POST"])])
    # The CLI makes no second attempt, so no connection may be closed just when it is used again.
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_keep_alive=3600))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def _to_request(messages: list[Any]) -> ScriptRequest:
    inputs: list[str] = []
    for message in messages:
        content = message["content"] if message["role"] == "user" else []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        inputs += [RESULT if block["type"] == "tool_result" else block.get("text", "") for block in blocks]
    return ScriptRequest(everything=json.dumps(messages, ensure_ascii=False), inputs=inputs)


def _frames(reply: Reply, body: Any) -> Iterator[str]:
    empty = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    yield _frame("message_start", message={**empty, "stop_reason": None, "stop_sequence": None, "usage": USAGE})
    for index, (block, deltas) in enumerate(_blocks(reply, body.get("tools", []))):
        yield _frame("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _frame("content_block_delta", index=index, delta=delta)
        yield _frame("content_block_stop", index=index)
    stop = {"stop_reason": "tool_use" if reply.call else "end_turn", "stop_sequence": None}
    yield _frame("message_delta", delta=stop, usage=USAGE)
    yield _frame("message_stop")


def _blocks(reply: Reply, tools: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    if reply.thought:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in text_pieces(reply.thought)]
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if reply.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in text_pieces(reply.text)],
        )
    if reply.call:
        name = next(tool["name"] for tool in tools if tool["name"].split("__")[-1] == reply.call.name)
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in argument_pieces(reply.call)]
        yield {"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": name, "input": {}}, pieces


def _frame(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n"
