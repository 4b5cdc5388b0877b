"""Reducers of a client, as pure functions over frames: what a page shows of a thread, without a browser.

They know the AG-UI grammar and nothing of what is stored. `tests/recordings/frames/` has frames and what they fold to, for reducers in
other languages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.projections.state import SharedState
from ambient_runner.projections.thread_status import run_status
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import (
    AssistantMessage,
    Custom,
    Event,
    Interrupted,
    RunError,
    RunFinished,
    RunStarted,
    ToolMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.protocol.events import Interrupt

__all__ = ["fold_activities", "fold_frames"]

_INTERRUPTS_CANCELLED = "ambient:interrupts_cancelled"


def fold_frames(frames: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the frames of AG-UI 1.0 add up to: `messages`, `state`, `calls`, `interrupts` and `run`, as JSON.

    Frames are JSON objects, in their order. Raises: msgspec.ValidationError for one that is not an AG-UI event.
    """
    folded = _FoldedThread()
    for frame in frames:
        folded.apply(msgspec.convert(dict(frame), Event))
    return folded.to_json()


class _FoldedThread:
    def __init__(self) -> None:
        self._transcript = Transcript()
        self._state = SharedState()
        self._interrupts: list[Interrupt] = []
        self._run: dict[str, Any] | None = None

    def apply(self, event: Event) -> None:
        self._transcript.apply(event)
        self._state.apply(event)
        match event:
            case RunStarted():
                self._run = {"runId": event.run_id, "status": "running"}
                self._interrupts = []
            case RunFinished() | RunError():
                self._end_run(event)
            case Custom(name=name, value={"interruptIds": [*ids]}) if name == _INTERRUPTS_CANCELLED:
                self._interrupts = [interrupt for interrupt in self._interrupts if interrupt.id not in ids]
            case _:
                pass

    def to_json(self) -> dict[str, Any]:
        return msgspec.to_builtins(
            {
                "messages": self._transcript.messages(),
                "state": self._state.value,
                "calls": self._calls(),
                "interrupts": self._interrupts,
                "run": self._run,
            }
        )

    def _end_run(self, event: RunFinished | RunError) -> None:
        self._run = {**(self._run or {}), "status": run_status(event)}
        if isinstance(event, RunFinished) and isinstance(event.outcome, Interrupted):
            self._interrupts = list(event.outcome.interrupts)

    def _calls(self) -> list[dict[str, Any]]:
        messages = self._transcript.messages()
        results = {message.tool_call_id: message.content for message in messages if isinstance(message, ToolMessage)}
        calls = [
            call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls or ()
        ]
        return [
            {
                "id": call.id,
                "name": call.function.name,
                "arguments": call.function.arguments,
                **({"result": results[call.id]} if call.id in results else {}),
            }
            for call in calls
        ]


