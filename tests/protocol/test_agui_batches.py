"""Messages that are validated in batches become the models that they become at once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol import agui_batches, events
from ambient_runner.protocol.agui_batches import MAX_BATCH, count_models, validate_messages
from ambient_runner.protocol.agui_models import input_to_agui
from tests.protocol.strategies import MESSAGES
from tests.protocol.test_agui_messages import convert_through_json

CALL = events.ToolCall(id="c", function=events.FunctionCall(name="n", arguments="{}"))
WIDE = st.one_of(
    st.builds(
        events.UserMessage, id=st.text(), content=st.lists(st.builds(events.TextPart, text=st.text()), max_size=9)
    ),
    st.builds(events.AssistantMessage, id=st.text(), tool_calls=st.lists(st.just(CALL), max_size=9)),
)


def run_input_of(messages: list[events.Message]) -> events.RunAgentInput:
    return events.RunAgentInput(thread_id="t", run_id="r", messages=messages)


@given(messages=st.lists(WIDE | MESSAGES, max_size=6), size=st.integers(1, 9))
def test_batches_of_any_size_make_the_same_models(messages: list[events.Message], size: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(agui_batches, "MAX_BATCH", size)
        models = validate_messages(messages)
    expected = convert_through_json(run_input_of(messages)).messages
    assert models == expected
    assert [vars(each) for each in models] == [vars(each) for each in expected]
    assert [each.model_fields_set for each in models] == [each.model_fields_set for each in expected]


def test_an_input_with_many_parts_and_calls_is_converted_as_a_small_one_is() -> None:
    messages: list[events.Message] = [
        events.UserMessage(id="u1", content="hi"),
        events.UserMessage(id="u2", content=[events.TextPart(text=f"{at}") for at in range(MAX_BATCH + 1)]),
        events.AssistantMessage(id="a", tool_calls=[CALL] * (2 * MAX_BATCH)),
        *(events.ToolMessage(id=f"r{at}", tool_call_id="c", content="done") for at in range(MAX_BATCH)),
    ]
    run_input = run_input_of(messages)
    assert count_models(messages) == 4 * MAX_BATCH + 4
    assert input_to_agui(run_input) == convert_through_json(run_input)
    assert msgspec.json.decode(input_to_agui(run_input).model_dump_json(exclude_unset=True)) == msgspec.json.decode(
        convert_through_json(run_input).model_dump_json(exclude_unset=True)
    )
