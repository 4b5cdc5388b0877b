from __future__ import annotations

import pytest

from ambient_runner.projections.thread_title import default_title, title_of_messages
from ambient_runner.protocol.events import (
    AssistantMessage,
    DataSource,
    ImagePart,
    Message,
    TextPart,
    UserMessage,
)

PICTURE = ImagePart(source=DataSource(value="aGk=", mime_type="image/png"))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Plan my trip", "Plan my trip"),
        ("  two\n\n lines\tand a tab ", "two lines and a tab"),
        ("bell\x07 and\x00null\x85", "bell and null"),
        ("x" * 81, "x" * 80),
        ("x" * 79 + " y", "x" * 79),
        ("é🎈" * 50, "é🎈" * 40),
        (" " * 5000 + "late", ""),
        ("", ""),
        ("\x00\n", ""),
    ],
)
def test_a_title_is_the_beginning_of_a_text_as_one_line(text: str, title: str) -> None:
    assert default_title(text) == title


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([], ""),
        ([AssistantMessage(id="a", content="Welcome"), UserMessage(id="u", content="hi")], "hi"),
        ([UserMessage(id="u", content=" "), UserMessage(id="v", content="hi")], "hi"),
        ([UserMessage(id="u", content=[PICTURE, TextPart(text="what is"), TextPart(text="this?")])], "what is this?"),
        ([UserMessage(id="u", content=[PICTURE])], ""),
        (
            [
                UserMessage(id="u", content="You are a workflow", metadata={"hidden": True, "autoSent": True}),
                UserMessage(id="v", content="hi", metadata={"hidden": "no"}),
            ],
            "hi",
        ),
    ],
    ids=["no message", "assistant first", "blank", "parts", "picture only", "sent by the server"],
)
def test_a_thread_is_titled_by_what_its_user_first_wrote(messages: list[Message], title: str) -> None:
    assert title_of_messages(messages) == title
