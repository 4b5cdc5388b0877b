"""What a run puts into a graph: the new messages for one that has the conversation stored, all of them for one that has not.

A graph's checkpointer feeds the model and the ledger feeds clients, so the two are compared here: by the ids of messages, which are the
same in both, and by what the thread remembers of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec
from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command, Overwrite

from ambient_runner.bridges.langgraph.client_tools import KEY
from ambient_runner.bridges.langgraph.errors import NoSuchCheckpoint
from ambient_runner.bridges.langgraph.graph import checkpoint_of
from ambient_runner.bridges.langgraph.interrupts import answers_of, goes_on, is_breakpoint
from ambient_runner.bridges.langgraph.messages import messages_of, result_message, tool_specs
from ambient_runner.bridges.langgraph.state_edits import changes, members, of_kind, set_by, storable
from ambient_runner.bridges.langgraph.tool_call_ids import CallNames, name_of
from ambient_runner.bridges.toolkit.interrupts import answered
from ambient_runner.bridges.toolkit.turns import incoming, no_result, turns
from ambient_runner.protocol import events

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from langgraph.types import StateSnapshot

    from ambient_runner.bridges.langgraph.config import LangGraphConfig
    from ambient_runner.bridges.langgraph.graph import Graph, Shape
    from ambient_runner.bridges.langgraph.memory import Memory
    from ambient_runner.bridges.langgraph.tool_call_ids import Stored
    from ambient_runner.bridges.toolkit.turns import Incoming
    from ambient_runner.protocol.events import Message, RunAgentInput, Tool

__all__ = ["Ask", "Opening", "forwarded", "open_run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One run as the thread sees it."""

    input: RunAgentInput
    place: str
    """Where the graph's checkpointer has the thread."""
    config: LangGraphConfig
    memory: Memory | None
    new: Collection[str] | None
    """Ids of the messages this run adds; None without a server."""
    tools: Sequence[Tool] = ()
    """The client's tools, without those the graph has itself."""
    platform: Mapping[str, Any] = field(default_factory=dict[str, Any])
    names: CallNames = field(default_factory=CallNames)
    keeps: bool = True
    """Whether the graph has a checkpointer, which takes less than JSON has."""

    def kept(self, value: Any) -> Any:
        return storable(value) if self.keeps else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """What the graph is given, one after the other, and its configuration. Nothing to give: there is nothing to do."""

    inputs: list[Any]
    instead: list[Any] = field(default_factory=list[Any])
    """What it is given when it fails on a question that was cancelled, and that is given up."""
    resumes: bool = False
    """Whether nodes go on that have asked."""
    unheard: tuple[str, ...] = ()
    """Messages that the graph gets after an answer."""
    beside: tuple[str, ...] = ()
    """Keys of the shared state that are set with an answer, now or by one before that it failed on."""
    configurable: dict[str, Any]
    checkpoint: str | None
    """Where the graph stands before."""
    stored: frozenset[str] = frozenset()
    """Ids of the messages that the graph has before."""
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the graph has of the shared state that this run sets."""
    sets: list[str] = field(default_factory=list[str])
    """The keys of the shared state that this run sets."""
    wrong: list[str] = field(default_factory=list[str])
    """Of those, the ones that are not of the graph's type."""
    lapsed: list[str] = field(default_factory=list[str])
    """Questions that were answered and that the graph no longer asks."""


def forwarded(given: RunAgentInput, name: str) -> Any:
    """What a client has put under this name into its `forwardedProps`."""
    return members(given.forwarded_props).get(name)


async def open_run(graph: Graph, ask: Ask) -> Opening:
    """Decide what the graph is given. Raises: NoSuchCheckpoint."""
    shape = await graph.shape()
    said = messages_of(turns(_own(ask.input.messages, ask.memory)), ask.kept)
    configurable: dict[str, Any] = {"thread_id": ask.place, KEY: _request(ask)}
    if not graph.keeps:
        about = incoming(ask.input, new=ask.new)
        idle = bool(ask.input.resume) and _is_silent(about)
        return Opening(
            inputs=[] if idle else [_input(ask, shape, said, _edits(ask, shape, {}))],
            configurable=configurable,
            checkpoint=None,
            lapsed=answered(about.resume),
            **set_by(_posted(ask), shape, {}),
        )
    return await _stored(graph, ask, shape, said, configurable)


