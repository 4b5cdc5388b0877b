"""The calls that aimock cannot make for Codex."""

from __future__ import annotations

import json
from typing import Any

from tests.agents.codex_front import scripted_call

TOOLS = [
    {"type": "function", "name": "exec_command"},
    {"type": "namespace", "name": "mcp__ambient", "tools": [{"name": "pick_number"}]},
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def request(*items: dict[str, Any], tools: list[dict[str, Any]] = TOOLS) -> dict[str, Any]:
    return {"model": "mock-model", "input": list(items), "tools": tools}


def item_of(stream: bytes | None) -> dict[str, Any]:
    """Return the only item of a stream that is complete."""
    assert stream is not None
    events = [json.loads(line.removeprefix(b"data: ")) for line in stream.splitlines() if line.startswith(b"data: ")]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    return events[-1]["response"]["output"][0]


def test_the_tool_is_called_in_its_namespace() -> None:
    item = item_of(scripted_call(request(user("hello"), user("otter picks"))))
    assert (item["namespace"], item["name"], json.loads(item["arguments"])) == (
        "mcp__ambient",
        "pick_number",
        {"max": 10},
    )


def test_codexs_own_models_call_tools_in_javascript() -> None:
    offered = {
        "type": "additional_tools",
        "tools": [{"type": "namespace", "name": "functions", "tools": [{"name": "exec"}]}],
    }
    item = item_of(scripted_call(request(offered, user("create hello.txt"), tools=[])))
    assert (item["type"], item["namespace"], item["name"]) == ("custom_tool_call", "functions", "exec")
    assert "await tools.apply_patch(" in item["input"]


def test_every_other_request_is_left_to_aimock() -> None:
    result = {"type": "function_call_output", "call_id": "c", "output": "7"}
    for body in (
        {},
        request(),
        request(user("hello")),
        request(user("otter picks"), user("hello")),
        request(user("otter picks"), result),
        request(user("otter picks"), tools=TOOLS[:1]),
        request(user("create hello.txt")),
    ):
        assert scripted_call(body) is None
