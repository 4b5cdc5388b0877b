"""Edits of a run's input by the application's `convert_run_agent_input`.

Tools, context and state are as the function returns them. The messages before this run belong to the thread, so they stay as they are:
the function adds messages, changes or removes the newest one, and answers pending calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.bridges.adk.interrupts import INTERRUPT_CALLS
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.bridges.toolkit.turns import unanswered_tool_calls
from ambient_runner.protocol.agui_models import input_from_agui, input_to_agui
from ambient_runner.protocol.events import AssistantMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.bridges.adk.config import InputTransformer
    from ambient_runner.protocol.events import Message, RunAgentInput

__all__ = ["EditedInput", "edit_input"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EditedInput:
    """The input as the function returned it. `answered` has the call id by message id of the results that it added."""

    run_input: RunAgentInput
    answered: dict[str, str] = field(default_factory=dict[str, str])


async def edit_input(
    run_input: RunAgentInput, convert: InputTransformer | None, new_ids: Collection[str] | None
) -> EditedInput:
    """Return the edited input. `new_ids` are the messages of this run, if known. Raises: whatever `convert` raises."""
    if convert is None:
        return EditedInput(run_input=run_input)
    pending = _calls_of_last_turn(run_input.messages)
    agui_input = input_to_agui(run_input)
    returned = await call_hook(convert, agui_input, dict(pending))
    changed = input_from_agui(agui_input if returned is None else returned)
    results = _added_results(run_input.messages, changed.messages, pending)
    edited = replace(
        run_input,
        messages=[
            *_earlier_messages(run_input.messages, changed.messages, new_ids),
            *results,
            *_added_messages(run_input.messages, changed.messages),
        ],
        tools=changed.tools,
        context=changed.context,
        state=changed.state,
        forwarded_props=changed.forwarded_props,
    )
    return EditedInput(run_input=edited, answered={message.id: message.tool_call_id for message in results})


def _earlier_messages(
    original: Sequence[Message], changed: Sequence[Message], new_ids: Collection[str] | None
) -> list[Message]:
    """Return the messages before the newest user message, with this run's tool results as they were changed."""
    results = {
        message.id: message
        for message in changed
        if isinstance(message, ToolMessage) and (new_ids is None or message.id in new_ids)
    }
    newest = _newest_user_message(original)
    return [
        results.get(message.id, message) if isinstance(message, ToolMessage) else message
        for message in original
        if message is not newest
    ]


def _added_results(
    original: Sequence[Message], changed: Sequence[Message], pending: Collection[str]
) -> list[ToolMessage]:
    """Return the added results of pending calls. Other results are ignored: the model did not make their calls."""
    known = {message.id for message in original if isinstance(message, ToolMessage)}
    return [
        message
        for message in changed
        if isinstance(message, ToolMessage) and message.id not in known and message.tool_call_id in pending
    ]


def _added_messages(original: Sequence[Message], changed: Sequence[Message]) -> list[Message]:
    """Return the newest user message as it was changed, and the messages that were added, in their order."""
    newest = _newest_user_message(original)
    known = {(type(message), message.id) for message in original if message is not newest}
    return [
        message
        for message in changed
        if not isinstance(message, ToolMessage) and (type(message), message.id) not in known
    ]


def _newest_user_message(messages: Sequence[Message]) -> UserMessage | None:
    newest = messages[-1] if messages else None
    return newest if isinstance(newest, UserMessage) else None


def _calls_of_last_turn(messages: Sequence[Message]) -> dict[str, str]:
    """Return the unanswered calls of the newest turn: tool name by call id."""
    last = next((m for m in reversed(messages) if isinstance(m, AssistantMessage) and m.tool_calls), None)
    newest = {call.id for call in (last.tool_calls or ())} if last else set[str]()
    names = {call.id: call.function.name for call in unanswered_tool_calls(messages) if call.id in newest}
    return {call_id: name for call_id, name in names.items() if name not in INTERRUPT_CALLS}
