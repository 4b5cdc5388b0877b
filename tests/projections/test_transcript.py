"""Messages as they are folded from events. That the official clients agree is proved in e2e/test_official_reducer.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivityMessage,
    ActivitySnapshot,
    AssistantMessage,
    DeveloperMessage,
    FunctionCall,
    MessagesSnapshot,
    ReasoningEncryptedValue,
    ReasoningMessage,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunAgentInput,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    UserMessage,
)
from ambient_runner.protocol.limits import MAX_MESSAGE_DEPTH, nesting_depth
from tests.machine_speed import cpu_ratio

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event, Message


def folded(*events: Event, after: Transcript | None = None) -> Transcript:
    transcript = after or Transcript()
    for event in events:
        transcript.apply(event)
    return transcript


def text_events(message_id: str, text: str) -> list[Event]:
    return [TextMessageStart(message_id=message_id), TextMessageContent(message_id=message_id, delta=text)]


def tool_call(call_id: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name="tool", arguments=arguments))


def test_deltas_are_joined_and_metadata_of_start_content_and_end_is_merged() -> None:
    transcript = folded(
        TextMessageStart(message_id="a", name="bot", metadata={"x": 1, "y": 1}),
        TextMessageContent(message_id="a", delta="Hel"),
        TextMessageContent(message_id="a", delta="lo", metadata={"y": 2}),
        TextMessageEnd(message_id="a", metadata={"z": 3}),
    )
    expected = AssistantMessage(id="a", name="bot", content="Hello", metadata={"x": 1, "y": 2, "z": 3})
    assert transcript.messages() == [expected]


def test_messages_may_be_read_while_they_grow() -> None:
    transcript = folded(*text_events("a", "one"))
    before = transcript.messages()
    folded(TextMessageContent(message_id="a", delta=" two"), after=transcript)
    assert before == [AssistantMessage(id="a", content="one")]
    assert transcript.messages() == [AssistantMessage(id="a", content="one two")]


def test_a_delta_of_an_unknown_message_changes_nothing() -> None:
    assert folded(TextMessageContent(message_id="a", delta="x"), TextMessageEnd(message_id="a")).messages() == []


def test_developer_reasoning_and_activity_messages_stand_where_they_began() -> None:
    transcript = folded(
        ReasoningMessageStart(message_id="r"),
        TextMessageStart(message_id="d", role="developer"),
        ActivitySnapshot(message_id="p", activity_type="plan", content={"n": [1]}),
        ReasoningMessageContent(message_id="r", delta="hm"),
        TextMessageContent(message_id="d", delta="note"),
        ActivityDelta(
            message_id="p",
            activity_type="plan",
            patch=[{"op": "add", "path": "/n/-", "value": 2}],
            metadata={"k": 1},
        ),
        ReasoningMessageEnd(message_id="r"),
        ReasoningEncryptedValue(subtype="message", entity_id="r", encrypted_value="secret"),
    )
    assert transcript.messages() == [
        ReasoningMessage(id="r", content="hm", encrypted_value="secret"),
        DeveloperMessage(id="d", content="note"),
        ActivityMessage(id="p", activity_type="plan", content={"n": [1, 2]}, metadata={"k": 1}),
    ]


def test_an_activity_patch_does_not_change_the_snapshot_event_it_started_from() -> None:
    event = ActivitySnapshot(message_id="p", activity_type="plan", content={"n": [1]})
    folded(
        event, ActivityDelta(message_id="p", activity_type="plan", patch=[{"op": "add", "path": "/n/-", "value": 2}])
    )
    assert event.content == {"n": [1]}


def test_parallel_calls_share_their_message_and_results_follow_it_in_order_of_arrival() -> None:
    transcript = folded(
        *text_events("a", "looking"),
        ToolCallStart(tool_call_id="c1", tool_call_name="tool", parent_message_id="a"),
        ToolCallStart(tool_call_id="c2", tool_call_name="tool", parent_message_id="a"),
        ToolCallArgs(tool_call_id="c2", delta="{"),
        ToolCallArgs(tool_call_id="c1", delta="[]"),
        ToolCallArgs(tool_call_id="c2", delta="}"),
        ToolCallEnd(tool_call_id="c1"),
        ToolCallEnd(tool_call_id="c2", metadata={"m": 1}),
        ReasoningEncryptedValue(subtype="tool-call", entity_id="c1", encrypted_value="e"),
        *text_events("b", "later"),
        ToolCallResult(message_id="t2", tool_call_id="c2", content="two"),
        ToolCallResult(message_id="t1", tool_call_id="c1", content="one", metadata={"ms": 3}),
    )
    first = ToolCall(id="c1", function=FunctionCall(name="tool", arguments="[]"), encrypted_value="e")
    second = ToolCall(id="c2", function=FunctionCall(name="tool", arguments="{}"), metadata={"m": 1})
    assert transcript.messages() == [
        AssistantMessage(id="a", content="looking", tool_calls=[first, second]),
        ToolMessage(id="t2", tool_call_id="c2", content="two"),
        ToolMessage(id="t1", tool_call_id="c1", content="one", metadata={"ms": 3}),
        AssistantMessage(id="b", content="later"),
    ]


@pytest.mark.parametrize("parents", [1, 2, 20])
def test_the_cost_of_many_results_is_linear(parents: int) -> None:
    """The end of a message's results was searched from its beginning: 20,000 calls of one turn stopped the server for minutes."""

    def fold(count: int) -> None:
        calls = [
            ToolCallStart(tool_call_id=f"c{at}", tool_call_name="look", parent_message_id=f"m{at % parents}")
            for at in range(count)
        ]
        results = [ToolCallResult(message_id=f"r{at}", tool_call_id=f"c{at}", content="x") for at in range(count)]
        assert len(folded(*calls, *results).messages()) == parents + count

    assert cpu_ratio(lambda: fold(8_000), lambda: fold(800)) < 25


