"""What aimock cannot say to Codex: calls of MCP tools, which have a namespace, and the JavaScript of its own models. Pure."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.agents.script import CREATE_HELLO, HELLO_PATCH, PICK_NUMBER

_NUMBERS = count(1)
_USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}
_JAVASCRIPT_TOOL = "exec"
"""The tool that Codex gives to its own models: they call all others in its JavaScript."""


def scripted_call(body: dict[str, Any]) -> bytes | None:
    """Return the stream of a response that calls a tool, if the newest user message asks for it and there is no result yet."""
    items: list[Any] = body["input"] if isinstance(body.get("input"), list) else []
    asked = max((index for index, item in enumerate(items) if item.get("role") == "user"), default=-1)
    if asked < 0 or any(str(item.get("type", "")).endswith("_output") for item in items[asked + 1 :]):
        return None
    words = json.dumps(items[asked])
    if "otter picks" in words:
        call = _namespaced_call(body.get("tools", []))
    elif CREATE_HELLO in words:
        call = _javascript_call(items)
    else:
        return None
    return None if call is None else _stream(str(body.get("model")), call)


def _namespaced_call(tools: list[Any]) -> dict[str, Any] | None:
    """Return the call of the client's tool, in the namespace that offers it."""
    namespace = next((tool["name"] for tool in tools if _offers_tool(tool, PICK_NUMBER)), None)
    if namespace is None:
        return None
    arguments = json.dumps({"max": 10})
    return {"type": "function_call", "namespace": namespace, "name": PICK_NUMBER, "arguments": arguments}


def _javascript_call(items: list[Any]) -> dict[str, Any] | None:
    """Return the call of the tool that runs JavaScript, if Codex has sent it: as an item of the input, not as one of its `tools`."""
    tools = [tool for item in items if item.get("type") == "additional_tools" for tool in item["tools"]]
    namespace = next((tool["name"] for tool in tools if _offers_tool(tool, _JAVASCRIPT_TOOL)), None)
    if namespace is None:
        return None
    code = f"text(await tools.apply_patch({json.dumps(HELLO_PATCH)}));"
    return {"type": "custom_tool_call", "namespace": namespace, "name": _JAVASCRIPT_TOOL, "input": code}


def _offers_tool(tool: dict[str, Any], name: str) -> bool:
    return tool.get("type") == "namespace" and any(inner.get("name") == name for inner in tool.get("tools", []))


def _stream(model: str, call: dict[str, Any]) -> bytes:
    number = next(_NUMBERS)
    item = {**call, "id": f"fc_{number}", "call_id": f"call_page_{number}", "status": "completed"}
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": model}
    events = [
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": _USAGE}}),
    ]
    return b"".join(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode() for kind, data in events)
