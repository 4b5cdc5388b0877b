"""An interrupt in the terminal: what is asked for it, and what the agent gets for what is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.cli.interrupt_form import FormField, build_answer, describe_interrupt
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable


def typed(interrupt: Interrupt, *lines: str) -> tuple[list[str], Any]:
    """What a person is asked who types these lines, and the answer they make."""
    left, asked = list(lines), list[str]()

    def read(field: FormField) -> Any:
        asked.append(field.prompt)
        return field.parse_line(left.pop(0))

    answer = build_answer(interrupt, read)
    assert left == []
    return asked, answer


def asking(schema: dict[str, Any] | None, *, reason: str = "input_required") -> Interrupt:
    return Interrupt(id="i", reason=reason, message="What?", response_schema=schema)


def test_an_interrupt_without_a_schema_is_answered_with_text() -> None:
    assert typed(asking(None), "Bob the 2nd") == (["answer [text or JSON]"], "Bob the 2nd")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"decisions": [{"type": "approve"}]}', {"decisions": [{"type": "approve"}]}),
        ("[1, 2]", [1, 2]),
        ("5", "5"),
        ("true", "true"),
    ],
)
def test_a_typed_json_object_or_array_is_json_without_a_schema(line: str, value: object) -> None:
    assert typed(asking(None), line) == (["answer [text or JSON]"], value)


def test_a_broken_json_object_is_refused_instead_of_sent_as_text() -> None:
    with pytest.raises(ValueError):
        FormField("answer", "any").parse_line('{"decisions": [')


def test_a_string_schema_takes_json_as_text() -> None:
    assert typed(asking({"type": "string"}), '{"a": 1}') == (["answer"], '{"a": 1}')


@pytest.mark.parametrize("reason", ["confirmation", "tool_call", "approval"])
def test_an_approval_without_a_schema_is_a_yes_or_no(reason: str) -> None:
    assert typed(asking(None, reason=reason), "y") == (["approved [y/n]"], {"approved": True})


@pytest.mark.parametrize(
    ("schema", "line", "asked", "value"),
    [
        ({"type": "string"}, "two words", "answer", "two words"),
        ({"type": "boolean"}, "n", "answer [y/n]", False),
        ({"type": "integer"}, "7", "answer [integer]", 7),
        ({"type": "object"}, '{"a": 1}', "answer [object]", {"a": 1}),
        ({"enum": ["red", "green"]}, "red", "answer [red/green]", "red"),
        ({"enum": [1, 2]}, "2", "answer [1/2]", 2),
        ({"type": ["string", "null"]}, "words", "answer", "words"),
    ],
)
def test_a_schema_that_is_no_form_asks_for_the_value_itself(
    schema: dict[str, Any], line: str, asked: str, value: object
) -> None:
    assert typed(asking(schema), line) == ([asked], value)


def test_a_schemas_fields_are_asked_one_by_one_and_those_left_empty_are_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["approved"],
    }
    assert typed(asking(schema), "y", "", "3") == (
        ["approved [y/n]", "comment [string, may be empty]", "count [integer, may be empty]"],
        {"approved": True, "count": 3},
    )


def test_the_fields_of_an_inner_object_are_asked_one_by_one_too() -> None:
    """Claude's own questions: an object of answers by question, each a text or a list."""
    inner = {"Which colour?": {"type": ["string", "array"], "items": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"answers": {"type": "object", "properties": inner}},
        "required": ["answers"],
    }
    assert typed(asking(schema), "blue") == (
        ["Which colour? [string, may be empty]"],
        {"answers": {"Which colour?": "blue"}},
    )


@pytest.mark.parametrize(
    ("kind", "line", "value"),
    [
        ("boolean", " Y ", True),
        ("boolean", "no", False),
        ("string", "two words", "two words"),
        ("string", "", None),
        ("integer", "7", 7),
        ("array", "[1]", [1]),
    ],
)
def test_an_answer_is_read_as_its_kind(kind: str, line: str, value: object) -> None:
    assert FormField("x", kind, required=False).parse_line(line) == value


@pytest.mark.parametrize(
    ("field", "line"),
    [
        (FormField("x", "boolean"), "maybe"),
        (FormField("x", "boolean"), ""),
        (FormField("x", "integer"), "seven"),
        (FormField("x", "string"), ""),
        (FormField("x", "object"), "[1]"),
        (FormField("x", "string", choices=("red", "green")), "blue"),
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(field: FormField, line: str) -> None:
    with pytest.raises(ValueError):
        field.parse_line(line)


@pytest.mark.parametrize(
    ("interrupt", "shown"),
    [
        (Interrupt(id="i", reason="input_required", message="Who?"), "Who?"),
        (Interrupt(id="i", reason="input_required", metadata={"value": {"draft": "Hi"}}), '{\n  "draft": "Hi"\n}'),
        (Interrupt(id="i", reason="r", message="Send?", metadata={"value": {"to": "a"}}), 'Send?\n{\n  "to": "a"\n}'),
        (Interrupt(id="i", reason="r", message="Who?", metadata={"value": "Who?"}), "Who?"),
        (Interrupt(id="i", reason="input_required"), "input_required"),
    ],
)
def test_an_interrupt_without_a_schema_is_shown_with_its_value_as_indented_json(
    interrupt: Interrupt, shown: str
) -> None:
    assert describe_interrupt(interrupt) == shown


GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

def greet(state):
    return {"messages": [AIMessage(f"Hello {interrupt('What is your name?')!r}")]}

graph = StateGraph(MessagesState).add_node(greet).add_edge(START, "greet").compile(checkpointer=InMemorySaver())
"""


def test_a_graph_gets_the_words_that_were_typed(ambient: Callable[..., Any], project: Callable[..., None]) -> None:
    """`interrupt("What is your name?")` was asked as `approved [y/n]`."""
    project(asking_graph=GRAPH)
    code, out, _ = ambient("run", "mine=asking_graph:graph", "hi", stdin="Bob the 2nd\n")
    assert (code, "What is your name?\nanswer [text or JSON]: " in out, "Hello 'Bob the 2nd'" in out) == (0, True, True)
