"""The reducers of frames: messages, state, calls, interrupts and activities."""

from __future__ import annotations

from typing import Any

from ambient_runner.testing import fold_activities, fold_frames


def started(*messages: dict[str, Any]) -> dict[str, Any]:
    run_input = {"threadId": "t", "runId": "r", "messages": list(messages), "tools": [], "context": []}
    return {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "input": run_input}


def finished(**more: Any) -> dict[str, Any]:
    return {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", **more}


def test_frames_fold_to_messages_state_calls_and_interrupts() -> None:
    frames = [
        started({"role": "user", "id": "u", "content": "hi"}),
        {"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}},
        {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "deploy"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        finished(outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "tool_call", "toolCallId": "c"}]}),
    ]
    folded = fold_frames(frames)
    assert folded == {
        "messages": [
            {"role": "user", "id": "u", "content": "hi"},
            {
                "role": "assistant",
                "id": "c",
                "toolCalls": [{"id": "c", "type": "function", "function": {"name": "deploy", "arguments": "{}"}}],
            },
        ],
        "state": {"n": 2},
        "calls": [{"id": "c", "name": "deploy", "arguments": "{}"}],
        "interrupts": [{"id": "i", "reason": "tool_call", "toolCallId": "c"}],
        "run": {"runId": "r", "status": "interrupted"},
    }
    cancelled = {"type": "CUSTOM", "name": "ambient:interrupts_cancelled", "value": {"interruptIds": ["i"]}}
    assert fold_frames([*frames, cancelled])["interrupts"] == []
    assert fold_frames([*frames, started()])["interrupts"] == []
    assert [item["status"] for item in fold_activities(frames)] == ["waiting"]


def test_activities_are_a_list_in_the_order_in_which_they_began() -> None:
    frames = [
        {"type": "CUSTOM", "name": "ambient:repo_progress", "value": {"name": "docs", "phase": "x", "percent": 40}},
        started(),
        {"type": "STEP_STARTED", "stepName": "plan"},
        {"type": "REASONING_START", "messageId": "z"},
        {"type": "REASONING_END", "messageId": "z"},
        {"type": "STEP_FINISHED", "stepName": "plan"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "writer"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "search", "subagentRunId": "s"},
        {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "metadata": {"isError": True}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "JOB", "content": {"title": "Cloning"}},
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "a",
            "activityType": "JOB",
            "patch": [{"op": "add", "path": "/progress", "value": 0.5}],
        },
        {"type": "STEP_STARTED", "stepName": "write"},
        {"type": "RUN_ERROR", "message": "x"},
        {"type": "CUSTOM", "name": "ambient:repo_added", "value": {"name": "docs"}},
    ]
    assert fold_activities(frames) == [
        {"id": "docs", "kind": "clone", "title": "docs", "status": "done", "progress": 40},
        {"id": "plan", "kind": "step", "title": "plan", "status": "done"},
        {"id": "z", "kind": "reasoning", "title": "Reasoning", "status": "done"},
        {"id": "s", "kind": "subagent", "title": "writer", "status": "failed"},
        {"id": "c", "kind": "tool", "title": "search", "status": "failed", "parent": "s"},
        {"id": "a", "kind": "activity", "title": "Cloning", "status": "failed", "progress": 0.5},
        {"id": "write", "kind": "step", "title": "write", "status": "failed"},
    ]


def test_a_call_that_the_client_answered_is_done() -> None:
    frames = [
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "show"},
        finished(outcome={"type": "success", "pendingToolCallIds": ["c"]}),
    ]
    assert [item["status"] for item in fold_activities(frames)] == ["waiting"]
    answered = started({"role": "tool", "id": "a", "toolCallId": "c", "content": "shown"})
    assert [item["status"] for item in fold_activities([*frames, answered])] == ["done"]
