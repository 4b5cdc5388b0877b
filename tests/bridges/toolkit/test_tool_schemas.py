"""Schemas as providers take them."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ambient_runner.bridges.toolkit.tool_schemas import SchemaDialect, callable_tools, clean_schema
from ambient_runner.protocol.events import Tool
from tests.hypothesis_profiles import examples

NOTHING = {"type": "object", "properties": {}}
DIALECTS: tuple[SchemaDialect, ...] = ("json", "gemini")
quick = examples(200)


def gemini(property_schema: Any, **beside: Any) -> Any:
    """Return one property as Gemini gets it."""
    return clean_schema({"properties": {"a": property_schema}, **beside}, dialect="gemini")["properties"]["a"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("given", [None, True, [], "x", {}, {"type": "string"}, {"type": ["array", "null"]}], ids=repr)
def test_a_schema_that_is_not_an_object_becomes_one_without_properties(given: Any, dialect: SchemaDialect) -> None:
    assert clean_schema(given, dialect=dialect) == NOTHING


def test_a_json_schema_loses_only_the_keywords_that_identify_it() -> None:
    given = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "properties": {"$schema": {"$ref": "#/$defs/t"}},
        "required": ["$schema", 1],
        "additionalProperties": False,
        "$defs": {"t": {"const": 1}},
    }
    before = copy.deepcopy(given)
    assert clean_schema(given) == {
        "type": "object",
        "properties": {"$schema": {"$ref": "#/$defs/t"}},
        "required": ["$schema"],
        "additionalProperties": False,
        "$defs": {"t": {"const": 1}},
    }
    assert given == before


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        (True, {"type": "string"}),
        ({}, {"type": "string"}),
        ({"description": "anything"}, {"description": "anything", "type": "string"}),
        ({"type": "string", "$comment": "x", "readOnly": True}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"enum": ["x", None]}, {"type": "string", "enum": ["x"], "nullable": True}),
        ({"enum": [1, 2], "description": "How many."}, {"type": "integer", "description": "How many. One of: 1, 2."}),
        ({"oneOf": [{"type": "string"}, {"const": 1}]},
         {"anyOf": [{"type": "string"}, {"type": "integer", "description": "One of: 1."}]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"},
         {"type": "string", "nullable": True, "description": "d"}),
        ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a"}),
        ({"type": "string", "format": "uuid"}, {"type": "string"}),
        ({"type": "integer", "format": "int32", "exclusiveMinimum": 0}, {"type": "integer", "format": "int32", "minimum": 1}),
        ({"type": "number", "exclusiveMaximum": 1.5, "maxLength": True}, {"type": "number", "maximum": 1.5}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]},
         {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}),
        ({"items": [{"type": "number"}]}, {"type": "array", "items": {"type": "number"}}),
        ({"type": "object", "properties": {"b": {"$ref": "#/nowhere"}}, "required": ["b", "c"]},
         {"type": "object", "properties": {"b": {"type": "object"}}, "required": ["b"]}),
        ({"allOf": [{"properties": {"b": True}, "required": ["b"]}, {"properties": {"c": {"type": "integer"}}}]},
         {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "integer"}}, "required": ["b"]}),
    ],
    ids=repr,
)  # fmt: skip
def test_a_property_is_converted_to_the_gemini_dialect(given: Any, cleaned: Any) -> None:
    assert gemini(given) == cleaned


def test_references_are_written_out_and_one_that_leads_back_is_just_an_object() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": {"$ref": "#/$defs/name"}}}
    found = gemini(
        {"$ref": "#/$defs/node", "description": "first"}, **{"$defs": {"node": node, "name": {"type": "string"}}}
    )
    assert found == {
        "type": "object",
        "description": "first",
        "properties": {"next": {"type": "object"}, "name": {"type": "string"}},
    }


def test_the_variants_of_an_object_are_one_object_with_all_their_properties() -> None:
    move, stop = [
        {"type": "object", "properties": {"kind": {"const": kind}, **more}, "required": ["kind"]}
        for kind, more in (("move", {"to": {"type": "string"}}), ("stop", {}))
    ]
    assert clean_schema({"anyOf": [move, stop]}, dialect="gemini") == {
        "type": "object",
        "properties": {
            "kind": {"anyOf": [{"type": "string", "enum": ["move"]}, {"type": "string", "enum": ["stop"]}]},
            "to": {"type": "string"},
        },
    }


@pytest.mark.parametrize(
    "part",
    [
        {"type": "array"},
        {"type": ["array", "null"], "items": {"type": "string"}},
        {"type": "string", "enum": ["x"], "format": "enum"},
        {"type": "integer", "format": "int32"},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    ],
    ids=repr,
)
def test_parameters_stay_an_object_whatever_a_part_of_them_claims_to_be(part: Any) -> None:
    """The result had the words of the other type, such as `items`, under the type object."""
    cleaned = clean_schema({"properties": {"a": {"type": "boolean"}}, "allOf": [part]}, dialect="gemini")
    assert cleaned["type"] == "object"
    assert cleaned["properties"] == {"a": {"type": "boolean"}}
    assert not {"items", "enum", "format", "anyOf", "nullable"} & set(cleaned)


def test_references_that_double_at_every_level_stay_small() -> None:
    levels = {
        f"l{n}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/l{n + 1}"} for side in "ab"}}
        for n in range(40)
    }
    cleaned = clean_schema({"properties": {"a": {"$ref": "#/$defs/l0"}}, "$defs": levels}, dialect="gemini")
    assert len(repr(cleaned)) < 500_000


WORDS = ("type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "required", "$ref", "$defs", "format",
         "description", "examples", "default", "minimum", "exclusiveMinimum", "maxItems", "nullable", "prefixItems")  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["string", "object", "array", "null", "#", "#/$defs/a", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "a"]), inner, max_size=4),
    max_leaves=20,
)


@quick
@given(VALUES)
@example({"properties": None, "allOf": [{"type": "array"}]})
def test_whatever_a_client_declares_google_takes_the_result(schema: Any) -> None:
    types = pytest.importorskip("google.genai.types")
    cleaned = clean_schema(schema, dialect="gemini")
    types.Schema.model_validate(cleaned)
    assert clean_schema(cleaned, dialect="gemini") == cleaned
    assert clean_schema(clean_schema(schema)) == clean_schema(schema)


@pytest.mark.parametrize(
    "repeated",
    [{"type": "integer", "enum": list(range(10_000))}, {"type": "string", "description": "x" * 50_000}],
    ids=["choices", "words"],
)
def test_repeated_references_are_limited(repeated: Any) -> None:
    named = {f"p{at}": {"$ref": "#/$defs/long"} for at in range(1_000)}
    cleaned = clean_schema({"properties": named, "$defs": {"long": repeated}}, dialect="gemini")
    assert list(cleaned["properties"]) == list(named)
    assert cleaned["properties"]["p0"]["type"] == repeated["type"]
    assert len(json.dumps(cleaned)) < 2 << 20


def test_a_chain_of_references_has_a_limit() -> None:
    chain = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(5_000)} | {"d5000": {"type": "string"}}
    assert gemini({"$ref": "#/$defs/d4990"}, **{"$defs": chain}) == {"type": "string"}
    assert gemini({"$ref": "#/$defs/d0"}, **{"$defs": chain}) == {"type": "object"}


OUTSIDE = ("file:///etc/passwd", "http://127.0.0.1:9/slow", "//host/x", "other.json", "other.json#/a", "#anchor", "")


def strings_under(value: Any, *words: str) -> list[str]:
    """Return the values of these keywords, at any depth."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    here = [value[word] for word in words if isinstance(value, dict) and isinstance(value.get(word), str)]
    return [*here, *(found for item in inner for found in strings_under(item, *words))]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("word", ["$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id"])
