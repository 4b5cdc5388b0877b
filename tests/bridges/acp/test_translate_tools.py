"""Tool calls in an agent's updates: every way in which the known agents report them, and some worse ones."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.bridges.acp.tool_calls import ABANDONED, UNREPORTED
from ambient_runner.bridges.acp.tool_results import FAILED_RESULT, MAX_RESULT_BYTES
from ambient_runner.bridges.acp.translate import CUT_OFF
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT
from ambient_runner.protocol import events as e
from tests.bridges.acp.translated import TranslatedThread, text_content

TOOL = e.Tool(name="pick_number", description="Pick a number.")


def own_tool(update: Any) -> e.Tool | None:
    return TOOL if "pick_number" in str(update.get("name") or update.get("title")) else None


def test_a_call_has_one_start_its_last_arguments_and_one_result() -> None:
    """Claude: the arguments grow, the status stays pending until the end, and the output comes in a fenced block."""
    meta = {"claudeCode": {"toolName": "Bash"}}
    thread = TranslatedThread().call(
        name="Bash", rawInput={}, status="pending", title="Terminal", kind="execute", _meta=meta
    )
    thread.update(rawInput={"command": "ls"}, title="ls", _meta=meta)
    thread.update(rawInput={"command": "ls", "description": "list"}, content=text_content("list"), _meta=meta)
    thread.update(_meta={"claudeCode": {"toolName": "Bash", "toolResponse": {"stdout": "a.txt"}}})
    thread.update(status="completed", rawOutput="a.txt", content=text_content("```console\na.txt\n```"), _meta=meta)
    assert thread.words() == [
        "CALL c1 Bash",
        'ARGS c1 {"command":"ls","description":"list"}',
        "END c1",
        "RESULT c1 a.txt",
    ]


def test_the_start_has_the_title_and_the_kind_in_its_metadata() -> None:
    thread = TranslatedThread().call(title="Look at a.txt", kind="read")
    assert [event.metadata for event in thread.run_events if isinstance(event, e.ToolCallStart)] == [
        {"title": "Look at a.txt", "kind": "read"}
    ]


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"name": "Bash", "kind": "execute", "_meta": {"claudeCode": {"toolName": "Other"}}}, "Bash"),
        ({"kind": "execute", "_meta": {"codex": {"toolName": "exec_command"}}}, "exec_command"),
        ({"kind": "execute", "title": "ls -l"}, "execute"),
        ({"title": "ls -l"}, "tool"),
        ({"name": 7, "kind": ["x"], "_meta": {"codex": 7}}, "tool"),
        ({"name": "n" * 999}, "n" * 128),
    ],
)
def test_a_tool_has_the_name_that_the_agent_gives_it_else_its_kind(members: dict[str, Any], name: str) -> None:
    assert TranslatedThread().call(**members).words() == [f"CALL c1 {name}"]


def test_a_profile_can_find_names_that_the_protocol_does_not_have() -> None:
    thread = TranslatedThread(tool_name=lambda call: "bash" if call.get("title") == "bash" else "")
    thread.call("c1", title="bash", kind="execute").call("c2", title="ls -l", kind="execute")
    assert thread.words() == ["CALL c1 bash", "CALL c2 execute"]


def test_hard_spot_3_arguments_that_do_not_grow_are_sent_once_they_are_complete() -> None:
    """OpenCode: each snapshot has other members, and so has the permission request."""
    thread = TranslatedThread().call(title="bash", kind="execute", status="pending", rawInput={"cwd": "/w"})
    thread.update(status="in_progress", rawInput={"command": "ls", "cwd": "/w"})
    thread.ask(status="pending", rawInput={"command": "ls"}, locations=[])
    thread.start_run()
    thread.update(status="in_progress", rawInput={"command": "ls", "cwd": "/w", "more": 1})
    thread.update(status="completed", content=text_content("a.txt\n"))
    assert thread.arguments() == {"c1": {"command": "ls", "cwd": "/w"}}
    assert thread.results() == {"c1": "a.txt\n"}
    record = thread.translator.record_of("c1")
    assert record is not None
    assert record.input == {"command": "ls", "cwd": "/w", "more": 1}


def test_a_permission_request_before_the_arguments_are_complete_shows_its_own() -> None:
    thread = TranslatedThread().call(title="bash", kind="execute", status="pending", rawInput={"cwd": "/w"})
    thread.ask(rawInput={"command": "ls"})
    assert thread.words() == ["CALL c1 execute", 'ARGS c1 {"command":"ls"}', "END c1"]


def test_hard_spot_4_a_permission_request_may_be_the_first_and_the_only_mention_of_a_call() -> None:
    """Gemini: it reports no arguments, and says nothing about a rejected call."""
    thread = TranslatedThread().say("Let me see.")
    thread.ask("c1", title="ls", kind="execute", content=text_content("list files"), locations=[{"path": "/w"}])
    assert thread.words()[-3:] == [
        "CALL c1 execute",
        'ARGS c1 {"title":"ls","description":"list files","paths":["/w"]}',
        "END c1",
    ]
    thread.start_run()
    thread.end_turn()
    assert thread.words() == [f"RESULT c1 {UNREPORTED} (failed)"]


def test_hard_spot_4_an_update_without_its_call_starts_it_and_is_counted() -> None:
    thread = TranslatedThread().update(status="completed", kind="read", title="a.txt", content=text_content("A"))
    assert thread.words() == ["CALL c1 read", 'ARGS c1 {"title":"a.txt","description":"A"}', "END c1", "RESULT c1 A"]
    assert thread.translator.irregularities == {"update_without_call": 1}


def test_hard_spot_15_a_permission_request_with_no_more_than_an_id_keeps_what_was_reported() -> None:
    """Codex, for tools of MCP servers."""
    thread = TranslatedThread().call(status="pending", title="mcp.web.x", kind="execute", rawInput={"tool": "x"})
    thread.ask(kind="execute", status="pending")
    assert thread.arguments() == {"c1": {"tool": "x"}}
    assert thread.turn.tool_calls["c1"].title == "mcp.web.x"


def test_a_permission_request_does_not_set_a_call_back() -> None:
    thread = (
        TranslatedThread().call(status="in_progress", rawInput={"command": "ls"}, kind="execute").ask(status="pending")
    )
    assert thread.turn.tool_calls["c1"].status == "in_progress"


def test_arguments_that_are_no_object_are_wrapped() -> None:
    thread = (
        TranslatedThread().call("a", rawInput="ls", status="in_progress").call("b", rawInput=[1], status="in_progress")
    )
    thread.call("c", rawInput=0, status="in_progress")
    assert thread.arguments() == {"a": {"input": "ls"}, "b": {"input": [1]}, "c": {"input": 0}}


def test_an_edit_without_arguments_shows_its_diffs_as_arguments() -> None:
    """Codex: what is approved is what was shown."""
    diff = {"path": "/w/a", "oldText": None, "newText": "A\n"}
    thread = TranslatedThread().call(title="Edit", kind="edit", content=[{"type": "diff", **diff}])
    thread.ask(locations=[{"path": "/w/a"}, {"path": "/w/b", "line": 3}])
    assert thread.arguments() == {"c1": {"title": "Edit", "paths": ["/w/b"], "diffs": [diff]}}


def test_content_and_locations_are_replaced_and_not_appended() -> None:
    thread = TranslatedThread().call(status="in_progress", locations=[{"path": "/a"}], content=text_content("one"))
    thread.update(locations=[{"path": "/b", "line": 2}], content=text_content("two")).update(status="completed")
    assert thread.results() == {"c1": "two"}
    assert thread.activities()["acp-tool-c1"]["locations"] == [{"path": "/b", "line": 2}]


@pytest.mark.parametrize(
    ("end", "result"),
    [
        ({"content": text_content("```\nrefused\n```")}, "refused"),
        ({"content": text_content("text"), "rawOutput": "raw"}, "text"),
        ({"content": [], "rawOutput": "raw"}, "raw"),
        ({"rawOutput": {"output": "printed", "metadata": {}}}, "printed"),
        ({"rawOutput": {"stdout": "", "aggregated_output": "all", "exit_code": 0}}, "all"),
        ({"rawOutput": {"error": "no such file"}}, "no such file"),
        ({"rawOutput": {"result": {"content": [{"type": "text", "text": "seven"}]}, "error": None}}, "seven"),
        ({"rawOutput": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"rawOutput": {"answer": 42}}, '{"answer":42}'),
        ({"rawOutput": {"content": [{"type": "text", "text": "eight"}], "isError": False}}, "eight"),
        ({"rawOutput": 0}, "0"),
        ({}, EMPTY_RESULT),
        ({"content": [], "rawOutput": ""}, EMPTY_RESULT),
        ({"content": [{"type": "terminal", "terminalId": "t"}]}, EMPTY_RESULT),
        ({"content": text_content("```\n```")}, EMPTY_RESULT),
    ],
)
def test_the_result_is_the_best_text_that_the_agent_has_given(end: dict[str, Any], result: str) -> None:
    assert TranslatedThread().call(name="x").update(status="completed", **end).results() == {"c1": result}


def test_what_describes_a_request_is_no_result_if_there_is_a_better_one() -> None:
    thread = TranslatedThread().call(name="Bash", content=text_content("say hi"))
    assert thread.update(status="completed", rawOutput="hi").results() == {"c1": "hi"}


def test_a_failed_call_without_a_reason_says_so() -> None:
    thread = TranslatedThread().call(name="x").update(status="failed")
    assert thread.words()[-1] == f"RESULT c1 {FAILED_RESULT} (failed)"


def test_an_image_in_a_result_stays_an_image() -> None:
    image = {"type": "content", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}}
    thread = TranslatedThread().call(name="x").update(status="completed", content=[*text_content("See:"), image])
    assert thread.results()["c1"] == [
        e.TextPart(text="See:"),
        e.ImagePart(source=e.DataSource(value="aGk=", mime_type="image/png")),
    ]


def test_a_diff_is_an_activity_and_a_part_of_the_result() -> None:
    """OpenCode: the whole file in the request, the changed lines in the result."""
    whole = {"type": "diff", "path": "/w/a", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    part = {"type": "diff", "path": "/w/a", "oldText": "two", "newText": "2"}
    thread = TranslatedThread().call(kind="edit", rawInput={"path": "/w/a"}).ask(content=[whole])
    assert thread.activities()["acp-diff-c1"]["diffs"] == [
        {"path": "/w/a", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    ]
    thread.start_run()
    thread.update(status="completed", content=[*text_content("Done."), part])
    assert thread.activities()["acp-diff-c1"]["diffs"] == [{"path": "/w/a", "oldText": "two", "newText": "2"}]
    assert thread.results() == {"c1": "Done.\n--- /w/a\n+++ /w/a\n-two\n+2"}


def test_a_diff_as_text_has_only_the_lines_that_differ() -> None:
    diff = {"type": "diff", "path": "a", "oldText": "1\n2\n3\n4", "newText": "1\nX\n3b\n4"}
    new = {"type": "diff", "path": "b", "newText": "1\n"}
    thread = TranslatedThread().call(kind="edit", content=[diff, new], status="completed")
    assert thread.results() == {"c1": "--- a\n+++ a\n-2\n-3\n+X\n+3b\n--- /dev/null\n+++ b\n+1"}


def test_a_diff_stays_shown_when_the_result_has_none() -> None:
    thread = TranslatedThread().call(kind="edit", content=[{"type": "diff", "path": "a", "newText": "A"}])
    thread.update(status="completed", content=text_content("Done."))
    assert thread.activities()["acp-diff-c1"] == {
        "toolCallId": "c1",
        "diffs": [{"path": "a", "oldText": None, "newText": "A"}],
    }


def test_diffs_fit_into_one_event_together() -> None:
    diffs = [
        {"type": "diff", "path": f"{n}", "oldText": "\x01" * 99_999, "newText": "\x02" * 99_999} for n in range(99)
    ]
    thread = TranslatedThread().call(kind="edit", title="Edit", content=diffs, status="completed")
    assert len(thread.activities()["acp-diff-c1"]["diffs"]) == 50


def test_hard_spot_6_output_in_deltas_is_shown_line_by_line_and_collected() -> None:
    """Codex: the output is nowhere else."""
    thread = TranslatedThread().call(status="in_progress", kind="execute", title="make", rawInput={"command": "make"})
    for data in ("one\ntw", "o\n", "thr"):
        thread.update(_meta={"terminal_output_delta": {"data": data, "terminal_id": "c1"}})
    assert thread.activities()["acp-tool-c1"]["output"] == ["one\n", "two\n"]
    thread.update(
        status="completed", _meta={"terminal_output_delta": {"data": "ee"}, "terminal_exit": {"exit_code": 2}}
    )
    assert thread.results() == {"c1": "one\ntwo\nthree\n[exit code 2]"}
    assert thread.activities()["acp-tool-c1"] == {
        "toolCallId": "c1",
        "name": "execute",
        "label": "make",
        "kind": "execute",
        "status": "completed",
        "exitCode": 2,
    }


def test_hard_spot_6_output_that_is_repeated_whole_is_shown_once() -> None:
    """OpenCode: the content is the whole output so far."""
    thread = TranslatedThread().call(status="in_progress", kind="execute")
    for text in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n"):
        thread.update(content=text_content(text))
    deltas = [event.patch for event in thread.run_events if isinstance(event, e.ActivityDelta)]
    assert deltas == [
        [{"op": "add", "path": "/output", "value": ["one\n"]}],
        [{"op": "add", "path": "/output/-", "value": "two\n"}],
        [{"op": "add", "path": "/output/-", "value": "three\n"}],
    ]
    thread.update(content=text_content("another\n"))
    assert thread.activities()["acp-tool-c1"]["output"] == ["another\n"]


def test_only_the_end_of_a_long_output_is_shown_and_its_beginning_and_end_are_the_result() -> None:
    thread = TranslatedThread().call(status="in_progress", kind="execute")
    for number in range(20_000):
        thread.update(_meta={"terminal_output_delta": {"data": f"line {number} {'.' * 40}\n"}})
    shown = "".join(thread.activities()["acp-tool-c1"]["output"])
    assert shown.endswith(f"line 19999 {'.' * 40}\n")
    assert len(shown) <= 16 << 10
    result = thread.update(status="completed").results()["c1"]
    assert isinstance(result, str)
    assert result.startswith("line 0 ")
    assert result.endswith(f"line 19999 {'.' * 40}\n")
    assert len(result.encode()) <= MAX_RESULT_BYTES + 100


def test_one_delta_may_be_longer_than_everything_that_is_shown() -> None:
    thread = TranslatedThread().call(status="in_progress", kind="execute")
    for text in ("a" * (1 << 20), "ü" * (1 << 20) + "\nend\n"):
        thread.update(_meta={"terminal_output_delta": {"data": text}})
    assert "".join(thread.activities()["acp-tool-c1"]["output"]).endswith("ü\nend\n")
    result = thread.update(status="completed").results()["c1"]
    assert isinstance(result, str)
    assert (result[:3], result[-5:], len(result) <= MAX_RESULT_BYTES) == ("aaa", "\nend\n", True)


def test_a_long_result_is_cut_in_the_middle_and_not_in_a_character() -> None:
    thread = TranslatedThread().call(name="Read").update(status="completed", content=text_content("ä€😀" * 300_000))
    result = thread.results()["c1"]
    assert isinstance(result, str)
    assert set(result) <= set("ä€😀\n[]0123456789bytes are left out here")
    assert len(result.encode()) <= MAX_RESULT_BYTES + 100


def test_arguments_of_any_size_stay_valid_json() -> None:
    thread = TranslatedThread().call(
        name="Write", rawInput={"path": "a", "content": "x" * (12 << 20)}, status="in_progress"
    )
    arguments = thread.arguments()["c1"]
    assert (arguments["path"], len(arguments["content"]) < 1 << 20) == ("a", True)


def test_arguments_that_are_nested_without_end_are_cut() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = {"a": deep}
    assert TranslatedThread().call(name="x", rawInput=deep, status="in_progress").arguments()["c1"]["a"]


def test_the_activity_begins_when_there_is_more_to_show_than_the_start_has() -> None:
    thread = TranslatedThread().call(name="Bash", title="Terminal", status="pending")
    assert thread.activities() == {}
    thread.update(title="make test")
    assert thread.activities()["acp-tool-c1"]["label"] == "make test"


def test_what_may_be_a_command_is_no_title_of_the_activity() -> None:
    """The audience `safe` sees the title of an activity, and no command."""
    thread = TranslatedThread().call(name="Bash", title="cat secret.txt", status="in_progress")
    assert "title" not in thread.activities()["acp-tool-c1"]


def test_an_activity_begins_with_a_snapshot_in_every_run_and_only_if_it_has_changed() -> None:
    thread = TranslatedThread().call(name="Bash", status="in_progress").ask()
    thread.start_run()
    thread.update(_meta={"claudeCode": {"toolResponse": {}}})
    assert thread.run_events == []
    thread.update(title="new").update(title="newer")
    assert [type(event) for event in thread.run_events] == [e.ActivitySnapshot, e.ActivityDelta]


def test_a_tool_that_works_in_silence_is_reported_and_shows_its_arguments() -> None:
    thread = (
        TranslatedThread().call(name="Bash", rawInput={"command": "make"}, status="pending").call("c2", name="Read")
    )
    thread.add(thread.translator.report_silence(61.4))
    assert thread.arguments() == {"c1": {"command": "make"}}
    assert thread.activities()["acp-tool-c1"]["progress"] == "No output for 61 seconds."
    thread.update(_meta={"terminal_output_delta": {"data": "done\n"}})
    assert "progress" not in thread.activities()["acp-tool-c1"]


def test_a_tool_works_from_its_start_to_its_result() -> None:
    thread = TranslatedThread()
    assert not thread.translator.is_tool_working
    assert thread.call(name="Bash").translator.is_tool_working
    assert not thread.update(status="failed").translator.is_tool_working


def test_a_second_result_and_later_updates_change_nothing_but_the_activity() -> None:
    thread = TranslatedThread().call(name="Bash").update(status="completed", rawOutput="one")
    thread.update(status="failed", rawOutput="two").update(title="late").call(status="completed", rawOutput="three")
    assert thread.results() == {"c1": "one"}
    assert thread.activities()["acp-tool-c1"]["status"] == "completed"


def test_hard_spot_12_a_doubled_id_is_another_call_under_another_id() -> None:
    thread = TranslatedThread().call(name="Bash").update(status="completed", rawOutput="one")
    thread.call(name="Read", status="pending").update(status="completed", rawOutput="two")
    assert thread.results() == {"c1": "one", "c1~2": "two"}
    assert thread.translator.irregularities == {"doubled_id": 1}


def test_an_id_that_the_thread_has_or_that_no_client_could_send_is_replaced() -> None:
    thread = TranslatedThread()
    thread.used_ids.add("c1")
    thread.call("c1", name="x").call("bad\nid", name="y")
    starts = [event.tool_call_id for event in thread.run_events if isinstance(event, e.ToolCallStart)]
    assert starts[0] == "c1~2"
    assert "\n" not in starts[1]
    record = thread.translator.record_of("c1")
    assert record is not None
    assert record.client_id == "c1~2"


def test_a_late_update_of_a_call_of_an_earlier_turn_is_no_new_call() -> None:
    thread = TranslatedThread().call(name="Bash").update(status="completed").end_turn()
    thread.start_run()
    thread.update(_meta={"terminal_output_delta": {"data": "late"}})
    assert [word.split()[:2] for word in thread.words()] == [["CUSTOM", "acp:tool_call_update"]]
    assert thread.translator.irregularities == {"late_update": 1}


def test_the_number_of_remembered_calls_is_bounded() -> None:
    thread = TranslatedThread()
    for number in range(1500):
        thread.call(f"c{number}", name="x", status="completed")
    thread.turn.clear()
    assert (len(thread.turn.late_ids), "c1499" in thread.turn.late_ids) == (1000, True)


@pytest.mark.parametrize("call_id", [None, "", 7, [], {}])
def test_a_call_without_an_id_is_kept_as_an_event(call_id: Any) -> None:
    thread = TranslatedThread().call(call_id, name="Bash")
    assert [type(event) for event in thread.run_events] == [e.Custom]
    assert thread.translator.emit_requested_call({"toolCallId": call_id}) == []
    assert thread.translator.irregularities == {"malformed": 2}


def test_hard_spot_2_another_call_may_end_while_one_waits_for_an_answer() -> None:
    thread = TranslatedThread().call("a", name="Bash", status="in_progress", rawInput={"command": "x"})
    thread.call("b", name="Bash", status="in_progress", rawInput={"command": "y"}).ask("a")
    thread.start_run()
    thread.update("b", status="completed", rawOutput="y").ask("a")
    thread.start_run()
    thread.update("a", status="completed", rawOutput="x").end_turn()
    assert thread.results() == {"a": "x", "b": "y"}


def test_a_call_that_is_incomplete_when_the_run_ends_starts_again_under_another_id() -> None:
    thread = (
        TranslatedThread().call("a", name="Write", rawInput={"path": "x"}).call("b", name="Bash", status="in_progress")
    )
    thread.ask("b")
    assert thread.results() == {"a": CUT_OFF}
    thread.start_run()
    thread.update("a", rawInput={"path": "x", "content": "y"}).update("a", status="completed", rawOutput="ok")
    thread.update("b", status="completed", rawOutput="done")
    assert thread.results() == {"a": CUT_OFF, "a~2": "ok", "b": "done"}
    assert thread.arguments()["a~2"] == {"path": "x", "content": "y"}


def test_calls_without_a_result_get_one_at_the_end_of_the_turn() -> None:
    thread = TranslatedThread().call(name="Bash", rawInput={"command": "ls"}).end_turn()
    assert thread.words()[1:] == ['ARGS c1 {"command":"ls"}', "END c1", f"RESULT c1 {UNREPORTED} (failed)"]
    assert thread.activities()["acp-tool-c1"]["status"] == "failed"


def test_calls_without_a_result_get_one_when_the_turn_fails() -> None:
    thread = TranslatedThread().call(name="Bash").end_turn(is_error=True)
    assert thread.results() == {"c1": ABANDONED}
    assert thread.translator.finish_turn() == []


def client_call(thread: TranslatedThread, agent: str) -> TranslatedThread:
    """Let an agent report a call of the client's tool, in its own way, until the tool is called."""
    match agent:
        case "claude":
            name = "mcp__ambient__pick_number"
            thread.call(name=name, rawInput={}, status="pending", title=name).update(name=name, rawInput={"max": 10})
            return thread.add(thread.translator.emit_requested_call({"toolCallId": "c1", "name": name}))
        case "codex":
            raw = {"server": "ambient", "tool": "pick_number", "arguments": {"max": 10}}
            meta = {"is_mcp_tool_call": True}
            return thread.call(title="mcp.ambient.pick_number", status="in_progress", rawInput=raw, _meta=meta)
        case "gemini":
            title, content = "pick_number (ambient MCP Server)", text_content('{"max":10}')
            request = {"toolCallId": "c1", "title": title, "content": content, "status": "pending", "locations": []}
            return thread.add(thread.translator.emit_requested_call(request))
        case _:
            thread.call(title="ambient_pick_number", kind="other", status="pending", rawInput={})
            return thread.update(status="in_progress", kind="other", rawInput={"max": 10})


