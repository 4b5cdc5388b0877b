"""The input of a run for a graph: only new messages for one that stores the conversation, all of them for one that does not.

A graph's checkpointer feeds the model and the ledger feeds clients, so the two are compared here: by the ids of messages, which are the
same in both, and by what the thread remembers of the graph.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import msgspec
from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command, Overwrite

from ambient_runner.bridges.langgraph.answers import answer_inputs, has_changed_arguments, retry_inputs
from ambient_runner.bridges.langgraph.client_tools import tool_specs
from ambient_runner.bridges.langgraph.errors import UnknownCheckpoint
from ambient_runner.bridges.langgraph.graph import checkpoint_id_of
from ambient_runner.bridges.langgraph.messages import result_message, to_langchain_messages
from ambient_runner.bridges.langgraph.request import REQUEST_KEY, OfferedTools
from ambient_runner.bridges.langgraph.state_edits import (
    StateEdits,
    coerce_to,
    find_edits,
    to_storable,
)
from ambient_runner.bridges.langgraph.tool_call_ids import message_key
from ambient_runner.bridges.toolkit.interrupts import (
    resolved_interrupt_ids,
)
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.turns import find_new_input, missing_result, to_turns
from ambient_runner.errors import ArgumentsChanged
from ambient_runner.protocol import events
from ambient_runner.runs.interrupt_answers import command_resume, is_cancelled_by_message

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ag_ui.core import RunAgentInput as AguiInput
    from langgraph.types import StateSnapshot

    from ambient_runner.bridges.langgraph.config import LangGraphConfig
    from ambient_runner.bridges.langgraph.graph import Graph, StateSchema
    from ambient_runner.bridges.langgraph.memory import GraphMemory
    from ambient_runner.bridges.langgraph.tool_call_ids import StoredMessages, ToolCallIds
    from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
    from ambient_runner.bridges.toolkit.turns import NewInput
    from ambient_runner.protocol.events import Message, RunAgentInput

__all__ = ["GraphInput", "RunContext", "StoredThread", "forwarded_prop", "plan_input"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Everything known about a run before its graph is started."""

    run_input: RunAgentInput
    agui_input: AguiInput
    """The same input as hooks receive it."""
    config: LangGraphConfig
    schema: StateSchema
    has_checkpointer: bool
    storage_id: str
    """The id under which the graph's checkpointer stores the thread."""
    memory: GraphMemory | None
    new_ids: Collection[str] | None
    """Ids of the messages this run adds; None without a server."""
    adopted: tuple[str, ...] = ()
    """As in the memory; in the first run of a fork that of the copied thread."""
    tools: Toolbox
    """The client's tools, without those the graph has itself."""
    platform: Mapping[str, Any]
    """The platform's settings that have a value."""
    call_ids: ToolCallIds
    reported_tools: set[str] = field(default_factory=set[str])
    """Client tools that the log already names as ignored. The runs of an adapter share it."""

    @property
    def private_keys(self) -> frozenset[str]:
        """Keys of the graph's state that its output schema lacks and that the configuration does not share."""
        return self.schema.private_keys.difference(self.config.shared_state)

    @property
    def unshared_keys(self) -> frozenset[str]:
        """All keys of the graph's state that are never sent to clients."""
        return self.private_keys | self.config.hidden_keys

    @property
    def requested_checkpoint(self) -> str | None:
        """The checkpoint a client wants to continue from, if it may choose one."""
        requested = forwarded_prop(self.run_input, "checkpointId") if self.config.time_travel else None
        return requested if isinstance(requested, str) and requested else None

    def to_storable(self, value: Any) -> Any:
        """Return the value as the graph can store it: a checkpointer accepts less than JSON has."""
        return to_storable(value) if self.has_checkpointer else value


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphInput:
    """The inputs of the graph, one after the other, and its configuration. Without inputs there is nothing to run."""

    inputs: list[Any] = field(default_factory=list[Any])
    fallback_inputs: list[Any] = field(default_factory=list[Any])
    """Inputs to use instead if the graph fails on a cancelled interrupt."""
    is_resuming: bool = False
    """True if nodes continue that raised an interrupt."""
    is_asking_again: bool = False
    """True if they continue without the answer, which is for other arguments, and raise it again."""
    undelivered_ids: tuple[str, ...] = ()
    """Messages that the graph gets only after an answer."""
    edits_with_answer: tuple[str, ...] = ()
    """Keys of the shared state that are set with an answer: this one, or an earlier one the graph failed on."""
    configurable: dict[str, Any]
    checkpoint_id: str | None = None
    """The graph's checkpoint before the run."""
    stored_messages: Sequence[Any] = ()
    """The messages the graph has before the run."""
    stored_ids: frozenset[str] = frozenset()
    """Their ids."""
    edits: StateEdits
    """The client's changes of the shared state."""
    lapsed_ids: list[str] = field(default_factory=list[str])
    """Answered interrupts that the graph no longer has open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredThread:
    """A run of a graph that stores the conversation: the run's input next to the graph's state."""

    context: RunContext
    new_input: NewInput
    messages: list[BaseMessage]
    """The whole conversation of the thread."""
    undelivered: list[BaseMessage]
    """The user's messages that the graph has not received."""
    state: StateSnapshot
    values: dict[str, Any]
    """The values of the state."""
    updates: dict[str, Any]
    """The client's changes of the shared state, as the graph accepts them."""


