"""What aimock cannot say: Codex' calls of MCP tools, whose names have a namespace. Pure."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.agents.script import PICK_NUMBER

_NUMBERS = count(1)
_USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}


def namespaced_call(body: dict[str, Any]) -> bytes | None:
    """Return the stream of a response that calls the client's tool, if the newest user message asks for it and there is no result yet."""
    items: list[Any] = body["input"] if isinstance(body.get("input"), list) else []
    asked = max((index for index, item in enumerate(items) if item.get("role") == "user"), default=-1)
    if asked < 0 or "otter picks" not in json.dumps(items[asked]):
        return None
    if any(str(item.get("type", "")).endswith("_output") for item in items[asked + 1 :]):
        return None
    namespace = next((tool["name"] for tool in body.get("tools", []) if _offers_the_tool(tool)), None)
    return None if namespace is None else _stream(str(body.get("model")), namespace)


def _offers_the_tool(tool: dict[str, Any]) -> bool:
    return tool.get("type") == "namespace" and any(inner.get("name") == PICK_NUMBER for inner in tool.get("tools", []))


def _stream(model: str, namespace: str) -> bytes:
    number = next(_NUMBERS)
    item = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_page_{number}",
        "namespace": namespace,
        "name": PICK_NUMBER,
        "arguments": json.dumps({"max": 10}),
        "status": "completed",
    }
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": model}
    events = [
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": _USAGE}}),
    ]
    return b"".join(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode() for kind, data in events)