AGENTS = ["claude", "codex", "gemini", "opencode"]


@pytest.mark.parametrize("agent", AGENTS)
def test_hard_spot_16_a_call_of_the_clients_tool_has_its_name_and_its_plain_arguments(agent: str) -> None:
    thread = client_call(TranslatedThread(own_tool=own_tool), agent)
    assert thread.words() == ["CALL c1 pick_number", 'ARGS c1 {"max":10}', "END c1"]
    record = thread.translator.record_of("c1")
    assert record is not None
    assert (record.is_client_tool, record.input) == (True, {"max": 10})
    assert thread.translator.emit_client_call("pick_number", {"max": 10}, "c1") == (record, [])
    assert thread.activities() == {}
    assert not thread.translator.is_tool_working


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("status", ["completed", "failed"])
def test_the_result_of_the_client_is_the_only_one(agent: str, status: str) -> None:
    thread = client_call(TranslatedThread(own_tool=own_tool), agent).end_run(e.Success(pending_tool_call_ids=["c1"]))
    thread.start_run(answered=["c1"])
    thread.update(status=status, rawOutput="seven", content=text_content("seven")).say("Seven.").end_turn()
    assert thread.results() == {}


def test_a_call_of_the_clients_tool_that_fails_before_the_client_answers_has_a_result() -> None:
    thread = client_call(TranslatedThread(own_tool=own_tool), "codex").update(status="failed", rawOutput="Timed out.")
    assert thread.words()[-1] == "RESULT c1 Timed out. (failed)"


