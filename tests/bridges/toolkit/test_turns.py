"""The conversation as a model has to see it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.bridges.toolkit.turns import (
    EMPTY_RESULT,
    MISSING_RESULT,
    AssistantTurn,
    NewInput,
    ResultsTurn,
    SystemTurn,
    Turn,
    TurnToolCall,
    TurnToolResult,
    UserTurn,
    find_new_input,
    to_turns,
    unanswered_tool_calls,
)
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    DeveloperMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    ResumeEntry,
    RunAgentInput,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.hypothesis_profiles import examples

thorough = examples(400)


def user(name: str = "u1", text: str = "hi") -> UserMessage:
    return UserMessage(id=name, content=text)


def says(name: str, text: str | None, *calls: str, arguments: str = "{}", **more: Any) -> AssistantMessage:
    made = [ToolCall(id=one, function=FunctionCall(name="look", arguments=arguments)) for one in calls]
    return AssistantMessage(id=name, content=text, tool_calls=made or None, **more)


def answer(call: str, content: str = "done", name: str = "", **more: Any) -> ToolMessage:
    return ToolMessage(id=name or f"r-{call}", tool_call_id=call, content=content, **more)


def assistant_turn(ids: str, text: str, *calls: str) -> AssistantTurn:
    made = tuple(TurnToolCall(id=one, name="look", arguments="{}") for one in calls)
    return AssistantTurn(ids=tuple(ids.split()), text=text, calls=made)


def result(call: str, content: Any = "done", **more: Any) -> TurnToolResult:
    return TurnToolResult(call_id=call, name="look", content=content, **more)


def results(*given: TurnToolResult) -> ResultsTurn:
    return ResultsTurn(results=given)


def cancelled(call: str) -> TurnToolResult:
    return result(call, MISSING_RESULT, is_error=True, is_answered=False)


def test_a_whole_conversation() -> None:
    messages = [
        SystemMessage(id="s", content="be brief"),
        user(),
        says("m1", "I will look.", "c1", "c2"),
        answer("c1"),
        answer("c2", "late"),
        says("m2", "There."),
        user("u2"),
    ]
    assert to_turns(messages) == [
        SystemTurn(id="s", text="be brief"),
        UserTurn(id="u1", content="hi"),
        assistant_turn("m1", "I will look.", "c1", "c2"),
        results(result("c1"), result("c2", "late")),
        assistant_turn("m2", "There."),
        UserTurn(id="u2", content="hi"),
    ]


def test_neighbouring_messages_of_the_agent_are_one_turn() -> None:
    messages = [says("m1", "one"), says("m2", None, "c1"), says("m3", "two", "c2"), answer("c2"), answer("c1")]
    assert to_turns(messages) == [
        assistant_turn("m1 m2 m3", "one\n\ntwo", "c1", "c2"),
        results(result("c1"), result("c2")),
    ]


def test_results_stand_in_the_order_of_their_calls_wherever_they_came() -> None:
    messages = [answer("c2"), user(), says("m1", None, "c1", "c2"), user("u2"), answer("c1")]
    assert to_turns(messages) == [
        UserTurn(id="u1", content="hi"),
        assistant_turn("m1", "", "c1", "c2"),
        results(result("c1"), result("c2")),
        UserTurn(id="u2", content="hi"),
    ]


def test_an_unanswered_call_gets_a_placeholder_result() -> None:
    messages = [says("m1", None, "c1", "c2"), answer("c1"), user()]
    assert to_turns(messages)[1] == results(result("c1"), cancelled("c2"))


def test_results_of_unknown_calls_are_left_out_and_of_two_the_last_counts() -> None:
    messages = [answer("c9"), says("m1", "a", "c1"), answer("c1", "first"), answer("c9"), answer("c1", "then", "again")]
    assert to_turns(messages) == [assistant_turn("m1", "a", "c1"), results(result("c1", "then"))]


def test_a_result_of_an_unknown_call_does_not_split_a_turn() -> None:
    assert to_turns([says("m1", "a"), answer("c9"), says("m2", "b")]) == [assistant_turn("m1 m2", "a\n\nb")]


def test_a_call_id_that_comes_again_is_the_same_call() -> None:
    messages = [says("m1", None, "c1"), answer("c1"), says("m2", "so", "c1")]
    assert to_turns(messages) == [assistant_turn("m1", "", "c1"), results(result("c1")), assistant_turn("m2", "so")]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (answer("c1", "no", error="timeout"), result("c1", "no", is_error=True)),
        (answer("c1", "", error="timeout"), result("c1", "timeout", is_error=True)),
        (answer("c1", "", error=""), result("c1", EMPTY_RESULT, is_error=True)),
        (answer("c1", "no", metadata={"isError": True}), result("c1", "no", is_error=True)),
        (answer("c1", ""), result("c1", EMPTY_RESULT)),
        (ToolMessage(id="r", tool_call_id="c1", content=[]), result("c1", EMPTY_RESULT)),
        (ToolMessage(id="r", tool_call_id="c1", content=[TextPart(text="a")]), result("c1", [TextPart(text="a")])),
    ],
    ids=repr,
)
def test_errors_and_empty_results_reach_the_model_as_such(message: ToolMessage, expected: TurnToolResult) -> None:
    assert to_turns([says("m1", None, "c1"), message])[-1] == results(expected)


DEEP = '{"a":' + "[" * 20_000 + "]" * 20_000 + "}"
RATHER_DEEP = '{"a":' + "[" * 900 + "]" * 900 + "}"
LONG_NUMBER = '{"a":' + "9" * 5_000 + "}"
HALF_A_CHARACTER = '{"a":"\\ud800"}'


@pytest.mark.parametrize(
    "arguments",
    ["", '{"ci', "[1]", "null", '"x"', "{} {}", '{"a":NaN}', DEEP, RATHER_DEEP, LONG_NUMBER, HALF_A_CHARACTER],
)
def test_arguments_that_are_no_json_object_become_an_empty_one(arguments: str) -> None:
    made = to_turns([says("m1", None, "c1", arguments=arguments)])[0]
    assert made == assistant_turn("m1", "", "c1")


def test_arguments_stay_as_they_were_written() -> None:
    written = '{ "a":1.0, "b": [true] }'
    made = to_turns([says("m1", None, "c1", arguments=written)])[0]
    assert isinstance(made, AssistantTurn)
    assert made.calls[0].arguments == written


def test_what_is_not_for_the_model_is_left_out() -> None:
    messages: list[Message] = [
        user(),
        DeveloperMessage(id="d", content="x"),
        ReasoningMessage(id="q", content="x"),
        ActivityMessage(id="a", activity_type="x", content={}),
        says("m1", "sub", "c1", subagent_run_id="s"),
        answer("c1", subagent_run_id="s"),
        says("m2", ""),
        says("m3", None),
    ]
    assert to_turns(messages) == [UserTurn(id="u1", content="hi")]


CALLS = st.sampled_from(["c1", "c2", "c3"])
SUBAGENT_IDS = st.sampled_from([None, None, None, None, None, "s1"])
TEXTS = st.sampled_from(["", "a", "b"])
SPOKEN = st.builds(
    lambda text, calls, subagent_id: says("", text, *calls, subagent_run_id=subagent_id),
    st.sampled_from([None, "", "a", "b", "c"]),
    st.just([]) | st.lists(CALLS, max_size=3),
    SUBAGENT_IDS,
)
ANSWERS = st.builds(
    lambda call, text, error, subagent_id: answer(call, text, error=error, subagent_run_id=subagent_id),
    CALLS | st.just("c9"),
    TEXTS,
    st.sampled_from([None, None, "", "failed"]),
    SUBAGENT_IDS,
)
OTHERS = st.sampled_from([UserMessage, SystemMessage, ReasoningMessage]).flatmap(
    lambda kind: st.builds(kind, id=st.just(""), content=TEXTS)
)
MESSAGES = st.lists(st.one_of(SPOKEN, SPOKEN, ANSWERS, ANSWERS, OTHERS), max_size=14).map(
    lambda found: [type(one)(**_fields(one) | {"id": f"m{n}"}) for n, one in enumerate(found)]
)


def _fields(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def messages_of(conversation: list[Turn]) -> list[Message]:
    """The plainest messages that mean these turns."""
    found: list[Message] = []
    for turn in conversation:
        match turn:
            case UserTurn():
                found.append(UserMessage(id=turn.id, content=turn.content, name=turn.name))
            case SystemTurn():
                found.append(SystemMessage(id=turn.id, content=turn.text))
            case AssistantTurn():
                calls = [
                    ToolCall(id=c.id, function=FunctionCall(name=c.name, arguments=c.arguments)) for c in turn.calls
                ]
                found.append(AssistantMessage(id=turn.ids[0], content=turn.text, tool_calls=calls))
                found += [AssistantMessage(id=one) for one in turn.ids[1:]]
            case ResultsTurn():
                found += [
                    answer(one.call_id, str(one.content), error="" if one.is_error else None)
                    for one in turn.results
                    if one.is_answered
                ]
    return found


@thorough
@given(MESSAGES)
def test_any_list_of_messages_gives_a_conversation_no_provider_refuses(messages: list[Message]) -> None:
    made = to_turns(messages)
    for turn, following in pairwise([None, *made, None]):
        match turn:
            case AssistantTurn():
                assert turn.text or turn.calls
                assert not isinstance(following, AssistantTurn)
                assert isinstance(following, ResultsTurn) == bool(turn.calls)
                if isinstance(following, ResultsTurn):
                    assert [one.call_id for one in following.results] == [one.id for one in turn.calls]
                    assert all(one.content for one in following.results)
                assert all(isinstance(json.loads(one.arguments), dict) for one in turn.calls)
            case ResultsTurn():
                assert not isinstance(following, ResultsTurn)
            case _:
                assert not isinstance(following, ResultsTurn)


@thorough
@given(MESSAGES)
def test_no_text_is_lost_and_none_is_repeated(messages: list[Message]) -> None:
    made = to_turns(messages)
    own = [message for message in messages if message.subagent_run_id is None]
    assert [t.id for t in made if isinstance(t, UserTurn)] == [m.id for m in own if isinstance(m, UserMessage)]
    spoken = [t.text for t in made if isinstance(t, AssistantTurn) and t.text]
    assert "\n\n".join(spoken) == "\n\n".join(m.content for m in own if isinstance(m, AssistantMessage) and m.content)
    called = [call.id for t in made if isinstance(t, AssistantTurn) for call in t.calls]
    run_input = [c.id for m in own if isinstance(m, AssistantMessage) for c in m.tool_calls or ()]
    assert called == list(dict.fromkeys(run_input))
    answered = {m.tool_call_id for m in own if isinstance(m, ToolMessage)}
    given = {r.call_id for t in made if isinstance(t, ResultsTurn) for r in t.results if r.is_answered}
    assert given == answered & set(called)


@thorough
@given(MESSAGES)
def test_a_conversation_in_canonical_form_stays_as_it_is(messages: list[Message]) -> None:
    made = to_turns(messages)
    assert to_turns(messages_of(made)) == made


def run(*messages: Message, resume: list[ResumeEntry] | None = None) -> RunAgentInput:
    return RunAgentInput(thread_id="t", run_id="r", messages=list(messages), resume=resume)


ASKED: list[Turn] = [UserTurn(id="u1", content="hi")]


def test_a_new_user_message_is_what_the_run_is_about() -> None:
    assert find_new_input(run(user(), says("m1", "yes?"), user("u2"))) == NewInput(
        history=[*ASKED, assistant_turn("m1", "yes?")], user=UserTurn(id="u2", content="hi")
    )


def test_of_a_run_with_results_and_a_message_both_are_new_if_that_is_known() -> None:
    run_input = run(user(), says("m1", None, "c1"), answer("c1"), user("u2"))
    assert find_new_input(run_input, new_ids={"u2"}) == find_new_input(run_input)
    assert find_new_input(run_input).history == [*ASKED, assistant_turn("m1", "", "c1"), results(result("c1"))]
    assert find_new_input(run_input, new_ids={"r-c1", "u2"}) == NewInput(
        history=[*ASKED, assistant_turn("m1", "", "c1")], user=UserTurn(id="u2", content="hi"), results=(result("c1"),)
    )


def test_results_at_the_end_are_what_the_run_is_about_in_the_order_of_their_calls() -> None:
    run_input = run(user(), says("m1", None, "c1", "c2"), answer("c2"), answer("c1"))
    assert find_new_input(run_input) == NewInput(
        history=[*ASKED, assistant_turn("m1", "", "c1", "c2")], results=(result("c1"), result("c2"))
    )


def test_results_that_were_there_before_stay_in_the_history() -> None:
    run_input = run(user(), says("m1", None, "c1", "c2"), answer("c1"), answer("c2"))
    assert find_new_input(run_input, new_ids={"r-c2"}) == NewInput(
        history=[*ASKED, assistant_turn("m1", "", "c1", "c2"), results(result("c1"))], results=(result("c2"),)
    )


def test_calls_a_new_message_gave_up_are_cancelled_in_the_history() -> None:
    found = find_new_input(run(user(), says("m1", None, "c1"), user("u2")), new_ids={"u2"})
    assert found.history[-1] == results(cancelled("c1"))


def test_a_run_that_resumes_is_about_the_answers() -> None:
    resume = [ResumeEntry(interrupt_id="i1", status="resolved", payload=0)]
    assert find_new_input(run(user(), resume=resume)) == NewInput(history=ASKED, resume=tuple(resume))
    both = find_new_input(run(user(), user("u2"), resume=resume), new_ids={"u2"})
    assert both == NewInput(history=ASKED, user=UserTurn(id="u2", content="hi"), resume=tuple(resume))


def test_another_try_at_the_last_message_is_about_that_message() -> None:
    assert find_new_input(run(user()), new_ids=()) == NewInput(history=[], user=UserTurn(id="u1", content="hi"))


def test_what_is_not_for_the_model_does_not_hide_what_is_new() -> None:
    found = find_new_input(run(says("m1", "yes?"), user(), ReasoningMessage(id="q", content="x")))
    assert found == NewInput(history=[assistant_turn("m1", "yes?")], user=UserTurn(id="u1", content="hi"))


@pytest.mark.parametrize("messages", [[], [says("m1", "hello")], [SystemMessage(id="s", content="x")]], ids=repr)
def test_an_input_with_nothing_new_is_about_nothing(messages: list[Message]) -> None:
    assert find_new_input(run(*messages)) == NewInput(history=to_turns(messages))


@thorough
@given(MESSAGES)
def test_what_is_new_and_what_was_before_are_the_whole_conversation(messages: list[Message]) -> None:
    found, whole = find_new_input(run(*messages)), to_turns(messages)
    kept = [r for t in found.history if isinstance(t, ResultsTurn) for r in t.results]
    every = [r for t in whole if isinstance(t, ResultsTurn) for r in t.results]
    assert sorted([*kept, *found.results], key=every.index) == every
    plain = [t for t in found.history if not isinstance(t, ResultsTurn)]
    assert plain + ([found.user] if found.user else []) == [t for t in whole if not isinstance(t, ResultsTurn)]


def test_unanswered_calls_are_those_without_a_result_whoever_made_them() -> None:
    helper = says("m2", None, "c3", subagent_run_id="s1")
    messages = [user(), says("m1", None, "c1", "c2"), answer("c2"), helper]
    assert [call.id for call in unanswered_tool_calls(messages)] == ["c1", "c3"]
