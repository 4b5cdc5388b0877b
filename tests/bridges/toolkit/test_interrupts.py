"""Until when a question may be answered, and what is said to an answer that comes too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ambient_runner.bridges.toolkit.interrupts import (
    approval_schema,
    cancelled_answer,
    check_approval,
    expires_at,
    interrupt_lapsed_events,
    is_approved,
    join_names,
    read_answer,
    read_approval,
    resolved_interrupt_ids,
)
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.events import ResumeEntry
from ambient_runner.protocol.reserved_events import PlatformEvent


def test_an_interrupt_expires_so_many_seconds_after_it_is_raised() -> None:
    before = datetime.now(UTC)
    told = expires_at(0.5)
    assert told is not None
    assert before <= datetime.fromisoformat(told) - timedelta(seconds=0.5) <= datetime.now(UTC)


def test_without_a_limit_it_stays_open() -> None:
    assert expires_at(None) is None


def test_an_answer_to_a_lapsed_interrupt_is_reported_and_a_cancellation_is_not() -> None:
    entries = [ResumeEntry(interrupt_id="a", status="resolved"), ResumeEntry(interrupt_id="b", status="cancelled")]
    assert interrupt_lapsed_events(resolved_interrupt_ids(entries)) == [
        PlatformEvent(name="ambient:interrupt_lapsed", value={"interruptIds": ["a"]})
    ]
    assert interrupt_lapsed_events(resolved_interrupt_ids(entries[1:])) == []


@pytest.mark.parametrize(
    ("answer", "approves"),
    [
        ({"approved": True}, True),
        ({"approved": True, "message": "fine"}, True),
        ({"approved": False}, False),
        ({"approved": 1}, False),
        ({"approved": "true"}, False),
        ({}, False),
        (True, False),
        ("yes", False),
        (None, False),
        (cancelled_answer(), False),
    ],
)
def test_only_an_explicit_approval_approves(answer: Any, approves: bool) -> None:
    assert is_approved(answer) is approves


def test_an_approval_schema_requires_only_the_decision() -> None:
    schema = approval_schema(message={"type": "string"})
    assert schema["required"] == ["approved"]
    assert schema["properties"] == {"approved": {"type": "boolean"}, "message": {"type": "string"}}


def test_one_cancelled_answer_does_not_change_another() -> None:
    cancelled_answer()["cancelled"] = False
    assert cancelled_answer() == {"cancelled": True}


@pytest.mark.parametrize(
    "answer", [None, True, "yes", [], {}, {"approved": 1}, {"approved": None}, {"approved": True, "always": 1}]
)
def test_an_answer_that_says_neither_yes_nor_no_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidInput):
        check_approval(answer)


def test_members_without_a_value_are_left_out_and_further_ones_have_their_type() -> None:
    answer = {"approved": False, "message": None, "editedArgs": {"a": 1}, "more": [1]}
    assert check_approval(answer, editedArgs=dict) == {"approved": False, "editedArgs": {"a": 1}, "more": [1]}
    with pytest.raises(InvalidInput):
        check_approval({"approved": True, "editedArgs": "{}"}, editedArgs=dict)


@pytest.mark.parametrize(
    ("payload", "answer", "approval"),
    [
        (True, True, {"approved": True}),
        ("false", "false", {"approved": False}),
        ('{"approved": true}', {"approved": True}, {"approved": True}),
        ("yes", "yes", "yes"),
        ('["yes"]', '["yes"]', '["yes"]'),
        (None, None, None),
        (
            {"approved": False, "reason": "No."},
            {"approved": False, "reason": "No."},
            {"approved": False, "reason": "No.", "message": "No."},
        ),
        (
            {"reason": "No.", "message": "Never."},
            {"reason": "No.", "message": "Never."},
            {"reason": "No.", "message": "Never."},
        ),
    ],
)
def test_an_answer_may_be_json_text_and_an_approval_a_boolean(payload: Any, answer: Any, approval: Any) -> None:
    assert (read_answer(payload), read_approval(payload)) == (answer, approval)


def test_a_list_of_names_in_a_message_is_short() -> None:
    assert join_names(["a", "b"]) == "a, b"
    assert join_names([str(number) for number in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert join_names(["x" * 5000]) == "x" * 80 + "…"