def test_a_call_that_reaches_the_clients_tool_first_starts_with_the_arguments_it_has_there() -> None:
    thread = TranslatedThread(own_tool=own_tool)
    record, events = thread.translator.emit_client_call("pick_number", {"max": 3}, "c9")
    thread.add(events)
    assert (record.client_id, record.is_client_tool) == ("c9", True)
    assert thread.words() == ["CALL c9 pick_number", 'ARGS c9 {"max":3}', "END c9"]


def test_a_call_that_reaches_the_clients_tool_without_an_id_is_the_reported_one() -> None:
    thread = client_call(TranslatedThread(own_tool=own_tool), "opencode")
    record, events = thread.translator.emit_client_call("pick_number", {"max": 10})
    assert (record.call_id, events) == ("c1", [])
    other, events = thread.translator.emit_client_call("pick_number", {"max": 99})
    assert other is not record
    thread.add(events)
    assert len(thread.arguments()) == 2


def test_hard_spot_16_equal_calls_that_reach_the_clients_tool_without_ids_are_different_ones() -> None:
    thread = TranslatedThread(own_tool=own_tool)
    for call_id in ("a", "b"):
        thread.call(call_id, title="ambient_pick_number", status="pending", rawInput={})
        thread.update(call_id, status="in_progress", rawInput={"max": 10})
    records = [thread.translator.emit_client_call("pick_number", {"max": 10})[0] for _ in range(2)]
    assert [record.client_id for record in records] == ["a", "b"]