def forwarded_prop(run_input: RunAgentInput, name: str) -> Any:
    """Return a member of the client's `forwardedProps`."""
    return as_object(run_input.forwarded_props).get(name)


async def plan_input(graph: Graph, context: RunContext) -> GraphInput:
    """Decide what the graph receives. Raises: UnknownCheckpoint, InvalidAnswer."""
    messages = to_langchain_messages(to_turns(_with_adopted_messages(context)), context.to_storable)
    if not context.has_checkpointer:
        new_input = find_new_input(context.run_input, new_ids=context.new_ids)
        return _plan_whole_conversation(context, messages, new_input)
    state, is_latest = await _read_base_checkpoint(graph, context)
    edits = find_edits(_client_state(context), context.schema, as_object(state.values))
    thread = _stored_thread(context, messages, state, edits)
    return await _plan_stored_thread(graph, thread, _empty_plan(thread, edits, is_latest))


def _stored_thread(
    context: RunContext, messages: list[BaseMessage], state: StateSnapshot, edits: StateEdits
) -> StoredThread:
    new_input = find_new_input(_with_command_answer(context, state), new_ids=context.new_ids)
    values = as_object(state.values)
    return StoredThread(
        context=context,
        new_input=new_input,
        messages=messages,
        undelivered=_undelivered_messages(context, messages, new_input),
        state=state,
        values=values,
        updates=_graph_updates(context, edits, values),
    )


def _empty_plan(thread: StoredThread, edits: StateEdits, is_latest: bool) -> GraphInput:
    """Return the plan without inputs: it continues from the thread's checkpoint, which it names unless that is the latest one."""
    stored = thread.values.get(thread.context.config.messages_key)
    checkpoint_id = checkpoint_id_of(thread.state)
    pinned = {"checkpoint_id": checkpoint_id} if checkpoint_id and not is_latest else {}
    return GraphInput(
        undelivered_ids=tuple(str(message.id) for message in thread.undelivered),
        configurable={**_configurable(thread.context), **pinned},
        checkpoint_id=checkpoint_id,
        stored_messages=stored or (),
        stored_ids=_message_ids(stored),
        edits=edits,
        lapsed_ids=resolved_interrupt_ids(thread.new_input.resume),
    )


def _with_command_answer(context: RunContext, state: StateSnapshot) -> RunAgentInput:
    """Return the input. Without a server, which does this, an answer in `forwardedProps.command` is one in `resume`."""
    run_input = context.run_input
    found = command_resume(run_input) if context.new_ids is None and not run_input.resume else None
    if found is None or len(state.interrupts) != 1:
        return run_input
    (answer,), (interrupt,) = found, state.interrupts
    entry = events.ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=answer)
    return msgspec.structs.replace(run_input, resume=[entry])


def _plan_whole_conversation(context: RunContext, messages: list[BaseMessage], new_input: NewInput) -> GraphInput:
    """Plan for a graph without a checkpointer. It has no interrupts, so every answer has lapsed."""
    edits = find_edits(_client_state(context), context.schema, {})
    is_idle = bool(new_input.resume) and not _has_new_messages(new_input)
    return GraphInput(
        inputs=[] if is_idle else [_build_input(context, messages, _graph_updates(context, edits, {}))],
        configurable=_configurable(context),
        edits=edits,
        lapsed_ids=resolved_interrupt_ids(new_input.resume),
    )


