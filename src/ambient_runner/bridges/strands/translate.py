"""What a Strands stream says, as AG-UI events. Pure: native events in, events out, nothing awaited.

Where a user's hook has its say, a mark stands among the events: `Called` before a call ends, `Answered` when a result is there, `Shared`
when a tool changes the state. `behaviors.py` turns marks into events. Agents inside agents (graphs, swarms, agents as tools) are lanes:
`nodes.py` has them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.strands.subagents import Nodes
from ambient_runner.protocol.events import TextMessageContent

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import Owner

__all__ = ["TOOL_RESULT", "Answered", "Called", "Plan", "Question", "Shared", "Translator"]

Native = Mapping[str, Any]

TOOL_RESULT = "ambient_tool_result"
"""The key under which `wiring.py` sends a tool's result as soon as it is there; the SDK itself sends them in one batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Called:
    """The arguments of a call are complete. It `ends` now, or with the run when the client has to carry it out: after everything else."""

    tool_use_id: str
    name: str
    arguments: str
    ends: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A tool of the agent's own has given its result."""

    tool_use_id: str
    name: str
    arguments: str
    result: Native
    lane: Owner


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """A tool sets keys of the shared state while it runs."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What the run waits for, and the call that asks."""

    interrupt: Any
    tool_use: Native | None = None
    lane: Owner = None


_NOTHING: list[Any] = []


@dataclass(slots=True)
class _Call:
    name: str
    lane: Owner
    pieces: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is known about the tools before the run begins."""

    frontend: Collection[str] = ()
    """Tools the client executes."""
    continuing: Collection[str] = ()
    """Those of them after which the model goes on."""
    streamed: Collection[str] = ()
    """Tools whose arguments a hook gives."""
    predictions: Mapping[str, list[dict[str, str]]] = field(default_factory=dict[str, list[dict[str, str]]])
    """What `PredictState` says of a tool."""
    earlier: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Calls of earlier runs, by id: name and arguments. Their beginning has been told."""
    answered: Collection[str] = ()
    """Calls of earlier runs that have their result."""


