"""Composer: turns what a framework reports into AG-UI events whose starts and ends are balanced, whatever the framework does.

An adapter reports text, reasoning, tool calls, steps and subagents as they come, and gets the events to emit. State is held per speaker:
the agent itself, or a subagent. Native replays are idempotent: a repeated call or result adds no events, and a complete text after its
deltas adds only what was missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from ambient_runner.protocol import events as e
from ambient_runner.protocol.open_items import OpenItems, SubagentId

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Content, Event, JsonPatch, Metadata, SubagentOutcome, Terminal, TextRole


def random_id(kind: str) -> str:
    """Return a unique id of this kind, such as `message-6f1c…`."""
    return f"{kind}-{uuid4()}"


_SUMMARY: e.Metadata = {"summary": True}
"""Metadata of reasoning that is a summary for people (`projections/safe.py`)."""


@dataclass(slots=True)
class _SpeakerState:
    """The open items of one agent or subagent."""

    text_id: str | None = None
    text_author: tuple[str | None, TextRole, str | None] = (None, "assistant", None)
    reasoning_id: str | None = None
    reasoning_key: str | None = None
    last_reasoning_id: str | None = None
    is_summary: bool = False
    """True if the open reasoning is a summary for people."""
    call_message_id: str | None = None
    """Id of the assistant message that carries the tool calls of this turn."""
    unanswered: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class _CallState:
    subagent_id: SubagentId
    args: list[str] = field(default_factory=list[str])
    is_answered: bool = False


SentTexts = dict[tuple[str, SubagentId, str], list[str]]
"""Deltas that were sent, by kind (text or reasoning), speaker and key."""


class Composer:
    """Composes the events of one run. Each method returns the events to emit, in order; often none, sometimes several.

    `subagent_id` is the `subagentRunId` of the subagent that speaks, None for the agent itself. Text and reasoning of one speaker never
    overlap, and both end before its next tool call. Calls made in one turn share a `parentMessageId`. A result comes after its call, once.
    """

    def __init__(self, new_id: Callable[[str], str] = random_id) -> None:
        self._new_id = new_id
        self._open = OpenItems()
        self._speakers: dict[SubagentId, _SpeakerState] = {}
        self._calls: dict[str, _CallState] = {}
        self._sent_by_key: SentTexts = {}
        self._used_message_ids: set[str] = set()
        self._provisional: dict[str, e.ToolCallResult] = {}

    def text(
        self,
        delta: str,
        *,
        subagent_id: SubagentId = None,
        key: str | None = None,
        complete: bool = False,
        role: TextRole = "assistant",
        name: str | None = None,
        message_id: str | None = None,
    ) -> list[Event]:
        """Add text. `key` names the native message; with `complete`, `delta` is its whole text and only the unsent rest is emitted.

        `message_id` is the framework's id for a message that starts here; used a second time it becomes `id~2`.
        A server makes every `role` the assistant's: an agent speaks for itself alone.
        """
        delta = self._remove_sent("text", subagent_id, key, delta, complete=complete)
        if not delta:
            return []
        state = self._speaker_state(subagent_id)
        is_same_author = state.text_author == (key or state.text_author[0], role, name)
        if state.text_id is not None and is_same_author:
            return [e.TextMessageContent(message_id=state.text_id, delta=delta, subagent_run_id=subagent_id)]
        events = (
            self.end_reasoning(subagent_id)
            if is_same_author
            else [*self.end_reasoning(subagent_id), *self.end_text(subagent_id)]
        )
        if state.text_id is None:
            state.text_id, state.text_author = self._message_id(message_id), (key, role, name)
            state.call_message_id = state.text_id if role == "assistant" else None
            state.unanswered = set()
            events += self._track_events(
                e.TextMessageStart(message_id=state.text_id, role=role, name=name, subagent_run_id=subagent_id),
            )
        return [*events, e.TextMessageContent(message_id=state.text_id, delta=delta, subagent_run_id=subagent_id)]

    def end_text(self, subagent_id: SubagentId = None) -> list[Event]:
        """End the speaker's text message, if one is open."""
        state = self._speaker_state(subagent_id)
        if state.text_id is None:
            return []
        message_id, state.text_id = state.text_id, None
        return self._track_events(e.TextMessageEnd(message_id=message_id, subagent_run_id=subagent_id))

    def reasoning(
        self,
        delta: str,
        *,
        subagent_id: SubagentId = None,
        key: str | None = None,
        complete: bool = False,
        is_summary: bool = False,
    ) -> list[Event]:
        """Add reasoning; `key` and `complete` as for `text`. `is_summary`: the model wrote it for people, so every audience sees it."""
        delta = self._remove_sent("reasoning", subagent_id, key, delta, complete=complete)
        if not delta:
            return []
        state = self._speaker_state(subagent_id)
        events = self.end_reasoning(subagent_id) if state.is_summary != is_summary else []
        events += self._start_reasoning(subagent_id, key)
        state.is_summary = is_summary
        content = e.ReasoningMessageContent(
            message_id=state.reasoning_id or "",
            delta=delta,
            subagent_run_id=subagent_id,
            metadata=_SUMMARY if is_summary else None,
        )
        return [*events, content]

    def reasoning_encrypted(
        self,
        value: str,
        *,
        subtype: Literal["tool-call", "message"] = "message",
        entity_id: str | None = None,
        subagent_id: SubagentId = None,
    ) -> list[Event]:
        """Attach an opaque value to a call or message; without an id, to the speaker's latest reasoning."""
        events: list[Event] = []
        if entity_id is None:
            if self._speaker_state(subagent_id).last_reasoning_id is None:
                events += self._start_reasoning(subagent_id, None)
            entity_id = self._speaker_state(subagent_id).last_reasoning_id or ""
        owners = self._open.call_owners if subtype == "tool-call" else self._message_owners(entity_id)
        tag = owners.get(entity_id, subagent_id)
        return [
            *events,
            e.ReasoningEncryptedValue(subtype=subtype, entity_id=entity_id, encrypted_value=value, subagent_run_id=tag),
        ]

    def end_reasoning(self, subagent_id: SubagentId = None) -> list[Event]:
        """End the speaker's reasoning, if some is open."""
        state = self._speaker_state(subagent_id)
        if state.reasoning_id is None:
            return []
        reasoning_id, state.reasoning_id = state.reasoning_id, None
        return self._track_events(
            e.ReasoningMessageEnd(
                message_id=reasoning_id, subagent_run_id=subagent_id, metadata=_SUMMARY if state.is_summary else None
            ),
            e.ReasoningEnd(message_id=reasoning_id, subagent_run_id=subagent_id),
        )

    def continue_texts(self, sent: SentTexts) -> None:
        """Share `sent` with the earlier runs of this turn: of a text that is complete now, only the rest is emitted."""
        self._sent_by_key = sent

    def tool_start(
        self,
        tool_call_id: str,
        name: str,
        subagent_id: SubagentId = None,
        *,
        metadata: Metadata | None = None,
        message_id: str | None = None,
    ) -> list[Event]:
        """Start a tool call, unless it has started before. `message_id` is for the message that carries it, if there is none yet."""
        if tool_call_id in self._calls:
            return []
        self._calls[tool_call_id] = _CallState(subagent_id)
        events = [*self.end_text(subagent_id), *self.end_reasoning(subagent_id)]
        state = self._speaker_state(subagent_id)
        state.call_message_id = state.call_message_id or self._message_id(message_id)
        state.unanswered.add(tool_call_id)
        start = e.ToolCallStart(
            tool_call_id=tool_call_id,
            tool_call_name=name,
            parent_message_id=state.call_message_id,
            subagent_run_id=subagent_id,
            metadata=metadata,
        )
        return events + self._track_events(start)

    def start_turn(self, subagent_id: SubagentId = None) -> None:
        """Let the speaker's next call start a message of its own, although earlier calls have no result yet."""
        state = self._speaker_state(subagent_id)
        state.call_message_id, state.unanswered = None, set()

    def continue_tool_call(self, tool_call_id: str, subagent_id: SubagentId = None) -> None:
        """Continue a call of an earlier run: it does not start again, and its result is accepted."""
        self._calls.setdefault(tool_call_id, _CallState(subagent_id))

    def tool_args(self, tool_call_id: str, delta: str) -> list[Event]:
        """Add to a call's arguments. Nothing for a call that is not open."""
        if not delta or tool_call_id not in self._open.tool_calls:
            return []
        call = self._calls[tool_call_id]
        call.args.append(delta)
        return [e.ToolCallArgs(tool_call_id=tool_call_id, delta=delta, subagent_run_id=call.subagent_id)]

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
            e.ToolCallEnd(tool_call_id=tool_call_id, subagent_run_id=self._calls[tool_call_id].subagent_id)
        )

    def tool_result(
        self,
        tool_call_id: str,
        content: Content,
        *,
        name: str | None = None,
        args: str | None = None,
        subagent_id: SubagentId = None,
        is_error: bool = False,
        provisional: bool = False,
    ) -> list[Event]:
        """Emit a call's result, once. A call that never started is started first, from `name`, `args` and `subagent_id`.

        `is_error` becomes `isError` in the metadata: the event has no field for it. A `provisional` result is held back: the next result
        replaces it, and `close` emits it if there is none, unless the run ends with an interrupt.
        """
        events = self.tool_start(tool_call_id, name or "tool", subagent_id)
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
            subagent_run_id=call.subagent_id,
            metadata={"isError": True} if is_error else None,
        )
        if provisional:
            self._provisional[tool_call_id] = result
            return events
        return events + self._emit_results(result)

    def start_step(self, name: str, subagent_id: SubagentId = None) -> list[Event]:
        """Start a step, unless it is open."""
        if (subagent_id, name) in self._open.steps:
            return []
        return self._track_events(e.StepStarted(step_name=name, subagent_run_id=subagent_id))

    def end_step(self, name: str, subagent_id: SubagentId = None) -> list[Event]:
        """End a step, if it is open."""
        if (subagent_id, name) not in self._open.steps:
            return []
        return self._track_events(e.StepFinished(step_name=name, subagent_run_id=subagent_id))

    def start_subagent(
        self,
        subagent_id: str,
        name: str,
        *,
        description: str | None = None,
        parent: SubagentId = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
    ) -> list[Event]:
        """Start a subagent. An id that was used before adds no events."""
        if subagent_id in self._open.subagents or subagent_id in self._open.finished_subagents:
            return []
        started = e.SubagentStarted(
            subagent_run_id=subagent_id,
            name=name,
            description=description,
            parent_subagent_run_id=parent if parent in self._open.subagents else None,
            parent_tool_call_id=parent_tool_call_id,
            parent_message_id=parent_message_id,
        )
        return self._track_events(started)

    def end_subagent(
        self,
        subagent_id: str,
        *,
        result: Any = None,
        error: str | None = None,
        outcome: SubagentOutcome | None = None,
    ) -> list[Event]:
        """End a subagent and everything it has open; with `error` it failed."""
        if subagent_id not in self._open.subagents:
            return []
        state = self._speaker_state(subagent_id)
        state.text_id = state.reasoning_id = None
        if error is None:
            end = e.SubagentFinished(subagent_run_id=subagent_id, result=result, outcome=outcome)
        else:
            end = e.SubagentError(subagent_run_id=subagent_id, message=error)
        provisional = [result for result in self._provisional.values() if result.subagent_run_id == subagent_id]
        results = [] if isinstance(outcome, e.Suspended) else self._emit_results(*provisional)
        return [*results, *self._track_events(*self._open.closing_events_of(subagent_id), end)]

    def state(self, snapshot: Any, subagent_id: SubagentId = None) -> list[Event]:
        """Emit the whole state."""
        return [e.StateSnapshot(snapshot=snapshot, subagent_run_id=subagent_id)]

    def state_delta(self, patch: JsonPatch, subagent_id: SubagentId = None) -> list[Event]:
        """Emit a change of state; nothing for an empty patch."""
        return [e.StateDelta(delta=patch, subagent_run_id=subagent_id)] if patch else []

    def custom(self, name: str, value: Any, subagent_id: SubagentId = None) -> list[Event]:
        """Emit a custom event of your own, named `<namespace>:<name>`."""
        return [e.Custom(name=name, value=value, subagent_run_id=subagent_id)]

    def close(self, terminal: Terminal | None = None) -> list[Event]:
        """End everything that is open, in legal order. `terminal` decides if open subagents finished, are suspended or failed."""
        is_interrupted = isinstance(terminal, e.RunFinished) and isinstance(terminal.outcome, e.Interrupted)
        results = [] if is_interrupted else self._emit_results(*self._provisional.values())
        for state in self._speakers.values():
            state.text_id = state.reasoning_id = None
        return [*results, *self._track_events(*self._open.closing_events(terminal))]

    def _speaker_state(self, subagent_id: SubagentId) -> _SpeakerState:
        found = self._speakers.get(subagent_id)
        if found is None:
            found = self._speakers[subagent_id] = _SpeakerState()
        return found

    def _track_events(self, *events: Event) -> list[Event]:
        for event in events:
            self._open.apply(event)
        return list(events)

    def _remove_sent(self, kind: str, subagent_id: SubagentId, key: str | None, delta: str, *, complete: bool) -> str:
        if key is None:
            return delta
        sent = self._sent_by_key.setdefault((kind, subagent_id, key), [])
        if complete:
            delta = _unsent_part(sent, delta)
        sent.append(delta)
        return delta

    def _start_reasoning(self, subagent_id: SubagentId, key: str | None) -> list[Event]:
        state, events = self._speaker_state(subagent_id), self.end_text(subagent_id)
        if key is not None and key != state.reasoning_key:
            events += self.end_reasoning(subagent_id)
        if state.reasoning_id is not None:
            return events
        state.reasoning_id = state.last_reasoning_id = reasoning_id = self._new_id("reasoning")
        state.reasoning_key = key
        return events + self._track_events(
            e.ReasoningStart(message_id=reasoning_id, subagent_run_id=subagent_id),
            e.ReasoningMessageStart(message_id=reasoning_id, subagent_run_id=subagent_id),
        )

    def _emit_results(self, *results: e.ToolCallResult) -> list[Event]:
        """Emit these results and mark their calls as answered."""
        for result in results:
            call = self._calls[result.tool_call_id]
            call.is_answered = True
            self._provisional.pop(result.tool_call_id, None)
            self._mark_answered(call.subagent_id, result.tool_call_id)
        return self._track_events(*results)

    def _message_id(self, requested: str | None) -> str:
        """Return the id of a new message: the requested one, made unique if it has been used."""
        if requested is None:
            return self._new_id("message")
        candidates = chain([requested], (f"{requested}~{n}" for n in count(2)))
        fresh = next(candidate for candidate in candidates if candidate not in self._used_message_ids)
        self._used_message_ids.add(fresh)
        return fresh

    def _mark_answered(self, subagent_id: SubagentId, tool_call_id: str) -> None:
        """Mark a call as answered. Once all calls of a turn are, the next call starts a new message."""
        state = self._speaker_state(subagent_id)
        if tool_call_id in state.unanswered:
            state.unanswered.remove(tool_call_id)
            if not state.unanswered:
                state.call_message_id = state.last_reasoning_id = None

    def _message_owners(self, message_id: str) -> dict[str, SubagentId]:
        known = message_id in self._open.message_owners
        return self._open.message_owners if known else self._open.reasoning_owners


def _unsent_part(sent: list[str], whole: str) -> str:
    """Return the unsent rest of the whole; empty if the whole does not continue what was sent."""
    sent_text = "".join(sent)
    return whole[len(sent_text) :] if whole.startswith(sent_text) else ""
