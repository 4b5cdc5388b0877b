"""Acceptance of a RunAgentInput: which of its messages the thread takes. Pure: the thread's view and the input in, a decision out.

History `server`: the ledger is the truth; only new user messages and pending tool results are accepted, by id, so a client cannot
forge history. History `client`: the messages of the input are the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.errors import InvalidInput
from ambient_runner.projections.json_patch import json_equal
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    DeveloperMessage,
    ToolMessage,
    UserMessage,
)
from ambient_runner.runs.interrupt_answers import match_answers

if TYPE_CHECKING:
    from ambient_runner.config import History, OnPendingInterrupt
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Message, ResumeEntry, RunAgentInput

_HIDDEN_FROM_AGENT = frozenset({DeveloperMessage, ActivityMessage})


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedInput:
    """The messages a run adds to the thread, and the conversation its agent sees."""

    new_messages: tuple[Message, ...]
    """Messages new to the thread."""
    conversation: tuple[Message, ...]
    """Everything the agent sees, the new messages included."""
    rewind_to: str = ""
    """Id of the message the thread is rewound to first; empty for none."""
    is_replacement: bool = False
    """True if the input's messages replace the thread's (history `client`)."""
    removed_count: int = 0
    """Number of messages that are no longer part of the thread."""
    imported: tuple[str, ...] = ()
    """Ids adopted from the client on the first run of an unknown thread."""
    answers: tuple[ResumeEntry, ...] = ()
    """The resume entries for open interrupts this run answers."""
    buffered_result_ids: tuple[str, ...] = ()
    """Ids of the tool messages that earlier runs stored and this run uses."""
    pending_call_ids: tuple[str, ...] = ()
    """Calls that still wait for the client's result. The agent does not run before it has all of them."""


def accept_input(
    view: ThreadView,
    run_input: RunAgentInput,
    history: History,
    now: datetime | None = None,
    *,
    prompt: UserMessage | None = None,
    on_pending_interrupt: OnPendingInterrupt = "reject",
    adopt_history: bool = True,
) -> AcceptedInput:
    """Decide which messages of an input this thread accepts. `prompt` is used if the input has no user message or result.

    `on_pending_interrupt` decides on a new message that comes while interrupts are open. `adopt_history` is True if the first run of an
    unknown thread may bring text of the assistant.

    Raises: PendingInterrupts, InterruptNotOpen, InvalidInput.
    """
    answers = match_answers(view, run_input, now or datetime.now(UTC), on_pending_interrupt)
    if view.pending_calls:
        prompt = None  # The agent waits for results: a prompt would discard them.
    if history == "client":
        return _accept_client_history(view, _append_prompt(run_input, answers, prompt), answers)
    if not view.transcript.message_count and view.last_run is None:
        return _accept_first_run(run_input, answers, prompt, adopt_history=adopt_history)
    return _accept_new_messages(view, run_input, answers, prompt)


def _append_prompt(
    run_input: RunAgentInput, answers: tuple[ResumeEntry, ...], prompt: UserMessage | None
) -> RunAgentInput:
    conversation = _visible_to_agent(run_input.messages)
    if prompt is None or answers or (conversation and isinstance(conversation[-1], UserMessage | ToolMessage)):
        return run_input
    return replace(run_input, messages=[*run_input.messages, prompt])


def _accept_client_history(
    view: ThreadView, run_input: RunAgentInput, answers: tuple[ResumeEntry, ...]
) -> AcceptedInput:
    stored = [message.id for message in view.transcript.messages() if not isinstance(message, ActivityMessage)]
    ids = [message.id for message in run_input.messages]
    grows = ids[: len(stored)] == stored
    known = set(stored)
    return AcceptedInput(
        new_messages=tuple(message for message in run_input.messages if message.id not in known),
        conversation=_visible_to_agent(run_input.messages),
        is_replacement=not grows,
        removed_count=len(known.difference(ids)),
        answers=answers,
    )


def _accept_first_run(
    run_input: RunAgentInput, answers: tuple[ResumeEntry, ...], prompt: UserMessage | None, *, adopt_history: bool
) -> AcceptedInput:
    """Accept the first run of an unknown thread: user and, with `adopt_history`, assistant text, without tool calls or system messages."""
    candidates = [message for message in run_input.messages if adopt_history or isinstance(message, UserMessage)]
    adopted = tuple(known for message in candidates if (known := _adopt_message(message)) is not None)
    if prompt is not None and not (adopted and isinstance(adopted[-1], UserMessage)):
        adopted = (*adopted, prompt)
    if not adopted or not isinstance(adopted[-1], UserMessage):
        raise InvalidInput("`messages` must end with a user message.")
    return AcceptedInput(
        new_messages=adopted,
        conversation=adopted,
        imported=tuple(message.id for message in adopted[:-1]),
        answers=answers,
    )