async def _stored(
    graph: Graph, ask: Ask, shape: Shape, said: list[BaseMessage], configurable: dict[str, Any]
) -> Opening:
    state, is_latest = await _standing(graph, ask)
    values = members(state.values)
    checkpoint = checkpoint_of(state)
    if checkpoint and not is_latest:
        configurable["checkpoint_id"] = checkpoint
    about = incoming(ask.input, new=ask.new)
    unheard = _unheard(ask, said, about)
    edits = _edits(ask, shape, values)
    news = _input(ask, shape, _news(ask, shape, said, unheard, values), edits)
    resumed = await _again(graph, ask, state, said) if not ask.input.resume else _resumed(state, about)
    instead: list[Any] = []
    refused: list[str] = []
    set_there: tuple[str, ...] = ()
    waiting = tuple(str(message.id) for message in unheard)
    if resumed is not None:
        if any(task.error for task in state.tasks):
            await graph.ask_again(cast("dict[str, Any]", state.config))
        held = ask.memory.beside if ask.memory and ask.memory.checkpoint == checkpoint else ()
        beside = _beside(shape, edits, held)
        refused = await graph.unfit(state, beside)
        set_there = (*held, *beside)
        inputs = [_with(one, beside) for one in resumed]
        if unheard:
            inputs.append(_input(ask, shape, unheard, edits if shape.inputs is None else {}))
            instead = [news]
    elif ask.input.resume and _is_silent(about):
        inputs = []
    else:
        command = _command(ask)
        inputs, waiting = [command or news], ()
        refused = await graph.unfit(state, members(command.update)) if command else []
    made: dict[str, Any] = set_by(_posted(ask), shape, values)
    made["wrong"] += refused
    return Opening(
        inputs=inputs,
        instead=instead,
        resumes=resumed is not None,
        unheard=waiting,
        beside=set_there,
        configurable=configurable,
        checkpoint=checkpoint,
        stored=_ids(values.get(ask.config.messages_key)),
        lapsed=answered(about.resume) if resumed is None else [],
        **made,
    )


def _beside(shape: Shape, edits: Mapping[str, Any], held: Collection[str]) -> dict[str, Any]:
    """What of the client's state is set with its answer. A graph that takes anything has no keys that could be set while it waits."""
    return {name: item for name, item in edits.items() if shape.inputs is not None and name not in held}


def _with(resumed: Any, beside: Mapping[str, Any]) -> Any:
    """What takes a graph on, together with what is set then."""
    if not beside:
        return resumed
    return Command(resume=resumed.resume if isinstance(resumed, Command) else None, update=dict(beside))


def _ids(messages: Any) -> frozenset[str]:
    held = cast("list[Any]", messages) if isinstance(messages, list) else []
    return frozenset(message.id for message in held if isinstance(message, BaseMessage) and message.id)


def _is_silent(about: Incoming) -> bool:
    """Whether a run brings answers to questions and nothing else."""
    return about.user is None and not about.results


async def _standing(graph: Graph, ask: Ask) -> tuple[StateSnapshot, bool]:
    """The state to go on from, and whether it is the latest there is."""
    newest = await graph.newest(ask.place)
    wanted = _travel(ask) or (ask.memory.checkpoint if ask.memory else None) or newest
    # By its id a checkpoint is read as it is. Without one the SDK adds what was written after it, also by a node that did not end, and
    # fails on what could not be added.
    for checkpoint in dict.fromkeys([wanted, newest]):
        if checkpoint is None:
            break
        found = await graph.state({"configurable": {"thread_id": ask.place, "checkpoint_id": checkpoint}})
        if found.created_at is not None:
            return found, checkpoint == newest
        if _travel(ask):
            raise NoSuchCheckpoint
    return await graph.state({"configurable": {"thread_id": ask.place}}), True


def _travel(ask: Ask) -> str | None:
    """The checkpoint a client wants to go on from, where it may say so."""
    given = forwarded(ask.input, "checkpointId") if ask.config.time_travel else None
    return given if isinstance(given, str) and given else None


def _command(ask: Ask) -> Command[Any] | None:
    """Where a client wants the graph to go on, where it may say so."""
    given = forwarded(ask.input, "command") if ask.config.time_travel else None
    if not isinstance(given, dict):
        return None
    said = cast("dict[str, Any]", given)
    goto, update = said.get("goto"), said.get("update")
    return Command(goto=goto or (), update=ask.kept(update)) if goto or update else None


def _resumed(state: StateSnapshot, about: Incoming) -> list[Any] | None:
    """What takes a graph on that waits; None when it does not wait for this. An answer that it has acted on already is left out."""
    entries = about.resume
    if any(is_breakpoint(entry) for entry in entries):
        if not state.next:
            return None
        return [None] if all(map(goes_on, entries)) else []
    asked = {one.id for one in state.interrupts}
    answers = {name: storable(answer) for name, answer in answers_of(entries).items() if name in asked}
    return [Command(resume=answers)] if answers else None


