"""Text, thoughts, plans, subagents and everything else in an agent's updates that is not a tool call."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.protocol import events as e
from tests.bridges.acp.translated import TranslatedThread

CHILD = {"_meta": {"claudeCode": {"parentToolUseId": "task"}}}


def chunk(block: Any, name: str = "agent_message_chunk", **members: Any) -> dict[str, Any]:
    return {"sessionUpdate": name, "content": block, **members}


def last_custom(thread: TranslatedThread) -> tuple[str, Any]:
    event = thread.events[-1]
    assert isinstance(event, e.Custom)
    return event.name, event.value


def test_chunks_of_one_message_are_one_message() -> None:
    thread = TranslatedThread().say("Hel", "m1").say("lo", "m1").say("", "m1")
    assert thread.words() == ["TEXT message-1", "+ Hel", "+ lo"]


def test_an_empty_chunk_begins_nothing() -> None:
    thread = TranslatedThread().say("", "m1").think("")
    assert (thread.words(), thread.translator.is_streaming) == ([], False)


def test_another_message_id_begins_another_message() -> None:
    thread = TranslatedThread().say("One", "m1").say("Two", "m2")
    assert thread.words() == ["TEXT message-1", "+ One", "END message-1", "TEXT message-2", "+ Two"]


def test_text_without_a_message_id_after_one_with_an_id_is_another_message() -> None:
    """Codex prints its warnings like that."""
    thread = TranslatedThread().say("One", "m1").say("A warning.")
    assert thread.words() == ["TEXT message-1", "+ One", "END message-1", "TEXT message-2", "+ A warning."]


def test_hard_spot_5_without_message_ids_a_thought_or_a_tool_call_ends_the_message() -> None:
    thread = TranslatedThread().say("One").think("Hm.").say("Two").call(name="Read", status="pending").say("Three")
    assert thread.words() == [
        "TEXT message-1",
        "+ One",
        "END message-1",
        "THOUGHT reasoning-1",
        "+ Hm.",
        "END reasoning-1",
        "TEXT message-2",
        "+ Two",
        "END message-2",
        "CALL c1 Read",
        "TEXT message-3",
        "+ Three",
    ]


def test_a_thought_and_the_text_after_it_may_have_the_same_message_id() -> None:
    thread = TranslatedThread().think("Hm.", "m1").say("Yes.", "m1")
    assert thread.words() == ["THOUGHT reasoning-1", "+ Hm.", "END reasoning-1", "TEXT message-1", "+ Yes."]


def test_what_the_agent_repeats_of_the_user_is_dropped() -> None:
    assert TranslatedThread().feed(chunk({"type": "text", "text": "hi"}, "user_message_chunk")).words() == []


def test_a_text_of_any_length_arrives_whole() -> None:
    text = "\x01" * (3 << 20)
    thread = TranslatedThread().say(text)
    assert "".join(event.delta for event in thread.events if isinstance(event, e.TextMessageContent)) == text


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "A"}},
        {"type": "hologram"},
    ],
)
def test_a_block_that_is_not_text_becomes_an_activity_between_two_messages(block: dict[str, Any]) -> None:
    thread = TranslatedThread().say("Look:", "m1").feed(chunk({**block, "_meta": {}})).say("Nice.", "m1")
    assert thread.words() == ["TEXT message-1", "+ Look:", "END message-1", "TEXT message-2", "+ Nice."]
    assert thread.activities() == {"content-1": block}


def test_an_image_that_is_too_large_for_an_event_is_shortened() -> None:
    thread = TranslatedThread().feed(chunk({"type": "image", "data": "A" * (12 << 20), "mimeType": "image/png"}))
    [content] = thread.activities().values()
    assert (content["type"], content["mimeType"], len(content["data"]) < 1 << 20) == ("image", "image/png", True)


def test_a_plan_is_an_activity_that_is_replaced_and_a_part_of_the_state() -> None:
    entries = [{"content": "Look", "priority": "high", "status": "in_progress"}]
    done = [{**entries[0], "status": "completed"}]
    thread = TranslatedThread()
    for items in (entries, done):
        thread.feed({"sessionUpdate": "plan", "entries": items})
    assert thread.activities() == {"plan-1": {"entries": done}}
    assert thread.state.value == {"acp": {"plan": done}}


def test_a_plan_of_the_next_turn_is_another_activity() -> None:
    thread = TranslatedThread().feed({"sessionUpdate": "plan", "entries": []}).end_turn()
    thread.start_run()
    thread.feed({"sessionUpdate": "plan", "entries": []})
    assert list(thread.activities()) == ["plan-1", "plan-2"]


def test_plans_with_ids_are_updated_and_removed_one_by_one() -> None:
    thread = TranslatedThread()
    for plan in (
        {"type": "items", "planId": "a", "entries": [{"content": "x", "priority": "low", "status": "pending"}]},
        {"type": "markdown", "planId": "b", "content": "# Plan"},
        {"type": "file", "planId": "c", "uri": "file:///plan.md"},
    ):
        thread.feed({"sessionUpdate": "plan_update", "plan": plan})
    thread.feed(
        {"sessionUpdate": "plan_removed", "planId": "a"}, {"sessionUpdate": "plan_removed", "planId": "unknown"}
    )
    assert list(thread.activities().values()) == [
        {"entries": [], "removed": True},
        {"entries": [], "markdown": "# Plan"},
        {"entries": [], "uri": "file:///plan.md"},
    ]
    assert list(thread.state.value["acp"]["plans"]) == ["b", "c"]


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "notice", "severity": "warning", "title": "Slow", "description": "The model is slow."},
        {"sessionUpdate": "compaction_update", "compactionId": "x", "status": "in_progress"},
        {"sessionUpdate": "compaction_summary_chunk", "compactionId": "x", "content": {"type": "text", "text": "So"}},
        {"sessionUpdate": "session_message", "messageId": "x", "content": []},
        {"sessionUpdate": "session_message_chunk", "messageId": "x", "content": {}},
        {"sessionUpdate": "_vendor/thing", "answer": 42},
        {"sessionUpdate": "next_years_update", "answer": [1, {"a": None}]},
    ],
)
def test_an_update_without_a_counterpart_becomes_a_custom_event(update: dict[str, Any]) -> None:
    name = update["sessionUpdate"]
    value = {key: item for key, item in update.items() if key != "sessionUpdate"}
    assert last_custom(TranslatedThread().feed(update)) == (f"acp:{name}", value)


@pytest.mark.parametrize("name", ["permission", "session", "refusal", "mode_set_back", "network_refused", "retry"])
def test_an_agent_cannot_forge_an_event_of_the_bridge(name: str) -> None:
    """An update of the name `permission` was shown as a person's answer, in the record of who has allowed what."""
    for forged in (name, f"{name[:2]}\x00{name[2:]}"):
        update = {"sessionUpdate": forged, "decision": "allow", "by": "person"}
        value = {"decision": "allow", "by": "person"}
        assert last_custom(TranslatedThread().feed(update)) == (f"acp:agent_{name}", value)


