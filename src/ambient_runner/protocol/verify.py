"""Strict verification of an AG-UI event stream: the rules of the official client, and a few of our own.

Each rule has a stable name. `repair.py` counts its repairs under the same names, and its output passes these checks. What
our Structs cannot express, such as `subagentRunId: null`, needs no rule.
"""

from __future__ import annotations

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
from ambient_runner.protocol.json_pointer import is_pointer
from ambient_runner.protocol.open_items import OpenItems, OwnersById, SubagentId


class Violation(Exception):
    """An event, or the end of a stream, that breaks a rule of the grammar."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.message = message


class Verifier:
    """Checks one stream, which may hold several runs, one after the other.

    Chunk events are refused: a stored stream has START, CONTENT and END events.
    """

    def __init__(self, thread_id: str | None = None, run_id: str | None = None) -> None:
        self._thread_id = thread_id
        self._run_id = run_id
        self._run: RunStarted | None = None
        self._last_lifecycle_event: type[RunStarted | RunFinished | RunError] | None = None
        self._open_items = OpenItems()

    def check(self, event: Event) -> None:
        """Accept the next event.

        Raises:
            Violation: The event is not legal here. Discard the verifier afterwards.
        """
        self._check_order(event)
        match event:
            case RunStarted():
                self._start_run(event)
            case RunFinished():
                self._finish_run(event)
            case RunError():
                self._last_lifecycle_event = RunError
            case _:
                _check_content(self._open_items, event)
        self._open_items.apply(event)

    def finish(self) -> None:
        """Accept the end of the stream.

        Raises:
            Violation: The last run has no terminal event, or is not the expected run.
        """
        if self._last_lifecycle_event in (None, RunStarted):
            raise Violation("truncated", "the stream ended without RUN_FINISHED or RUN_ERROR")
        if self._run is not None and self._run_id not in (None, self._run.run_id):
            raise Violation("run-id", f"the last run is {self._run.run_id!r}, not {self._run_id!r}")

    def _check_order(self, event: Event) -> None:
        """Check that this type of event may come before, during or after a run."""
        kind, last = type(event), self._last_lifecycle_event
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

    def _start_run(self, event: RunStarted) -> None:
        if self._thread_id is None:
            self._thread_id = event.thread_id
        if event.thread_id != self._thread_id:
            raise Violation("thread-id", f"RUN_STARTED on thread {event.thread_id!r}, not {self._thread_id!r}")
        self._run, self._last_lifecycle_event, self._open_items = event, RunStarted, OpenItems()

    def _finish_run(self, event: RunFinished) -> None:
        if event.thread_id != self._thread_id:
            raise Violation("thread-id", f"RUN_FINISHED on thread {event.thread_id!r}, not {self._thread_id!r}")
        if self._run is not None and event.run_id != self._run.run_id:
            raise Violation("run-id", f"RUN_FINISHED for run {event.run_id!r}, not {self._run.run_id!r}")
        left_open = self._open_items.closing_events()
        if left_open:
            missing = ", ".join(type_of(end) for end in left_open)
            raise Violation("left-open", f"RUN_FINISHED without {missing}")
        if isinstance(event.outcome, Interrupted):
            ids = [interrupt.id for interrupt in event.outcome.interrupts]
            if not ids or len(ids) != len(set(ids)):
                raise Violation("interrupts", "an interrupt outcome needs at least one interrupt, and unique ids")
        self._last_lifecycle_event = RunFinished


def _check_content(open_items: OpenItems, event: Event) -> None:
    match event:
        case TextMessageStart() | TextMessageContent() | TextMessageEnd():
            _check_text(open_items, event)
        case ToolCallStart() | ToolCallArgs() | ToolCallEnd():
            _check_call(open_items, event)
        case ReasoningStart() | ReasoningEnd():
            _check_reasoning_span(open_items, event)
        case ReasoningMessageStart() | ReasoningMessageContent() | ReasoningMessageEnd():
            _check_reasoning_message(open_items, event)
        case StepStarted() | StepFinished():
            _check_step(open_items, event)
        case SubagentStarted() | SubagentFinished() | SubagentError():
            _check_subagent(open_items, event)
        case ReasoningEncryptedValue():
            _check_owner(event.subagent_run_id, encrypted_value_owners(open_items, event), event.entity_id)
        case StateDelta():
            _check_patch(event.delta)
        case ActivityDelta():
            _check_owner(event.subagent_run_id, open_items.activity_owners, event.message_id)
            _check_patch(event.patch)
        case TextMessageChunk() | ToolCallChunk() | ReasoningMessageChunk():
            raise Violation("chunk", f"{type_of(event)} in a stream of explicit events")
        case _:
            pass


def _check_owner(claimed_owner: SubagentId, owners: OwnersById, entity_id: str) -> None:
    """Check the event's `subagentRunId`. An event without one always passes; one that opens an entity belongs to the agent itself."""
    if claimed_owner is not None and owners.get(entity_id, claimed_owner) != claimed_owner:
        raise Violation(
            "owner", f"{entity_id!r} belongs to {owners[entity_id] or 'the agent'}, not to {claimed_owner!r}"
        )