def test_a_call_without_a_parent_gets_a_message_of_its_own() -> None:
    start = ToolCallStart(tool_call_id="c", tool_call_name="tool", subagent_run_id="s")
    assert folded(start).messages() == [
        AssistantMessage(id="c", subagent_run_id="s", tool_calls=[tool_call("c", "")]),
    ]


def test_a_call_started_again_keeps_its_arguments() -> None:
    start = ToolCallStart(tool_call_id="c", tool_call_name="old")
    again = ToolCallStart(tool_call_id="c", tool_call_name="tool")
    transcript = folded(start, ToolCallArgs(tool_call_id="c", delta="{}"), again)
    assert transcript.messages() == [AssistantMessage(id="c", tool_calls=[tool_call("c")])]


def started(*messages: Message) -> RunStarted:
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=list(messages))
    return RunStarted(thread_id="t", run_id="r", input=run_input)


def test_messages_of_the_input_are_appended_once() -> None:
    first, second = UserMessage(id="u1", content="hi"), UserMessage(id="u2", content="more")
    changed = UserMessage(id="u1", content="forged")
    assert folded(started(first), started(changed, second)).messages() == [first, second]


def test_an_empty_snapshot_is_a_marker_and_changes_nothing() -> None:
    transcript = folded(*text_events("a", "x"), MessagesSnapshot(messages=[]))
    assert transcript.messages() == [AssistantMessage(id="a", content="x")]


def test_a_snapshot_of_the_agent_changes_known_messages_in_place_and_drops_those_it_leaves_out() -> None:
    new = AssistantMessage(id="new", tool_calls=[tool_call("c")])
    transcript = folded(
        ReasoningMessageStart(message_id="r"),
        *text_events("a", "x"),
        *text_events("gone", "y"),
        MessagesSnapshot(messages=[new, AssistantMessage(id="a", content="X")]),
        ToolCallArgs(tool_call_id="c", delta=" "),
        TextMessageContent(message_id="a", delta="!"),
    )
    assert transcript.messages() == [
        ReasoningMessage(id="r", content=""),
        AssistantMessage(id="a", content="X!"),
        AssistantMessage(id="new", tool_calls=[tool_call("c", "{} ")]),
    ]


def test_a_rewind_removes_later_messages_and_frees_their_ids() -> None:
    user = UserMessage(id="u1", content="hi")
    transcript = folded(
        started(user),
        *text_events("a", "x"),
        ToolCallStart(tool_call_id="c", tool_call_name="tool", parent_message_id="a"),
    )
    assert transcript.all_ids() == {"u1", "a", "c"}
    transcript.rewind("nowhere")
    assert transcript.all_ids() == {"u1", "a", "c"}
    transcript.rewind("u1")
    assert transcript.messages() == [user]
    assert transcript.all_ids() == {"u1"}


def test_a_copy_is_independent() -> None:
    transcript = folded(
        *text_events("a", "x"), ToolCallStart(tool_call_id="c", tool_call_name="tool", parent_message_id="a")
    )
    copied = transcript.copy()
    folded(TextMessageContent(message_id="a", delta="y"), ToolCallArgs(tool_call_id="c", delta="{}"), after=transcript)
    assert copied.messages() == [AssistantMessage(id="a", content="x", tool_calls=[tool_call("c", "")])]
    assert transcript.messages() == [AssistantMessage(id="a", content="xy", tool_calls=[tool_call("c")])]


def test_messages_and_calls_are_found_by_id() -> None:
    transcript = folded(
        *text_events("a", "x"), ToolCallStart(tool_call_id="c", tool_call_name="tool", parent_message_id="a")
    )
    assert transcript.find_message("a") == AssistantMessage(id="a", content="x", tool_calls=[tool_call("c", "")])
    assert transcript.find_call("c") == tool_call("c", "")
    assert (transcript.find_message("b"), transcript.find_call("d")) == (None, None)