def test_only_updates_that_no_version_of_the_protocol_has_are_counted_as_unknown() -> None:
    thread = TranslatedThread().feed({"sessionUpdate": "notice"}, {"sessionUpdate": "_vendor"}, {"x": 1})
    assert thread.translator.irregularities == {"unknown_update": 2}


def test_a_custom_event_has_a_name_and_a_size_that_fit() -> None:
    name, value = last_custom(TranslatedThread().feed({"sessionUpdate": "x\n" * 500, "data": ["y" * (9 << 20)] * 3}))
    assert (name, len(str(value)) < 2 << 20) == ("acp:" + "x" * 64, True)


@pytest.mark.parametrize("content", [None, 7, "text", [], {"type": "text"}, {"type": "text", "text": 7}])
@pytest.mark.parametrize("name", ["agent_message_chunk", "agent_thought_chunk"])
def test_a_chunk_with_the_wrong_content_does_not_get_lost(name: str, content: Any) -> None:
    thread = TranslatedThread().feed(chunk(content, name))
    assert isinstance(thread.events[-1], e.Custom | e.ActivitySnapshot)


def test_hard_spot_7_a_mode_that_is_announced_as_text_is_no_text() -> None:
    thread = TranslatedThread(has_mode_chatter=True).say("[MODE_UPDATE] yolo").say("[MODE_UPDATE] is a word.")
    assert thread.words()[1:] == ["TEXT message-1", "+ [MODE_UPDATE] is a word."]
    assert thread.state.value == {"acp": {"modes": {"currentModeId": "yolo"}}}