@pytest.mark.parametrize("target", OUTSIDE)
def test_nothing_in_a_schema_leads_out_of_it(target: str, word: str, dialect: SchemaDialect) -> None:
    out = {word: target, "description": "d"}
    places = {
        "properties": {"a": out, "const": out, "enum": out, "default": {"type": "array", "items": [out]}},
        "$defs": {"x": {"default": out, "examples": [out], "const": out}},
        "anyOf": [out, {"not": out}],
        "allOf": [{"$ref": "#/$defs/x/default"}],
        "if": {"patternProperties": {"x": out}},
        "dependentSchemas": {"a": out},
        "anything": [[out]],
    }
    cleaned = clean_schema({**out, "type": "object", **places}, dialect=dialect)
    assert strings_under(cleaned, word) == (["#/$defs/x/default"] if (word, dialect) == ("$ref", "json") else [])
    assert list(cleaned["properties"])[:4] == ["a", "const", "enum", "default"]
    assert cleaned["properties"]["a"]["description"] == "d"


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "given",
    [
        nested(40),
        nested(100_000),
        {"type": "object", "properties": {f"p{n}": {"enum": [1, 2, 3]} for n in range(20_000)}},
        {"type": "object", "properties": {"a": {"description": "x" * (1 << 20)}}},
        {"type": "object", "properties": {"x" * (1 << 20): True}},
    ],
    ids=["deep", "very deep", "many", "words", "names"],
)
def test_a_schema_that_is_too_large_or_too_deep_is_one_without_properties(given: Any, dialect: SchemaDialect) -> None:
    assert clean_schema(given, dialect=dialect) == NOTHING


def test_a_schema_of_a_usual_size_stays() -> None:
    assert clean_schema(nested(20)) == nested(20)


def test_only_tools_with_a_valid_name_can_be_called_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = [
        Tool(name=name, description="", parameters={}) for name in ("paint", "no spaces", "transfer", "x" * 65, "a.b")
    ]
    assert [tool.name for tool in callable_tools(tools)] == ["paint", "transfer"]
    assert all(name in caplog.text for name in ("no spaces", "a.b"))
    dotted = callable_tools(tools, pattern=re.compile(r"[a-z.]{1,8}"))
    assert [tool.name for tool in dotted] == ["paint", "transfer", "a.b"]


def test_the_log_has_no_part_of_a_name_that_is_too_long(caplog: pytest.LogCaptureFixture) -> None:
    """A part of a secret is not found by redaction."""
    callable_tools([Tool(name="use " + "9fK2qLw7xYzT5" * 8, description="", parameters={})])
    assert "9fK2qLw7" not in caplog.text
    assert "108 characters" in caplog.text
