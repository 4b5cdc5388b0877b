"""Plain messages become `ag_ui.core` models as pydantic would make them, and no two models share anything that can change."""

from __future__ import annotations

from typing import Any

import ag_ui.core as ag
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_messages import convert_plain_messages
from ambient_runner.protocol.agui_models import input_to_agui
from tests.protocol.strategies import MESSAGES

OPTIONAL: dict[str, Any] = {
    "name": st.none() | st.text(),
    "metadata": st.none() | st.just({"k": [1]}),
    "encrypted_value": st.none() | st.text(),
    "subagent_run_id": st.none() | st.just("s1"),
}
CALLS = st.builds(
    e.ToolCall,
    id=st.text(),
    function=st.builds(e.FunctionCall, name=st.text(), arguments=st.text()),
    encrypted_value=st.none() | st.none() | st.text(),
    metadata=st.none() | st.none() | st.just({"k": [1]}),
)
CONTENTS = st.none() | st.text()
PLAIN = st.one_of(
    st.builds(e.UserMessage, id=st.text(), content=st.text()),
    st.builds(e.AssistantMessage, id=st.text(), content=CONTENTS),
    st.builds(e.UserMessage, id=st.text(), content=st.just([e.TextPart(text="part")]) | st.text(), **OPTIONAL),
    st.builds(e.AssistantMessage, id=st.text(), content=st.text(), tool_calls=st.none() | st.just([]), **OPTIONAL),
    st.builds(e.AssistantMessage, id=st.text(), content=CONTENTS, tool_calls=st.lists(CALLS, max_size=3)),
    st.builds(e.AssistantMessage, id=st.text(), content=CONTENTS, tool_calls=st.lists(CALLS, max_size=1), **OPTIONAL),
    st.builds(e.ToolMessage, id=st.text(), tool_call_id=st.text(), content=st.text(), error=st.none() | st.text()),
    st.builds(
        e.ToolMessage,
        id=st.text(),
        tool_call_id=st.text(),
        content=st.just([e.TextPart(text="part")]) | st.text(),
        **{name: values for name, values in OPTIONAL.items() if name != "name"},
    ),
    st.builds(e.SystemMessage, id=st.text(), content=st.text()),
    st.builds(e.ReasoningMessage, id=st.text(), content=st.text()),
    st.builds(
        e.ReasoningMessage,
        id=st.text(),
        content=st.text(),
        **{name: values for name, values in OPTIONAL.items() if name != "name"},
    ),
)

FUNCTION = e.FunctionCall(name="f", arguments="{}")
CALL_MESSAGE = e.AssistantMessage(id="a", tool_calls=[e.ToolCall(id="c", function=FUNCTION)])


def convert_through_json(run_input: e.RunAgentInput) -> ag.RunAgentInput:
    return ag.RunAgentInput.model_validate(
        {"state": {}, "forwardedProps": {}} | msgspec.json.decode(msgspec.json.encode(run_input))
    )


@given(st.lists(PLAIN | MESSAGES, max_size=6))
def test_the_models_are_those_that_pydantic_makes_of_the_json(messages: list[e.Message]) -> None:
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=messages)
    model, plain = input_to_agui(run_input), convert_through_json(run_input)
    assert model == plain
    assert model.model_dump_json(by_alias=True) == plain.model_dump_json(by_alias=True)
    assert model.model_dump_json(exclude_unset=True) == plain.model_dump_json(exclude_unset=True)
    assert [vars(each) for each in model.messages] == [vars(each) for each in plain.messages]
    assert list(map(type, model.messages)) == list(map(type, plain.messages))


def test_an_adapter_that_changes_a_message_changes_no_other_one() -> None:
    messages: list[e.Message] = [
        e.UserMessage(id="u", content="hi"),
        e.AssistantMessage(id="a", content="hello"),
        CALL_MESSAGE,
        e.ToolMessage(id="r", tool_call_id="c", content="done"),
    ]
    for model in convert_plain_messages(messages):
        model.content, model.name, model.more = "changed", "changed", "changed"
        for call in model.__dict__.get("tool_calls") or ():
            call.id, call.function.name, call.function.more, call.more = "changed", "changed", "changed", "changed"
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=messages)
    assert input_to_agui(run_input) == convert_through_json(run_input)
    assert input_to_agui(run_input).model_dump(exclude_unset=True) == convert_through_json(run_input).model_dump(
        exclude_unset=True
    )


def test_only_messages_of_texts_and_tool_calls_are_converted_without_pydantic() -> None:
    messages: list[e.Message] = [
        e.UserMessage(id="u", content="hi", name="Ada", subagent_run_id="s1"),
        CALL_MESSAGE,
        e.ToolMessage(id="r", tool_call_id="c", content="failed", error="E1", encrypted_value="x"),
        e.ReasoningMessage(id="t", content="hm", encrypted_value="x"),
        e.UserMessage(id="u", content="hi", metadata={}),
        e.AssistantMessage(id="a", tool_calls=[]),
        e.AssistantMessage(id="a", tool_calls=[e.ToolCall(id="c", function=FUNCTION, metadata={})]),
        e.ToolMessage(id="r", tool_call_id="c", content=[e.TextPart(text="part")]),
        e.ActivityMessage(id="y", activity_type="plan", content={}),
    ]
    is_converted = [model is not None for model in convert_plain_messages(messages)]
    assert is_converted == [True] * 4 + [False] * 5