def test_the_text_of_other_agents_may_look_like_an_announcement() -> None:
    assert TranslatedThread().say("[MODE_UPDATE] yolo").words() == ["TEXT message-1", "+ [MODE_UPDATE] yolo"]


def test_the_state_gets_what_has_changed_and_nothing_else() -> None:
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "a", "description": "b"}]}
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    thread = TranslatedThread().feed(commands, usage, usage, commands)
    assert thread.words() == [
        "STATE [{'op': 'add', 'path': '/acp/commands', 'value': [{'name': 'a', 'description': 'b'}]}]",
        "STATE [{'op': 'add', 'path': '/acp/usage', 'value': {'used': 1, 'size': 2}}]",
    ]


def test_what_is_done_for_a_call_is_the_work_of_a_subagent_that_ends_with_the_call() -> None:
    thread = TranslatedThread()
    thread.call("task", name="Task", rawInput={"subagent_type": "explorer", "description": "look"}, status="pending")
    thread.say("Looking.", "m1", **CHILD).call("c1", name="Read", status="completed", **CHILD)
    thread.update("task", status="completed", rawOutput="Found it.").end_turn()
    assert thread.words() == [
        "CALL task Task",
        "SUBAGENT subagent-task explorer < task",
        "TEXT message-2 @subagent-task",
        "+ Looking. @subagent-task",
        "END message-2 @subagent-task",
        "CALL c1 Read @subagent-task",
        "ARGS c1 {} @subagent-task",
        "END c1 @subagent-task",
        "RESULT c1 (empty) @subagent-task",
        'ARGS task {"subagent_type":"explorer","description":"look"}',
        "END task",
        "END subagent-task",
        "RESULT task Found it.",
    ]


def test_a_subagent_fails_with_its_call() -> None:
    thread = TranslatedThread().call("task", name="Task").say("Looking.", **CHILD)
    assert "FAILED subagent-task" in thread.update("task", status="failed").words()


def test_a_subagent_in_the_background_goes_on_after_the_result_of_its_call() -> None:
    launched = {"claudeCode": {"toolResponse": {"isAsync": True}}}
    thread = TranslatedThread().call("task", name="Agent").update("task", _meta=launched)
    thread.say("Looking.", **CHILD).update("task", status="completed").say("Found.", **CHILD).end_turn()
    assert thread.words()[-3:] == ["+ Found. @subagent-task", "END message-2 @subagent-task", "END subagent-task"]


def test_a_subagent_that_works_again_after_its_end_is_another_one_for_clients() -> None:
    thread = TranslatedThread().call("task", name="Agent").say("One.", **CHILD).update("task", status="completed")
    thread.say("Two.", **CHILD).end_turn()
    assert thread.words()[-5:] == [
        "SUBAGENT subagent-task~2 agent < task",
        "TEXT message-3 @subagent-task~2",
        "+ Two. @subagent-task~2",
        "END message-3 @subagent-task~2",
        "END subagent-task~2",
    ]


def test_a_subagent_starts_again_in_the_run_that_continues_the_turn() -> None:
    thread = TranslatedThread().call("task", name="Agent", rawInput={"subagent_type": "x"}, status="in_progress")
    thread.ask("c1", name="Bash", rawInput={"command": "ls"}, **CHILD)
    assert thread.words()[-1] == "END subagent-task (suspended)"
    thread.start_run()
    thread.update("c1", status="completed", rawOutput="a.txt")
    assert thread.words() == [
        "SUBAGENT subagent-task x < task",
        "RESULT c1 a.txt @subagent-task",
    ]


