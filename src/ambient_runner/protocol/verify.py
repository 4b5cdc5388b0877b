"""The rules of a legal AG-UI stream, checked strictly: the official client's, and a few of ours.

Each rule has a stable name. `repair.py` counts its repairs under the same names and promises streams that pass here. What
our Structs cannot express, such as `subagentRunId: null`, needs no rule.
"""

from __future__ import annotations

import re
from typing import Any

from ambient_runner.protocol.events import (
    ActivityDelta,
    Event,
    Interrupted,
    JsonPatch,
    ReasoningEncryptedValue,
    ReasoningEnd,
    ReasoningMessageChunk,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageChunk,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
    type_of,
)
from ambient_runner.protocol.open_items import Open, Owner, Owners

_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*")


class Violation(Exception):
    """An event, or the end of a stream, that breaks a rule of the grammar."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.message = message


class Verifier:
    """Checks one stream, which may hold several runs, one after the other.

    Chunk events are refused: a stored stream holds START, CONTENT and END.
    """

    def __init__(self, thread_id: str | None = None, run_id: str | None = None) -> None:
        self._thread_id = thread_id
        self._run_id = run_id
        self._run: RunStarted | None = None
        self._last: type[RunStarted | RunFinished | RunError] | None = None
        self._open = Open()

    def check(self, event: Event) -> None:
        """Accept the next event.

        Raises:
            Violation: The event is not legal here. The verifier is then of no further use.
        """
        self._check_place(event)
        match event:
            case RunStarted():
                self._start(event)
            case RunFinished():
                self._finish(event)
            case RunError():
                self._last = RunError
            case _:
                _check_content(self._open, event)
        self._open.apply(event)

    def finish(self) -> None:
        """Accept the end of the stream.

        Raises:
            Violation: The last run has no terminal event, or is not the run that was asked for.
        """
        if self._last in (None, RunStarted):
            raise Violation("truncated", "the stream ended without RUN_FINISHED or RUN_ERROR")
        if self._run is not None and self._run_id not in (None, self._run.run_id):
            raise Violation("run-id", f"the last run is {self._run.run_id!r}, not {self._run_id!r}")

    def _check_place(self, event: Event) -> None:
        """Whether this kind of event may come now, given how the run stands."""
        kind, last = type(event), self._last
        if kind is RunStarted:
            if last is RunStarted:
                raise Violation("run-already-started", "RUN_STARTED while a run is active")
        elif kind is RunError:
            if last is RunError:
                raise Violation("after-terminal", "RUN_ERROR after RUN_ERROR")
        elif last is None:
            raise Violation("run-not-started", f"{type_of(event)} before RUN_STARTED")
        elif last is not RunStarted:
            raise Violation("after-terminal", f"{type_of(event)} after the run ended")

    def _start(self, event: RunStarted) -> None:
        if self._thread_id is None:
            self._thread_id = event.thread_id
        if event.thread_id != self._thread_id:
            raise Violation("thread-id", f"RUN_STARTED on thread {event.thread_id!r}, not {self._thread_id!r}")
        self._run, self._last, self._open = event, RunStarted, Open()

    def _finish(self, event: RunFinished) -> None:
        if event.thread_id != self._thread_id:
            raise Violation("thread-id", f"RUN_FINISHED on thread {event.thread_id!r}, not {self._thread_id!r}")
        if self._run is not None and event.run_id != self._run.run_id:
            raise Violation("run-id", f"RUN_FINISHED for run {event.run_id!r}, not {self._run.run_id!r}")
        left_open = self._open.ends()
        if left_open:
            missing = ", ".join(type_of(end) for end in left_open)
            raise Violation("left-open", f"RUN_FINISHED without {missing}")
        if isinstance(event.outcome, Interrupted):
            ids = [one.id for one in event.outcome.interrupts]
            if not ids or len(ids) != len(set(ids)):
                raise Violation("interrupts", "an interrupt outcome needs at least one interrupt, and unique ids")
        self._last = RunFinished


def _check_content(state: Open, event: Event) -> None:
    match event:
        case TextMessageStart() | TextMessageContent() | TextMessageEnd():
            _check_text(state, event)
        case ToolCallStart() | ToolCallArgs() | ToolCallEnd():
            _check_call(state, event)
        case ReasoningStart() | ReasoningEnd():
            _check_span(state, event)
        case ReasoningMessageStart() | ReasoningMessageContent() | ReasoningMessageEnd():
            _check_thought(state, event)
        case StepStarted() | StepFinished():
            _check_step(state, event)
        case SubagentStarted() | SubagentFinished() | SubagentError():
            _check_subagent(state, event)
        case ReasoningEncryptedValue():
            _check_owner(event.subagent_run_id, encrypted_owners(state, event), event.entity_id)
        case StateDelta():
            _check_patch(event.delta)
        case ActivityDelta():
            _check_owner(event.subagent_run_id, state.activity_owners, event.message_id)
            _check_patch(event.patch)
        case TextMessageChunk() | ToolCallChunk() | ReasoningMessageChunk():
            raise Violation("chunk", f"{type_of(event)} in a stream of explicit events")
        case _:
            pass


def _check_owner(tag: Owner, owners: Owners, entity_id: str) -> None:
    """An untagged event never disagrees; an untagged opener belongs to the agent itself."""
    if tag is not None and owners.get(entity_id, tag) != tag:
        raise Violation("owner", f"{entity_id!r} belongs to {owners[entity_id] or 'the agent'}, not to {tag!r}")


def _check_open(rule: str, entity_id: str, *, opening: bool, is_open: bool) -> None:
    if opening and is_open:
        raise Violation(f"{rule}-already-open", f"{entity_id!r} is opened twice")
    if not opening and not is_open:
        raise Violation(f"{rule}-not-open", f"{entity_id!r} is not open")


def _check_text(state: Open, event: TextMessageStart | TextMessageContent | TextMessageEnd) -> None:
    opening = isinstance(event, TextMessageStart)
    _check_open("text", event.message_id, opening=opening, is_open=event.message_id in state.texts)
    _check_owner(event.subagent_run_id, state.message_owners, event.message_id)


def _check_span(state: Open, event: ReasoningStart | ReasoningEnd) -> None:
    opening = isinstance(event, ReasoningStart)
    _check_open("reasoning-span", event.message_id, opening=opening, is_open=event.message_id in state.spans)
    _check_owner(event.subagent_run_id, state.reasoning_owners, event.message_id)


def _check_thought(state: Open, event: ReasoningMessageStart | ReasoningMessageContent | ReasoningMessageEnd) -> None:
    opening = isinstance(event, ReasoningMessageStart)
    _check_open("reasoning", event.message_id, opening=opening, is_open=event.message_id in state.thoughts)
    _check_owner(event.subagent_run_id, state.reasoning_owners, event.message_id)


def _check_call(state: Open, event: ToolCallStart | ToolCallArgs | ToolCallEnd) -> None:
    opening = isinstance(event, ToolCallStart)
    _check_open("tool", event.tool_call_id, opening=opening, is_open=event.tool_call_id in state.calls)
    _check_owner(event.subagent_run_id, state.call_owners, event.tool_call_id)
    if isinstance(event, ToolCallStart) and event.parent_message_id in state.message_owners:
        carrier = state.message_owners[event.parent_message_id]
        claimed = event.subagent_run_id
        owner = state.call_owners.get(event.tool_call_id, carrier) if claimed is None else claimed
        if owner != carrier:
            raise Violation("tool-parent", f"{event.tool_call_id!r} and the message that carries it differ in owner")


def _check_step(state: Open, event: StepStarted | StepFinished) -> None:
    key = (event.subagent_run_id, event.step_name)
    _check_open("step", event.step_name, opening=isinstance(event, StepStarted), is_open=key in state.steps)


def _check_subagent(state: Open, event: SubagentStarted | SubagentFinished | SubagentError) -> None:
    subagent_id = event.subagent_run_id
    opening = isinstance(event, SubagentStarted)
    _check_open("subagent", subagent_id, opening=opening, is_open=subagent_id in state.subagents)
    if not isinstance(event, SubagentStarted):
        return
    if subagent_id in state.finished_subagents:
        raise Violation("subagent-reused", f"subagent {subagent_id!r} has already finished in this run")
    parent = event.parent_subagent_run_id
    if parent is not None and parent not in state.subagents and parent not in state.finished_subagents:
        raise Violation("subagent-parent", f"parent subagent {parent!r} was never started")


def _check_patch(patch: JsonPatch) -> None:
    if not is_patch(patch):
        raise Violation(
            "patch", "not an RFC 6902 patch: every operation needs a known op, valid pointers and its operand"
        )


def encrypted_owners(state: Open, event: ReasoningEncryptedValue) -> Owners:
    """The owners an encrypted value is compared with: its entity may be a call, a message or a reasoning message."""
    if event.subtype == "tool-call":
        return state.call_owners
    return state.message_owners if event.entity_id in state.message_owners else state.reasoning_owners


def is_patch(patch: JsonPatch) -> bool:
    """Whether this is a well-formed JSON Patch. Whether it applies depends on the document."""
    operations: Any = patch
    return isinstance(operations, list) and all(_is_operation(one) for one in patch)


def _is_operation(operation: Any) -> bool:
    match operation:
        case {"op": "add" | "replace" | "test", "path": path, "value": _}:
            return _is_pointer(path)
        case {"op": "move" | "copy", "path": path, "from": source}:
            return _is_pointer(path) and _is_pointer(source)
        case {"op": "remove", "path": path}:
            return _is_pointer(path)
        case _:
            return False


def _is_pointer(value: Any) -> bool:
    return isinstance(value, str) and _POINTER.fullmatch(value) is not None
