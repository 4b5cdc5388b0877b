"""Text for a model that every bridge shares."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.content import context_text
from ambient_runner.protocol.events import Context


def test_the_context_of_a_request_is_a_list_under_a_heading() -> None:
    entries = [Context(description="page", value="cart"), Context(description="theme", value="dark")]
    assert context_text(entries) == "Context of this request:\n- page: cart\n- theme: dark"


def test_a_request_without_context_has_no_text() -> None:
    assert context_text([]) == ""
