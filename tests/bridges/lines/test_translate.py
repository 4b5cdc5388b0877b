"""The output of commands, as events: of recorded ones, and of any other, cut anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.bridges.lines.config import OutputFormat
from ambient_runner.bridges.lines.translate import Translator
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.protocol.events import Event, RunFinished, RunStarted
from tests.bridges.strands.world import summarize, verify

RECORDINGS = Path(__file__).parent.parent.parent / "recordings" / "lines"


def _translate(*blocks: bytes, output_format: OutputFormat = "auto", used: set[str] | None = None) -> list[Event]:
    return _run(Translator(Composer(), output_format, used or set()), *blocks)


def _run(translator: Translator, *blocks: bytes) -> list[Event]:
    events = [event for block in blocks for event in translator.feed(block)]
    events += [*translator.finish(), *translator.close_calls()]
    return [*events, *translator._composer.close()]


def _lines(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _words(*blocks: bytes, **options: Any) -> list[str]:
    return summarize(_translate(*blocks, **options))


def _session(*lines: dict[str, Any]) -> str:
    translator = Translator(Composer(), "json", set())
    translator.feed(_lines(*lines))
    return translator.session_id


def _item(kind: str, stage: str = "completed", **members: Any) -> dict[str, Any]:
    return {"type": f"item.{stage}", "item": {"id": "item_1", "type": kind, **members}}


# Recordings


def test_codex_exec() -> None:
    translator = Translator(Composer(), "auto", set())
    command = json.loads((RECORDINGS / "codex.jsonl").read_text().splitlines()[3])["item"]["command"]
    assert summarize(_run(translator, (RECORDINGS / "codex.jsonl").read_bytes())) == [
        "TS m1",
        'TC m1 "I will write the file now."',
        "TE m1",
        "CS item_1 command_execution < m1",
        f"CA item_1 {json.dumps({'command': command}, separators=(',', ':'))}",
        "CE item_1",
        'CR item_1 "completed"',
        "TS m2",
        'TC m2 "Done: I wrote hello.txt for you."',
        "TE m2",
    ]
    assert translator.session_id == "01a1e09d-961a-74b1-a0bb-0924a60ecb56"
    assert translator.usage.tokens is None  # all counts are 0


def test_gemini_stream_json() -> None:
    translator = Translator(Composer(), "auto", set())
    words = summarize(_run(translator, (RECORDINGS / "gemini.jsonl").read_bytes()))
    call = "run_shell_command__run_shell_command_1794771202032_0"
    assert [word for word in words if not word.startswith("CA ")] == [
        "TS m1",
        'TC m1 "Running a co"',
        'TC m1 "mmand."',
        "TE m1",
        f"CS {call} run_shell_command < m1",
        f"CE {call}",
        f'CR {call} "hi-from-tool\\nLinux"',
        "TS m2",
        'TC m2 "The command "',
        'TC m2 "finished and"',
        'TC m2 " printed its"',
        'TC m2 " output."',
        "TE m2",
    ]
    assert translator.session_id == "724362b5-e4bf-4f0f-899a-7cf36fb35275"


def test_opencode_run() -> None:
    translator = Translator(Composer(), "auto", set())
    words = summarize(_run(translator, (RECORDINGS / "opencode.jsonl").read_bytes()))
    call = "call_7lFJELXaNTKHW5yA"
    assert [word for word in words if not word.startswith("CA ")] == [
        "TS m1",
        'TC m1 "Streaming."',
        "TE m1",
        f"CS {call} bash < m1",
        f"CE {call}",
        f'CR {call} "The user rejected permission to use this specific tool call." error',
    ]
    assert translator.session_id == "ses_e1f4cc27dffeOWltsMNYfhFsP1"
    assert translator.usage.tokens is not None
    assert translator.usage.tokens[0].input_tokens == 2393
    assert translator.usage.tokens[0].total_tokens == 2419


def test_claude_stream_json_with_pieces_shows_every_text_once() -> None:
    words = _words((RECORDINGS / "claude.jsonl").read_bytes())
    call = "toolu_3M4BZ51fnyPXGNEF"
    shown = [word for word in words if not word.startswith(("CA ", "CUSTOM lines:system"))]
    assert shown[:6] == [
        "TS m1",
        'TC m1 "I will write"',
        'TC m1 " the file no"',
        'TC m1 "w."',
        "TE m1",
        f"CS {call} Write < m1",
    ]
    assert shown[6] == f"CE {call}"
    assert shown[7].startswith(f'CR {call} "File created successfully')
    assert shown[8:] == ["TS m2", 'TC m2 "Done: I wrot"', 'TC m2 "e hello.txt "', 'TC m2 "for you."', "TE m2"]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_a_recording_can_be_cut_anywhere(name: str) -> None:
    data = (RECORDINGS / f"{name}.jsonl").read_bytes()
    whole = _words(data)
    for size in (1, 7, 100, 1000):
        assert _words(*(data[at : at + size] for at in range(0, len(data), size))) == whole


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_the_events_of_a_recording_that_ends_early_are_legal(name: str) -> None:
    data = (RECORDINGS / f"{name}.jsonl").read_bytes()
    started, ended = RunStarted(thread_id="t", run_id="r"), RunFinished(thread_id="t", run_id="r")
    for end in range(0, len(data), 97):
        verify([started, *_translate(data[:end]), ended])


# Whole texts after their pieces


def test_a_whole_message_after_its_pieces_adds_only_what_was_missing() -> None:
    pieces = [{"type": "message", "role": "assistant", "content": text, "delta": True} for text in ("Hel", "lo")]
    whole = {"type": "message", "role": "assistant", "content": "Hello there"}
    assert _words(_lines(*pieces, whole)) == ["TS m1", 'TC m1 "Hel"', 'TC m1 "lo"', 'TC m1 " there"', "TE m1"]


def test_a_whole_message_that_differs_from_the_pieces_is_a_message_of_its_own() -> None:
    piece = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
    whole = {"type": "message", "role": "assistant", "content": "Good bye"}
    assert _words(_lines(piece, whole)) == [
        "TS m1",
        'TC m1 "Hello"',
        "TE m1",
        "TS m2",
        'TC m2 "Good bye"',
        "TE m2",
    ]


def test_a_whole_message_that_is_shorter_than_its_pieces_adds_nothing() -> None:
    piece = {"type": "message", "role": "assistant", "content": "Hello \n", "delta": True}
    whole = {"type": "message", "role": "assistant", "content": "Hello"}
    assert _words(_lines(piece, whole)) == ["TS m1", 'TC m1 "Hello \\n"', "TE m1"]


def test_the_same_message_said_twice_is_shown_twice() -> None:
    whole = {"type": "message", "role": "assistant", "content": "Done."}
    assert _words(_lines(whole, whole)) == ["TS m1", 'TC m1 "Done."', "TE m1", "TS m2", 'TC m2 "Done."', "TE m2"]


def test_a_growing_item_streams() -> None:
    lines = [
        _item("agent_message", "started", text=""),
        _item("agent_message", "updated", text="Hel"),
        _item("agent_message", "updated", text="Hello"),
        _item("agent_message", text="Hello"),
    ]
    assert _words(_lines(*lines)) == ["TS m1", 'TC m1 "Hel"', 'TC m1 "lo"', "TE m1"]


def test_an_item_that_is_rewritten_is_shown_again_once() -> None:
    lines = [
        _item("agent_message", "updated", text="Hello"),
        _item("agent_message", "updated", text="Good"),
        _item("agent_message", text="Good bye"),
        _item("agent_message", text="Good bye"),
    ]
    assert _words(_lines(*lines)) == [
        "TS m1",
        'TC m1 "Hello"',
        "TE m1",
        "TS m2",
        'TC m2 "Good"',
        'TC m2 " bye"',
        "TE m2",
    ]


def test_the_text_of_a_result_is_shown_only_if_nothing_else_was() -> None:
    result = {"type": "result", "subtype": "success", "result": "42"}
    assert _words(_lines(result)) == ["TS m1", 'TC m1 "42"', "TE m1"]
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": "It is 42"}]}}
    assert _words(_lines(said, result)) == ["TS m1", 'TC m1 "It is 42"', "TE m1"]


def test_thoughts_are_reasoning() -> None:
    piece = {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm"}},
    }
    whole = {"type": "assistant", "message": {"content": [{"type": "thinking", "thinking": "Hm, yes"}]}}
    part = {"type": "reasoning", "part": {"id": "p1", "text": "Because"}}
    words = _words(_lines(piece, whole, _item("reasoning", text="Why?"), part, {"type": "reasoning", "text": "."}))
    assert [word for word in words if word.startswith("ZMC")] == [
        'ZMC z1 "Hm"',
        'ZMC z1 ", yes"',
        'ZMC z2 "Why?"',
        'ZMC z3 "Because"',
        'ZMC z4 "."',
    ]


# Tool calls


def test_a_call_gets_an_id_of_its_own_in_the_thread() -> None:
    words = _words(
        _lines(_item("command_execution", command="ls", aggregated_output="a", exit_code=0)), used={"item_1"}
    )
    assert words == [
        "CS item_1~2 command_execution < m1",
        'CA item_1~2 {"command":"ls"}',
        "CE item_1~2",
        'CR item_1~2 "a"',
    ]


@pytest.mark.parametrize(
    ("item", "name", "arguments", "result"),
    [
        (
            _item("command_execution", command="x", aggregated_output="no", exit_code=2),
            "command_execution",
            {"command": "x"},
            '"no" error',
        ),
        (
            _item("file_change", changes=[{"path": "a", "kind": "add"}], status="completed"),
            "file_change",
            {"changes": [{"path": "a", "kind": "add"}]},
            '"completed"',
        ),
        (
            _item(
                "mcp_tool_call",
                server="s",
                tool="add",
                arguments={"a": 1},
                result={"content": [{"type": "text", "text": "2"}]},
            ),
            "add",
            {"a": 1},
            '"2"',
        ),
        (
            _item("mcp_tool_call", server="s", tool="add", arguments={}, error={"message": "bad"}),
            "add",
            {},
            '"bad" error',
        ),
        (_item("web_search", query="q"), "web_search", {"query": "q"}, '"(empty)"'),
    ],
)
def test_items_of_codex_are_calls(item: dict[str, Any], name: str, arguments: Any, result: str) -> None:
    words = _words(_lines(item))
    assert words[0].split(" ")[2] == name
    assert json.loads(words[1].removeprefix("CA item_1 ")) == arguments
    assert words[3] == f"CR item_1 {result}"


def test_a_call_without_a_result_gets_one_at_the_end() -> None:
    call = {"type": "tool_use", "tool_name": "ls", "tool_id": "c1", "parameters": {}}
    assert _words(_lines(call))[-1].startswith('CR c1 "This call was cancelled')


@pytest.mark.parametrize("status", ["running", "completed", "error"])
def test_a_call_of_opencode_has_a_result_when_it_has_ended(status: str) -> None:
    state = {"status": status, "input": {"a": 1}, "output": "out", "error": "bad"}
    words = _words(_lines({"type": "tool_use", "part": {"tool": "bash", "callID": "c1", "state": state}}))
    results = {"completed": '"out"', "error": '"bad" error'}
    assert words[:3] == ["CS c1 bash < m1", 'CA c1 {"a":1}', "CE c1"]
    assert words[3].startswith(f"CR c1 {results.get(status, '')}")


def test_blocks_of_claude_that_are_not_known_are_passed_on() -> None:
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"data": "y"}]
    assert _words(_lines({"type": "assistant", "message": {"content": blocks}})) == [
        'CUSTOM lines:redacted_thinking {"type": "redacted_thinking", "data": "x"}',
        'CUSTOM lines:block {"data": "y"}',
    ]


def test_what_a_subagent_of_claude_streams_is_no_text_of_the_agent() -> None:
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "inner"}}
    assert _words(_lines({"type": "stream_event", "parent_tool_use_id": "c1", "event": delta})) == []
    result = {"type": "user", "parent_tool_use_id": "c1", "message": {"content": []}}
    assert _words(_lines(result)) == [f"CUSTOM lines:user {json.dumps(result)}"]


def test_a_result_without_a_call_gets_one() -> None:
    result = {"type": "tool_result", "tool_id": "c1", "status": "error", "error": {"message": "gone"}}
    assert _words(_lines(result)) == ["CS c1 tool < m1", "CA c1 {}", "CE c1", 'CR c1 "gone" error']


# Anything else


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ({"type": "weather", "x": 1}, "lines:weather"),
        ({"type": "item.completed", "item": {"type": "todo_list", "items": []}}, "lines:item.completed"),
        ({"type": "system", "subtype": "api_retry"}, "lines:system"),
        ({"type": "assistant", "parent_tool_use_id": "c1", "message": {"content": []}}, "lines:assistant"),
        ({"type": "no good name"}, "lines:unknown"),
        ({"type": 7}, "lines:unknown"),
        ({"x": 1}, "lines:unknown"),
    ],
)
def test_a_line_that_is_not_known_is_passed_on(line: dict[str, Any], name: str) -> None:
    assert _words(_lines(line), output_format="json") == [f"CUSTOM {name} {json.dumps(line)}"]


@pytest.mark.parametrize(
    "line", [b"Loaded cached credentials.", b"[1, 2]", b"7", b"{broken", b"{" * 70 + b"}" * 70, b'{"a": "\xff"}']
)
def test_a_line_that_is_no_object_is_passed_on_as_text(line: bytes) -> None:
    text = line.decode("utf-8", "replace")
    assert _words(line + b"\n\n", output_format="json") == [f"CUSTOM lines:output {json.dumps({'text': text})}"]


def test_a_half_of_a_surrogate_pair_harms_nothing() -> None:
    line = b'{"type": "message", "role": "assistant", "content": "a\\ud83d", "delta": true}\n'
    assert _words(line, output_format="json") == ["TS m1", 'TC m1 "a?"', "TE m1"]


def test_a_line_of_more_than_16_mib_is_skipped_and_counted() -> None:
    translator = Translator(Composer(), "json", set())
    said = _lines({"type": "text", "text": "after"})
    block = b"x" * (1 << 20)
    words = summarize(_run(translator, b'{"type": "', *([block] * 17), b'"}\n' + said))
    assert words == ["TS m1", 'TC m1 "after"', "TE m1"]
    assert translator.oversized_lines == 1


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["type", "item", "part", "message", "event", "error", "usage", "id", "content"]),
            st.recursive(
                st.none()
                | st.integers()
                | st.sampled_from(
                    [
                        "text",
                        "result",
                        "assistant",
                        "user",
                        "item.completed",
                        "agent_message",
                        "tool_use",
                        "stream_event",
                        "error",
                        "message",
                        "tool_result",
                        "step_finish",
                    ]
                ),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(
                        st.sampled_from(["type", "content", "delta", "text", "state", "tokens", "item", "id", "error"]),
                        inner,
                        max_size=3,
                    )
                ),
                max_leaves=6,
            ),
        ),
        max_size=6,
    )
)
def test_nothing_that_a_command_prints_raises_or_breaks_the_stream(lines: list[dict[str, Any]]) -> None:
    verify(
        [
            RunStarted(thread_id="t", run_id="r"),
            *_translate(_lines(*lines), output_format="json"),
            RunFinished(thread_id="t", run_id="r"),
        ]
    )


# The end of a turn


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"type": "result", "stop_reason": "max_tokens"}, "max_tokens"),
        ({"type": "result", "stop_reason": "refusal"}, "refusal"),
        ({"type": "result", "subtype": "error_max_turns", "is_error": True}, "max_turn_requests"),
        ({"type": "step_finish", "part": {"reason": "length"}}, "max_tokens"),
        ({"type": "step_finish", "part": {"reason": "tool-calls"}}, "end_turn"),
        ({"type": "turn.completed"}, "end_turn"),
    ],
)
def test_stop_reasons(line: dict[str, Any], reason: str) -> None:
    translator = Translator(Composer(), "json", set())
    translator.feed(_lines(line))
    assert translator.stop_reason == reason
    assert translator.failure is None


@pytest.mark.parametrize(
    "line",
    [
        {"type": "error", "message": "overloaded"},
        {"type": "turn.failed", "error": {"message": "overloaded"}},
        {"type": "error", "error": {"name": "APIError", "data": {"message": "overloaded"}}},
        {"type": "result", "is_error": True, "subtype": "success", "result": "overloaded"},
        {"type": "result", "status": "error", "error": {"type": "x", "message": "overloaded"}},
        {"type": "error", "error": "overloaded"},
    ],
)
def test_an_error_fails_the_turn_unless_it_goes_on(line: dict[str, Any]) -> None:
    translator = Translator(Composer(), "json", set())
    assert translator.feed(_lines(line)) == []
    assert translator.failure == "overloaded"
    translator.feed(_lines({"type": "text", "text": "I go on."}))
    assert translator.failure is None


@pytest.mark.parametrize(
    ("line", "has_begun"),
    [
        ({"type": "thread.started", "thread_id": "t-1"}, True),
        ({"type": "weather"}, True),
        ({"type": "error", "sessionID": "ses_1", "error": {"data": {"message": "overloaded"}}}, True),
        ({"type": "result", "is_error": True, "session_id": "s-1", "errors": ["No conversation found"]}, False),
        ({"type": "error", "message": "Session not found"}, False),
    ],
)
def test_a_turn_has_begun_unless_only_an_error_was_printed(line: dict[str, Any], *, has_begun: bool) -> None:
    translator = Translator(Composer(), "json", set())
    translator.feed(_lines(line))
    assert translator.has_begun is has_begun


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (
            {
                "type": "turn.completed",
                "usage": {
                    "input_tokens": 7,
                    "cached_input_tokens": 2,
                    "output_tokens": 3,
                    "reasoning_output_tokens": 1,
                },
            },
            (7, 3, 10, 1, 2, None),
        ),
        (
            {
                "type": "result",
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 2,
                    "cache_creation_input_tokens": 1,
                    "output_tokens": 3,
                },
            },
            (8, 3, 11, None, 2, 1),
        ),
        (
            {"type": "result", "status": "success", "stats": {"input_tokens": 7, "cached": 2, "output_tokens": 3}},
            (7, 3, 10, None, 2, None),
        ),
        (
            {
                "type": "step_finish",
                "part": {"tokens": {"input": 5, "output": 3, "reasoning": 1, "cache": {"read": 2, "write": 1}}},
            },
            (8, 3, 11, 1, 2, 1),
        ),
    ],
)
def test_tokens_are_counted(line: dict[str, Any], counts: tuple[int | None, ...]) -> None:
    translator = Translator(Composer(), "json", set())
    translator.feed(_lines(line))
    [usage] = translator.usage.tokens or []
    assert (
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.reasoning_tokens,
        usage.cached_input_tokens,
        usage.cache_write_input_tokens,
    ) == counts


def test_the_first_session_id_that_can_be_an_argument_counts() -> None:
    assert (
        _session({"type": "init", "session_id": "--yolo"}, {"type": "x", "thread_id": "t-1"}, {"session_id": "s"})
        == "t-1"
    )
    assert _session({"type": "x", "session_id": 7}, {"type": "y", "sessionID": "a b"}) == ""


# Text


@pytest.mark.parametrize("output_format", ["auto", "text"])
def test_text_is_shown_as_it_comes(output_format: OutputFormat) -> None:
    translator = Translator(Composer(), output_format, set())
    assert [summarize(translator.feed(block)) for block in (b"Hel", b"lo\n", b"there\n")] == [
        ["TS m1", 'TC m1 "Hel"'],
        ['TC m1 "lo"'],
        ['TC m1 "\\nthere"'],
    ]
    assert translator.finish() == []


def test_a_first_line_that_is_no_event_makes_it_text() -> None:
    answer = b'{"name": "x"}\n{"type": "tool_use", "tool_name": "rm"}\n'
    assert _words(answer[:5], answer[5:]) == ["TS m1", f"TC m1 {json.dumps(answer.decode().strip())}", "TE m1"]


def test_a_line_that_looks_like_an_event_is_text_in_text() -> None:
    """A model that writes such a line could otherwise make up tool calls."""
    line = b'{"type": "tool_use", "tool_name": "rm", "tool_id": "c"}\n'
    assert _words(line, output_format="text") == ["TS m1", f"TC m1 {json.dumps(line.decode().strip())}", "TE m1"]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"{", ["TS m1", 'TC m1 "{"', "TE m1"]),
        (b'{"type": "text", "text": "x"}', ["TS m1", 'TC m1 "x"', "TE m1"]),
        (b" \n", []),
    ],
)
def test_output_without_a_line_end_is_not_lost(block: bytes, words: list[str]) -> None:
    assert _words(block) == words