async def _plan_stored_thread(graph: Graph, thread: StoredThread, plan: GraphInput) -> GraphInput:
    """Complete the plan by what the run brings: answers to open interrupts, a command, or new messages."""
    resume = thread.new_input.resume
    if resume and all(map(is_cancelled_by_message, resume)):
        return replace(plan, inputs=[_new_messages_input(thread)], undelivered_ids=())
    if has_changed_arguments(thread):
        return await _plan_asking_again(graph, thread, plan)
    answers = answer_inputs(thread) if resume else await retry_inputs(graph, thread)
    if answers is not None:
        return await _plan_resume(graph, thread, plan, answers)
    if resume and not _has_new_messages(thread.new_input):
        return plan
    command = _requested_command(thread.context)
    if command is not None:
        rejected = await graph.rejected_keys(thread.state, as_object(command.update), _goto_nodes(command))
        update = {**_new_messages_input(thread), **as_object(command.update)}
        inputs = [Command(goto=command.goto, update=update)]
        return replace(plan, inputs=inputs, undelivered_ids=(), edits=plan.edits.with_invalid(rejected))
    return replace(plan, inputs=[_new_messages_input(thread)], undelivered_ids=())


async def _plan_resume(graph: Graph, thread: StoredThread, plan: GraphInput, answers: list[Any]) -> GraphInput:
    """Plan the answers first, together with changes of the state, then the messages that came with them.

    A graph that accepts anything has no keys that could be set while it waits: it gets the changes with the messages.
    """
    context, state = thread.context, thread.state
    if any(task.error for task in state.tasks):
        await graph.discard_failed_answers(cast("dict[str, Any]", state.config))
    has_keys = context.schema.input_keys is not None
    memory = context.memory
    already_set = memory.edits_with_answer if memory and memory.checkpoint == plan.checkpoint_id else ()
    updates = {name: item for name, item in thread.updates.items() if has_keys and name not in already_set}
    inputs, fallback_inputs = [_with_updates(answer, updates) for answer in answers], list[Any]()
    if thread.undelivered:
        inputs.append(_build_input(context, thread.undelivered, {} if has_keys else thread.updates))
        fallback_inputs.append(_new_messages_input(thread))
    return replace(
        plan,
        inputs=inputs,
        fallback_inputs=fallback_inputs,
        is_resuming=True,
        edits_with_answer=(*already_set, *updates),
        edits=plan.edits.with_invalid(await graph.rejected_keys(state, updates)),
        lapsed_ids=[],
    )


def _with_updates(answer: Any, updates: Mapping[str, Any]) -> Any:
    """Return an input that resumes a graph, together with changes of its state."""
    if not updates:
        return answer
    return Command(resume=answer.resume if isinstance(answer, Command) else None, update=dict(updates))


def _message_ids(messages: Any) -> frozenset[str]:
    stored = cast("list[Any]", messages) if isinstance(messages, list) else []
    return frozenset(message.id for message in stored if isinstance(message, BaseMessage) and message.id)


def _has_new_messages(new_input: NewInput) -> bool:
    """Return True if a run brings a user message or tool results, and not only answers to interrupts."""
    return new_input.user is not None or bool(new_input.results)


async def _read_base_checkpoint(graph: Graph, context: RunContext) -> tuple[StateSnapshot, bool]:
    """Return the state to continue from, and True if it is the latest one."""
    newest = await graph.newest_checkpoint_id(context.storage_id)
    requested = context.requested_checkpoint
    remembered = context.memory.checkpoint if context.memory else None
    # By its id a checkpoint is read as it is. Without one the SDK adds what was written after it, also by a node that did not end, and
    # fails on what could not be added.
    for checkpoint_id in dict.fromkeys([requested or remembered or newest, newest]):
        if checkpoint_id is None:
            break
        configurable = {"thread_id": context.storage_id, "checkpoint_id": checkpoint_id}
        state = await graph.read_state({"configurable": configurable})
        if state.created_at is not None:
            return state, checkpoint_id == newest
        if requested:
            raise UnknownCheckpoint
    return await graph.read_state({"configurable": {"thread_id": context.storage_id}}), True


def _requested_command(context: RunContext) -> Command[Any] | None:
    """Return the command of a client, if it may send one."""
    requested = forwarded_prop(context.run_input, "command") if context.config.time_travel else None
    command = as_object(requested)
    goto, update = command.get("goto"), command.get("update")
    return Command(goto=goto or (), update=context.to_storable(update)) if goto or update else None


def _goto_nodes(command: Command[Any]) -> list[str]:
    listed: Any = [command.goto] if isinstance(command.goto, str) else command.goto
    return [name for name in listed if isinstance(name, str)]


async def _plan_asking_again(graph: Graph, thread: StoredThread, plan: GraphInput) -> GraphInput:
    """Plan to run the interrupted nodes without an answer: they ask again, about what they would do now. Raises: ArgumentsChanged."""
    run_input, config = thread.context.run_input, cast("dict[str, Any]", thread.state.config)
    logger.warning(
        "Run %s on thread %s: the arguments of an answered interrupt have changed. Nothing is executed; it is asked again.",
        run_input.run_id,
        run_input.thread_id,
    )
    if any(task.error for task in thread.state.tasks):
        await graph.discard_failed_answers(config)
    if await graph.has_stored_answers(config):
        raise ArgumentsChanged  # Without an answer the graph would use the stored one.
    return replace(plan, inputs=[None], is_resuming=True, is_asking_again=True, lapsed_ids=[])


