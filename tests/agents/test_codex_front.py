"""The calls of MCP tools that aimock cannot make for Codex."""

from __future__ import annotations

import json
from typing import Any

from tests.agents.codex_front import namespaced_call

TOOLS = [
    {"type": "function", "name": "exec_command"},
    {"type": "namespace", "name": "mcp__ambient", "tools": [{"name": "pick_number"}]},
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def request(*items: dict[str, Any], tools: list[dict[str, Any]] = TOOLS) -> dict[str, Any]:
    return {"model": "mock-model", "input": list(items), "tools": tools}


def test_the_tool_is_called_in_its_namespace() -> None:
    stream = namespaced_call(request(user("hello"), user("otter picks")))
    assert stream is not None
    events = [json.loads(line.removeprefix(b"data: ")) for line in stream.splitlines() if line.startswith(b"data: ")]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    item = events[-1]["response"]["output"][0]
    assert (item["namespace"], item["name"], json.loads(item["arguments"])) == (
        "mcp__ambient",
        "pick_number",
        {"max": 10},
    )


def test_every_other_request_is_left_to_aimock() -> None:
    result = {"type": "function_call_output", "call_id": "c", "output": "7"}
    for body in (
        {},
        request(),
        request(user("hello")),
        request(user("otter picks"), user("hello")),
        request(user("otter picks"), result),
        request(user("otter picks"), tools=TOOLS[:1]),
    ):
        assert namespaced_call(body) is None
