"""What is known about the calls of a turn when a request about one of them arrives."""

from __future__ import annotations

from ambient_runner.bridges.acp.known_calls import KnownCalls
from tests.bridges.claude.world import PAINT


def test_the_newest_members_of_a_call_count() -> None:
    calls = KnownCalls()
    calls.add({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "one", "rawInput": {"a": 1}}, None)
    calls.add({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": None, "rawInput": {"a": 2}}, None)
    calls.add({"toolCallId": "c", "kind": "execute"}, None)
    known = calls.members_of("c")
    assert (known["title"], known["rawInput"], known["kind"]) == ("one", {"a": 2}, "execute")


def test_a_call_with_an_id_that_was_used_before_inherits_nothing() -> None:
    calls = KnownCalls()
    calls.add({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "paint"}, PAINT)
    calls.add({"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "execute"}, None)
    assert "title" not in calls.members_of("c")
    assert calls.own_tool({"toolCallId": "c"}) is None


def test_a_call_that_has_ended_is_forgotten_and_so_is_one_without_an_id() -> None:
    calls = KnownCalls()
    calls.add({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "one"}, None)
    calls.add({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}, None)
    calls.add({"sessionUpdate": "tool_call", "title": "nameless"}, None)
    assert (calls.members_of("c"), calls.members_of("")) == ({}, {})


def test_a_tool_of_the_client_is_known_by_the_id_of_its_call_until_the_turn_ends() -> None:
    calls = KnownCalls()
    calls.add({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "paint"}, PAINT)
    calls.add({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}, None)
    assert calls.own_tool({"toolCallId": "c"}) is PAINT
    assert calls.own_tool({"toolCallId": "d"}) is None
    calls.clear()
    assert calls.own_tool({"toolCallId": "c"}) is None
