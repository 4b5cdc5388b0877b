"""An interrupt in the terminal: which fields are prompted for, and what the agent gets for what is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.cli.interrupt_form import FormField, build_answer
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
def test_an_approval_without_a_schema_is_answered_with_y_or_n(reason: str) -> None:
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
def test_a_schema_without_properties_prompts_for_the_value_itself(
    schema: dict[str, Any], line: str, asked: str, value: object
) -> None:
    assert typed(asking(schema), line) == ([asked], value)


def test_a_schemas_fields_are_prompted_one_by_one_and_empty_ones_are_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["approved"],
    }
    assert typed(asking(schema), "y", "", "3") == (
        ["approved [y/n]", "comment [string, may be empty]", "count [integer, may be empty]"],
        {"approved": True, "count": 3},
    )


def test_the_fields_of_a_nested_object_are_prompted_one_by_one_too() -> None:
    """Claude's own questions: an object of answers by question, each a text or a list."""
    inner = {"Which color?": {"type": ["string", "array"], "items": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"answers": {"type": "object", "properties": inner}},
        "required": ["answers"],
    }
    assert typed(asking(schema), "blue") == (
        ["Which color? [string, may be empty]"],
        {"answers": {"Which color?": "blue"}},
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
def test_an_invalid_answer_is_prompted_for_again(field: FormField, line: str) -> None:
    with pytest.raises(ValueError):
        field.parse_line(line)


def test_an_answer_that_is_not_utf8_is_prompted_for_again() -> None:
    with pytest.raises(ValueError):
        FormField("answer", "any").parse_line("\udcff")


GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

def greet(state):
    return {"messages": [AIMessage(f"Hello {interrupt('What is your name?')!r}")]}

graph = StateGraph(MessagesState).add_node(greet).add_edge(START, "greet").compile(checkpointer=InMemorySaver())
"""


def test_a_graph_gets_the_text_that_was_typed(ambient: Callable[..., Any], project: Callable[..., None]) -> None:
    """`interrupt("What is your name?")` was asked as `approved [y/n]`."""
    project(asking_graph=GRAPH)
    code, out, _ = ambient("run", "mine=asking_graph:graph", "hi", stdin="Bob the 2nd\n")
    assert (code, "What is your name?\nanswer [text or JSON]: " in out, "Hello 'Bob the 2nd'" in out) == (0, True, True)


CHOOSING_GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

def review(state):
    answer = interrupt({"question": "Which one?"})
    return {"messages": [AIMessage(f"chosen {answer['choice']}")]}

graph = StateGraph(MessagesState).add_node(review).add_edge(START, "review").compile(checkpointer=InMemorySaver())
"""


def test_a_graph_that_fails_on_an_answer_gets_another_one(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(reviewing_graph=CHOOSING_GRAPH)
    answers = 'y\n{"choice": "a"}\n'
    code, out, _ = ambient("run", "mine=reviewing_graph:graph", "hi", stdin=answers)
    assert (code, out.count("Which one?\n"), "chosen a" in out) == (0, 2, True)


def test_a_graph_that_cannot_take_a_cancelled_interrupt_is_one_line_in_the_log(
    ambient: Callable[..., Any], project: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    project(reviewing_graph=CHOOSING_GRAPH)
    assert ambient("run", "mine=reviewing_graph:graph", "hi", stdin="")[0] == 3
    [warning] = [record for record in caplog.records if "cancelled interrupt" in record.message]
    assert (warning.levelname, warning.exc_info) == ("WARNING", None)


@pytest.mark.parametrize("line", ["[" * 100_000, "[" * 3_000 + "]" * 3_000, '{"a":' * 100 + "1" + "}" * 100])
@pytest.mark.parametrize("kind", ["any", "array", "object"])
def test_json_that_is_nested_too_deep_is_prompted_for_again(line: str, kind: str) -> None:
    """It was a RecursionError of the JSON parser, or of whatever read the answer later."""
    with pytest.raises(ValueError):
        FormField("answer", kind).parse_line(line)


@pytest.mark.parametrize("line", ["true", "false", "NaN", "Infinity", "-Infinity", "1e999", "null", "[1]"])
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_only_a_json_number_is_a_number(line: str, kind: str) -> None:
    """`true` was accepted, which Python counts as 1."""
    with pytest.raises(ValueError):
        FormField("x", kind).parse_line(line)


@pytest.mark.parametrize(("line", "value"), [("1.5", 1.5), ("-2", -2), ("1e3", 1000.0)])
def test_a_json_number_is_a_number(line: str, value: float) -> None:
    assert FormField("x", "number").parse_line(line) == value


@pytest.mark.parametrize(
    ("line", "value"),
    [('"[sic] as written"', "[sic] as written"), ('"yes"', "yes"), ('"yes", she said', '"yes", she said'), ('"', '"')],
)
def test_text_that_begins_like_json_can_be_sent_as_a_json_string(line: str, value: str) -> None:
    assert FormField("answer", "any").parse_line(line) == value


@pytest.mark.parametrize(
    ("schema", "prompts"),
    [
        ({"properties": {"a": True}}, ["a [text or JSON, may be empty]"]),
        ({"properties": {"a": None, "b": 5}}, ["a [text or JSON, may be empty]", "b [text or JSON, may be empty]"]),
        ({"properties": ["a"]}, ["answer [text or JSON]"]),
        ({"properties": 5, "type": "string"}, ["answer"]),
        ({"enum": 5}, ["answer [text or JSON]"]),
        ({"enum": "red"}, ["answer [text or JSON]"]),
        ({"properties": {"a": {"type": "string"}}, "required": 5}, ["a [string, may be empty]"]),
        ({"type": [5, None]}, ["answer [text or JSON]"]),
        ({"type": {"a": 1}}, ["answer [text or JSON]"]),
    ],
)
def test_a_wrong_part_of_a_schema_is_ignored(schema: dict[str, Any], prompts: list[str]) -> None:
    """Agents write schemas, also wrong ones; they ended the command with a traceback."""
    assert typed(asking(schema), *["x"] * len(prompts))[0] == prompts


_OPTIONS = Interrupt(
    id="i",
    reason="tool_call",
    message="Codex wants to use execute.",
    metadata={
        "options": [
            {"optionId": "allow_once", "name": "Yes, proceed", "kind": "allow_once"},
            {"optionId": "cancel", "name": "No", "kind": "reject_once"},
        ]
    },
)


def test_an_option_is_chosen_by_its_number() -> None:
    asked: list[str] = []

    def read(field: FormField) -> Any:
        asked.append(field.prompt)
        return field.parse_line("1")

    assert build_answer(_OPTIONS, read) == {"optionId": "allow_once", "approved": True}
    assert asked == ["number [1/2, y/n]"]


def test_an_option_of_an_unknown_kind_is_an_approval_as_for_the_agent() -> None:
    options = [{"optionId": "session", "name": "For now", "kind": "for_the_session"}]
    interrupt = Interrupt(id="i", reason="tool_call", message="May I?", metadata={"options": options})
    answer = build_answer(interrupt, lambda field: field.parse_line("1"))
    assert answer == {"optionId": "session", "approved": True}


def test_a_rejection_may_say_why() -> None:
    lines = {"number": "2", "message": "not here"}
    answer = build_answer(_OPTIONS, lambda field: field.parse_line(lines[field.name]))
    assert answer == {"optionId": "cancel", "approved": False, "message": "not here"}


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", {"optionId": "allow_once", "approved": True}),
        ("Yes", {"optionId": "allow_once", "approved": True}),
        ("n", {"optionId": "cancel", "approved": False}),
    ],
)
def test_yes_and_no_choose_the_only_option_for_a_single_decision(line: str, answer: object) -> None:
    """`printf 'y\\n' | ambient run …` was refused."""
    assert ended_after(_OPTIONS, line) == answer


@pytest.mark.parametrize(
    ("kinds", "prompt"),
    [
        (["allow_once", "allow_once", "reject_once"], "number [1/2/3, n]"),
        (["allow_always", "reject_always"], "number [1/2]"),
        (["allow_once", "allow_always"], "number [1/2, y]"),
    ],
)
def test_a_word_that_means_no_option_or_several_is_refused(kinds: list[str], prompt: str) -> None:
    options = [{"optionId": f"o{number}", "name": "?", "kind": kind} for number, kind in enumerate(kinds)]
    interrupt = Interrupt(id="i", reason="tool_call", message="May I?", metadata={"options": options})
    asked: list[str] = []

    def read(field: FormField) -> Any:
        asked.append(field.prompt)
        return field.parse_line("n" if prompt.endswith("y]") else "y")

    with pytest.raises(ValueError):
        build_answer(interrupt, read)
    assert asked == [prompt]


def ended_after(interrupt: Interrupt, *lines: str) -> Any:
    """The answer of an input that ends after these lines."""
    left = list(lines)

    def read(field: FormField) -> Any:
        if not left:
            raise EOFError
        return field.parse_line(left.pop(0))

    return build_answer(interrupt, read)


_PARTS = {
    "type": "object",
    "properties": {"note": {"type": "string"}, "approved": {"type": "boolean"}, "comment": {"type": "string"}},
    "required": ["approved"],
}


def test_optional_fields_after_the_end_of_input_are_left_out() -> None:
    """The answer was thrown away, and the interrupt cancelled."""
    assert ended_after(asking(_PARTS), "", "y") == {"approved": True}


@pytest.mark.parametrize("lines", [[], ["a note"]])
def test_a_form_without_a_required_field_is_no_answer(lines: list[str]) -> None:
    with pytest.raises(EOFError):
        ended_after(asking(_PARTS), *lines)


def test_a_form_of_optional_fields_is_no_answer_if_nothing_was_typed() -> None:
    form = asking({"type": "object", "properties": {"note": {"type": "string"}, "count": {"type": "integer"}}})
    assert ended_after(form, "a note") == {"note": "a note"}
    with pytest.raises(EOFError):
        ended_after(form)


@pytest.mark.parametrize(("line", "approved"), [("y", True), ("n", False)])
@pytest.mark.parametrize("properties", [{}, {"approved": {"type": "boolean"}, "message": {"type": "string"}}])
def test_a_url_is_answered_with_y_or_n(properties: dict[str, Any], line: str, approved: bool) -> None:
    schema = {"type": "object", "properties": properties}
    interrupt = Interrupt(
        id="i", reason="input_required", response_schema=schema, metadata={"url": "https://example.com"}
    )
    assert typed(interrupt, line) == (["done [y/n]"], {"approved": approved})


def test_a_form_with_a_url_is_filled_in() -> None:
    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    interrupt = Interrupt(id="i", reason="r", response_schema=schema, metadata={"url": "https://example.com"})
    assert typed(interrupt, "1234") == (["code [string]"], {"code": "1234"})