def _adopt_message(message: Message) -> Message | None:
    match message:
        case UserMessage():
            return message
        case AssistantMessage(content=str(text)) if text:
            return AssistantMessage(id=message.id, content=text, name=message.name)
        case _:
            return None


def _accept_new_messages(
    view: ThreadView, run_input: RunAgentInput, answers: tuple[ResumeEntry, ...], prompt: UserMessage | None
) -> AcceptedInput:
    stored = view.transcript.messages()
    has_id = view.transcript.has_id
    answered_calls = {view.open_interrupts[entry.interrupt_id].interrupt.tool_call_id for entry in answers}
    fresh = [message for message in run_input.messages if not has_id(message.id)]
    users = [message for message in fresh if isinstance(message, UserMessage)]
    results = [
        message
        for message in fresh
        if isinstance(message, ToolMessage)
        and message.tool_call_id in view.pending_calls
        and message.tool_call_id not in answered_calls
    ]
    new_messages: tuple[Message, ...] = (*results, *users)
    if new_messages or answers:
        return AcceptedInput(
            new_messages=new_messages,
            conversation=_visible_to_agent([*stored, *new_messages]),
            answers=answers,
            buffered_result_ids=tuple(view.buffered_results),
            pending_call_ids=_pending_call_ids(view, results, answers) if results and not users else (),
        )
    return _retry_input(stored, run_input, prompt)


def _pending_call_ids(
    view: ThreadView, results: list[ToolMessage], answers: tuple[ResumeEntry, ...]
) -> tuple[str, ...]:
    """Return the calls that have no result yet. Raises: InvalidInput if this request also answers interrupts: they cannot wait."""
    answered = {message.tool_call_id for message in results}
    missing = tuple(call for call in view.pending_calls if call not in answered)
    if missing and answers:
        raise InvalidInput(
            f"Tool calls still waiting for a result: {', '.join(missing)}. Send all results together with `resume`."
        )
    return missing


def _retry_input(stored: list[Message], run_input: RunAgentInput, prompt: UserMessage | None) -> AcceptedInput:
    """Accept an input without new messages: a rewind to an earlier user message, a retry of the last one or its results, or the prompt."""
    target = run_input.messages[-1].id if run_input.messages else (stored[-1].id if stored else "")
    index = next((i for i, message in enumerate(stored) if message.id == target), None)
    if index is None or not _can_retry_at(stored, index):
        if prompt is not None:
            return AcceptedInput(new_messages=(prompt,), conversation=_visible_to_agent([*stored, prompt]))
        raise InvalidInput(
            "`messages` contains no new message. Add a user message, or end the list with an earlier one to rewind to it."
        )
    return AcceptedInput(
        new_messages=(),
        conversation=_visible_to_agent(stored[: index + 1]),
        rewind_to="" if index == len(stored) - 1 else target,
        removed_count=len(stored) - 1 - index,
    )


def _can_retry_at(stored: list[Message], index: int) -> bool:
    """Return True if a run may start again here: at any user message, and at tool results that end the conversation."""
    return isinstance(stored[index], UserMessage) or (
        index == len(stored) - 1 and isinstance(stored[index], ToolMessage)
    )


def _visible_to_agent(messages: list[Message]) -> tuple[Message, ...]:
    """Drop developer messages, which never reach a model when a client returns them, and activity, which is for clients."""
    return tuple([message for message in messages if type(message) not in _HIDDEN_FROM_AGENT])


def initial_state(view: ThreadView, client_state: Any, hidden: frozenset[str]) -> tuple[Any, bool]:
    """Return the state this run begins with, and True if clients must receive it.

    A client that sends the state it last saw changed nothing, so a patch made since then stays; any other state replaces the visible keys.
    Raises: InvalidPatch if the client's state has keys that change JavaScript prototypes.
    """
    current = view.state.visible_part(hidden)
    stale = client_state is None or client_state == {} or json_equal(client_state, view.client_state)
    if stale:
        return view.state.value, not json_equal(current, view.client_state)
    merged = view.state.with_client_state(client_state, hidden)
    return merged, not json_equal(merged, view.state.value)
