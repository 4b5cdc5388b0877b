"""The translator alone, fed with the SDK's own messages."""

from __future__ import annotations

from typing import Any

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    RateLimitEvent,
    RateLimitInfo,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from ambient_runner.bridges.claude.messages import result_content
from ambient_runner.bridges.claude.translate import CUT_OFF, StreamState, ToolCallRecord, Translator
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.protocol import events as e
from tests.bridges.strands.world import summarize, verify


class TranslatedRun:
    """A translator and the events it has emitted, as one run."""

    def __init__(
        self,
        calls: dict[str, ToolCallRecord] | None = None,
        answered: tuple[str, ...] = (),
        taken: tuple[str, ...] = (),
        streams: StreamState | None = None,
    ) -> None:
        self.composer = Composer()
        self.calls: dict[str, ToolCallRecord] = {} if calls is None else calls
        self.translator = Translator(self.composer, self.calls, answered, taken, streams)
        self.events: list[e.Event] = []

    def feed(self, *messages: Any) -> TranslatedRun:
        for message in messages:
            self.events += self.translator.feed(message)
        return self

    def words(self) -> list[str]:
        """Everything in short words. The stream is legal, or this fails."""
        end = e.RunFinished(thread_id="t", run_id="r")
        whole = [e.RunStarted(thread_id="t", run_id="r"), *self.events, *self.composer.close(end), end]
        verify(whole)
        return summarize(whole)[:-1]


def whole(*blocks: Any, message: str = "m1", parent: str | None = None, **more: Any) -> AssistantMessage:
    options = {
        "model": "claude",
        "message_id": message,
        "parent_tool_use_id": parent,
        "uuid": f"uuid-{message}",
        **more,
    }
    return AssistantMessage(content=list(blocks), **options)


def event(parent: str | None = None, **fields: Any) -> StreamEvent:
    return StreamEvent(uuid="x", session_id="s", event=fields, parent_tool_use_id=parent)


def begin(message: str = "m1") -> StreamEvent:
    return event(type="message_start", message={"id": message})


def block(index: int, **fields: Any) -> StreamEvent:
    return event(type="content_block_start", index=index, content_block=fields)


def delta(index: int, **fields: Any) -> StreamEvent:
    return event(type="content_block_delta", index=index, delta=fields)


def stop(index: int) -> StreamEvent:
    return event(type="content_block_stop", index=index)


def results(*blocks: ToolResultBlock, parent: str | None = None) -> UserMessage:
    return UserMessage(content=list(blocks), parent_tool_use_id=parent)


def result(**fields: Any) -> ResultMessage:
    usual = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
    return ResultMessage(**{**usual, "session_id": "s", **fields})


STREAMED = [
    begin(),
    block(0, type="text", text=""),
    delta(0, type="text_delta", text="Hel"),
    delta(0, type="text_delta", text="lo"),
    whole(TextBlock(text="Hello")),
    stop(0),
    block(1, type="tool_use", id="c1", name="Bash", input={}),
    delta(1, type="input_json_delta", partial_json='{"command": '),
    delta(1, type="input_json_delta", partial_json='"ls"}'),
    whole(ToolUseBlock(id="c1", name="Bash", input={"command": "ls"})),
    stop(1),
]


def test_streamed_content_is_not_emitted_again_when_it_is_whole() -> None:
    assert TranslatedRun().feed(*STREAMED).words() == [
        "TS m1",
        'TC m1 "Hel"',
        'TC m1 "lo"',
        "TE m1",
        "CS c1 Bash < m1",
        'CA c1 {"command": ',
        'CA c1 "ls"}',
        "CE c1",
    ]