def test_an_activity_is_not_multiplied_or_nested_without_end() -> None:
    seed = {"a": ["x" * (1 << 20)]}
    copies = [
        ActivityDelta(message_id="act", activity_type="plan", patch=[{"op": "copy", "from": "/a", "path": f"/{n}"}])
        for n in range(20)
    ]
    deeper = [
        ActivityDelta(message_id="act", activity_type="plan", patch=[{"op": "add", "path": "/d" * n, "value": {}}])
        for n in range(1, 200)
    ]
    transcript = folded(ActivitySnapshot(message_id="act", activity_type="plan", content=seed), *copies, *deeper)
    [activity] = transcript.messages()
    assert isinstance(activity, ActivityMessage)
    assert (len(activity.content), nesting_depth(activity.content)) == (8, MAX_MESSAGE_DEPTH)


IDS = st.sampled_from("abc")
METADATA = st.none() | st.just({"x": 1})
EVENTS = st.one_of(
    st.builds(TextMessageStart, message_id=IDS, metadata=METADATA),
    st.builds(TextMessageContent, message_id=IDS, delta=st.sampled_from(["one ", "two "]), metadata=METADATA),
    st.builds(TextMessageEnd, message_id=IDS, metadata=METADATA),
    st.builds(ReasoningMessageStart, message_id=IDS),
    st.builds(ReasoningMessageContent, message_id=IDS, delta=st.just("hm "), metadata=METADATA),
    st.builds(ToolCallStart, tool_call_id=IDS, tool_call_name=st.just("tool"), parent_message_id=st.none() | IDS),
    st.builds(ToolCallArgs, tool_call_id=IDS, delta=st.just("{}"), metadata=METADATA),
    st.builds(ToolCallResult, message_id=st.sampled_from("rs"), tool_call_id=IDS, content=st.just("ok")),
    st.builds(
        ActivitySnapshot,
        message_id=IDS,
        activity_type=st.just("plan"),
        content=st.just({"n": 1}),
        replace=st.sampled_from([None, False]),
        metadata=METADATA,
    ),
    st.builds(
        ActivityDelta,
        message_id=IDS,
        activity_type=st.just("plan"),
        patch=st.just([{"op": "add", "path": "/more", "value": 2}]),
    ),
    st.builds(
        ReasoningEncryptedValue,
        subtype=st.sampled_from(["message", "tool-call"]),
        entity_id=IDS,
        encrypted_value=st.just("secret"),
    ),
    st.builds(
        MessagesSnapshot,
        messages=st.lists(
            st.builds(
                AssistantMessage, id=IDS, content=st.just("whole"), tool_calls=st.none() | st.just([tool_call("a")])
            ),
            max_size=2,
        ),
    ),
)


def read_and_append(count: int) -> None:
    transcript = Transcript(AssistantMessage(id=f"m{n}", content="") for n in range(count))
    for n in range(count):
        transcript.append_text(f"m{n}", "x")
    assert [message.content for message in transcript.messages()] == ["x"] * count


def test_text_that_is_appended_to_any_message_costs_the_same() -> None:
    """Each message was searched for from the end: 20,000 messages that alternate stopped the server for 3 seconds."""
    assert cpu_ratio(lambda: read_and_append(8_000), lambda: read_and_append(2_000)) < 8


def test_messages_are_found_while_others_are_inserted_before_them() -> None:
    """A tool's result is placed behind its call, so the indexes of all later messages grow."""
    count = 300
    transcript = folded(*(ToolCallStart(tool_call_id=f"c{n}", tool_call_name="tool") for n in range(count)))
    transcript.messages()
    for n in range(count):
        folded(ToolCallResult(message_id=f"t{n}", tool_call_id=f"c{n}", content="ok"), after=transcript)
        folded(ToolCallArgs(tool_call_id=f"c{count - 1 - n}", delta="x"), after=transcript)
    assert [message.id for message in transcript.messages()] == [f"{kind}{n}" for n in range(count) for kind in "ct"]
    assert all(transcript.find_call(f"c{n}") == tool_call(f"c{n}", "x") for n in range(count))


@given(before=st.lists(EVENTS, max_size=12), ours=st.lists(EVENTS, max_size=8), theirs=st.lists(EVENTS, max_size=8))
def test_a_copy_and_its_original_fold_as_if_they_shared_nothing(
    before: list[Event], ours: list[Event], theirs: list[Event]
) -> None:
    original = folded(*before)
    copied = original.copy()
    for at in range(max(len(ours), len(theirs))):
        folded(*ours[at : at + 1], after=original)
        folded(*theirs[at : at + 1], after=copied)
    assert original.messages() == folded(*before, *ours).messages()
    assert copied.messages() == folded(*before, *theirs).messages()


@given(events=st.lists(EVENTS, max_size=20), reads=st.sets(st.integers(0, 20)), most=st.integers(0, 4))
def test_reading_changes_nothing(events: list[Event], reads: set[int], most: int) -> None:
    read, unread = Transcript(), folded(*events)
    for at, event in enumerate(events):
        if at in reads:
            read.messages()
        read.apply(event)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("ambient_runner.projections.transcript._MAX_STREAMED", most)
            read.settle_if_many()
    assert read.messages() == unread.messages()
    assert [read.find_call(each) for each in "abc"] == [unread.find_call(each) for each in "abc"]
    assert read.all_ids() == unread.all_ids()
    assert read.estimated_bytes == Transcript(read.messages()).estimated_bytes
