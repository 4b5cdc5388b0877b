"""A run that gets the models of the last one again cannot tell: neither that one's changes nor anything it has kept reaches them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.message_models import MessageModels
from tests.protocol.test_agui_messages import TEXTS

CONVERSATION: list[e.Message] = [
    e.UserMessage(id="u1", content="hi"),
    e.AssistantMessage(id="a1", content="hello"),
    e.ToolMessage(id="r1", tool_call_id="c", content="done"),
    e.UserMessage(id="u2", content="more"),
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


CHANGES: list[Callable[[Any], Any]] = [set_content, mark_content, set_name, set_extra, set_again, set_fields]
HOLDERS: list[Callable[[Any], Any]] = [
    keep_model,
    keep_fields,
    keep_fields_set,
    keep_extra,
    keep_weakly,
    keep_method,
]


def convert(messages: list[e.Message], reused: MessageModels | None = None) -> Any:
    return input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=messages), reused)


def describe_models(models: list[Any]) -> list[Any]:
    return [
        (type(each), each.__dict__.copy(), type(each.content), each.model_fields_set.copy(), dict(each.model_extra))
        for each in models
    ]


def parts_of(models: list[Any]) -> set[int]:
    """Return the ids of everything that can change in these models."""
    return {id(part) for each in models for part in (each, each.__dict__, each.model_fields_set, each.model_extra)}


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


def test_a_run_that_keeps_its_input_keeps_its_own_models() -> None:
    reused = MessageModels()
    kept = convert(CONVERSATION, reused)
    after = convert(CONVERSATION, reused).messages
    assert not parts_of(kept.messages) & parts_of(after)
    kept.messages[0].content = "changed"
    assert describe_models(after) == describe_models(convert(CONVERSATION).messages)


@given(
    st.lists(TEXTS, min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.integers(0, 6),
            st.lists(TEXTS, max_size=3),
            st.lists(st.tuples(st.integers(0, 8), st.sampled_from([*CHANGES, *HOLDERS])), max_size=3),
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