def test_content_that_was_not_streamed_is_emitted_when_it_is_whole() -> None:
    message = whole(
        ThinkingBlock(thinking="Hm.", signature="secret"),
        TextBlock(text="One"),
        TextBlock(text="Two"),
        ToolUseBlock(id="c1", name="Read", input={"file_path": "x"}),
    )
    tale = TranslatedRun().feed(message)
    assert tale.words() == [
        "ZS z1",
        "ZMS z1",
        'ZMC z1 "Hm."',
        "ZME z1",
        "ZE z1",
        "TS m1",
        'TC m1 "One"',
        "TE m1",
        "TS m2",
        'TC m2 "Two"',
        "TE m2",
        "CS c1 Read < m2",
        'CA c1 {"file_path": "x"}',
        "CE c1",
    ]
    assert "secret" not in str(tale.events)


def test_blocks_that_come_one_by_one_in_messages_of_one_id_are_all_emitted() -> None:
    words = TranslatedRun().feed(whole(TextBlock(text="One")), whole(TextBlock(text="Two"))).words()
    assert [word for word in words if word.startswith("TC")] == ['TC m1 "One"', 'TC m2 "Two"']


def test_a_stream_that_broke_off_is_completed_by_the_whole() -> None:
    tale = TranslatedRun().feed(begin(), block(0, type="text", text=""), delta(0, type="text_delta", text="Hel"))
    assert tale.feed(whole(TextBlock(text="Hello"))).words() == ["TS m1", 'TC m1 "Hel"', 'TC m1 "lo"', "TE m1"]


def test_tools_of_ours_are_shown_under_their_own_names() -> None:
    words = TranslatedRun().feed(whole(ToolUseBlock(id="c1", name="mcp__ambient__paint", input={}))).words()
    assert words == ["CS c1 paint < m1", "CA c1 {}", "CE c1"]


def test_other_servers_tools_keep_the_name_the_model_knows() -> None:
    words = TranslatedRun().feed(whole(ToolUseBlock(id="c1", name="mcp__jira__find", input={}))).words()
    assert words[0] == "CS c1 mcp__jira__find < m1"


