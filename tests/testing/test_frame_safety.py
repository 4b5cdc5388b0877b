"""Findings of `verify_frame_safety`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ambient_runner.testing import UnsafeFrame, verify_frame_safety

TEXT = "TEXT_MESSAGE_CONTENT"


def found_in(*frames: dict[str, Any], literals: list[str] | None = None, pattern: str = "") -> list[UnsafeFrame]:
    return verify_frame_safety(frames, literals or [], [re.compile(pattern)] if pattern else [])


def test_a_literal_is_found_in_values_and_keys() -> None:
    frame = {"type": "CUSTOM", "name": "x", "value": {"a/b": [{"hush": 1}, "say hush"]}}
    assert found_in(frame, literals=["hush"]) == [
        UnsafeFrame(frame=0, path="/value/a~1b/0/hush", found="hush"),
        UnsafeFrame(frame=0, path="/value/a~1b/1", found="hush"),
    ]


@pytest.mark.parametrize("kind", [TEXT, "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"])
def test_a_literal_is_found_across_deltas(kind: str) -> None:
    key = "toolCallId" if kind == "TOOL_CALL_ARGS" else "messageId"
    frames = [
        {"type": kind, key: "m", "delta": "hu"},
        {"type": kind, key: "other", "delta": "--"},
        {"type": kind, key: "m", "delta": "sh"},
    ]
    assert found_in(*frames, literals=["hush"]) == [UnsafeFrame(frame=2, path="/delta", found="hush")]


def test_a_literal_is_found_where_json_escapes_it() -> None:
    frame = {"type": "TOOL_CALL_RESULT", "content": '{"a": "say \\"hush\\""}'}
    assert [unsafe.found for unsafe in found_in(frame, literals=['say "hush"'])] == ['say "hush"']


def test_a_pattern_is_found() -> None:
    assert found_in({"type": TEXT, "messageId": "m", "delta": "key sk-12345678"}, pattern=r"sk-\d{8}") == [
        UnsafeFrame(frame=0, path="/delta", found=r"sk-\d{8}")
    ]


def test_safe_frames_have_no_findings() -> None:
    assert found_in({"type": TEXT, "messageId": "m", "delta": "hello"}, literals=["hush", ""], pattern="sk-") == []
