"""Content of users for agents, and content of agents for clients."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.bridges.acp.messages import (
    block_text,
    bounded_json,
    head_and_tail,
    json_text,
    raw_output_content,
    to_content,
    to_content_blocks,
    unfenced,
)
from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.protocol import events as e
from ambient_runner.protocol.limits import nesting_depth

ALL = {"image": True, "audio": True, "embeddedContext": True}
DATA = base64.b64encode(b"\x00\x01").decode()
TEXT = base64.b64encode("# Größe".encode()).decode()


def data(kind: str, value: str = DATA) -> e.DataSource:
    return e.DataSource(value=value, mime_type=kind)


IMAGE, AUDIO = e.ImagePart(source=data("image/png")), e.AudioPart(source=data("audio/wav"))
PDF = e.DocumentPart(source=data("application/pdf"), metadata={"filename": "a.pdf"})
NOTES = e.DocumentPart(source=data("text/markdown; charset=utf-8", TEXT), metadata={"filename": "notes.md"})


def test_text_is_text() -> None:
    assert to_content_blocks("hi", {}) == [{"type": "text", "text": "hi"}]
    assert to_content_blocks([e.TextPart(text="a"), e.TextPart(text="b")], {}) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert to_content_blocks([], {}) == [{"type": "text", "text": ""}]


def test_an_agent_gets_what_it_can_take() -> None:
    assert to_content_blocks([IMAGE, AUDIO, PDF, NOTES], ALL) == [
        {"type": "image", "data": DATA, "mimeType": "image/png"},
        {"type": "audio", "data": DATA, "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"uri": "attachment:///3/a.pdf", "mimeType": "application/pdf", "blob": DATA},
        },
        {
            "type": "resource",
            "resource": {
                "uri": "attachment:///4/notes.md",
                "mimeType": "text/markdown; charset=utf-8",
                "text": "# Größe",
            },
        },
    ]


def test_an_image_for_an_agent_without_images_is_embedded() -> None:
    assert to_content_blocks([IMAGE], {"embeddedContext": True}) == [
        {
            "type": "resource",
            "resource": {"uri": "attachment:///1/attachment-1", "mimeType": "image/png", "blob": DATA},
        }
    ]


@pytest.mark.parametrize("part", [IMAGE, AUDIO, PDF, e.VideoPart(source=data("video/mp4"))])
@pytest.mark.parametrize("capabilities", [{}, {"image": "yes", "embeddedContext": 1}, {"audio": None}])
def test_what_an_agent_cannot_take_becomes_a_placeholder(part: Any, capabilities: dict[str, Any]) -> None:
    assert to_content_blocks([part], capabilities) == [{"type": "text", "text": attachment_placeholder(part)}]


def test_a_document_that_is_text_is_text_for_every_agent() -> None:
    assert to_content_blocks([NOTES], {}) == [{"type": "text", "text": "notes.md:\n# Größe"}]


def test_a_document_that_only_claims_to_be_text_is_not_decoded() -> None:
    part = e.DocumentPart(source=data("text/plain", "not base64!"))
    assert to_content_blocks([part], {}) == [{"type": "text", "text": attachment_placeholder(part)}]


@pytest.mark.parametrize("source", [e.UrlSource, e.FileSource])
def test_an_address_is_a_link_for_every_agent(source: Any) -> None:
    part = e.ImagePart(source=source(value="https://example.com/a.png", mime_type="image/png"))
    assert to_content_blocks([part], {}) == [
        {
            "type": "resource_link",
            "uri": "https://example.com/a.png",
            "name": "attachment-1",
            "mimeType": "image/png",
        }
    ]


@pytest.mark.parametrize(
    "source", [e.FileSource(value="file-123"), e.UrlSource(value="file:///etc/passwd"), e.UrlSource(value="data:,x")]
)
def test_what_is_no_address_on_the_web_is_not_passed_on(source: Any) -> None:
    [block] = to_content_blocks([e.DocumentPart(source=source)], ALL)
    assert block["type"] == "text"
    assert source.value not in block["text"]


def test_blocks_of_text_are_text_and_others_are_parts() -> None:
    assert to_content([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], 100) == "a\nb"
    assert to_content([], 100) == ""
    image = {"type": "image", "data": DATA, "mimeType": "image/png"}
    audio = {"type": "audio", "data": DATA, "mimeType": "audio/wav"}
    linked = {"type": "image", "data": "", "mimeType": "image/png", "uri": "https://example.com/a.png"}
    assert to_content([{"type": "text", "text": "a"}, image, audio, linked], 100) == [
        e.TextPart(text="a"),
        IMAGE,
        AUDIO,
        e.ImagePart(source=e.UrlSource(value="https://example.com/a.png")),
    ]


def test_media_that_fit_into_no_event_become_text() -> None:
    assert to_content([{"type": "image", "data": "A" * (5 << 20), "mimeType": "image/png"}], 100) == "[image/png]"


def test_the_parts_of_a_content_fit_into_one_event_together() -> None:
    image = {"type": "image", "data": "A" * (1 << 20), "mimeType": "image/png"}
    text = {"type": "text", "text": "x" * 1000}
    content = to_content([*[image] * 10, *[text] * 500], 1000)
    kinds = [type(part) for part in content]
    assert (kinds.count(e.ImagePart), kinds.count(e.TextPart)) == (4, 96)
    assert sum(len(part.text) for part in content if isinstance(part, e.TextPart)) < 10_000


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "text", "text": "a"}, "a"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "A"}}, "A"),
        ({"type": "resource", "resource": {"uri": "file:///a", "blob": "AA=="}}, "file:///a"),
        ({"type": "resource_link", "uri": "file:///a", "name": "a"}, "file:///a"),
        ({"type": "image", "mimeType": 7}, "[image]"),
        ({"type": "audio", "mimeType": "audio/wav"}, "[audio/wav]"),
        ({"type": "text", "text": 7}, ""),
        ({}, ""),
        (None, ""),
        ([1], ""),
    ],
)
def test_a_block_as_text(block: Any, text: str) -> None:
    assert block_text(block) == text


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```console\na\nb\n```", "a\nb"),
        ("```\na\n```\n", "a"),
        ("````\n```\na\n```\n````", "```\na\n```"),
        ("```\n```", ""),
        ("```\na\n```\nb\n```\nc\n```", "```\na\n```\nb\n```\nc\n```"),
        ("```\na", "```\na"),
        ("a\n```", "a\n```"),
        ("``\na\n``", "``\na\n``"),
        ("```a```", "```a```"),
        ("", ""),
    ],
)
def test_only_a_text_that_is_one_fenced_block_loses_its_fence(text: str, inside: str) -> None:
    assert unfenced(text) == inside


@given(st.text(), st.integers(0, 60))
def test_a_shortened_text_is_valid_and_begins_and_ends_like_the_whole(text: str, max_bytes: int) -> None:
    short = head_and_tail(text, max_bytes)
    assert len(short.encode()) <= max_bytes + 40
    if short != text:
        head, _, rest = short.partition("\n[")
        assert text.startswith(head)
        assert text.endswith(rest.partition("]\n")[2])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(VALUES, st.integers(64, 400))
def test_a_bounded_value_is_small_json_and_a_small_one_stays_as_it_is(value: Any, max_bytes: int) -> None:
    bounded = bounded_json(value, max_bytes)
    assert len(json_text(value, max_bytes).encode()) <= max_bytes * 6
    assert nesting_depth(bounded) <= 48
    msgspec.json.decode(json_text(value, max_bytes))
    raw_output_content(value, max_bytes)


def test_a_value_of_a_million_members_is_cut_and_keeps_its_beginning() -> None:
    bounded = bounded_json({"first": "a", "all": list(range(1_000_000))}, 1000)
    assert bounded["first"] == "a"
    assert bounded["all"][:3] == [0, 1, 2]
    assert len(json_text(bounded, 10_000)) < 1000


def test_numbers_that_no_json_parser_takes_do_not_raise() -> None:
    assert json_text({"a": 10**400, "b": float("nan")}, 1000)
    assert bounded_json({"a": 1, "b": object()}, 1000) == {"a": 1, "b": None}
