"""Composer: turns what a framework reports into AG-UI events whose starts and ends are balanced, whatever the framework does.

An adapter reports text, reasoning, tool calls, steps and subagents as they come, and gets the events to emit. State is held per lane: a
`subagentRunId`, None for the agent itself. Native replays are idempotent: a repeated call or result adds no events, and a complete text
after its deltas adds only what was missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from ambient_runner.protocol import events as e
from ambient_runner.protocol.open_items import OpenItems, OwnerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Content, Event, JsonPatch, Metadata, SubagentOutcome, Terminal, TextRole


def random_id(kind: str) -> str:
    """Return a unique id of this kind, such as `message-6f1c…`."""
    return f"{kind}-{uuid4()}"


@dataclass(slots=True)
class _LaneState:
    """The open items of one agent or subagent."""

    text_id: str | None = None
    speaker: tuple[str | None, TextRole, str | None] = (None, "assistant", None)
    reasoning_id: str | None = None
    reasoning_key: str | None = None
    last_reasoning_id: str | None = None
    call_message_id: str | None = None
    """Id of the assistant message that carries the tool calls of this turn."""
    unanswered: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class _CallState:
    lane: OwnerId
    args: list[str] = field(default_factory=list[str])
    is_answered: bool = False


class Composer:
    """Composes the events of one run. Each method returns the events to emit, in order; often none, sometimes several.

    Text and reasoning of a lane never overlap, and both end before its next tool call. Calls made in one turn share a
    `parentMessageId`. A result comes after its call, once.
    """

    def __init__(self, new_id: Callable[[str], str] = random_id) -> None:
        self._new_id = new_id
        self._open = OpenItems()
        self._lanes: dict[OwnerId, _LaneState] = {}
        self._calls: dict[str, _CallState] = {}
        self._sent_by_key: dict[tuple[str, OwnerId, str], list[str]] = {}
        self._used_message_ids: set[str] = set()
        self._provisional: dict[str, e.ToolCallResult] = {}

    def text(
        self,
        delta: str,
        *,
        lane: OwnerId = None,
        key: str | None = None,
        complete: bool = False,
        role: TextRole = "assistant",
        name: str | None = None,
        message_id: str | None = None,
    ) -> list[Event]:
        """Add text. `key` names the native message; with `complete`, `delta` is its whole text and only the unsent rest is emitted.

        `message_id` is the framework's id for a message that starts here; used a second time it becomes `id~2`.
        """
        delta = self._remove_sent("text", lane, key, delta, complete=complete)
        if not delta:
            return []
        state = self._lane_state(lane)
        same_speaker = state.speaker == (key or state.speaker[0], role, name)
        if state.text_id is not None and same_speaker:
            return [e.TextMessageContent(message_id=state.text_id, delta=delta, subagent_run_id=lane)]
        events = self.end_reasoning(lane) if same_speaker else [*self.end_reasoning(lane), *self.end_text(lane)]
        if state.text_id is None:
            state.text_id, state.speaker = self._message_id(message_id), (key, role, name)
            state.call_message_id = state.text_id if role == "assistant" else None
            state.unanswered = set()
            events += self._track_events(
                e.TextMessageStart(message_id=state.text_id, role=role, name=name, subagent_run_id=lane),
            )
        return [*events, e.TextMessageContent(message_id=state.text_id, delta=delta, subagent_run_id=lane)]

    def end_text(self, lane: OwnerId = None) -> list[Event]:
        """End the lane's text message, if one is open."""
        state = self._lane_state(lane)
        if state.text_id is None:
            return []
        message_id, state.text_id = state.text_id, None
        return self._track_events(e.TextMessageEnd(message_id=message_id, subagent_run_id=lane))

    def reasoning(
        self, delta: str, *, lane: OwnerId = None, key: str | None = None, complete: bool = False
    ) -> list[Event]:
        """Add reasoning; `key` and `complete` as for `text`."""
        delta = self._remove_sent("reasoning", lane, key, delta, complete=complete)
        if not delta:
            return []
        events = self._start_reasoning(lane, key)
        reasoning_id = self._lane_state(lane).reasoning_id or ""
        return [*events, e.ReasoningMessageContent(message_id=reasoning_id, delta=delta, subagent_run_id=lane)]

    def reasoning_encrypted(
        self,
        value: str,
        *,
        subtype: Literal["tool-call", "message"] = "message",
        entity_id: str | None = None,
        lane: OwnerId = None,
    ) -> list[Event]:
        """Attach an opaque value to a call or message; without an id, to the lane's latest reasoning."""
        events: list[Event] = []
        if entity_id is None:
            if self._lane_state(lane).last_reasoning_id is None:
                events += self._start_reasoning(lane, None)
            entity_id = self._lane_state(lane).last_reasoning_id or ""
        owners = self._open.call_owners if subtype == "tool-call" else self._message_owners(entity_id)
        tag = owners.get(entity_id, lane)
        return [
            *events,
            e.ReasoningEncryptedValue(subtype=subtype, entity_id=entity_id, encrypted_value=value, subagent_run_id=tag),
        ]

    def end_reasoning(self, lane: OwnerId = None) -> list[Event]:
        """End the lane's reasoning, if some is open."""
        state = self._lane_state(lane)
        if state.reasoning_id is None:
            return []
        reasoning_id, state.reasoning_id = state.reasoning_id, None
        return self._track_events(
            e.ReasoningMessageEnd(message_id=reasoning_id, subagent_run_id=lane),
            e.ReasoningEnd(message_id=reasoning_id, subagent_run_id=lane),
        )

    def tool_start(
        self,
        tool_call_id: str,
        name: str,
        lane: OwnerId = None,
        *,
        metadata: Metadata | None = None,
        message_id: str | None = None,
    ) -> list[Event]:
        """Start a tool call, unless it has started before. `message_id` is for the message that carries it, if there is none yet."""
        if tool_call_id in self._calls:
            return []
        self._calls[tool_call_id] = _CallState(lane)
        events = [*self.end_text(lane), *self.end_reasoning(lane)]
        state = self._lane_state(lane)
        state.call_message_id = state.call_message_id or self._message_id(message_id)
        state.unanswered.add(tool_call_id)
        start = e.ToolCallStart(
            tool_call_id=tool_call_id,
            tool_call_name=name,
            parent_message_id=state.call_message_id,
            subagent_run_id=lane,
            metadata=metadata,
        )
        return events + self._track_events(start)

    def continue_tool_call(self, tool_call_id: str, lane: OwnerId = None) -> None:
        """Continue a call of an earlier run: it does not start again, and its result is accepted."""
        self._calls.setdefault(tool_call_id, _CallState(lane))

    def tool_args(self, tool_call_id: str, delta: str) -> list[Event]:
        """Add to a call's arguments. Nothing for a call that is not open."""
        if not delta or tool_call_id not in self._open.tool_calls:
            return []
        call = self._calls[tool_call_id]
        call.args.append(delta)
        return [e.ToolCallArgs(tool_call_id=tool_call_id, delta=delta, subagent_run_id=call.lane)]

    def tool_args_full(self, tool_call_id: str, json_text: str) -> list[Event]:
        """Send the unsent rest of a call's whole arguments. Nothing if they do not continue what was sent."""
        if tool_call_id not in self._calls:
            return []
        return self.tool_args(tool_call_id, _unsent_part(self._calls[tool_call_id].args, json_text))

    def tool_end(self, tool_call_id: str) -> list[Event]:
        """End a call's arguments, if they are open."""
        if tool_call_id not in self._open.tool_calls:
            return []
        return self._track_events(
            e.ToolCallEnd(tool_call_id=tool_call_id, subagent_run_id=self._calls[tool_call_id].lane)
        )

    def tool_result(
        self,
        tool_call_id: str,
        content: Content,
        *,
        name: str | None = None,
        args: str | None = None,
        lane: OwnerId = None,
        is_error: bool = False,
        provisional: bool = False,
    ) -> list[Event]:
        """Emit a call's result, once. A call that never started is started first, from `name`, `args` and `lane`.

        `is_error` becomes `isError` in the metadata: the event has no field for it. A `provisional` result is held back: the next result
        replaces it, and `close` emits it if there is none, unless the run ends with an interrupt.
        """
        events = self.tool_start(tool_call_id, name or "tool", lane)
        call = self._calls[tool_call_id]
        if call.is_answered:
            return []
        events += self.tool_args_full(tool_call_id, args or "")
        events += self.tool_end(tool_call_id)
        result = e.ToolCallResult(
            message_id=self._new_id("result"),
            tool_call_id=tool_call_id,
            content=content,
            role="tool",
            subagent_run_id=call.lane,
            metadata={"isError": True} if is_error else None,
        )
        if provisional:
            self._provisional[tool_call_id] = result
            return events
        return events + self._emit_results(result)

    def start_step(self, name: str, lane: OwnerId = None) -> list[Event]:
        """Start a step, unless it is open."""
        if (lane, name) in self._open.steps:
            return []
        return self._track_events(e.StepStarted(step_name=name, subagent_run_id=lane))

    def end_step(self, name: str, lane: OwnerId = None) -> list[Event]:
        """End a step, if it is open."""
        if (lane, name) not in self._open.steps:
            return []
        return self._track_events(e.StepFinished(step_name=name, subagent_run_id=lane))

    def start_subagent(
        self,
        subagent_run_id: str,
        name: str,
        *,
        description: str | None = None,
        parent: OwnerId = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
    ) -> list[Event]:
        """Start a subagent; its id becomes a lane. An id that was used before adds no events."""
        if subagent_run_id in self._open.subagents or subagent_run_id in self._open.finished_subagents:
            return []
        started = e.SubagentStarted(
            subagent_run_id=subagent_run_id,
            name=name,
            description=description,
            parent_subagent_run_id=parent if parent in self._open.subagents else None,
            parent_tool_call_id=parent_tool_call_id,
            parent_message_id=parent_message_id,
        )
        return self._track_events(started)

    def end_subagent(
        self,
        subagent_run_id: str,
        *,
        result: Any = None,
        error: str | None = None,
        outcome: SubagentOutcome | None = None,
    ) -> list[Event]:
        """End a subagent and everything it has open; with `error` it failed."""
        if subagent_run_id not in self._open.subagents:
            return []
        lane = self._lane_state(subagent_run_id)
        lane.text_id = lane.reasoning_id = None
        if error is None:
            end = e.SubagentFinished(subagent_run_id=subagent_run_id, result=result, outcome=outcome)
        else:
            end = e.SubagentError(subagent_run_id=subagent_run_id, message=error)
        provisional = [result for result in self._provisional.values() if result.subagent_run_id == subagent_run_id]
        results = [] if isinstance(outcome, e.Suspended) else self._emit_results(*provisional)
        return [*results, *self._track_events(*self._open.closing_events_of(subagent_run_id), end)]

    def state(self, snapshot: Any, lane: OwnerId = None) -> list[Event]:
        """Emit the whole state."""
        return [e.StateSnapshot(snapshot=snapshot, subagent_run_id=lane)]

    def state_delta(self, patch: JsonPatch, lane: OwnerId = None) -> list[Event]:
        """Emit a change of state; nothing for an empty patch."""
        return [e.StateDelta(delta=patch, subagent_run_id=lane)] if patch else []

    def custom(self, name: str, value: Any, lane: OwnerId = None) -> list[Event]:
        """Emit a custom event of your own, named `<namespace>:<name>`."""
        return [e.Custom(name=name, value=value, subagent_run_id=lane)]

    def close(self, terminal: Terminal | None = None) -> list[Event]:
        """End everything that is open, in legal order. `terminal` decides if open subagents finished, are suspended or failed."""
        is_interrupted = isinstance(terminal, e.RunFinished) and isinstance(terminal.outcome, e.Interrupted)
        results = [] if is_interrupted else self._emit_results(*self._provisional.values())
        for lane in self._lanes.values():
            lane.text_id = lane.reasoning_id = None
        return [*results, *self._track_events(*self._open.closing_events(terminal))]

    def _lane_state(self, lane: OwnerId) -> _LaneState:
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = _LaneState()
        return found

    def _track_events(self, *events: Event) -> list[Event]:
        for event in events:
            self._open.apply(event)
        return list(events)

    def _remove_sent(self, kind: str, lane: OwnerId, key: str | None, delta: str, *, complete: bool) -> str:
        if key is None:
            return delta
        sent = self._sent_by_key.setdefault((kind, lane, key), [])
        if complete:
            delta = _unsent_part(sent, delta)
        sent.append(delta)
        return delta

    def _start_reasoning(self, lane: OwnerId, key: str | None) -> list[Event]:
        state, events = self._lane_state(lane), self.end_text(lane)
        if key is not None and key != state.reasoning_key:
            events += self.end_reasoning(lane)
        if state.reasoning_id is not None:
            return events
        state.reasoning_id = state.last_reasoning_id = reasoning_id = self._new_id("reasoning")
        state.reasoning_key = key
        return events + self._track_events(
            e.ReasoningStart(message_id=reasoning_id, subagent_run_id=lane),
            e.ReasoningMessageStart(message_id=reasoning_id, subagent_run_id=lane),
        )

    def _emit_results(self, *results: e.ToolCallResult) -> list[Event]:
        """Emit these results and mark their calls as answered."""
        for result in results:
            call = self._calls[result.tool_call_id]
            call.is_answered = True
            self._provisional.pop(result.tool_call_id, None)
            self._mark_answered(call.lane, result.tool_call_id)
        return self._track_events(*results)

    def _message_id(self, requested: str | None) -> str:
        """Return the id of a new message: the requested one, made unique if it has been used."""
        if requested is None:
            return self._new_id("message")
        candidates = chain([requested], (f"{requested}~{n}" for n in count(2)))
        fresh = next(candidate for candidate in candidates if candidate not in self._used_message_ids)
        self._used_message_ids.add(fresh)
        return fresh

    def _mark_answered(self, lane: OwnerId, tool_call_id: str) -> None:
        """Mark a call as answered. Once all calls of a turn are, the next call starts a new message."""
        state = self._lane_state(lane)
        if tool_call_id in state.unanswered:
            state.unanswered.remove(tool_call_id)
            if not state.unanswered:
                state.call_message_id = state.last_reasoning_id = None

    def _message_owners(self, message_id: str) -> dict[str, OwnerId]:
        known = message_id in self._open.message_owners
        return self._open.message_owners if known else self._open.reasoning_owners


def _unsent_part(sent: list[str], whole: str) -> str:
    """Return the unsent rest of the whole; empty if the whole does not continue what was sent."""
    sent_text = "".join(sent)
    return whole[len(sent_text) :] if whole.startswith(sent_text) else ""
