"""One run of a graph, told: what clients hear of it, what the graph is given and may do, and what the thread keeps. Nothing is run here.

`conversation.py` goes through its doors in this order: `ask` for what `opening.py` decides by, `open` for the first words, `giving` and
`settings` for each thing the graph is given, `piece` or `feed` for whatever it says, `instead` where it fails on a cancelled question, and
`end` or `fail` for the last words.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.base import remember
from ambient_runner.bridges.langgraph.errors import CheckpointerNeeded, InvalidState, LangGraphError, Unreachable
from ambient_runner.bridges.langgraph.graph import place_of
from ambient_runner.bridges.langgraph.interrupts import at_breakpoint, interrupt_of
from ambient_runner.bridges.langgraph.memory import Memory
from ambient_runner.bridges.langgraph.run_input import Ask, forwarded
from ambient_runner.bridges.langgraph.tool_call_ids import CallNames
from ambient_runner.bridges.langgraph.translate import Plan, Translator
from ambient_runner.bridges.toolkit.interrupts import lapsed
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.bridges.toolkit.turns import calls_of
from ambient_runner.protocol.events import Interrupted, RunError, RunFinished, Success, ToolMessage
from ambient_runner.protocol.json_pointer import pointer_to
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import run_if_any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ambient_runner.bridges.langgraph.config import LangGraphConfig
    from ambient_runner.bridges.langgraph.graph import Graph, Shape
    from ambient_runner.bridges.langgraph.run_input import Opening
    from ambient_runner.bridges.langgraph.subagents import Namespace
    from ambient_runner.bridges.langgraph.translate import Native
    from ambient_runner.errors import BridgeError
    from ambient_runner.protocol.events import Event, Outcome, RunAgentInput

__all__ = ["Telling"]

logger = logging.getLogger(__name__)

_STEPS = 100
"""How many a run may take if nobody says it."""


class Telling:
    """One run. Its `memory` is what the next one has to know."""

    def __init__(self, given: RunAgentInput, config: LangGraphConfig, shape: Shape, memory: Memory | None) -> None:
        self.memory = memory
        self._opening: Opening | None = None
        self._tools = Toolbox(given.tools, shape.tools).frontend
        self._input = given
        self._config = config
        self._limit = config.recursion_limit or shape.recursion_limit or _STEPS
        self._store = StateStore(given.state, config.hidden.__contains__)
        self._names = CallNames(given.messages, memory.aliases if memory else {})
        self._translator = Translator(self._store, _plan(given, self._tools, config), self._names)
        self.piece = self._translator.piece
        self._checkpoint: str | None = None
        self._next: list[str] = []
        self._unheard: tuple[str, ...] = ()
        self._beside = memory.beside if memory else ()
        self._noted = len(self._names.aliases)

    @property
    def waits(self) -> bool:
        """Whether the graph waits for someone."""
        return bool(self._translator.questions) or self._translator.is_paused

    def ask(self, graph: Graph, platform: Mapping[str, Any]) -> Ask:
        """What `open_run` decides by."""
        run = run_if_any()
        return Ask(
            input=self._input,
            place=graph.place(self._input.thread_id if run is None else place_of(run.thread)),
            config=self._config,
            memory=self.memory,
            new=None if run is None else run.new_ids,
            tools=list(self._tools.values()),
            platform=platform,
            names=self._names,
            keeps=graph.keeps,
        )

    def settings(self, opening: Opening) -> dict[str, Any]:
        """The run's configuration. What a client sets is what it may set, and never what we set."""
        allowed = _allowed(forwarded(self._input, "configurable"), self._config.configurable)
        return {"configurable": {**allowed, **opening.configurable}, "recursion_limit": self._limit}

    def client_context(self) -> dict[str, Any]:
        """What a client sets of the run's context, of what it may set."""
        return _allowed(forwarded(self._input, "context"), self._config.client_context)

    def open(self, opening: Opening) -> list[Event]:
        """The first words: what the graph is about to be given, and where it stands, are known. Raises: InvalidState."""
        self._opening = opening
        if opening.wrong:
            logger.warning("The posted state has another type than the graph's at: %s", ", ".join(opening.wrong))
            raise InvalidState
        self._checkpoint = opening.checkpoint
        self._translator.resumes = opening.resumes
        self._translator.recall(opening.stored)
        self._unheard = opening.unheard
        self._beside = opening.beside
        snapshot: list[Event] = [self._store.snapshot()] if self._store.value else []
        return [*snapshot, *lapsed(opening.lapsed), *self._remember(is_whole=False)]

    def giving(self, one: Any) -> Any:
        """What the graph is given next, noted: messages are heard."""
        if isinstance(one, dict):
            self._unheard = ()
        return cast("Any", one)

    def feed(self, native: Native) -> list[Event]:
        """What an event says that is more than a `piece`."""
        ns, mode, data = native
        if mode == "checkpoints":
            return self._moved(ns, data)
        events = self._translator.feed(native)
        if len(self._names.aliases) > self._noted:
            self._noted = len(self._names.aliases)
            events += self._remember(is_whole=False)  # The client may answer it also when this run is cut.
        return events

    def end(self, *, keeps: bool) -> list[Event]:
        """The last words. Raises: CheckpointerNeeded."""
        if self.waits and not keeps:
            raise CheckpointerNeeded
        end = RunFinished(
            thread_id=self._input.thread_id,
            run_id=self._input.run_id,
            outcome=self._outcome(),
            usage=self._translator.usage.tokens,
            metadata={"checkpointId": self._checkpoint} if self._checkpoint else None,
        )
        self._store.keep(self._translator.visible())
        return [
            *self._translator.close(end),
            *self._store.closing(),
            *self._remember(is_whole=True),
            end,
        ]

    def instead(self, error: BridgeError) -> Sequence[Any] | None:
        """What the graph is given after it failed: if all it was to do is cancel questions, and it did nothing, they are over."""
        resume, opening = self._input.resume, self._opening
        if opening is None or not resume or not self._translator.resumes or isinstance(error, Unreachable):
            return None
        if self._checkpoint != opening.checkpoint or any(entry.status != "cancelled" for entry in resume):
            return None
        self._translator.questions.clear()
        self._translator.resumes = False
        return opening.instead

    async def fail(self, error: BridgeError, graph: Graph) -> list[Event]:
        """The last words of a run that failed, before its error."""
        end = RunError(message=error.message)
        return [*await self._take_back(error, graph), *self._translator.close(end), *self._store.closing()]

    async def _take_back(self, error: BridgeError, graph: Graph) -> list[Event]:
        """What the graph could not take is no longer the thread's, nor the graph's: every later run would fail on it.

        A graph that failed before a node began goes on from where it was before, or from nothing.
        """
        opening = self._opening
        is_untaken = type(error) is LangGraphError and not self._translator.has_begun
        if opening is None or not (is_untaken or isinstance(error, InvalidState)):
            return []
        if self._checkpoint is not None and self._checkpoint != opening.checkpoint:
            if opening.checkpoint is None:
                with isolate("erasing a graph's first checkpoints"):
                    await graph.forget(opening.configurable["thread_id"])
            self._checkpoint = opening.checkpoint
        known = self._store.value
        gone = [name for name in opening.sets if name not in opening.before and name in known]
        removed = self._store.apply([{"op": "remove", "path": pointer_to(name)} for name in gone])
        self._store.keep(opening.before)
        return [*removed, *self._remember(is_whole=False)]

    def _outcome(self) -> Outcome:
        seconds = self._config.interrupt_seconds
        if self._translator.questions:
            return Interrupted(
                interrupts=[
                    interrupt_of(one, seconds, self._names.latest) for one in self._translator.questions.values()
                ]
            )
        if self._translator.is_paused:
            return Interrupted(interrupts=[at_breakpoint(self._checkpoint or "", self._next, seconds)])
        return Success(pending_tool_call_ids=self._translator.waiting() or None)

    def _moved(self, ns: Namespace, payload: Mapping[str, Any]) -> list[Event]:
        """The graph has taken a step and stored it."""
        if ns:
            return []
        before, self._checkpoint = self._checkpoint, payload["config"]["configurable"]["checkpoint_id"]
        if self._checkpoint != before:
            self._beside = ()
        self._next = list(payload["next"])
        return self._remember(is_whole=False)

    def _remember(self, *, is_whole: bool) -> list[Event]:
        before = self.memory.adopted if self.memory else ()
        adopted = tuple(dict.fromkeys([*before, *sorted(self._translator.adopted)]))
        now = Memory(
            checkpoint=self._checkpoint,
            is_whole=is_whole,
            adopted=adopted,
            aliases=dict(self._names.aliases),
            unheard=self._unheard,
            beside=self._beside,
        )
        if now == self.memory:
            return []
        self.memory = now
        return [] if run_if_any() is None else [remember(now.to_store())]


def _allowed(wanted: Any, names: Collection[str]) -> dict[str, Any]:
    """What a client wants, as far as it is listed."""
    if not isinstance(wanted, dict):
        return {}
    return {name: item for name, item in cast("dict[str, Any]", wanted).items() if name in names}


def _plan(given: RunAgentInput, tools: Iterable[str], config: LangGraphConfig) -> Plan:
    """What the translator knows before the graph says anything."""
    answered = {message.tool_call_id for message in given.messages if isinstance(message, ToolMessage)}
    return Plan(
        frontend=frozenset(tools),
        messages=frozenset(message.id for message in given.messages),
        open_calls={call.id: call.function.name for call in calls_of(given.messages) if call.id not in answered},
        messages_key=config.messages_key,
        hidden=config.hidden,
        predictions=[mapping.to_payload() for mapping in config.predict_state],
    )
