"""Forms and URLs of an agent: whatever it sends, an answer is accepted or refused with a reason, and fits what was asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.acp import session_messages
from ambient_runner.bridges.acp.elicitations import (
    answer_elicitation,
    answer_schema,
    check_elicitation_answer,
    is_web_url,
    normalize_elicitation,
)
from ambient_runner.bridges.acp.form_values import is_allowed_value, normalize_form
from ambient_runner.errors import InvalidInput
from tests.bridges.acp.words import spoken
from tests.bridges.acp.world import serve
from tests.bridges.claude.world import yes
from tests.world import KEY

NAME = {"type": "string"}
EMPTY = {"type": "object", "properties": {}}
MALFORMED = [None, True, 5, "text", [], {"a": 1}]


def _accept(params: dict[str, Any], payload: Any) -> dict[str, Any]:
    """Check an answer as a server does, and return the response."""
    asked = normalize_elicitation(params)
    check_elicitation_answer(answer_schema(asked), payload, is_at_url="url" in asked)
    return answer_elicitation(asked, payload)


@pytest.mark.parametrize("required", MALFORMED)
def test_a_malformed_list_of_required_fields_is_ignored(required: Any) -> None:
    schema = {"type": "object", "properties": {"name": NAME}, "required": required}
    assert normalize_form(schema) == {"type": "object", "properties": {"name": NAME}}
    assert _accept({"requestedSchema": schema}, {"name": "x"}) == {"action": "accept", "content": {"name": "x"}}


def test_only_fields_that_exist_are_required() -> None:
    schema = {"properties": {"name": NAME}, "required": ["name", "other", 5, ["name"], "name"]}
    assert normalize_form(schema) == {"type": "object", "properties": {"name": NAME}, "required": ["name"]}


@pytest.mark.parametrize("schema", [None, True, 5, "text", [], {}, {"properties": []}, {"properties": {"a": 5}}])
def test_a_malformed_form_is_an_empty_one(schema: Any) -> None:
    assert normalize_form(schema) == EMPTY
    assert _accept({"requestedSchema": schema}, {"a": "x"}) == {"action": "accept", "content": {}}
    assert _accept({"requestedSchema": schema}, {"declined": True}) == {"action": "decline"}


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("type", [None, 5, ["string"], {}]),
        ("title", [5, {}]),
        ("enum", [None, "pq", {"p": 1}, 5]),
        ("oneOf", ["p", [5], [{"title": "P"}]]),
        ("items", [5, [], "x"]),
        ("minimum", ["1", True, []]),
        ("maxLength", ["1", True, -1, 1.5]),
    ],
)
def test_what_is_malformed_in_a_field_is_left_out(member: str, values: list[Any]) -> None:
    for value in values:
        form = normalize_form({"properties": {"a": {"description": "A", member: value}}})
        assert form == {"type": "object", "properties": {"a": {"description": "A"}}}


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [
        ({"type": "string", "enum": ["p", "q"]}, ["p"], ["NOT", 1, None, ["p"]]),
        ({"enum": [1, "p"]}, [1, "p"], [True, 2]),
        ({"type": "string", "oneOf": [{"const": "p", "title": "P"}]}, ["p"], ["P"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3], [0, 4, 1.5, True]),
        ({"type": "number", "minimum": 0.5}, [0.5, 7], [0.4, "1"]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"type": "array", "items": {"enum": ["p", "q"]}, "maxItems": 2}, [[], ["p", "q"]], [["x"], ["p"] * 3, "p"]),
        ({"type": "array", "items": {"type": "string", "anyOf": [{"const": "p"}]}}, [["p"]], [["q"], [5]]),
        ({"type": "object"}, [{"a": 1}, "x"], []),
        ({}, [None, 5, "x", {}], []),
    ],
)
def test_a_field_allows_what_its_schema_says(field: dict[str, Any], allowed: list[Any], refused: list[Any]) -> None:
    assert [is_allowed_value(value, field) for value in allowed] == [True] * len(allowed)
    assert [is_allowed_value(value, field) for value in refused] == [False] * len(refused)


def test_a_value_that_the_form_does_not_allow_is_refused_with_the_name_of_its_field() -> None:
    params = {"requestedSchema": {"properties": {"size": {"enum": ["p", "q"]}, "name": NAME}, "required": ["size"]}}
    with pytest.raises(InvalidInput, match=r"for size\.$"):
        _accept(params, {"size": "NOT", "name": "x"})


def test_the_json_text_of_an_answer_is_that_answer_and_a_boolean_is_none() -> None:
    params = {"requestedSchema": {"properties": {"name": NAME}}}
    assert _accept(params, '{"name": "x"}') == {"action": "accept", "content": {"name": "x"}}
    for payload in (True, False, "true", "x"):
        with pytest.raises(InvalidInput):
            _accept(params, payload)


@pytest.mark.parametrize(
    "payload", [{}, None, True, "done", {"approved": None}, {"approved": "x"}, {"declined": False}]
)
def test_an_answer_to_a_url_that_is_neither_yes_nor_no_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidInput):
        _accept({"mode": "url", "url": "https://example.com/"}, payload)


@pytest.mark.parametrize(
    ("payload", "action"),
    [
        ({"approved": True}, "accept"),
        ('{"approved": true}', "accept"),
        ({"approved": False}, "decline"),
        ({"declined": True}, "decline"),
        ({"approved": True, "declined": True}, "decline"),
    ],
)
def test_an_answer_to_a_url_says_that_it_is_done_or_declines(payload: Any, action: str) -> None:
    assert _accept({"mode": "url", "url": "https://example.com/"}, payload) == {"action": action}


def test_only_addresses_of_the_web_are_for_a_browser() -> None:
    assert all(is_web_url(url) for url in ("https://example.com/a?b#c", "HTTP://localhost:8000", "https://é.example/"))
    others = ["", "javascript:alert(1)", "java\nscript:alert(1)", " https://a.example", "file:///etc/passwd", "data:,x"]
    assert not any(is_web_url(url) for url in [*others, "https://a.example/\n", "https:/a.example", "vscode://x"])


async def test_a_malformed_form_can_be_answered(tmp_path: Path) -> None:
    form = {"type": "object", "properties": {"name": NAME}, "required": 5}
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say(f"elicit-with {json.dumps({'requestedSchema': form})}")
        interrupt = thread.interrupts[0]
        answered = await thread.resume(yes(interrupt, {"name": "x"}))
    assert interrupt.response_schema == {"type": "object", "properties": {"name": NAME}}
    assert spoken(answered) == 'answered {"action": "accept", "content": {"name": "x"}}'


async def test_an_empty_answer_does_not_say_that_it_is_done_at_the_url(tmp_path: Path) -> None:
    async with serve(tmp_path) as world:
        thread = world.thread()
        await thread.say("elicit url")
        interrupt = thread.interrupts[0]
        with pytest.raises(InvalidInput):
            await thread.resume(yes(interrupt, {}))
        assert list((await world.runner.view_thread(KEY)).open_interrupts) == [interrupt.id]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", 5, None])
async def test_a_url_that_is_not_of_the_web_is_declined_and_no_client_gets_it(
    tmp_path: Path, url: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as world:
        words = await world.thread().say(f"elicit-with {json.dumps({'mode': 'url', 'url': url, 'elicitationId': 'e'})}")
    assert (spoken(words), words[-1]) == ('answered {"action": "decline"}', "RF success")
    (record,) = [record for record in caplog.records if record.name == session_messages.__name__]
    assert record.args == ("t", "The agent")
