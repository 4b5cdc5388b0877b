"""A run that gets the models of the last one again cannot tell: neither that one's changes nor anything it has kept reaches them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import ag_ui.core as ag
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.message_models import MessageModels
from tests.protocol.test_agui_messages import CALL_MESSAGE, PLAIN

CONVERSATION: list[e.Message] = [
    e.UserMessage(id="u1", content="hi"),
    e.AssistantMessage(id="a1", content="hello"),
    e.SystemMessage(id="s1", content="speak up"),
    e.UserMessage(id="u2", content="more"),
]
CALLS: list[e.Message] = [
    e.UserMessage(id="u1", content="hi"),
    CALL_MESSAGE,
    e.ToolMessage(id="r1", tool_call_id="c", content="done"),
]


class Marked(str):
    """A text that a framework has marked, as `markupsafe.Markup` does."""

    __slots__ = ()


def set_content(model: Any) -> None:
    model.content = "changed"


def mark_content(model: Any) -> None:
    model.content = Marked(model.content)


def set_name(model: Any) -> None:
    model.name = "changed"


def set_extra(model: Any) -> None:
    model.more = "changed"


def set_again(model: Any) -> None:
    model.name = None  # Equal, and counts as set.


def set_fields(model: Any) -> None:
    model.__dict__["content"] = "changed"


def keep_model(model: Any) -> Any:
    return model


def keep_fields(model: Any) -> Any:
    return model.__dict__


def keep_fields_set(model: Any) -> Any:
    return model.model_fields_set


def keep_extra(model: Any) -> Any:
    return model.model_extra


def keep_weakly(model: Any) -> Any:
    return weakref.ref(model)


def keep_method(model: Any) -> Any:
    return model.model_dump


def mark_id(model: Any) -> None:
    model.id = Marked(model.id)


CHANGES: list[Callable[[Any], Any]] = [set_content, mark_content, mark_id, set_name, set_extra, set_again, set_fields]
HOLDERS: list[Callable[[Any], Any]] = [
    keep_model,
    keep_fields,
    keep_fields_set,
    keep_extra,
    keep_weakly,
    keep_method,
]


def first_call(model: Any) -> Any:
    """Return the first tool call of a message, or the message itself."""
    calls = model.__dict__.get("tool_calls")
    return calls[0] if type(calls) is list and calls and type(calls[0]) is ag.ToolCall else model


def first_function(model: Any) -> Any:
    call = first_call(model)
    function = call.__dict__.get("function")
    return function if type(function) is ag.FunctionCall else call


def set_arguments(model: Any) -> None:
    first_function(model).arguments = "changed"


def mark_call(model: Any) -> None:
    if first_call(model) is not model:
        first_call(model).id = Marked(first_call(model).id)


def set_call_extra(model: Any) -> None:
    first_call(model).more = "changed"


def set_call_fields(model: Any) -> None:
    first_call(model).__dict__["type"] = "changed"


def set_function_again(model: Any) -> None:
    first_function(model).name = first_function(model).__dict__.get("name")


def replace_function(model: Any) -> None:
    first_call(model).function = "changed"


def replace_call(model: Any) -> None:
    model.tool_calls = ["changed"]


def replace_calls(model: Any) -> None:
    model.tool_calls = "changed"


def copy_calls(model: Any) -> None:
    model.__dict__["tool_calls"] = list(model.__dict__.get("tool_calls") or ())


def clear_calls(model: Any) -> None:
    calls = model.__dict__.get("tool_calls")
    if type(calls) is list:
        calls.clear()


def add_call(model: Any) -> None:
    calls = model.__dict__.get("tool_calls")
    if type(calls) is list:
        calls.append(first_call(model))


def keep_calls(model: Any) -> Any:
    return model.__dict__.get("tool_calls")


def keep_call(model: Any) -> Any:
    return first_call(model)


def keep_call_weakly(model: Any) -> Any:
    return weakref.ref(first_call(model))


def keep_function(model: Any) -> Any:
    return first_function(model)


def keep_function_fields(model: Any) -> Any:
    return first_function(model).__dict__


def mark_tool_name(model: Any) -> None:
    if first_function(model) is not model:
        first_function(model).name = Marked(first_function(model).__dict__.get("name", ""))


def keep_equal_function(model: Any) -> Any:
    """Put an equal function in place of ours, and keep it: each part has as many holders as before."""
    kept = first_function(model).model_copy(deep=True)
    if first_call(model) is not model:
        first_call(model).function = kept
    return kept


def keep_equal_calls(model: Any) -> Any:
    kept = [call.model_copy(deep=True) for call in model.__dict__.get("tool_calls") or ()]
    if kept:
        model.tool_calls = kept
    return [kept, *kept, *(call.function for call in kept)]


def keep_equal_call(model: Any) -> Any:
    calls = model.__dict__.get("tool_calls")
    if not (type(calls) is list and calls and type(calls[0]) is ag.ToolCall):
        return None
    calls[0] = calls[0].model_copy(deep=True)
    return [calls[0], calls[0].__dict__.get("function")]


CALL_CHANGES: list[Callable[[Any], Any]] = [
    set_arguments,
    mark_call,
    set_call_extra,
    set_call_fields,
    replace_function,
    replace_call,
    replace_calls,
    clear_calls,
    add_call,
    mark_tool_name,
]
CALL_HOLDERS: list[Callable[[Any], Any]] = [
    keep_calls,
    keep_call,
    keep_call_weakly,
    keep_function,
    keep_function_fields,
    keep_equal_function,
    keep_equal_call,
    keep_equal_calls,
]
TOUCHES = [*CHANGES, *HOLDERS, *CALL_CHANGES, *CALL_HOLDERS, copy_calls, set_function_again]


def convert(messages: list[e.Message], reused: MessageModels | None = None) -> Any:
    return input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=messages), reused)


def with_calls(models: list[Any]) -> list[Any]:
    """Return these models and those in them, in order."""
    calls = [call for each in models for call in each.__dict__.get("tool_calls") or ()]
    return [*models, *calls, *(call.function for call in calls)]


def describe_models(models: list[Any]) -> list[Any]:
    return [
        (
            type(each),
            {name: value for name, value in each.__dict__.items() if name not in {"tool_calls", "function"}},
            len(each.__dict__.get("tool_calls") or ()),
            {name: type(value) for name, value in each.__dict__.items()},
            each.model_fields_set.copy(),
            dict(each.model_extra),
        )
        for each in with_calls(models)
    ]


def parts_of(models: list[Any]) -> set[int]:
    """Return the ids of everything that can change in these models."""
    lists = {id(calls) for each in models if (calls := each.__dict__.get("tool_calls")) is not None}
    return lists | {
        id(part)
        for each in with_calls(models)
        for part in (each, each.__dict__, each.model_fields_set, each.model_extra)
    }


def test_the_models_of_the_last_run_are_used_again() -> None:
    reused = MessageModels()
    first = [id(model) for model in convert(CONVERSATION, reused).messages]
    again = convert([*CONVERSATION, e.AssistantMessage(id="a2", content="that is all")], reused).messages
    assert [id(model) for model in again[:2]] == first[:2]
    assert id(again[3]) == first[3]
    assert describe_models(again[:4]) == describe_models(convert(CONVERSATION).messages)


@pytest.mark.parametrize("touch", [*CHANGES, *HOLDERS])
def test_a_model_that_a_run_has_changed_or_kept_is_given_to_no_other(touch: Callable[[Any], Any]) -> None:
    reused = MessageModels()
    models = convert(CONVERSATION, reused).messages
    before = [id(model) for model in models]
    touched = models[1]
    kept = touch(touched)
    parts = parts_of([touched])
    stays = touched  # So that no new model has its address.
    del models, touched
    if touch in CHANGES:
        holder, stays = weakref.ref(stays), None
        assert holder() is not None  # Only the models of the next run hold it.
        del holder
    after = convert(CONVERSATION, reused).messages
    assert describe_models(after) == describe_models(convert(CONVERSATION).messages)
    assert [id(after[0]), id(after[3])] == [before[0], before[3]]
    if touch in HOLDERS:
        assert not parts & parts_of(after)
    del kept, stays


def test_the_models_of_calls_and_results_are_used_again() -> None:
    reused = MessageModels()
    first = [id(model) for model in with_calls(convert(CALLS, reused).messages)]
    again = convert([*CALLS, CALL_MESSAGE], reused).messages
    assert [id(model) for model in with_calls(again[:3])] == first
    del again
    third = convert([*CALLS, CALL_MESSAGE, *CALLS], reused).messages
    assert [id(model) for model in with_calls(third[:3])] == first
    assert describe_models(third) == describe_models(convert([*CALLS, CALL_MESSAGE, *CALLS]).messages)


@pytest.mark.parametrize("touch", [*CALL_CHANGES, *CALL_HOLDERS, copy_calls, set_function_again])
def test_a_call_that_a_run_has_changed_or_kept_is_given_to_no_other(touch: Callable[[Any], Any]) -> None:
    reused = MessageModels()
    for _ in range(3):
        kept = touch(convert(CALLS, reused).messages[1])
        after = convert(CALLS, reused).messages
        assert describe_models(after) == describe_models(convert(CALLS).messages)
        if touch in CALL_HOLDERS:
            assert id(kept) not in parts_of(after) | {id(each.__dict__) for each in with_calls(after)}
            if touch is keep_call_weakly:
                assert kept() is None
        del after
        reusable = convert(CALLS, reused).messages
        held = [id(each) for each in with_calls(reusable)]
        del reusable
        assert [id(each) for each in with_calls(convert(CALLS, reused).messages)] == held
        del kept


def test_a_run_that_keeps_its_input_keeps_its_own_models() -> None:
    reused = MessageModels()
    kept = convert(CONVERSATION, reused)
    after = convert(CONVERSATION, reused).messages
    assert not parts_of(kept.messages) & parts_of(after)
    kept.messages[0].content = "changed"
    assert describe_models(after) == describe_models(convert(CONVERSATION).messages)


@given(
    st.lists(PLAIN, min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.integers(0, 6),
            st.lists(PLAIN, max_size=3),
            st.lists(st.tuples(st.integers(0, 8), st.sampled_from(TOUCHES)), max_size=3),
        ),
        max_size=4,
    ),
)
def test_every_run_gets_what_it_would_without_reuse(
    messages: list[e.Message],
    runs: list[tuple[int, list[e.Message], list[tuple[int, Callable[[Any], Any]]]]],
) -> None:
    reused, held, size = MessageModels(), list[Any](), 0
    for kept_count, added, touches in [(len(messages), [], []), *runs]:
        messages = [*messages[:kept_count], *added]
        run_input = convert(messages, reused)
        assert describe_models(run_input.messages) == describe_models(convert(messages).messages)
        assert not parts_of(run_input.messages) & {id(part) for part in held}
        for at, touch in touches:
            if at < len(messages):
                held.append(touch(run_input.messages[at]))
        size = reused.size
        del run_input
    assert reused.size == size >= 0
    reused.convert([])
    assert reused.size == 0