def _new_messages_input(thread: StoredThread) -> dict[str, Any]:
    return _build_input(thread.context, _new_messages(thread), thread.updates)


def _new_messages(thread: StoredThread) -> list[BaseMessage]:
    """Return the messages that the graph does not have yet."""
    context, messages = thread.context, thread.messages
    key, memory = context.config.messages_key, context.memory
    stored: list[Any] = list(thread.values.get(key) or ())
    if not stored or key not in context.schema.reduced_keys:
        return messages  # They replace what is stored, which for a graph of functions is its last return value, not a conversation.
    if memory is None and context.new_ids is not None:
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages]  # The thread knows nothing of what is stored there.
    known = context.call_ids.read_stored(stored)
    last = max((index for index, message in enumerate(messages) if message_key(message) in known.keys), default=None)
    was_cut_off = memory is not None and not memory.is_whole
    rest = messages[last + 1 :] if was_cut_off and last is not None else thread.undelivered
    results = _results_for_unanswered(known, messages)
    answered = {message_key(result) for result in results}
    return [*results, *(message for message in rest if message_key(message) not in answered)]


def _results_for_unanswered(stored: StoredMessages, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return a result for every unanswered call in the graph's conversation: no provider accepts a call without one."""
    results = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    return [
        results.get(call_id) or result_message(missing_result(call_id, call["name"]))
        for call_id, call in stored.unanswered
    ]


def _undelivered_messages(
    context: RunContext, messages: Sequence[BaseMessage], new_input: NewInput
) -> list[BaseMessage]:
    """Return the user message of this run, after those that earlier runs did not deliver."""
    ids = {*(context.memory.undelivered if context.memory else ()), *([new_input.user.id] if new_input.user else [])}
    return [message for message in messages if isinstance(message, HumanMessage) and message.id in ids]


def _with_adopted_messages(context: RunContext) -> list[Message]:
    """Return the thread's messages. Those of subgraphs that the graph has taken over count as the graph's own."""
    adopted = set(context.adopted)
    return [
        msgspec.structs.replace(message, subagent_run_id=None) if adopted & _adoptable_ids(message) else message
        for message in context.run_input.messages
    ]


def _adoptable_ids(message: Message) -> set[str]:
    """Return the ids by which a message may be adopted: its own, and for a result that of its call."""
    return {message.id, message.tool_call_id} if isinstance(message, events.ToolMessage) else {message.id}


def _build_input(context: RunContext, messages: Sequence[BaseMessage], updates: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of a graph: messages and changes of the state, and the client's tools where the state has keys for them."""
    graph_input: dict[str, Any] = {}
    key, schema = context.config.messages_key, context.schema
    if schema.input_keys is None or key in schema.input_keys:
        graph_input[key] = context.call_ids.with_native_ids(messages)
    graph_input.update(updates)
    request, keys = _request_data(context), schema.input_keys or frozenset[str]()
    tools = list(request["tools"])
    if "tools" in keys:
        graph_input["tools"] = Overwrite(tools) if "tools" in schema.reduced_keys else tools
    if "copilotkit" in keys:
        graph_input["copilotkit"] = {"actions": tools, "context": request["context"]}
    return graph_input


def _graph_updates(context: RunContext, edits: StateEdits, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's changes of the state in the graph's types. A reduced key that has a value is overwritten."""
    schema, updates = context.schema, dict[str, Any]()
    for name, item in edits.values.items():
        kind: type[Any] = schema.initial_types.get(name) or type(values.get(name))
        value = coerce_to(kind, context.to_storable(item))
        has_value = name in values or name in schema.initial_types
        updates[name] = Overwrite(value) if has_value and name in schema.reduced_keys else value
    return updates


def _client_state(context: RunContext) -> dict[str, Any]:
    """Return the keys of the client's state that clients may set."""
    state, hidden = as_object(context.run_input.state), context.config.hidden_keys
    return {name: item for name, item in state.items() if name not in hidden}


def _configurable(context: RunContext) -> dict[str, Any]:
    return {"thread_id": context.storage_id, REQUEST_KEY: _request_data(context)}


def _request_data(context: RunContext) -> dict[str, Any]:
    """Return what nodes can read of the request (`request.py`)."""
    entries = context.run_input.context
    return {
        "tools": OfferedTools(tool_specs(context.tools.client_tools.values())),
        "context": [{"description": entry.description, "value": entry.value} for entry in entries],
        "platform": dict(context.platform),
    }
