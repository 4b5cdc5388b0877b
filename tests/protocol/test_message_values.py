from __future__ import annotations

import pytest

from ambient_runner.protocol import events
from ambient_runner.protocol.message_values import measure_messages

LIMIT = 1 << 16
CALL = events.ToolCall(id="c", function=events.FunctionCall(name="n", arguments="{}"))
WIDE = {f"k{at}": at for at in range(10_000)}
PARTS: list[events.ContentPart] = [events.TextPart(text="hi")] * 2_000
LARGE: dict[str, list[events.Message]] = {
    "parts": [events.UserMessage(id="u", content=PARTS)],
    "calls": [events.AssistantMessage(id="a", tool_calls=[CALL] * 2_000)],
    "metadata": [events.UserMessage(id="u", content="hi", metadata=WIDE)],
    "activity": [events.ActivityMessage(id="p", activity_type="plan", content=WIDE)],
    "text": [events.ReasoningMessage(id="t", content="x" * 2_000_000)],
    "messages": [*(events.UserMessage(id=f"u{at}", content="x") for at in range(10_000))],
}


@pytest.mark.parametrize("name", LARGE)
def test_whatever_takes_long_to_convert_is_large(name: str) -> None:
    assert measure_messages(LARGE[name], LIMIT) > LIMIT
    assert measure_messages([events.AssistantMessage(id="a"), *LARGE[name]], LIMIT) > LIMIT


def test_an_ordinary_conversation_is_not_large() -> None:
    words = "a sentence of a conversation " * 20
    conversation: list[events.Message] = [events.UserMessage(id=f"u{at}", content=words) for at in range(500)]
    assert (
        measure_messages([*conversation, events.ToolMessage(id="r", tool_call_id="c", content="done")], LIMIT) < LIMIT
    )