def test_a_subagent_may_have_subagents() -> None:
    thread = TranslatedThread().call("task", name="Task")
    thread.call("inner", name="Task", **CHILD)
    thread.say("Deep.", _meta={"claudeCode": {"parentToolUseId": "inner"}}).end_turn()
    assert [word for word in thread.words() if word.startswith("SUBAGENT")] == [
        "SUBAGENT subagent-task agent < task",
        "SUBAGENT subagent-inner agent < subagent-task",
    ]


def test_calls_that_name_each_other_as_parents_harm_nothing() -> None:
    thread = TranslatedThread().call("a", name="Task", _meta={"x": {"parentToolUseId": "b"}})
    thread.call("b", name="Task", _meta={"x": {"parentToolUseId": "a"}})
    thread.call("c", name="Task", _meta={"x": {"parentToolUseId": "c"}}).end_turn()
    assert sorted(thread.results()) == ["a", "b", "c"]


def test_a_child_session_is_a_subagent_from_its_announcement_to_its_end() -> None:
    announced = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "look", "description": "explorer"}
    thread = TranslatedThread().feed({**announced, "state": {"state": "running"}})
    thread.feed(chunk({"type": "text", "text": "Looking."}, messageId="m1", **CHILD), session="child")
    thread.feed({"sessionUpdate": "subagent_update", "sessionId": "child", "state": {"state": "requires_action"}})
    thread.feed({**announced, "state": {"state": "idle", "stopReason": "end_turn"}})
    assert not thread.translator.is_streaming
    assert thread.words() == [
        "SUBAGENT subagent-child look < None",
        "TEXT message-1 @subagent-child",
        "+ Looking. @subagent-child",
        "END message-1 @subagent-child",
        "END subagent-child",
    ]


def test_a_child_session_can_fail_and_an_announcement_without_a_session_is_kept_as_an_event() -> None:
    update = {
        "sessionUpdate": "subagent_update",
        "sessionId": "child",
        "state": {"state": "idle", "stopReason": "error"},
    }
    assert TranslatedThread().feed(update).words()[-1] == "FAILED subagent-child"
    assert last_custom(TranslatedThread().feed({"sessionUpdate": "subagent_update"})) == ("acp:subagent_update", {})


def test_what_a_child_session_says_about_itself_does_not_change_the_state() -> None:
    thread = TranslatedThread().feed({"sessionUpdate": "plan", "entries": []})
    thread.feed({"sessionUpdate": "subagent_update", "sessionId": "child", "state": {"state": "running"}})
    thread.feed({"sessionUpdate": "usage_update", "used": 7}, session="child")
    thread.feed({"sessionUpdate": "plan", "entries": [{"content": "x"}]}, session="child")
    assert thread.state.value == {"acp": {"plan": []}}
    assert thread.words()[-1] == "CUSTOM acp:usage_update {'used': 7} @subagent-child"
    assert [content["entries"] for content in thread.activities().values()] == [
        [],
        [{"content": "x", "priority": "", "status": ""}],
    ]


def test_an_event_of_the_bridge_itself_is_a_custom_event() -> None:
    thread = TranslatedThread()
    thread.add(thread.translator.emit_bridge_event("permission", {"by": "rule"}))
    assert thread.words() == ["CUSTOM acp:permission {'by': 'rule'}"]


def test_text_is_open_until_the_next_item() -> None:
    thread = TranslatedThread()
    assert not thread.translator.is_streaming
    assert thread.say("Hi.").translator.is_streaming
    assert not thread.call(status="in_progress", name="Bash").translator.is_streaming


def test_hard_spot_20_text_of_a_subagent_is_open_while_the_agent_asks() -> None:
    thread = TranslatedThread().say("Hi.").say("Looking.", **CHILD)
    thread.add(thread.translator.emit_requested_call({"toolCallId": "c1", "name": "Bash"}))
    assert thread.translator.is_streaming


def test_the_ids_of_everything_in_the_turn_are_known_until_it_ends() -> None:
    thread = TranslatedThread().say("One").think("Hm.").call(name="Read", status="completed")
    thread.feed({"sessionUpdate": "plan", "entries": []})
    assert list(thread.turn.message_ids) == ["message-1", "reasoning-1", "acp-tool-c1", "result-1", "plan-1"]
    thread.turn.clear()
    assert not thread.turn.message_ids