async def _again(graph: Graph, ask: Ask, state: StateSnapshot, said: list[BaseMessage]) -> list[Any] | None:
    """What takes a graph on from a question once more, when a message is tried again that came beside the answer.

    The thread was cut there, and with it what the answer led to. A result that is left has its place in the conversation: then it is not
    asked for again.
    """
    if ask.new is None or ask.new or not state.interrupts or _travel(ask):
        return None
    given = {name_of(message) for message in said}
    waiting = ask.names.read(members(state.values).get(ask.config.messages_key)).unanswered
    if waiting and all(told in given for told, _ in waiting):
        return None
    return [Command(resume={})] if await graph.was_answered(cast("dict[str, Any]", state.config)) else None


def _news(
    ask: Ask, shape: Shape, said: list[BaseMessage], unheard: list[BaseMessage], values: Mapping[str, Any]
) -> list[BaseMessage]:
    """The messages a graph with a stored conversation does not have yet."""
    key = ask.config.messages_key
    stored: list[Any] = list(values.get(key) or ())
    if not stored or key not in shape.reduced:
        return said  # What is stored there takes its place, and is no conversation for a graph of functions: what it returned last.
    if ask.memory is None and ask.new is not None:
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *said]  # The thread knows nothing of what is stored there.
    known = ask.names.read(stored)
    last = max((at for at, message in enumerate(said) if name_of(message) in known.known), default=None)
    was_cut = ask.memory is not None and not ask.memory.is_whole and last is not None
    results = _results(known, said)
    given = {name_of(result) for result in results}
    rest = said[last + 1 :] if was_cut and last is not None else unheard
    return [*results, *(message for message in rest if name_of(message) not in given)]


def _results(stored: Stored, said: Sequence[BaseMessage]) -> list[BaseMessage]:
    """A result for every call in the graph's conversation that has none: no provider takes a call without one."""
    given = {message.tool_call_id: message for message in said if isinstance(message, ToolMessage)}
    return [given.get(told) or result_message(no_result(told, call["name"])) for told, call in stored.unanswered]


def _unheard(ask: Ask, said: Sequence[BaseMessage], about: Incoming) -> list[BaseMessage]:
    """What the user asks in this run, after what was left unheard in those before."""
    asked = {*(ask.memory.unheard if ask.memory else ()), *([about.user.id] if about.user else [])}
    return [message for message in said if isinstance(message, HumanMessage) and message.id in asked]


def _own(messages: Sequence[Message], memory: Memory | None) -> list[Message]:
    """The thread's messages, with those of subgraphs that the graph has taken over."""
    adopted = set(memory.adopted) if memory else set[str]()
    return [
        msgspec.structs.replace(message, subagent_run_id=None) if adopted & _names(message) else message
        for message in messages
    ]


def _names(message: Message) -> set[str]:
    """What a message may be adopted by: its id, and for a result that of its call."""
    return {message.id, message.tool_call_id} if isinstance(message, events.ToolMessage) else {message.id}


def _input(ask: Ask, shape: Shape, messages: Sequence[BaseMessage], edits: Mapping[str, Any]) -> dict[str, Any]:
    """Messages, and what of the client's state the graph takes and does not have yet."""
    given: dict[str, Any] = {}
    key, inputs = ask.config.messages_key, shape.inputs
    if inputs is None or key in inputs:
        given[key] = ask.names.natives(messages)
    given.update(edits)
    request = _request(ask)
    if inputs is not None and "tools" in inputs:
        given["tools"] = Overwrite(request["tools"]) if "tools" in shape.reduced else request["tools"]
    if inputs is not None and "copilotkit" in inputs:
        given["copilotkit"] = {"actions": request["tools"], "context": request["context"]}
    return given


def _edits(ask: Ask, shape: Shape, values: Mapping[str, Any]) -> dict[str, Any]:
    """What of the client's state the graph takes and does not have yet, as it is set there."""
    edits: dict[str, Any] = {}
    for name, item in changes(_posted(ask), shape, values).items():
        kind: type[Any] = shape.kinds.get(name) or type(values.get(name))
        made = of_kind(kind, ask.kept(item))
        is_set = name in shape.reduced and (name in values or name in shape.kinds)
        edits[name] = Overwrite(made) if is_set else made
    return edits


def _posted(ask: Ask) -> dict[str, Any]:
    """The client's state, as far as it is the client's to set."""
    return {name: item for name, item in members(ask.input.state).items() if name not in ask.config.hidden}


def _request(ask: Ask) -> dict[str, Any]:
    """What nodes can ask for (`inside.py`)."""
    return {
        "tools": tool_specs(ask.tools),
        "context": [{"description": one.description, "value": one.value} for one in ask.input.context],
        "platform": dict(ask.platform),
    }
