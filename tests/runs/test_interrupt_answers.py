"""Answers of clients before AG-UI 1.0, and a new message while an interrupt is open."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ambient_runner.errors import InterruptNotOpen, InvalidInput, PendingInterrupts
from ambient_runner.protocol.events import Interrupt, ResumeEntry, RunAgentInput
from ambient_runner.runs.input_acceptance import accept_input
from ambient_runner.runs.interrupt_answers import is_cancelled_by_message
from tests.runs.test_input_acceptance import EXPIRED, INTERRUPT, NOW, answer, interrupted, one_turn, run_input, user

SECOND = Interrupt(id="i2", reason="confirmation")


def command(resume: Any, *messages: Any) -> RunAgentInput:
    return replace(run_input(*messages), forwarded_props={"command": {"resume": resume}})


def resolved(name: str, payload: Any) -> ResumeEntry:
    return ResumeEntry(interrupt_id=name, status="resolved", payload=payload)


@pytest.mark.parametrize(
    ("sent", "payload"),
    [
        ({"ok": True}, {"ok": True}),
        ('{"ok": true}', {"ok": True}),
        ("yes", "yes"),
        ("", ""),
        (False, False),
        ("{broken", "{broken"),
    ],
    ids=repr,
)
def test_the_command_of_an_older_page_answers_the_open_interrupt(sent: Any, payload: Any) -> None:
    accepted = accept_input(interrupted(INTERRUPT), command(sent), "server", NOW)
    assert accepted.answers == (resolved("i1", payload),)


def test_resume_takes_precedence_over_the_command() -> None:
    both = replace(command("no"), resume=[answer("i1")])
    assert accept_input(interrupted(INTERRUPT), both, "server", NOW).answers == (answer("i1"),)


CANCELLED = ResumeEntry(interrupt_id="i1", status="cancelled")


@pytest.mark.parametrize(
    "entries",
    [
        [CANCELLED, resolved("i1", {"approved": True})],
        [resolved("i1", {"approved": True}), CANCELLED],
        [resolved("i1", {"approved": False}), resolved("i1", {"approved": True})],
        [resolved("i1", {"approved": 1}), resolved("i1", {"approved": True})],
    ],
    ids=["cancelled first", "resolved first", "two payloads", "one and true"],
)
def test_two_different_answers_to_one_interrupt_are_refused(entries: list[ResumeEntry]) -> None:
    """The last one won: a call that one entry cancelled was executed."""
    with pytest.raises(InvalidInput) as refused:
        accept_input(interrupted(INTERRUPT), run_input(resume=entries), "server", NOW)
    assert "i1" in refused.value.message


def test_the_same_answer_twice_is_one_answer() -> None:
    twice = run_input(resume=[answer("i1"), answer("i1")])
    assert accept_input(interrupted(INTERRUPT), twice, "server", NOW).answers == (answer("i1"),)


def test_the_command_answers_several_interrupts_by_their_ids() -> None:
    both = command({"i1": 1, "i2": "b"})
    accepted = accept_input(interrupted(INTERRUPT, SECOND), both, "server", NOW)
    assert accepted.answers == (resolved("i1", 1), resolved("i2", "b"))


@pytest.mark.parametrize("sent", ["yes", {"i1": 1}], ids=repr)
def test_a_command_that_does_not_answer_every_interrupt_is_refused(sent: Any) -> None:
    with pytest.raises(PendingInterrupts):
        accept_input(interrupted(INTERRUPT, SECOND), command(sent), "server", NOW)


def test_a_command_without_an_open_interrupt_is_refused_unless_a_message_comes_with_it() -> None:
    with pytest.raises(InterruptNotOpen):
        accept_input(one_turn(), command("yes"), "server", NOW)
    assert accept_input(one_turn(), command("yes", user("u2")), "server", NOW).new_messages == (user("u2"),)


@pytest.mark.parametrize(
    "props", [None, [], {"command": "x"}, {"command": {"resume": None}}, {"command": {}}], ids=repr
)
def test_other_forwarded_props_answer_nothing(props: Any) -> None:
    with pytest.raises(PendingInterrupts):
        accept_input(interrupted(INTERRUPT), replace(run_input(user("u2")), forwarded_props=props), "server", NOW)


@pytest.mark.parametrize("history", ["server", "client"])
def test_a_new_message_cancels_the_open_interrupts_if_the_policy_is_cancel(history: Any) -> None:
    accepted = accept_input(
        interrupted(INTERRUPT, SECOND), run_input(user("u1"), user("u2")), history, NOW, on_pending_interrupt="cancel"
    )
    assert [(entry.interrupt_id, entry.status) for entry in accepted.answers] == [
        ("i1", "cancelled"),
        ("i2", "cancelled"),
    ]
    assert all(map(is_cancelled_by_message, accepted.answers))
    assert accepted.new_messages == (user("u2"),)


def test_only_a_new_message_cancels() -> None:
    for rest in (run_input(), run_input(user("u1")), run_input(user("u2"), resume=[answer("i1")])):
        with pytest.raises(PendingInterrupts):
            accept_input(interrupted(INTERRUPT, SECOND), rest, "server", NOW, on_pending_interrupt="cancel")


def test_an_expired_interrupt_is_not_cancelled_by_a_message() -> None:
    accepted = accept_input(interrupted(EXPIRED), run_input(user("u2")), "server", NOW, on_pending_interrupt="cancel")
    assert accepted.answers == ()