def _check_open(rule: str, entity_id: str, *, opening: bool, is_open: bool) -> None:
    if opening and is_open:
        raise Violation(f"{rule}-already-open", f"{entity_id!r} is opened twice")
    if not opening and not is_open:
        raise Violation(f"{rule}-not-open", f"{entity_id!r} is not open")


def _check_text(open_items: OpenItems, event: TextMessageStart | TextMessageContent | TextMessageEnd) -> None:
    opening = isinstance(event, TextMessageStart)
    _check_open("text", event.message_id, opening=opening, is_open=event.message_id in open_items.text_messages)
    _check_owner(event.subagent_run_id, open_items.message_owners, event.message_id)


def _check_reasoning_span(open_items: OpenItems, event: ReasoningStart | ReasoningEnd) -> None:
    opening = isinstance(event, ReasoningStart)
    _check_open(
        "reasoning-span", event.message_id, opening=opening, is_open=event.message_id in open_items.reasoning_spans
    )
    _check_owner(event.subagent_run_id, open_items.reasoning_owners, event.message_id)


def _check_reasoning_message(
    open_items: OpenItems, event: ReasoningMessageStart | ReasoningMessageContent | ReasoningMessageEnd
) -> None:
    opening = isinstance(event, ReasoningMessageStart)
    _check_open(
        "reasoning", event.message_id, opening=opening, is_open=event.message_id in open_items.reasoning_messages
    )
    _check_owner(event.subagent_run_id, open_items.reasoning_owners, event.message_id)


def _check_call(open_items: OpenItems, event: ToolCallStart | ToolCallArgs | ToolCallEnd) -> None:
    opening = isinstance(event, ToolCallStart)
    _check_open("tool", event.tool_call_id, opening=opening, is_open=event.tool_call_id in open_items.tool_calls)
    _check_owner(event.subagent_run_id, open_items.call_owners, event.tool_call_id)
    if isinstance(event, ToolCallStart) and event.parent_message_id in open_items.message_owners:
        parent_owner = open_items.message_owners[event.parent_message_id]
        claimed = event.subagent_run_id
        owner = open_items.call_owners.get(event.tool_call_id, parent_owner) if claimed is None else claimed
        if owner != parent_owner:
            raise Violation("tool-parent", f"{event.tool_call_id!r} and its parent message differ in owner")


def _check_step(open_items: OpenItems, event: StepStarted | StepFinished) -> None:
    key = (event.subagent_run_id, event.step_name)
    _check_open("step", event.step_name, opening=isinstance(event, StepStarted), is_open=key in open_items.steps)


def _check_subagent(open_items: OpenItems, event: SubagentStarted | SubagentFinished | SubagentError) -> None:
    subagent_id = event.subagent_run_id
    opening = isinstance(event, SubagentStarted)
    _check_open("subagent", subagent_id, opening=opening, is_open=subagent_id in open_items.subagents)
    if not isinstance(event, SubagentStarted):
        return
    if subagent_id in open_items.finished_subagents:
        raise Violation("subagent-reused", f"subagent {subagent_id!r} has already finished in this run")
    parent = event.parent_subagent_run_id
    if parent is not None and parent not in open_items.subagents and parent not in open_items.finished_subagents:
        raise Violation("subagent-parent", f"parent subagent {parent!r} was never started")


def _check_patch(patch: JsonPatch) -> None:
    if not is_json_patch(patch):
        raise Violation(
            "patch", "not an RFC 6902 patch: every operation needs a known op, valid pointers and its operand"
        )


def encrypted_value_owners(open_items: OpenItems, event: ReasoningEncryptedValue) -> OwnersById:
    """Return the owners to compare an encrypted value with: its entity is a tool call, a message or a reasoning message."""
    if event.subtype == "tool-call":
        return open_items.call_owners
    return open_items.message_owners if event.entity_id in open_items.message_owners else open_items.reasoning_owners


def is_json_patch(patch: JsonPatch) -> bool:
    """Return True if this is a well-formed JSON Patch. It may still not apply to a given document."""
    operations: Any = patch
    return isinstance(operations, list) and all(_is_operation(operation) for operation in patch)


def _is_operation(operation: Any) -> bool:
    match operation:
        case {"op": "add" | "replace" | "test", "path": path, "value": _}:
            return _is_valid_pointer(path)
        case {"op": "move" | "copy", "path": path, "from": source}:
            return _is_valid_pointer(path) and _is_valid_pointer(source)
        case {"op": "remove", "path": path}:
            return _is_valid_pointer(path)
        case _:
            return False


def _is_valid_pointer(value: Any) -> bool:
    return isinstance(value, str) and is_pointer(value)
