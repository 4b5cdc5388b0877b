"""The events that pre-1.0 clients receive instead. That their schemas accept it is proved in `tests/e2e/test_profiles_official.py`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ambient_runner.protocol.events import (
    AssistantMessage,
    Cancelled,
    ContentPart,
    Custom,
    DataSource,
    DocumentPart,
    Event,
    FileSource,
    ImagePart,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    ReasoningMessage,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    Success,
    TextMessageContent,
    TextMessageStart,
    TextPart,
    TokenUsage,
    ToolCallResult,
    ToolMessage,
    UrlSource,
    UserMessage,
    encode_event,
    type_of,
)
from ambient_runner.protocol.profiles import Downgrader, Profile, mark_event_only, needs_downgrade, profile_for_version

from .samples import every_event
from .strategies import CONTENTS

PICTURE = ImagePart(source=DataSource(value="aGk=", mime_type="image/png"))
FILE = DocumentPart(source=FileSource(value="file-1"))
PARTS: list[ContentPart] = [TextPart(text="see"), PICTURE, TextPart(text="this"), FILE]


def downgraded(profile: Profile, *events: Event) -> list[Event]:
    downgrader = Downgrader(profile)
    return [received for event in events for received in downgrader.feed(event)]


@pytest.mark.parametrize(
    ("version", "profile"),
    [
        ("1.0", Profile.V1),
        ("1", Profile.V1),
        ("1.1", Profile.V1),
        ("2.0.3", Profile.V1),
        (None, Profile.V0_49),
        ("", Profile.V0_49),
        ("0", Profile.V0_49),
        ("0.0", Profile.V0_49),
        ("0.0.59", Profile.V0_59),
        ("0.0.60", Profile.V0_59),
        ("0.1.20", Profile.V0_59),
        ("0.0.58", Profile.V0_49),
        ("0.0.49", Profile.V0_49),
        ("0.0.48", Profile.V0_45),
        ("0.0.45", Profile.V0_45),
        ("0.0.44", Profile.V0_42),
        ("0.0.42", Profile.V0_42),
        ("0.0.9", Profile.V0_42),
        ("latest", Profile.V0_49),
        ("1.0-beta", Profile.V0_49),
        ("9" * 5000, Profile.V0_49),
    ],
)
def test_the_declared_version_picks_the_profile(version: str | None, profile: Profile) -> None:
    assert profile_for_version(version) is profile


@pytest.mark.parametrize("profile", Profile)
def test_an_event_that_needs_no_downgrade_passes_unchanged(profile: Profile) -> None:
    for event in every_event():
        if not needs_downgrade(encode_event(event), profile):
            assert downgraded(profile, event) == [event]


@given(event=CONTENTS, profile=st.sampled_from(Profile))
def test_any_event_that_needs_no_downgrade_passes_unchanged(event: Event, profile: Profile) -> None:
    if not needs_downgrade(encode_event(event), profile):
        assert downgraded(profile, event) == [event]


def test_a_result_needs_a_downgrade_only_for_its_parts() -> None:
    text = ToolCallResult(message_id="t", tool_call_id="c", content="21 degrees")
    parts = ToolCallResult(message_id="t", tool_call_id="c", content=[TextPart(text="21 degrees")])
    assert not needs_downgrade(encode_event(text), Profile.V0_49)
    assert needs_downgrade(encode_event(parts), Profile.V0_59)


def test_ordinary_events_need_no_downgrade() -> None:
    assert {type_of(event) for event in every_event() if needs_downgrade(encode_event(event), Profile.V0_59)} == {
        "RUN_STARTED",
        "RUN_FINISHED",
        "TOOL_CALL_RESULT",
        "MESSAGES_SNAPSHOT",
    }
    assert not needs_downgrade(encode_event(TextMessageContent(message_id="m", delta="d")), Profile.V0_49)
    assert not any(needs_downgrade(encode_event(event), Profile.V1) for event in every_event())


def test_a_stop_is_an_abort() -> None:
    usage = [TokenUsage(input_tokens=1)]
    stopped = RunFinished(thread_id="t", run_id="r", outcome=Cancelled(), usage=usage, timestamp=3, metadata={"k": 1})
    assert downgraded(Profile.V0_59, stopped) == [
        RunError(message="The run was stopped.", code="abort", usage=usage, timestamp=3, metadata={"k": 1})
    ]


def test_pending_tool_calls_are_not_named() -> None:
    finished = RunFinished(thread_id="t", run_id="r", result=1, outcome=Success(pending_tool_call_ids=["c"]))
    assert downgraded(Profile.V0_59, finished) == [RunFinished(thread_id="t", run_id="r", result=1, outcome=Success())]


def test_an_interrupt_stays() -> None:
    interrupted = RunFinished(
        thread_id="t", run_id="r", outcome=Interrupted(interrupts=[Interrupt(id="i", reason="q")])
    )
    assert downgraded(Profile.V0_59, interrupted) == [interrupted]


def test_a_tool_result_becomes_text_with_a_note_for_each_medium() -> None:
    result = ToolCallResult(message_id="m", tool_call_id="c", content=PARTS)
    assert downgraded(Profile.V0_59, result) == [
        ToolCallResult(message_id="m", tool_call_id="c", content="see\n[image]\nthis\n[document]")
    ]
    assert downgraded(Profile.V0_59, ToolCallResult(message_id="m", tool_call_id="c", content=[])) == [
        ToolCallResult(message_id="m", tool_call_id="c", content="")
    ]


def test_messages_lose_only_what_cannot_be_read() -> None:
    before = [
        UserMessage(id="u1", content=PARTS),
        UserMessage(id="u2", content=[FILE]),
        UserMessage(id="u3", content=[PICTURE]),
        UserMessage(id="u4", content="plain"),
        ToolMessage(id="t1", tool_call_id="c", content=[TextPart(text="a"), PICTURE], error="e"),
    ]
    after = [
        UserMessage(id="u1", content=PARTS[:3]),
        UserMessage(id="u2", content=""),
        UserMessage(id="u3", content=[PICTURE]),
        UserMessage(id="u4", content="plain"),
        ToolMessage(id="t1", tool_call_id="c", content="a\n[image]", error="e"),
    ]

    def started(messages: list[UserMessage | ToolMessage]) -> RunStarted:
        run_input = RunAgentInput(thread_id="t", run_id="r", messages=[*messages])
        return RunStarted(thread_id="t", run_id="r", input=run_input)

    assert downgraded(Profile.V0_59, MessagesSnapshot(messages=[*before])) == [MessagesSnapshot(messages=[*after])]
    assert downgraded(Profile.V0_59, started(before)) == [started(after)]


@pytest.mark.parametrize("profile", [Profile.V0_45, Profile.V0_42])
def test_media_are_binary_parts_for_clients_before_0_0_49(profile: Profile) -> None:
    """Clients before 0.0.49 rejected the snapshot of a thread with a picture, and with it the run."""
    link = ImagePart(source=UrlSource(value="https://example.com/a.png", mime_type="image/png"))
    unnamed = DocumentPart(source=UrlSource(value="https://example.com/a"))
    message = UserMessage(id="u", content=[*PARTS, link, unnamed])
    received = downgraded(profile, MessagesSnapshot(messages=[message]))
    (line,) = [encode_event(event) for event in received]
    assert json.loads(line)["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "binary", "mimeType": "image/png", "data": "aGk="},
        {"type": "text", "text": "this"},
        {"type": "binary", "mimeType": "image/png", "url": "https://example.com/a.png"},
        {"type": "binary", "mimeType": "application/octet-stream", "url": "https://example.com/a"},
    ]


def test_subagents_become_steps_for_older_clients() -> None:
    assert downgraded(
        Profile.V0_49,
        SubagentStarted(subagent_run_id="s1", name="research", timestamp=1),
        TextMessageStart(message_id="m", subagent_run_id="s1"),
        SubagentFinished(subagent_run_id="s1", result=4, timestamp=2),
    ) == [
        StepStarted(step_name="research", timestamp=1),
        TextMessageStart(message_id="m"),
        StepFinished(step_name="research", timestamp=2),
    ]


def test_steps_that_differ_only_in_their_owner_get_different_names() -> None:
    assert downgraded(
        Profile.V0_49,
        StepStarted(step_name="plan"),
        SubagentStarted(subagent_run_id="s1", name="plan"),
        SubagentStarted(subagent_run_id="s2", name="plan"),
        StepStarted(step_name="plan", subagent_run_id="s2"),
        SubagentError(subagent_run_id="s1", message="no"),
        StepFinished(step_name="plan", subagent_run_id="s2"),
        SubagentFinished(subagent_run_id="s2"),
        StepFinished(step_name="plan"),
        SubagentStarted(subagent_run_id="s3", name="plan"),
    ) == [
        StepStarted(step_name="plan"),
        StepStarted(step_name="plan (2)"),
        StepStarted(step_name="plan (3)"),
        StepStarted(step_name="plan (4)"),
        StepFinished(step_name="plan (2)"),
        StepFinished(step_name="plan (4)"),
        StepFinished(step_name="plan (3)"),
        StepFinished(step_name="plan"),
        StepStarted(step_name="plan"),
    ]


def test_an_end_without_a_start_is_not_sent_to_older_clients() -> None:
    assert downgraded(Profile.V0_49, SubagentFinished(subagent_run_id="s"), StepFinished(step_name="x")) == []


def test_a_new_run_begins_with_nothing_open() -> None:
    start = RunStarted(thread_id="t", run_id="r")
    assert downgraded(Profile.V0_49, start, StepStarted(step_name="x"), start, StepStarted(step_name="x")) == [
        start,
        StepStarted(step_name="x"),
        start,
        StepStarted(step_name="x"),
    ]


def test_owners_are_left_out_everywhere_for_older_clients() -> None:
    owned = AssistantMessage(id="a", content="x", subagent_run_id="s")
    free = AssistantMessage(id="a", content="x")

    def started(message: AssistantMessage) -> RunStarted:
        return RunStarted(thread_id="t", run_id="r", input=RunAgentInput(thread_id="t", run_id="r", messages=[message]))

    def interrupted(owner: str | None) -> RunFinished:
        interrupt = Interrupt(id="i", reason="q", subagent_run_id=owner)
        return RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[interrupt]))

    assert downgraded(
        Profile.V0_49,
        started(owned),
        TextMessageContent(message_id="m", delta="d", subagent_run_id="s"),
        MessagesSnapshot(messages=[owned]),
        interrupted("s"),
    ) == [
        started(free),
        TextMessageContent(message_id="m", delta="d"),
        MessagesSnapshot(messages=[free]),
        interrupted(None),
    ]


def test_no_event_for_an_older_client_has_an_owner() -> None:
    events = [
        event for event in every_event() if not isinstance(event, StepFinished | SubagentFinished | SubagentError)
    ]
    lines = b"".join(encode_event(event) for event in downgraded(Profile.V0_49, *events))
    assert b'"subagentRunId"' not in lines
    assert b"SUBAGENT" not in lines


def test_a_client_without_reasoning_gets_none() -> None:
    thought = ReasoningMessage(id="r", content="hm")
    answer = AssistantMessage(id="a", content="x")
    reasoning = [event for event in every_event() if type_of(event).startswith("REASONING_")]
    assert len(reasoning) > 5
    assert downgraded(Profile.V0_42, *reasoning) == []
    assert downgraded(Profile.V0_42, MessagesSnapshot(messages=[thought, answer])) == [
        MessagesSnapshot(messages=[answer])
    ]
    assert downgraded(Profile.V0_49, MessagesSnapshot(messages=[thought])) == [MessagesSnapshot(messages=[thought])]


def test_an_interrupt_of_a_graph_is_also_a_custom_event_for_older_clients() -> None:
    raised = Interrupt(id="i", reason="q", metadata={"value": {"a": 1}}, subagent_run_id="s")
    other = Interrupt(id="j", reason="tool_call", metadata={"tool": "Bash"})
    end = RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[raised, other]))
    custom = Custom(name="on_interrupt", value='{"a":1}', subagent_run_id="s")
    assert downgraded(Profile.V1, end) == [end]
    assert downgraded(Profile.V0_59, end) == [custom, end]
    assert downgraded(Profile.V0_49, end)[0] == replace(custom, subagent_run_id=None)


@pytest.mark.parametrize("profile", [Profile.V0_59, Profile.V0_49, Profile.V0_45, Profile.V0_42])
def test_older_clients_get_an_interrupt_that_is_marked_as_an_event_only(profile: Profile) -> None:
    """If the run has an outcome, CopilotKit ignores the event, and its client refuses to send anything but `resume`."""
    raised = mark_event_only(Interrupt(id="i", reason="q", metadata={"value": "Sure?"}))
    other = Interrupt(id="j", reason="tool_call", metadata={"tool": "Bash"})
    custom = Custom(name="on_interrupt", value="Sure?")
    end = RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[raised]), timestamp=1)
    both = replace(end, outcome=Interrupted(interrupts=[raised, other]))
    assert downgraded(Profile.V1, end) == [end]
    assert downgraded(profile, end) == [custom, RunFinished(thread_id="t", run_id="r", timestamp=1)]
    assert downgraded(profile, both) == [custom, both]