def test_hard_spot_16_a_call_that_is_reported_after_it_has_reached_the_clients_tool_is_one_call() -> None:
    thread = TranslatedThread(own_tool=own_tool)
    record, events = thread.translator.emit_client_call("pick_number", {"max": 10})
    thread.add(events).end_run(e.Success(pending_tool_call_ids=[record.client_id]))
    thread.start_run(answered=[record.client_id])
    thread.call("late", title="ambient_pick_number", status="pending", rawInput={})
    thread.update("late", status="completed", content=text_content("seven")).end_turn()
    assert thread.words() == []
    assert (list(thread.arguments()), thread.results()) == ([record.client_id], {})


def test_a_call_that_reaches_the_clients_tool_under_the_id_of_another_call_is_a_call_of_its_own() -> None:
    thread = TranslatedThread(own_tool=own_tool).call("c1", name="Bash", status="in_progress")
    record, events = thread.translator.emit_client_call("pick_number", {}, "c1")
    thread.add(events).update("c1", status="completed", rawOutput="done")
    assert (record.client_id == "c1", record.name, thread.results()) == (False, "pick_number", {"c1": "done"})


def test_a_call_that_has_reached_the_clients_tool_with_an_id_waits_for_its_own_report() -> None:
    thread = TranslatedThread(own_tool=own_tool)
    record, events = thread.translator.emit_client_call("pick_number", {"max": 1}, "a")
    thread.add(events)
    for call_id in ("b", "a"):
        thread.call(call_id, name="mcp__ambient__pick_number", status="in_progress", rawInput={"max": 2})
    assert (record.client_id, thread.arguments()) == ("a", {"a": {"max": 1}, "b": {"max": 2}})