PICTURE = {"type": "image", "source": {"type": "base64", "data": "aGk=", "media_type": "image/png"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", "plain"),
        ("", "(empty)"),
        (None, "(empty)"),
        ([], "(empty)"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (
            [{"type": "text", "text": "a"}, PICTURE],
            [e.TextPart(text="a"), e.ImagePart(source=e.DataSource(value="aGk=", mime_type="image/png"))],
        ),
        ([{"type": "tool_reference", "name": "x"}], '{"type": "tool_reference", "name": "x"}'),
    ],
)
def test_every_block_of_a_result_counts(content: Any, expected: e.Content) -> None:
    assert result_content(content) == expected


def test_a_result_follows_its_call_with_its_error_flag() -> None:
    failed = ToolResultBlock(tool_use_id="c1", content="no such file", is_error=True)
    tale = TranslatedRun().feed(*STREAMED, results(failed))
    assert tale.words()[-1] == 'CR c1 "no such file" error'
    assert tale.calls == {}


def test_a_call_of_an_earlier_run_is_answered_without_being_made_again() -> None:
    earlier = {"c1": ToolCallRecord(client_id="c1", name="Bash", parent=None)}
    assert TranslatedRun(earlier).feed(results(ToolResultBlock(tool_use_id="c1", content="ok"))).words() == [
        'CR c1 "ok"'
    ]


def test_a_result_the_client_has_sent_itself_is_not_sent_back_to_it() -> None:
    earlier = {"c1": ToolCallRecord(client_id="c1", name="mcp__ambient__paint", parent=None)}
    assert TranslatedRun(earlier, ("c1",)).feed(results(ToolResultBlock(tool_use_id="c1", content="ok"))).words() == []


def test_a_call_with_an_id_that_the_thread_has_gets_another_one_in_all_its_events() -> None:
    one, result = ToolUseBlock(id="c1", name="Bash", input={}), ToolResultBlock(tool_use_id="c1", content="ok")
    words = (
        TranslatedRun(taken=("c1", "c1~2"))
        .feed(whole(one), whole(one), results(result), whole(one, message="m2"))
        .words()
    )
    assert [word for word in words if word[:2] in ("CS", "CE", "CR")] == [
        "CS c1~3 Bash < m1",
        "CE c1~3",
        'CR c1~3 "ok"',
        "CS c1~4 Bash < m2",
        "CE c1~4",
    ]


def test_a_call_renamed_in_an_earlier_run_keeps_that_name() -> None:
    earlier = {"c1": ToolCallRecord(client_id="c1~2", name="Bash", parent=None)}
    run = TranslatedRun(earlier, taken=("c1", "c1~2")).feed(results(ToolResultBlock(tool_use_id="c1", content="ok")))
    assert run.words() == ['CR c1~2 "ok"']


def test_an_agent_started_under_a_used_id_is_a_separate_subagent() -> None:
    task = ToolUseBlock(id="c1", name="Task", input={"subagent_type": "scout"})
    text, result = whole(TextBlock(text="I look."), message="m2", parent="c1"), ToolResultBlock(tool_use_id="c1")
    words = TranslatedRun(taken=("c1",)).feed(whole(task), text, results(result)).words()
    assert [word for word in words if "SUB" in word] == ["SUB subagent-c1~2 scout < c1~2", "END SUB subagent-c1~2"]


def test_events_of_a_subagent_carry_its_id_until_its_call_has_a_result() -> None:
    task = ToolUseBlock(id="c1", name="Task", input={"subagent_type": "scout", "description": "look around"})
    inner = ToolUseBlock(id="c2", name="Bash", input={})
    words = (
        TranslatedRun()
        .feed(
            whole(task),
            whole(TextBlock(text="I look."), inner, message="m2", parent="c1"),
            results(ToolResultBlock(tool_use_id="c2", content="a tree"), parent="c1"),
            whole(TextBlock(text="A tree."), message="m3", parent="c1"),
            results(ToolResultBlock(tool_use_id="c1", content="A tree.")),
            whole(TextBlock(text="Done."), message="m4"),
        )
        .words()
    )
    subagent_id = "@subagent-c1"
    assert words == [
        "CS c1 Task < m1",
        'CA c1 {"subagent_type": "scout", "description": "look around"}',
        "CE c1",
        "SUB subagent-c1 scout < c1",
        f"TS m2 {subagent_id}",
        f'TC m2 "I look." {subagent_id}',
        f"TE m2 {subagent_id}",
        f"CS c2 Bash < m2 {subagent_id}",
        f"CA c2 {{}} {subagent_id}",
        f"CE c2 {subagent_id}",
        f'CR c2 "a tree" {subagent_id}',
        f"TS m3 {subagent_id}",
        f'TC m3 "A tree." {subagent_id}',
        f"TE m3 {subagent_id}",
        "END SUB subagent-c1",
        'CR c1 "A tree."',
        "TS m4",
        'TC m4 "Done."',
        "TE m4",
    ]


def test_a_subagent_inside_a_subagent_names_its_parent() -> None:
    outer = ToolUseBlock(id="c1", name="Task", input={"subagent_type": "outer"})
    inner = ToolUseBlock(id="c2", name="Agent", input={"subagent_type": "inner"})
    tale = TranslatedRun().feed(whole(outer), whole(inner, message="m2", parent="c1"))
    words = tale.feed(whole(TextBlock(text="Deep."), message="m3", parent="c2")).words()
    assert [word for word in words if word.startswith("SUB")] == [
        "SUB subagent-c1 outer < c1",
        "SUB subagent-c2 inner < subagent-c1",
    ]


def test_the_processs_description_of_itself_reaches_no_client() -> None:
    init = SystemMessage(subtype="init", data={"session_id": "s1", "cwd": "/here", "tools": ["Bash"]})
    limits = RateLimitEvent(rate_limit_info=RateLimitInfo(status="allowed"), uuid="x", session_id="s")
    prompt = UserMessage(content=[TextBlock(text="what the subagent was told")], parent_tool_use_id="c1")
    tale = TranslatedRun().feed(init, limits, prompt, UserMessage(content="replayed"), object())
    assert (tale.words(), tale.translator.session_id) == ([], "s1")


def test_the_text_of_an_error_is_no_answer() -> None:
    message = whole(
        TextBlock(text="API Error: 401 at http://inside"), model="<synthetic>", error="authentication_failed"
    )
    tale = TranslatedRun().feed(message)
    assert (tale.words(), tale.translator.error_kind) == ([], "authentication_failed")


def test_only_the_turn_we_began_ends_the_run() -> None:
    tale = TranslatedRun().feed(result(origin={"kind": "task-notification"}))
    assert tale.translator.result is None
    assert tale.feed(done := result()).translator.result is done


def test_the_position_to_continue_from_is_claudes_own_last_message() -> None:
    tale = TranslatedRun().feed(
        whole(ToolUseBlock(id="c1", name="Task", input={})),
        whole(TextBlock(text="x"), message="m2", parent="c1"),
    )
    assert tale.translator.last_entry_id == "uuid-m1"


def test_a_search_of_the_provider_is_a_call_with_a_result() -> None:
    words = (
        TranslatedRun()
        .feed(
            begin(),
            block(0, type="server_tool_use", id="c1", name="web_search", input={}),
            delta(0, type="input_json_delta", partial_json='{"query": "x"}'),
            stop(0),
            block(1, type="web_search_tool_result", tool_use_id="c1", content=[{"title": "X"}]),
            stop(1),
        )
        .words()
    )
    assert words == ["CS c1 web_search < m1", 'CA c1 {"query": "x"}', "CE c1", 'CR c1 "[{\\"title\\": \\"X\\"}]"']


def test_a_message_is_being_written_until_it_stops() -> None:
    tale = TranslatedRun().feed(*STREAMED)
    assert tale.translator.is_streaming
    assert not tale.feed(event(type="message_stop")).translator.is_streaming


def retry(attempt: int, status: int | None = None) -> SystemMessage:
    data = {"attempt": attempt, "max_retries": 10, "retry_delay_ms": 600, "error_status": status, "error": "unknown"}
    return SystemMessage(subtype="api_retry", data={**data, "session_id": "s", "uuid": "u"})


def test_a_retried_request_is_reported_without_the_text_of_the_cli() -> None:
    tale = TranslatedRun().feed(retry(1), retry(2, 529))
    assert tale.words() == [
        'CUSTOM claude:retry {"attempt": 1, "maxRetries": 10, "delayMs": 600, "status": null}',
        'CUSTOM claude:retry {"attempt": 2, "maxRetries": 10, "delayMs": 600, "status": 529}',
    ]
    assert tale.translator.retry_count == 2


def test_a_message_that_two_runs_stream_is_emitted_once_and_a_call_that_was_cut_off_is_made_again() -> None:
    calls: dict[str, ToolCallRecord] = {}
    streams = StreamState()
    first = TranslatedRun(calls, streams=streams).feed(
        begin(), block(0, type="text", text=""), delta(0, type="text_delta", text="one ")
    )
    assert first.translator.is_streaming
    assert first.words() == ["TS m1", 'TC m1 "one "', "TE m1"]
    second = TranslatedRun(calls, streams=streams).feed(
        delta(0, type="text_delta", text="two "),
        stop(0),
        block(1, type="tool_use", id="c1", name="Bash"),
        delta(1, type="input_json_delta", partial_json='{"comm'),
    )
    second.events += second.translator.cut_streamed_calls()
    assert second.words() == [
        *("TS m1", 'TC m1 "two "', "TE m1"),
        *("CS c1 Bash < m1", 'CA c1 {"comm', "CE c1", f'CR c1 "{CUT_OFF}" error'),
    ]
    third = TranslatedRun(calls, taken=("c1",), streams=streams).feed(
        delta(1, type="input_json_delta", partial_json='and": "ls"}'),
        stop(1),
        whole(TextBlock("one two three"), ToolUseBlock("c1", "Bash", {"command": "ls"})),
        event(type="message_stop"),
    )
    assert third.words() == [
        *("TS m1", 'TC m1 "three"', "TE m1"),
        *("CS c1~2 Bash < m1", 'CA c1~2 {"command": "ls"}', "CE c1~2"),
    ]
    assert not third.translator.is_streaming
