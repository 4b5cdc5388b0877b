"""Text for a model that every bridge shares."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.content import content_text, context_text
from ambient_runner.protocol.events import ContentPart, Context, ImagePart, TextPart, UrlSource


def test_the_context_of_a_request_is_a_list_under_a_heading() -> None:
    entries = [Context(description="page", value="cart"), Context(description="theme", value="dark")]
    assert context_text(entries) == "Context of this request:\n- page: cart\n- theme: dark"


def test_a_request_without_context_has_no_text() -> None:
    assert context_text([]) == ""


def test_the_text_of_a_content_names_its_attachments() -> None:
    parts: list[ContentPart] = [
        TextPart(text="look:"),
        ImagePart(source=UrlSource(value="https://cat.example/", mime_type="image/png")),
    ]
    assert content_text("look") == "look"
    assert content_text(parts) == "look:\n[An attachment that cannot be read here: image/png]"