def test_arguments_that_the_agent_reports_differently_do_not_make_another_call() -> None:
    thread = client_call(TranslatedThread(own_tool=own_tool), "opencode")
    record, events = thread.translator.emit_client_call("pick_number", {"max": 10, "min": 0})
    assert (record.call_id, events) == ("c1", [])


def test_a_call_of_the_clients_tool_without_arguments_gets_those_of_the_tool() -> None:
    thread = TranslatedThread(own_tool=own_tool).call(title="ambient_pick_number", status="pending")
    record, events = thread.translator.emit_client_call("pick_number", {"max": 5})
    thread.add(events)
    assert (record.call_id, thread.arguments()) == ("c1", {"c1": {"max": 5}})


def test_a_call_of_the_clients_tool_that_never_gets_arguments_has_none() -> None:
    thread = TranslatedThread(own_tool=own_tool).call(title="ambient_pick_number", status="in_progress")
    assert thread.arguments() == {"c1": {}}


def test_a_call_that_has_started_under_another_name_does_not_become_the_clients() -> None:
    thread = TranslatedThread(own_tool=own_tool).call(name="Bash").update(title="pick_number", status="completed")
    assert thread.words()[0] == "CALL c1 Bash"
    assert thread.results() == {"c1": EMPTY_RESULT}
