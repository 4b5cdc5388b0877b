"""Calls of the client's tools that wait: which reported call each one is, and how it gets its result."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from ambient_runner.bridges.toolkit.pending_calls import CallRecord, PendingCall, PendingCalls
from ambient_runner.bridges.toolkit.turns import TurnToolResult
from tests.machine_speed import unless_hung


def record(client_id: str, tool: str = "paint", arguments: Any = None) -> CallRecord:
    return CallRecord(client_id=client_id, tool=tool, arguments=arguments)


def result(call_id: str, content: str = "done") -> TurnToolResult:
    return TurnToolResult(call_id=call_id, name="paint", content=content)


def client_ids(calls: PendingCalls) -> list[str | None]:
    return [call.client_id for call in calls.open_calls]


async def test_each_call_is_announced_and_waits_for_its_result() -> None:
    announced: list[PendingCall] = []
    calls = PendingCalls(announced.append)
    call = calls.add_call("paint", {"color": "teal"})
    assert (announced, calls.open_calls, call.result.done()) == ([call], [call], False)
    calls.match_records({"a": record("c1", arguments={"color": "teal"})})
    calls.deliver_results([result("c1", "teal it is")])
    assert (await call.result).content == "teal it is"
    assert calls.open_calls == []


async def test_calls_of_one_tool_are_told_apart_by_their_arguments() -> None:
    calls = PendingCalls(lambda call: None)
    for color in ("red", "blue"):
        calls.add_call("paint", {"color": color})
    calls.match_records(
        {"a": record("blue", arguments={"color": "blue"}), "b": record("red", arguments={"color": "red"})}
    )
    assert client_ids(calls) == ["red", "blue"]


async def test_the_agents_id_counts_more_than_the_arguments() -> None:
    calls = PendingCalls(lambda call: None)
    for agent_id in ("b", "a"):
        calls.add_call("paint", {"color": "red"}, agent_id=agent_id)
    same = {"color": "red"}
    calls.match_records({"a": record("c1", arguments=same), "b": record("c2", arguments=same)})
    assert client_ids(calls) == ["c2", "c1"]


async def test_a_call_whose_id_was_not_reported_yet_is_not_taken_for_another_of_the_same_tool() -> None:
    calls = PendingCalls(lambda call: None)
    calls.add_call("paint", {"color": "red"}, agent_id="b")
    records = {"a": record("c1", arguments={"color": "blue"})}
    calls.match_records(records)
    assert client_ids(calls) == [None]
    calls.match_records({**records, "b": record("c2")})
    assert client_ids(calls) == ["c2"]


async def test_calls_whose_arguments_are_not_reported_are_matched_in_their_order() -> None:
    calls = PendingCalls(lambda call: None)
    for color in ("red", "blue"):
        calls.add_call("paint", {"color": color})
    calls.match_records({"a": record("look", tool="look"), "b": record("c1"), "c": record("c2")})
    assert client_ids(calls) == ["c1", "c2"]


async def test_a_result_may_arrive_before_its_call_waits() -> None:
    calls = PendingCalls(lambda call: None)
    calls.deliver_results([result("c1", "early")])
    call = calls.add_call("paint", {})
    calls.match_records({"a": record("c1", arguments={})})
    assert (await call.result).content == "early"


async def test_a_call_that_was_answered_is_not_found_again() -> None:
    calls = PendingCalls(lambda call: None)
    records = {"a": record("c1", arguments={}), "b": record("c2", arguments={})}
    first = calls.add_call("paint", {})
    calls.match_records(records)
    calls.deliver_results([result("c1")])
    calls.withdraw_call(first)
    calls.add_call("paint", {})
    calls.match_records(records)
    assert client_ids(calls) == ["c2"]


async def test_a_withdrawn_call_may_be_made_again() -> None:
    calls = PendingCalls(lambda call: None)
    records = {"a": record("c1", arguments={})}
    first = calls.add_call("paint", {})
    calls.match_records(records)
    calls.withdraw_call(first)
    assert (calls.open_calls, first.result.cancelled()) == ([], True)
    calls.deliver_results([result("c1", "for either")])
    again = calls.add_call("paint", {})
    calls.match_records(records)
    assert (await again.result).content == "for either"


async def test_cancelling_the_wait_withdraws_the_call() -> None:
    announced = asyncio.Event()
    calls = PendingCalls(lambda call: announced.set())
    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calls.wait_for_result, "paint", dict[str, Any]())
            await announced.wait()
            assert len(calls.open_calls) == 1
            tasks.cancel_scope.cancel()
    assert calls.open_calls == []


async def test_a_result_is_delivered_to_whoever_waits() -> None:
    calls = PendingCalls(lambda call: None)
    with unless_hung():
        waiting = asyncio.ensure_future(calls.wait_for_result("paint", {}))
        await asyncio.sleep(0)
        calls.match_records({"a": record("c1", arguments={})})
        calls.deliver_results([result("c1")])
        assert await waiting == result("c1")
    assert calls.open_calls == []


@pytest.mark.parametrize("records", [{}, {"a": record("c1", tool="look")}], ids=["none", "another tool"])
async def test_a_call_that_nobody_reported_stays_open(records: dict[str, CallRecord]) -> None:
    calls = PendingCalls(lambda call: None)
    calls.add_call("paint", {})
    calls.match_records(records)
    assert client_ids(calls) == [None]


async def test_a_call_whose_id_is_known_at_once_gets_a_result_that_came_early() -> None:
    calls = PendingCalls(lambda call: None)
    calls.deliver_results([result("c1", "early")])
    call = calls.add_call("paint", {})
    calls.assign_client_id(call, "c1")
    assert (await call.result).content == "early"
