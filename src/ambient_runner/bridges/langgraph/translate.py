"""Translation of a LangGraph stream into AG-UI events. Pure: native events in, events out, nothing awaited.

A native event is `(namespace, mode, data)`, as `astream` yields them with several modes and subgraphs. A subgraph is a lane, shown as a
subagent; a node is a step; a model's message is a `StreamedMessage`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from ambient_runner.bridges.langgraph.instrumentation import Silenced, named
from ambient_runner.bridges.langgraph.interrupts import Question
from ambient_runner.bridges.langgraph.messages import is_object, result_content, said_in
from ambient_runner.bridges.langgraph.predict_state import Predictions, mappings_of
from ambient_runner.bridges.langgraph.streamed_message import Call, Speech
from ambient_runner.bridges.langgraph.subagents import Lanes, Namespace
from ambient_runner.bridges.langgraph.tool_call_ids import CallNames
from ambient_runner.bridges.langgraph.usage import Usage
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.protocol.events import RunError, TextMessageContent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event, Terminal
    from ambient_runner.protocol.open_items import Owner

__all__ = ["Native", "Plan", "Translator"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is known before the run begins."""

    frontend: frozenset[str] = frozenset()
    """Tools the client executes."""
    messages: frozenset[str] = frozenset()
    """Ids of the thread's messages: what has them has been told."""
    open_calls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Calls of earlier runs that may be answered now: the tool's name by the call's id."""
    messages_key: str = "messages"
    hidden: Collection[str] = ()
    """Keys of the state that are never told."""
    predictions: Sequence[Mapping[str, str]] = ()


Native = tuple[Namespace, str, Any]
"""`(namespace, mode, data)`."""

_NOT_JSON = "The arguments of this call are not a JSON object, so it was not carried out."


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A call of this run that has no result."""

    ns: Namespace
    speech: Speech
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class _Written:
    """The message that is being written: what its plain pieces are told with."""

    native: str
    message_id: str
    lane: Owner


