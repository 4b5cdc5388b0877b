"""Composer: what an adapter says with, so that its envelopes are balanced whatever its framework does.

An adapter reports text, reasoning, tool calls, steps and subagents as they come, and gets the events to emit. Everything is kept per
lane: a `subagentRunId`, None for the agent itself. Native replays are idempotent: a call or a result given again says nothing new, and
a complete text given after its deltas says only what was missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from ambient_runner.protocol import events as e
from ambient_runner.protocol.open_items import Open, Owner

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Content, Event, JsonPatch, Metadata, SubagentOutcome, Terminal, TextRole


def random_id(kind: str) -> str:
    """An id nobody else has, such as `message-6f1c…`."""
    return f"{kind}-{uuid4()}"


@dataclass(slots=True)
class _Lane:
    """One agent's part of the run."""

    text: str | None = None
    voice: tuple[str | None, TextRole, str | None] = (None, "assistant", None)
    thought: str | None = None
    thought_key: str | None = None
    last_thought: str | None = None
    carrier: str | None = None
    """The assistant message that carries the calls of this turn."""
    unanswered: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class _Call:
    lane: Owner
    args: list[str] = field(default_factory=list[str])
    answered: bool = False


class Composer:
    """The envelopes of one run. Each method returns the events to emit, in order; often none, sometimes several.

    Text and reasoning of a lane never overlap, and both end before its next tool call. Calls made in one turn share a
    `parentMessageId`. A result comes after its call, once.
    """

    def __init__(self, new_id: Callable[[str], str] = random_id) -> None:
        self._new_id = new_id
        self._open = Open()
        self._lanes: dict[Owner, _Lane] = {}
        self._calls: dict[str, _Call] = {}
        self._sent: dict[tuple[str, Owner, str], list[str]] = {}
        self._given_ids: set[str] = set()
        self._provisional: dict[str, e.ToolCallResult] = {}

    def text(
        self,
        delta: str,
        *,
        lane: Owner = None,
        key: str | None = None,
        complete: bool = False,
        role: TextRole = "assistant",
        name: str | None = None,
        message_id: str | None = None,
    ) -> list[Event]:
        """More text. `key` names the native message; with `complete`, `delta` is all of it and what was sent is left out.

        `message_id` is the id of a message that begins here, where the framework has one; used a second time it becomes `id~2`.
        """
        delta = self._unsent("text", lane, key, delta, complete=complete)
        if not delta:
            return []
        state = self._lane(lane)
        same_voice = state.voice == (key or state.voice[0], role, name)
        if state.text is not None and same_voice:
            return [e.TextMessageContent(message_id=state.text, delta=delta, subagent_run_id=lane)]
        events = self.end_reasoning(lane) if same_voice else [*self.end_reasoning(lane), *self.end_text(lane)]
        if state.text is None:
            state.text, state.voice = self._message_id(message_id), (key, role, name)
            state.carrier = state.text if role == "assistant" else None
            state.unanswered = set()
            events += self._say(
                e.TextMessageStart(message_id=state.text, role=role, name=name, subagent_run_id=lane),
            )
        return [*events, e.TextMessageContent(message_id=state.text, delta=delta, subagent_run_id=lane)]

    def end_text(self, lane: Owner = None) -> list[Event]:
        """The end of the lane's text message, if one is open."""
        state = self._lane(lane)
        if state.text is None:
            return []
        message_id, state.text = state.text, None
        return self._say(e.TextMessageEnd(message_id=message_id, subagent_run_id=lane))

    def reasoning(
        self, delta: str, *, lane: Owner = None, key: str | None = None, complete: bool = False
    ) -> list[Event]:
        """More reasoning; `key` and `complete` as for text."""
        delta = self._unsent("reasoning", lane, key, delta, complete=complete)
        if not delta:
            return []
        events = self._begin_thought(lane, key)
        thought = self._lane(lane).thought or ""
        return [*events, e.ReasoningMessageContent(message_id=thought, delta=delta, subagent_run_id=lane)]

    def reasoning_encrypted(
        self,
        value: str,
        *,
        subtype: Literal["tool-call", "message"] = "message",
        entity_id: str | None = None,
        lane: Owner = None,
    ) -> list[Event]:
        """An opaque value to keep with a call or message; without an id, with the lane's latest reasoning."""
        events: list[Event] = []
        if entity_id is None:
            if self._lane(lane).last_thought is None:
                events += self._begin_thought(lane, None)
            entity_id = self._lane(lane).last_thought or ""
        owners = self._open.call_owners if subtype == "tool-call" else self._message_owners(entity_id)
        tag = owners.get(entity_id, lane)
        return [
            *events,
            e.ReasoningEncryptedValue(subtype=subtype, entity_id=entity_id, encrypted_value=value, subagent_run_id=tag),
        ]

    def end_reasoning(self, lane: Owner = None) -> list[Event]:
        """The end of the lane's reasoning, if some is open."""
        state = self._lane(lane)
        if state.thought is None:
            return []
        thought, state.thought = state.thought, None
        return self._say(
            e.ReasoningMessageEnd(message_id=thought, subagent_run_id=lane),
            e.ReasoningEnd(message_id=thought, subagent_run_id=lane),
        )

    def tool_start(
        self,
        tool_call_id: str,
        name: str,
        lane: Owner = None,
        *,
        metadata: Metadata | None = None,
        message_id: str | None = None,
    ) -> list[Event]:
        """A call begins. One that has begun before says nothing. `message_id` is for the message that carries it, if there is none yet."""
        if tool_call_id in self._calls:
            return []
        self._calls[tool_call_id] = _Call(lane)
        events = [*self.end_text(lane), *self.end_reasoning(lane)]
        state = self._lane(lane)
        state.carrier = state.carrier or self._message_id(message_id)
        state.unanswered.add(tool_call_id)
        start = e.ToolCallStart(
            tool_call_id=tool_call_id,
            tool_call_name=name,
            parent_message_id=state.carrier,
            subagent_run_id=lane,
            metadata=metadata,
        )
        return events + self._say(start)

    def recall(self, tool_call_id: str, lane: Owner = None) -> None:
        """A call of an earlier run goes on: it does not begin again, and its result may come."""
        self._calls.setdefault(tool_call_id, _Call(lane))

    def tool_args(self, tool_call_id: str, delta: str) -> list[Event]:
        """More of a call's arguments. Nothing for a call that is not open."""
        if not delta or tool_call_id not in self._open.calls:
            return []
        call = self._calls[tool_call_id]
        call.args.append(delta)
        return [e.ToolCallArgs(tool_call_id=tool_call_id, delta=delta, subagent_run_id=call.lane)]

    def tool_args_full(self, tool_call_id: str, json_text: str) -> list[Event]:
        """A call's whole arguments: what was not sent yet. Nothing if they are not what was being sent."""
        if tool_call_id not in self._calls:
            return []
        return self.tool_args(tool_call_id, _missing(self._calls[tool_call_id].args, json_text))

    def tool_end(self, tool_call_id: str) -> list[Event]:
        """The end of a call's arguments, if they are open."""
        if tool_call_id not in self._open.calls:
            return []
        return self._say(e.ToolCallEnd(tool_call_id=tool_call_id, subagent_run_id=self._calls[tool_call_id].lane))

    def tool_result(
        self,
        tool_call_id: str,
        content: Content,
        *,
        name: str | None = None,
        args: str | None = None,
        lane: Owner = None,
        is_error: bool = False,
        provisional: bool = False,
    ) -> list[Event]:
        """A call's result, once. A call that never began is made up from `name`, `args` and `lane` first.

        `is_error` goes into the metadata as `isError`: the event itself has no word for it. A `provisional` result is held back: the next
        one takes its place, and `close` says it if none comes, unless the run waits for an answer.
        """
        events = self.tool_start(tool_call_id, name or "tool", lane)
        call = self._calls[tool_call_id]
        if call.answered:
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
        return events + self._settle(result)

    def step(self, name: str, lane: Owner = None) -> list[Event]:
        """A step begins, unless it is open."""
        if (lane, name) in self._open.steps:
            return []
        return self._say(e.StepStarted(step_name=name, subagent_run_id=lane))

    def end_step(self, name: str, lane: Owner = None) -> list[Event]:
        """A step ends, if it is open."""
        if (lane, name) not in self._open.steps:
            return []
        return self._say(e.StepFinished(step_name=name, subagent_run_id=lane))

    def subagent(
        self,
        subagent_run_id: str,
        name: str,
        *,
        description: str | None = None,
        parent: Owner = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
    ) -> list[Event]:
        """A subagent begins and its id becomes a lane. An id that was used before says nothing."""
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
        return self._say(started)

    def end_subagent(
        self,
        subagent_run_id: str,
        *,
        result: Any = None,
        error: str | None = None,
        outcome: SubagentOutcome | None = None,
    ) -> list[Event]:
        """A subagent ends, with everything it has open; with `error` it failed."""
        if subagent_run_id not in self._open.subagents:
            return []
        lane = self._lane(subagent_run_id)
        lane.text = lane.thought = None
        if error is None:
            end = e.SubagentFinished(subagent_run_id=subagent_run_id, result=result, outcome=outcome)
        else:
            end = e.SubagentError(subagent_run_id=subagent_run_id, message=error)
        mine = [one for one in self._provisional.values() if one.subagent_run_id == subagent_run_id]
        held = [] if isinstance(outcome, e.Suspended) else self._settle(*mine)
        return [*held, *self._say(*self._open.ends_of(subagent_run_id), end)]

    def state(self, snapshot: Any, lane: Owner = None) -> list[Event]:
        """The whole state."""
        return [e.StateSnapshot(snapshot=snapshot, subagent_run_id=lane)]

    def state_delta(self, patch: JsonPatch, lane: Owner = None) -> list[Event]:
        """A change of state; nothing for an empty patch."""
        return [e.StateDelta(delta=patch, subagent_run_id=lane)] if patch else []

    def custom(self, name: str, value: Any, lane: Owner = None) -> list[Event]:
        """A signal of your own, named `<namespace>:<name>`."""
        return [e.Custom(name=name, value=value, subagent_run_id=lane)]

    def close(self, terminal: Terminal | None = None) -> list[Event]:
        """The ends of everything open, in legal order. `terminal` says whether open subagents finished, wait or are lost."""
        waits = isinstance(terminal, e.RunFinished) and isinstance(terminal.outcome, e.Interrupted)
        held = [] if waits else self._settle(*self._provisional.values())
        for lane in self._lanes.values():
            lane.text = lane.thought = None
        return [*held, *self._say(*self._open.ends(terminal))]

    def _lane(self, lane: Owner) -> _Lane:
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = _Lane()
        return found

    def _say(self, *events: Event) -> list[Event]:
        for event in events:
            self._open.apply(event)
        return list(events)

    def _unsent(self, kind: str, lane: Owner, key: str | None, delta: str, *, complete: bool) -> str:
        if key is None:
            return delta
        sent = self._sent.setdefault((kind, lane, key), [])
        if complete:
            delta = _missing(sent, delta)
        sent.append(delta)
        return delta

    def _begin_thought(self, lane: Owner, key: str | None) -> list[Event]:
        state, events = self._lane(lane), self.end_text(lane)
        if key is not None and key != state.thought_key:
            events += self.end_reasoning(lane)
        if state.thought is not None:
            return events
        state.thought = state.last_thought = thought = self._new_id("reasoning")
        state.thought_key = key
        return events + self._say(
            e.ReasoningStart(message_id=thought, subagent_run_id=lane),
            e.ReasoningMessageStart(message_id=thought, subagent_run_id=lane),
        )

    def _settle(self, *results: e.ToolCallResult) -> list[Event]:
        """These are the results: nothing else will be said of their calls."""
        for result in results:
            call = self._calls[result.tool_call_id]
            call.answered = True
            self._provisional.pop(result.tool_call_id, None)
            self._answer(call.lane, result.tool_call_id)
        return self._say(*results)

    def _message_id(self, given: str | None) -> str:
        """The id of a new message: the given one unless it has been used."""
        if given is None:
            return self._new_id("message")
        candidates = chain([given], (f"{given}~{n}" for n in count(2)))
        fresh = next(one for one in candidates if one not in self._given_ids)
        self._given_ids.add(fresh)
        return fresh

    def _answer(self, lane: Owner, tool_call_id: str) -> None:
        """When all calls of a turn are answered the turn is over: its message carries no more of them."""
        state = self._lane(lane)
        if tool_call_id in state.unanswered:
            state.unanswered.remove(tool_call_id)
            if not state.unanswered:
                state.carrier = state.last_thought = None

    def _message_owners(self, message_id: str) -> dict[str, Owner]:
        known = message_id in self._open.message_owners
        return self._open.message_owners if known else self._open.reasoning_owners


def _missing(sent: list[str], whole: str) -> str:
    """What of the whole has not been sent: nothing when the whole does not continue it."""
    so_far = "".join(sent)
    return whole[len(so_far) :] if whole.startswith(so_far) else ""
