"""Recorded threads of four frameworks: what each audience gets of them, and what its frames add up to."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.protocol.profiles import Profile
from ambient_runner.testing import fold_activities, fold_frames, verify_frame_safety
from tests.recordings import AUDIENCES, FRAMEWORKS, frames_of, read_facts, read_frames


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_frames_of_a_recorded_thread_are_those_on_file(framework: str, audience: str) -> None:
    assert frames_of(read_facts(framework), audience) == read_frames(framework, audience)["frames"]


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_frames_on_file_fold_to_what_is_on_file(framework: str, audience: str) -> None:
    recorded = read_frames(framework, audience)
    assert fold_frames(recorded["frames"]) == recorded["folded"]
    assert fold_activities(recorded["frames"]) == recorded["activities"]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_audience_safe_sees_nothing_of_arguments_results_and_reasoning(framework: str, profile: Profile) -> None:
    recording = read_facts(framework)
    assert verify_frame_safety(frames_of(recording, "safe", profile), recording["literals"]) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_audience_open_sees_all_of_it(framework: str) -> None:
    recording = read_facts(framework)
    found = verify_frame_safety(frames_of(recording, "open"), recording["literals"])
    assert {unsafe.found for unsafe in found} == set(recording["literals"])


def conversation_of(frames: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The messages that frames fold to: roles, ids, the texts of people and the assistant, and the names of the calls."""
    return [
        (
            message["role"],
            message["id"],
            message.get("content") if message["role"] in {"user", "assistant"} else "",
            [(call["id"], call["function"]["name"]) for call in message.get("toolCalls") or ()],
        )
        for message in fold_frames(frames)["messages"]
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_both_audiences_see_the_same_conversation(framework: str) -> None:
    """The texts, the calls and their order are the same; only arguments, results and reasoning differ."""
    recording = read_facts(framework)
    seen_open, seen_safe = (conversation_of(frames_of(recording, audience)) for audience in AUDIENCES)
    assert seen_safe == seen_open
    assert {role for role, *_ in seen_open} >= {"user", "assistant", "tool"}
    assert any(calls for *_, calls in seen_open)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_in_safe_too_the_streamed_messages_are_those_of_the_snapshot(framework: str) -> None:
    frames = frames_of(read_facts(framework), "safe")
    streamed = [frame for frame in frames if frame["type"] != "MESSAGES_SNAPSHOT"]
    by_id = [{message["id"]: message for message in fold_frames(some)["messages"]} for some in (frames, streamed)]
    assert by_id[0] == by_id[1]