def fold_activities(frames: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what an agent did and does, as a list that any page can show, in the order in which it began.

    An item has `id`, `kind` (`tool`, `step`, `subagent`, `reasoning`, `activity` or `clone`), `title` and `status` (`running`, `waiting`,
    `done` or `failed`); those of a subagent its id as `parent`, and `progress` if it is known. Frames are JSON objects, in their order.
    """
    items = _ActivityItems()
    for frame in frames:
        items.apply(frame)
    return items.to_json()


class _ActivityItems:
    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}

    def apply(self, frame: Mapping[str, Any]) -> None:
        match frame:
            case {"type": "TOOL_CALL_START", "toolCallId": str(name), "toolCallName": title}:
                self._begin("tool", name, title, frame)
            case {"type": "TOOL_CALL_RESULT", "toolCallId": str(name)}:
                is_error = as_object(frame.get("metadata")).get("isError") is True
                self._set("tool", name, "failed" if is_error else "done")
            case {"type": "STEP_STARTED", "stepName": str(name)}:
                self._begin("step", name, name, frame)
            case {"type": "STEP_FINISHED", "stepName": str(name)}:
                self._set("step", name, "done")
            case {"type": "SUBAGENT_STARTED", "subagentRunId": str(name), "name": title}:
                self._begin("subagent", name, title, {"subagentRunId": frame.get("parentSubagentRunId")})
            case {"type": "SUBAGENT_FINISHED", "subagentRunId": str(name)}:
                is_waiting = as_object(frame.get("outcome")).get("type") == "suspended"
                self._set("subagent", name, "waiting" if is_waiting else "done")
            case {"type": "SUBAGENT_ERROR", "subagentRunId": str(name)}:
                self._set("subagent", name, "failed")
            case {"type": "REASONING_START", "messageId": str(name)}:
                self._begin("reasoning", name, "Reasoning", frame)
            case {"type": "REASONING_END", "messageId": str(name)}:
                self._set("reasoning", name, "done")
            case {"type": "CUSTOM", "name": "ambient:repo_progress", "value": {"name": str(name), "percent": percent}}:
                item = self._begin("clone", name, name, {})
                item["progress"] = percent
            case {"type": "CUSTOM", "name": "ambient:repo_added", "value": {"name": str(name)}}:
                self._set("clone", name, "done")
            case _:
                self._apply_content(frame)

    def _apply_content(self, frame: Mapping[str, Any]) -> None:
        match frame:
            case {"type": "ACTIVITY_SNAPSHOT", "messageId": str(name), "content": {**content}}:
                item = self._begin("activity", name, frame["activityType"], frame)
                _merge_content(item, cast("dict[str, Any]", content))
            case {"type": "ACTIVITY_DELTA", "messageId": str(name), "patch": [*patch]} if (
                f"activity {name}" in self._items
            ):
                item = self._items[f"activity {name}"]
                for operation in cast("list[dict[str, Any]]", patch):
                    _merge_content(item, {str(operation.get("path"))[1:]: operation.get("value")})
            case {"type": "RUN_STARTED", "input": {"messages": [*messages]}}:
                for message in cast("list[dict[str, Any]]", messages):
                    self._set("tool", str(message.get("toolCallId")), "done")
            case {"type": "RUN_FINISHED"}:
                self._end_all(as_object(frame.get("outcome")))
            case {"type": "RUN_ERROR"}:
                self._close_open("failed")
            case _:
                pass

    def to_json(self) -> list[dict[str, Any]]:
        return list(self._items.values())

    def _begin(self, kind: str, name: str, title: str, frame: Mapping[str, Any]) -> dict[str, Any]:
        parent = frame.get("subagentRunId")
        item = {"id": name, "kind": kind, "title": title, "status": "running"} | ({"parent": parent} if parent else {})
        known = self._items.setdefault(f"{kind} {name}", item)
        known["status"] = "running"
        return known

    def _set(self, kind: str, name: str, status: str) -> None:
        if f"{kind} {name}" in self._items:
            self._items[f"{kind} {name}"]["status"] = status

    def _end_all(self, outcome: Mapping[str, Any]) -> None:
        interrupts = cast("list[dict[str, Any]]", outcome.get("interrupts") or [])
        waiting = [*(outcome.get("pendingToolCallIds") or ()), *(asked.get("toolCallId") for asked in interrupts)]
        for name in waiting:
            self._set("tool", str(name), "waiting")
        self._close_open("failed" if outcome.get("type") == "cancelled" else "done")

    def _close_open(self, status: str) -> None:
        for item in self._items.values():
            if item["status"] == "running" and item["kind"] != "clone":
                item["status"] = status


def _merge_content(item: dict[str, Any], content: Mapping[str, Any]) -> None:
    """Take the title and the progress of an activity from its content."""
    for name, key, kind in (("title", "title", str), ("progress", "progress", int | float)):
        if isinstance(content.get(name), kind):
            item[key] = content[name]
    if content.get("status") in {"running", "waiting", "done", "failed"}:
        item["status"] = content["status"]