class Translator:
    """One run. `questions` are what it waits for; `is_paused` whether it stopped at a breakpoint; `values` is the graph's last state."""

    def __init__(self, store: StateStore, plan: Plan, names: CallNames | None = None) -> None:
        self.questions: dict[str, Question] = {}
        self.is_paused = False
        self.values: Mapping[str, Any] = {}
        self.adopted: set[str] = set()
        """Messages and calls of subgraphs that have become part of the graph's own conversation."""
        self.resumes = False
        """Whether nodes go on that have run before, and may say again what they said."""
        self.usage = Usage()
        self._store = store
        self._plan = plan
        self._say = Composer()
        self._lanes = Lanes(self._say)
        self._predicted = Predictions(store)
        self._speeches: dict[str, Speech] = {}
        self._open: dict[str, Speech] = {}
        self._heard = set(plan.messages)
        self._silenced: dict[str, Mapping[str, Any]] = {}
        self._names = names or CallNames()
        self._earlier = dict(plan.open_calls)
        self._said_again: set[str] = set()
        self._unanswered: dict[str, list[_Made]] = {}
        self._running: Counter[tuple[Owner, str]] = Counter()
        self._written: _Written | None = None
        self.has_begun = False
        self._modes: dict[str, Callable[[Namespace, Any], list[Event]]] = {
            "custom": self._custom,
            "tasks": self._task,
            "updates": self._updates,
            "values": self._values,
        }
        for call_id in plan.open_calls:
            self._say.recall(call_id)

    def piece(self, native: Native) -> TextMessageContent | None:
        """The next piece of the text that is being written, if the event is that and no more. Else `feed` says what it is."""
        written = self._written
        if written is None or native[1] != "messages":
            return None
        message = native[2][0]
        if (
            message.id != written.native
            or type(message) is not AIMessageChunk
            or type(text := message.content) is not str
            or not text
            or message.tool_call_chunks
            or message.additional_kwargs
            or message.usage_metadata is not None
            or message.chunk_position is not None
        ):
            return None
        return TextMessageContent(message_id=written.message_id, delta=text, subagent_run_id=written.lane)

    def recall(self, ids: Iterable[str]) -> None:
        """Messages that the graph has from before, whether clients have heard them or not."""
        self._heard.update(ids)

    def feed(self, native: Native) -> list[Event]:
        """What an event says that is more than a `piece`."""
        ns, mode, data = native
        if mode == "messages":
            return self._message(ns, *data)
        step = self._modes.get(mode)
        return step(ns, data) if step else []

    def close(self, terminal: Terminal) -> list[Event]:
        """The ends of everything open. What was predicted and did not come true is kept back: `StateStore.closing` says so."""
        self._written = None
        self._predicted.take_back(self.visible())
        results = [] if isinstance(terminal, RunError) else self._refused()
        ends = [event for speech in self._speeches.values() for event in speech.composer.close(terminal)]
        return [*results, *ends, *self._say.close(terminal)]

    def _refused(self) -> list[Event]:
        """Results for calls that nobody carries out: the SDK leaves those aside whose arguments it cannot read. It reads more than JSON."""
        waiting = {told for told, _ in self._calls_left()}
        return [
            event
            for made in chain.from_iterable(self._unanswered.values())
            if made.call.told not in waiting and not is_object(made.call.arguments)
            for event in made.speech.composer.tool_result(made.call.told, _NOT_JSON, is_error=True)
        ]

    def waiting(self) -> list[str]:
        """The client's calls in the graph's conversation that have no result: of this run, or of one before that stopped to ask."""
        return [told for told, call in self._calls_left() if told and call["name"] in self._plan.frontend]

    def _calls_left(self) -> list[tuple[str, Any]]:
        return list(self._names.read(self.values.get(self._plan.messages_key)).unanswered)

    def visible(self) -> dict[str, Any]:
        """What of the graph's state is shared."""
        shown = [key for key in self.values if key not in self._plan.hidden and not key.startswith("__")]
        return {key: self.values[key] for key in shown}

    def _message(self, ns: Namespace, message: Any, meta: Mapping[str, Any]) -> list[Event]:
        self._written = None
        match message:
            case AIMessageChunk():
                return self._chunk(ns, message, meta)
            case AIMessage():
                return self._whole(ns, message, meta)
            case ToolMessage():
                return self._result(ns, message)
            case _:
                return []

    def _chunk(self, ns: Namespace, message: AIMessageChunk, meta: Mapping[str, Any]) -> list[Event]:
        events = self._lanes.enter(ns)
        speech = self._speech(message, ns, meta)
        self.usage.add(message, meta)
        said = speech.say(message)
        events += said
        for call, delta in speech.chunks(message):
            events += self._call(ns, speech, call, delta, meta)
        if message.chunk_position == "last":
            events += self._end(speech, is_whole=False)
        elif message.id and said and type(last := said[-1]) is TextMessageContent and not message.tool_call_chunks:
            self._written = _Written(message.id, last.message_id, speech.lane)
        return events

    def _whole(
        self, ns: Namespace, message: AIMessage, meta: Mapping[str, Any], *, is_used: bool = True
    ) -> list[Event]:
        """A message that nobody streamed. One the thread has already is an old one, seen again."""
        if message.id in self._plan.messages or message.id in self._speeches:
            return []
        if is_used:
            self.usage.add(message, meta)
        events = self._lanes.enter(ns)
        speech = self._speech(message, ns, {**meta, **self._silenced.get(message.id or "", {})})
        return [*events, *speech.say(message), *self._rest(ns, speech, message, meta)]

    def _rest(self, ns: Namespace, speech: Speech, message: AIMessage, meta: Mapping[str, Any]) -> list[Event]:
        events: list[Event] = []
        for call, arguments in speech.missing(message):
            events += self._call(ns, speech, call, arguments, meta)
        return [*events, *self._end(speech)]

    def _speech(self, message: AIMessage, ns: Namespace, meta: Mapping[str, Any]) -> Speech:
        native = message.id or random_id("message")
        known = self._speeches.get(native)
        if known is not None:
            return known
        speech = self._speeches[native] = self._open[native] = Speech(
            random_id("message") if native in self._plan.messages else native,
            self._lanes.of(ns),
            str(meta.get("langgraph_checkpoint_ns", "")),
            shows_text=meta.get("emit-messages", True) is not False,
            shows_calls=meta.get("emit-tool-calls", True) is not False,
        )
        return speech

    def _call(self, ns: Namespace, speech: Speech, call: Call, delta: str, meta: Mapping[str, Any]) -> list[Event]:
        """A call begins or goes on. Its arguments may be state that is shown before it is there."""
        events: list[Event] = []
        if not call.told and not self._is_said_again(speech, call):
            call.told = self._names.new(speech.message_id, call.id)
            self._unanswered.setdefault(call.id, []).append(_Made(ns, speech, call))
            mappings = [*self._plan.predictions, *mappings_of(meta)]
            events += self._predicted.begin(call.told, call.name, mappings)
            events += speech.composer.tool_start(call.told, call.name, speech.lane, message_id=speech.message_id)
        return [*events, *speech.composer.tool_args(call.told, delta), *self._predicted.more(call.told, delta)]

    def _is_said_again(self, speech: Speech, call: Call) -> bool:
        """Whether a node that goes on makes a call once more that clients know from its first try."""
        for told, name in reversed(self._earlier.items()) if self.resumes else ():
            if name == call.name and self._names.native(told) == call.id and told not in self._said_again:
                call.told = told
                self._said_again.add(told)
                self._names.note(speech.message_id, told)
                return True
        return False

    def _end(self, speech: Speech, *, is_whole: bool = True) -> list[Event]:
        """The message is complete. Calls of the client's tools stay open to the end of the run: then they are carried out."""
        events: list[Event] = []
        for call in speech.calls.values():
            events += self._predicted.more(call.told, "", complete=True)
        kept_open = self._plan.frontend if speech.lane is None else frozenset[str]()
        return [*events, *speech.end(kept_open, is_whole=is_whole)]

    def _result(self, ns: Namespace, message: ToolMessage) -> list[Event]:
        self._heard.add(message.id or "")
        made = self._made(ns, message.tool_call_id)
        call_id = made.call.told if made else self._told_before(message.tool_call_id)
        if call_id is None:
            return []
        if made:
            self._unanswered[made.call.id].remove(made)
        self._earlier.pop(call_id, None)
        self._predicted.settle(call_id)
        caller = made.speech if made else None
        return [
            *(self._lanes.enter(ns) if caller is None else []),
            *(caller.composer if caller else self._say).tool_result(
                call_id,
                result_content(cast("Any", message.content)),
                name=message.name,
                lane=self._lanes.of(ns) if caller is None else caller.lane,
                is_error=message.status == "error",
            ),
        ]

    def _made(self, ns: Namespace, native: str) -> _Made | None:
        """The call of this run that a result belongs to: of the newest message there that made one, else of the newest anywhere."""
        waiting = self._unanswered.get(native, [])
        near = [one for one in waiting if one.ns == ns] or waiting
        return next((one for one in near if one.speech is near[-1].speech), None)

    def _told_before(self, native: str) -> str | None:
        """The id under which clients wait for a result, of an earlier run or of none; None when they have it."""
        waiting = self._waiting_for(native)
        if waiting:
            return waiting[-1]
        return None if self._names.knows(native) else self._names.new("", native)

    def _waiting_for(self, native: str) -> list[str]:
        return [told for told in self._earlier if self._names.native(told) == native]

    def _told(self, ns: Namespace, native: str) -> str:
        made = self._made(ns, native)
        return made.call.told if made else self._names.latest(native)

    def _custom(self, ns: Namespace, data: Any) -> list[Event]:
        if isinstance(data, Silenced):
            self._silenced[data.id] = data.meta
            return []
        return [*self._lanes.enter(ns), *self._say.custom(*named(data), self._lanes.of(ns))]

    def _task(self, ns: Namespace, data: Mapping[str, Any]) -> list[Event]:
        """A node begins or ends."""
        name: str = data["name"]
        if name.startswith("__"):
            return []
        place = (*ns, f"{name}:{data['id']}")
        if "input" in data:
            return self._begun(ns, name, place, data["input"])
        for asked in data.get("interrupts") or ():
            self._ask(asked, ns, place)
        return [] if data.get("interrupts") else self._ended(ns, name, place, has_failed=bool(data.get("error")))

    def _begun(self, ns: Namespace, name: str, place: Namespace, given: Any) -> list[Event]:
        self._lanes.called(place, given, partial(self._told, ns))
        events, lane = self._lanes.enter(ns), self._lanes.of(ns)
        self._running[lane, name] += 1
        self.has_begun = True
        return [*events, *self._say.step(name, lane)]

    def _ended(self, ns: Namespace, name: str, place: Namespace, *, has_failed: bool) -> list[Event]:
        """The node's messages are over, and the subgraphs it ran. The step is when no other run of the node goes on beside it."""
        lane, task = self._lanes.of(ns), "|".join(place)
        self._running[lane, name] -= 1
        events: list[Event] = []
        for native, speech in list(self._open.items()):
            if speech.task.startswith(task):
                events += self._end(self._open.pop(native))
                if self._written is not None and self._written.native == native:
                    self._written = None
        events += self._lanes.leave(place, has_failed=has_failed)
        return [*events, *(self._say.end_step(name, lane) if self._running[lane, name] <= 0 else [])]

    def _ask(self, asked: Any, ns: Namespace, place: Namespace) -> None:
        """The innermost graph that asks says it first; those around it repeat it."""
        said = cast("Mapping[str, Any]", asked)
        if said["id"] not in self.questions:
            self.questions[said["id"]] = Question(
                id=said["id"],
                value=said["value"],
                response_schema=said.get("response_schema"),
                lane=self._lanes.of(ns),
                tool_call_id=self._lanes.call_of(place),
            )

    def _updates(self, ns: Namespace, data: Any) -> list[Event]:
        """What a node has written: here a message is whole, and what its chunks left out can be told."""
        events: list[Event] = []
        for node, update in data.items() if isinstance(data, Mapping) else ():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            if node == "__interrupt__":
                self.is_paused = not ns and not update
                continue
            for message in said_in(update):
                speech = self._speeches.get(message.id or "")
                if speech is not None and (message.id or "") in self._open:
                    events += [*speech.complete(message), *self._rest(ns, speech, message, {})]
        return events

    def _values(self, ns: Namespace, data: Any) -> list[Event]:
        """The state after a step: of the graph itself, and of no subgraph."""
        if ns or not isinstance(data, Mapping):
            return []
        self.values = cast("Mapping[str, Any]", data)
        told = self._conversation(self.values.get(self._plan.messages_key))
        shown = {key: item for key, item in self.visible().items() if not self._predicted.covers(key)}
        return [*told, *self._store.delta(shown)]

    def _conversation(self, messages: Any) -> list[Event]:
        """The graph's own conversation. What a node has put there and no stream said is told now: out of a cache, or written as a dict."""
        events: list[Event] = []
        for message in cast("Iterable[Any]", messages) if isinstance(messages, list) else ():
            native = message.id if isinstance(message, BaseMessage) else None
            speech = self._speeches.get(native or "")
            if speech is not None:
                self._adopt(speech)
            elif native and native not in self._heard:
                self._heard.add(native)
                events += self._unstreamed(message) if self.has_begun else []
        return events

    def _unstreamed(self, message: Any) -> list[Event]:
        match message:
            case AIMessage():
                return self._whole((), message, {}, is_used=False)
            case ToolMessage() if self._made((), message.tool_call_id) or self._waiting_for(message.tool_call_id):
                return self._result((), message)
            case _:
                return []

    def _adopt(self, speech: Speech) -> None:
        if speech.lane is not None:
            self.adopted.update([speech.message_id, *(call.told for call in speech.calls.values())])