class Translator:
    """One run. `result` is the SDK's own at the end; `questions` what it waits for; `force_stopped` whether the SDK gave up.

    `is_stopping` says whether someone wants the run to end: the SDK then writes a message of its own, which nobody asked for.
    """

    def __init__(self, composer: Composer, plan: Plan, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self.result: Any = None
        self.force_stopped = False
        self.questions: dict[str, Question] = {}
        self._say = composer
        self._plan = plan
        self._calls: dict[str, _Call] = {}
        self._current: dict[Owner, str] = {}
        self._texts: dict[Owner, str] = {}
        self._is_stopping = is_stopping
        self._streaming: set[Owner] = set()
        self._told: Native = {}
        self._answered = set(plan.answered)
        self._nodes = Nodes(composer)
        self._steps: dict[str, Callable[[Native, Owner], list[Any]]] = {
            "node_id": self._node,
            "from_node_ids": self._handoff,
            "current_tool_use": self._arguments,
            "reasoningText": self._reasoning,
            "reasoningRedactedContent": self._redacted,
            TOOL_RESULT: self._tool_result,
            "tool_stream_event": self._tool_stream,
            "tool_interrupt_event": self._interrupted,
            "message": self._message,
            "force_stop": self._force_stop,
            "result": self._finished,
        }

    def feed(self, native: Native | str, lane: Owner = None) -> list[Any]:
        """What this event, or this piece of text, says: events and marks, in order.

        Pieces of text are nearly all of a stream, so they come first and cost little.
        """
        if isinstance(native, str):
            return self._text(native, lane)
        if "data" in native:
            return self._text(native["data"], lane)
        raw = native.get("event")
        if raw is None or "node_id" in native:
            return self._step(native, lane)
        return _NOTHING if "contentBlockDelta" in raw else self._chunk(raw, lane)

    def _text(self, delta: str, lane: Owner) -> list[Event]:
        message_id = self._texts.get(lane)
        if message_id is None or not delta:
            return self._first_delta(delta, lane)
        return [TextMessageContent(message_id=message_id, delta=delta, subagent_run_id=lane)]

    def _first_delta(self, delta: str, lane: Owner) -> list[Event]:
        """Text that opens a message. Until something else comes from this lane, deltas need nothing but its id."""
        said = self._say.text(delta, lane=lane)
        if said and isinstance(said[-1], TextMessageContent):
            self._texts[lane] = said[-1].message_id
        return said

    def _step(self, native: Native, lane: Owner) -> list[Any]:
        for key, step in self._steps.items():
            if key in native:
                self._texts.pop(lane, None)
                return step(native, lane)
        return _NOTHING

    def called(self, tool_use_id: str) -> tuple[str, str]:
        """The name and the arguments of a call, of this run or an earlier one."""
        call = self._calls.get(tool_use_id)
        return (call.name, call.arguments) if call else self._plan.earlier.get(tool_use_id, ("tool", ""))

    def _chunk(self, raw: Native, lane: Owner) -> list[Any]:
        self._texts.pop(lane, None)
        start = raw.get("contentBlockStart")
        if start is not None:
            begun: Native = start.get("start") or {}
            use = begun.get("toolUse")
            return self._call(use["toolUseId"], use["name"], lane) if use else _NOTHING
        if "contentBlockStop" in raw:
            return self._block_ended(lane)
        return self._turn(lane) if "messageStart" in raw else _NOTHING

    def _call(self, tool_use_id: str, name: str, lane: Owner) -> list[Any]:
        self._current[lane] = tool_use_id
        if tool_use_id in self._calls:
            return _NOTHING
        self._calls[tool_use_id] = _Call(name, lane)
        said: list[Any] = [*self._say.end_text(lane), *self._say.end_reasoning(lane)]
        predicted = self._plan.predictions.get(name)
        if predicted:
            said += self._say.custom("PredictState", predicted, lane)
        return said + self._say.tool_start(tool_use_id, name, lane)

    def _arguments(self, native: Native, lane: Owner) -> list[Any]:
        tool_use_id = native["current_tool_use"]["toolUseId"]
        piece = native["delta"]["toolUse"]["input"]
        call = self._calls.get(tool_use_id)
        if call is None:
            return _NOTHING
        call.pieces.append(piece)
        return _NOTHING if call.name in self._plan.streamed else self._say.tool_args(tool_use_id, piece)

    def _block_ended(self, lane: Owner) -> list[Any]:
        tool_use_id = self._current.pop(lane, None)
        if tool_use_id is None:
            return self._say.end_reasoning(lane)
        call = self._calls[tool_use_id]
        waits = self._is_frontend(call.name, lane) and call.name not in self._plan.continuing
        return [Called(tool_use_id=tool_use_id, name=call.name, arguments=call.arguments, ends=not waits)]

    def _turn(self, lane: Owner) -> list[Any]:
        """The model begins. A call it was making when it failed before has been told and will never be made."""
        self._streaming.add(lane)
        tool_use_id = self._current.pop(lane, None)
        ended = [*self._say.end_text(lane), *self._say.end_reasoning(lane)]
        return ended + (self._say.tool_end(tool_use_id) if tool_use_id else [])

    def _reasoning(self, native: Native, lane: Owner) -> list[Any]:
        return self._say.reasoning(native["reasoningText"] or "", lane=lane)

    def _redacted(self, native: Native, lane: Owner) -> list[Any]:
        hidden = native["reasoningRedactedContent"]
        return self._say.reasoning_encrypted(base64.b64encode(hidden).decode(), lane=lane) if hidden else _NOTHING

    def _message(self, native: Native, lane: Owner) -> list[Any]:
        message = native["message"]
        if message["role"] == "assistant":
            return self._assistant(message, lane)
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        return [one for result in results for one in self._answer(result, lane)]

    def _assistant(self, message: Native, lane: Owner) -> list[Any]:
        """The end of what the model said. What it did not stream was written by a hook or handed over by another agent."""
        self._told = message
        was_streamed = lane in self._streaming or self._is_stopping()
        self._streaming.discard(lane)
        said = (
            [event for text in _texts(message) for event in self._say.text(text, lane=lane)] if not was_streamed else []
        )
        return [*said, *self._say.end_text(lane), *self._say.end_reasoning(lane)]

    def _tool_result(self, native: Native, lane: Owner) -> list[Any]:
        return self._answer(native[TOOL_RESULT], lane)

    def _answer(self, result: Native, lane: Owner) -> list[Any]:
        tool_use_id = result["toolUseId"]
        name, arguments = self.called(tool_use_id)
        if tool_use_id in self._answered or self._is_frontend(name, lane):
            return _NOTHING
        self._answered.add(tool_use_id)
        mark = Answered(tool_use_id=tool_use_id, name=name, arguments=arguments, result=result, lane=lane)
        return [*self._nodes.close_tool(tool_use_id), mark]

    def _is_frontend(self, name: str, lane: Owner) -> bool:
        """Agents that are tools have only tools of their own, whatever these are called."""
        return name in self._plan.frontend and lane not in self._nodes.inner

    def _tool_stream(self, native: Native, lane: Owner) -> list[Any]:
        streamed = native["tool_stream_event"]
        data, use = streamed["data"], streamed["tool_use"]
        if not isinstance(data, dict):
            return _NOTHING
        inner = cast("dict[str, Any]", data)
        opened, inside = self._nodes.of_tool(use, inner, lane)
        if inside is not None:
            return [*opened, *self.feed(inner, inside)]
        if isinstance(inner.get("state"), dict):
            return [Shared(changes=inner["state"])]
        return _NOTHING

    def _interrupted(self, native: Native, lane: Owner) -> list[Any]:
        asked = native["tool_interrupt_event"]
        for interrupt in asked["interrupts"]:
            self.questions[interrupt.id] = Question(interrupt=interrupt, tool_use=asked["tool_use"], lane=lane)
        return _NOTHING

    def _force_stop(self, native: Native, lane: Owner) -> list[Any]:
        self.force_stopped = self.force_stopped or lane is None
        return _NOTHING

    def _node(self, native: Native, lane: Owner) -> list[Any]:
        kind, node = native.get("type"), native["node_id"]
        if kind == "multiagent_node_stream":
            opened, inside = self._nodes.inside(node, lane)
            return [*opened, *self.feed(native["event"], inside)]
        if kind == "multiagent_node_interrupt":
            inside = self._nodes.lane(node, lane)
            for interrupt in native["interrupts"]:
                known = self.questions.get(interrupt.id)
                use = known.tool_use if known else None
                self.questions[interrupt.id] = Question(interrupt=interrupt, tool_use=use, lane=inside)
        return self._nodes.feed(native, lane)

    def _handoff(self, native: Native, lane: Owner) -> list[Any]:
        told = {"from_nodes": native["from_node_ids"], "to_nodes": native["to_node_ids"]}
        message = native.get("message")
        return self._say.custom("MultiAgentHandoff", told | ({"message": message} if message else {}), lane)

    def _finished(self, native: Native, lane: Owner) -> list[Any]:
        if lane is not None:
            return _NOTHING
        self.result = native["result"]
        asked = getattr(self.result, "interrupts", None) or ()
        self.questions = {one.id: self.questions.get(one.id, Question(interrupt=one)) for one in asked}
        return self._last_word(lane)

    def _last_word(self, lane: Owner) -> list[Any]:
        """The message the run ends with, if a hook wrote it and nothing has said it yet."""
        last: Native = getattr(self.result, "message", None) or {}
        is_said = not last or _texts(last) == _texts(self._told)
        if is_said or getattr(self.result, "stop_reason", None) != "end_turn":
            return _NOTHING
        return self._assistant(last, lane)


def _texts(message: Native) -> list[str]:
    return [block["text"] for block in message.get("content", ()) if "text" in block]
