"""The shapes of CopilotKit's client: what it gets, and what it sends."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from ambient_runner.errors import InvalidInput, InvalidMethod
from ambient_runner.protocol.copilotkit import (
    Suggestion,
    inspector_message,
    is_suggestion_request,
    suggestion_events,
    thread_row,
)
from ambient_runner.protocol.copilotkit_input import (
    Annotation,
    Envelope,
    ResourcePath,
    parse_annotation,
    parse_envelope,
    parse_resource_path,
    parse_stopped_run,
)
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    RunAgentInput,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    encode_event,
)
from ambient_runner.protocol.run_input import parse_input


@dataclass
class Row:
    title: str = ""
    archived: bool = False
    created: int = 0
    updated: int = 1_700_000_000_120


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def suggestion_request(**changes: Any) -> RunAgentInput:
    body = {
        "threadId": "s",
        "runId": "r",
        "messages": [],
        "tools": [{"name": "copilotkitSuggest", "description": "", "parameters": {"type": "object"}}],
        "forwardedProps": {"toolChoice": {"type": "function", "function": {"name": "copilotkitSuggest"}}},
    }
    return parse_input(encoded({**body, **changes})).input


def test_dates_of_a_thread_are_texts_that_sort_by_time() -> None:
    assert thread_row("t", Row(title="Tea"), agent="default", tenant="acme", owner="ann") == {
        "id": "t",
        "organizationId": "acme",
        "agentId": "default",
        "createdById": "ann",
        "name": "Tea",
        "archived": False,
        "createdAt": "1970-01-01T00:00:00.000Z",
        "updatedAt": "2023-11-14T22:13:20.120Z",
    }
    assert thread_row("t", Row(), agent="a", tenant="t", owner="o")["name"] is None


def test_messages_for_the_inspector_have_texts_and_flat_calls() -> None:
    call = ToolCall(id="c", function=FunctionCall(name="search", arguments='{"q":1}'))
    messages = [
        UserMessage(id="u", content=[TextPart(text="one"), TextPart(text="two")]),
        AssistantMessage(id="a", tool_calls=[call]),
        ToolMessage(id="r", tool_call_id="c", content="found"),
        AssistantMessage(id="b", content="done", tool_calls=[]),
        ActivityMessage(id="p", activity_type="plan", content={"step": 1}),
    ]
    assert [inspector_message(message) for message in messages] == [
        {"id": "u", "role": "user", "content": "one\ntwo"},
        {"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "name": "search", "args": '{"q":1}'}]},
        {"id": "r", "role": "tool", "toolCallId": "c", "content": "found"},
        {"id": "b", "role": "assistant", "content": "done"},
        {"id": "p", "role": "activity", "content": '{"step":1}'},
    ]


def test_a_suggestion_request_is_known_by_its_only_tool_and_its_tool_choice() -> None:
    tools: list[Any] = suggestion_request().tools or []
    other = {"name": "other", "description": "", "parameters": {"type": "object"}}
    assert is_suggestion_request(suggestion_request())
    assert not is_suggestion_request(suggestion_request(tools=[other]))
    assert not is_suggestion_request(suggestion_request(tools=[{"name": tools[0].name, "description": ""}, other]))
    choices: list[Any] = [None, {}, [], {"toolChoice": "auto"}, {"toolChoice": {"function": {"name": "other"}}}]
    for props in choices:
        assert not is_suggestion_request(suggestion_request(forwardedProps=props))


def test_suggestions_are_one_call_of_the_clients_tool() -> None:
    events = suggestion_events(suggestion_request(), [Suggestion(title="Tea", message="make tea")])
    assert [json.loads(encode_event(event)) for event in events] == [
        {"type": "RUN_STARTED", "threadId": "s", "runId": "r"},
        {"type": "TOOL_CALL_START", "toolCallId": "suggest-r", "toolCallName": "copilotkitSuggest"},
        {
            "type": "TOOL_CALL_ARGS",
            "toolCallId": "suggest-r",
            "delta": '{"suggestions":[{"title":"Tea","message":"make tea"}]}',
        },
        {"type": "TOOL_CALL_END", "toolCallId": "suggest-r"},
        {"type": "RUN_FINISHED", "threadId": "s", "runId": "r"},
    ]


def test_an_agent_without_suggestions_answers_with_an_empty_run() -> None:
    events = suggestion_events(suggestion_request(), [])
    assert [json.loads(encode_event(event))["type"] for event in events] == ["RUN_STARTED", "RUN_FINISHED"]


def test_an_envelope_keeps_the_bytes_of_its_body() -> None:
    body = b'{"method":"agent/run","params":{"agentId":"default","more":1},"body":{"messages": [ ]}}'
    assert parse_envelope(body) == Envelope(
        method="agent/run", params={"agentId": "default"}, body=b'{"messages": [ ]}'
    )
    assert parse_envelope(b'{"method":"info","params":null,"body":null}') == Envelope(
        method="info", params={}, body=b""
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b"\xff",
        b"{}",
        b'{"method":1}',
        b'{"method":"transcribe"}',
        b'{"method":"agent/run"}',
        b'{"method":"agent/run","params":{}}',
        b'{"method":"agent/run","params":{"agentId":""}}',
        b'{"method":"agent/run","params":{"agentId":["default"]}}',
        b'{"method":"agent/run","params":[]}',
        b'{"method":"agent/stop","params":{"agentId":"default"}}',
        b'{"method":"resource/request","params":{"path":"/threads"}}',
        b'{"method":"info","params":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_an_envelope_without_a_known_method_and_its_params_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMethod):
        parse_envelope(body)


def test_the_path_of_a_resource_is_split_and_decoded() -> None:
    assert parse_resource_path("/threads?agentId=a&limit=2") == ResourcePath(
        segments=("threads",), query="agentId=a&limit=2"
    )
    assert parse_resource_path("/threads/a%2Fb%20c/archive").segments == ("threads", "a/b c", "archive")
    assert parse_resource_path("/threads/a..b").segments == ("threads", "a..b")
    assert parse_resource_path("/annotate").segments == ("annotate",)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "threads",
        "/info",
        "/threadsmith",
        "/annotate/more",
        "/memories",
        "/agent/default/run",
        "/threads/",
        "/threads/../info",
        "/threads/x/..",
        "/threads/%2e%2e/info",
        "/./threads",
        "//evil.example/threads",
        "http://evil.example/threads",
        "\\\\evil.example\\threads",
        "/threads/..\\info",
        "/threads#info",
        "/threads/%ff",
        "/threads/\n",
        "http://[/threads",
    ],
)
def test_a_path_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidMethod):
        parse_resource_path(path)


def test_a_stop_names_a_run_or_none() -> None:
    assert parse_stopped_run(b'{"runId":"r"}') == "r"
    assert [parse_stopped_run(body) for body in (b"", b"  ", b"{}", b'{"runId":null}')] == [""] * 4
    for body in (b"[]", b"r", b'{"runId":1}'):
        with pytest.raises(InvalidInput):
            parse_stopped_run(body)


FEEDBACK: dict[str, Any] = {
    "type": "feedback",
    "threadId": "t",
    "clientEventId": "e",
    "payload": {"messageId": "m", "value": "thumbs_up"},
    "occurredAt": "2026-01-01T00:00:00Z",
}


def test_an_annotation_is_feedback() -> None:
    assert parse_annotation(encoded(FEEDBACK)) == Annotation(
        thread_id="t", event_id="e", message_id="m", value="thumbs_up", comment=None
    )
    commented = {**FEEDBACK, "payload": {**FEEDBACK["payload"], "comment": "nice"}}
    assert parse_annotation(encoded(commented)).comment == "nice"


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "user_action"},
        {"type": None},
        {"threadId": ""},
        {"clientEventId": None},
        {"clientEventId": "e" * 257},
        {"payload": None},
        {"payload": {"messageId": "m", "value": "shrug"}},
        {"payload": {"messageId": 1, "value": "thumbs_up"}},
        {"payload": {"messageId": "m", "value": "thumbs_up", "comment": 1}},
    ],
)
def test_any_other_annotation_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        parse_annotation(encoded({**FEEDBACK, **changes}))
