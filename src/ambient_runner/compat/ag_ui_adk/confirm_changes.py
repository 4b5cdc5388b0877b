"""The `confirm_changes` call: after a tool that predicts state, the client's page asks its user to accept the change.

The call is not one of the model's. It is added before the end of the run, and its answer reaches the agent as a user message.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ag_ui.core import AssistantMessage, ToolMessage, UserMessage
from msgspec.structs import replace

from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.protocol.agui_models import EventCoercer, to_agui
from ambient_runner.protocol.events import RunFinished, Success, ToolCallArgs, ToolCallEnd, ToolCallStart
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from ag_ui.core import Message
    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.adk.adapter import ADKAdapter
    from ambient_runner.protocol.events import Event

__all__ = ["CONFIRM_TOOL", "ConfirmingAdapter"]

CONFIRM_TOOL = "confirm_changes"


class ConfirmingAdapter:
    """An adapter whose runs end with a `confirm_changes` call if they called one of `tools`."""

    def __init__(self, adapter: ADKAdapter, tools: Collection[str]) -> None:
        self._adapter = adapter
        self._tools = tools
        self.interrupt, self.aclose = adapter.interrupt, adapter.aclose

    async def run(self, input: AguiInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        """Yield the events of one run. Raises: RunnerError."""
        answered = input.model_copy(update={"messages": _answers_as_text(input.messages)})
        has_changes, coerce = False, EventCoercer()
        async with aclosing(self._adapter.run(answered)) as events:
            async for value in events:
                event = coerce(value)
                if isinstance(event, ToolCallStart) and event.tool_call_name in self._tools:
                    has_changes = True
                if has_changes and isinstance(event, RunFinished) and isinstance(event.outcome, Success | None):
                    for added in _confirmation_events(event):
                        yield added if current_run_or_none() else to_agui(added)
                else:
                    yield value


def _confirmation_events(finished: RunFinished) -> list[Event]:
    call_id = random_id("confirm")
    pending = finished.outcome.pending_tool_call_ids if isinstance(finished.outcome, Success) else None
    return [
        ToolCallStart(tool_call_id=call_id, tool_call_name=CONFIRM_TOOL),
        ToolCallArgs(tool_call_id=call_id, delta="{}"),
        ToolCallEnd(tool_call_id=call_id),
        replace(finished, outcome=Success(pending_tool_call_ids=[*(pending or ()), call_id])),
    ]


def _answers_as_text(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without `confirm_changes` calls; an answer to one is a user message."""
    ids = {
        call.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls or ()
        if call.function.name == CONFIRM_TOOL
    }
    if not ids:
        return list(messages)
    changed = (_without_confirmation(message, ids) for message in messages)
    return [message for message in changed if message is not None]


def _without_confirmation(message: Message, ids: Collection[str]) -> Message | None:
    if isinstance(message, ToolMessage) and message.tool_call_id in ids:
        return UserMessage(id=message.id, content=_decision_text(message))
    if not isinstance(message, AssistantMessage) or not message.tool_calls:
        return message
    calls = [call for call in message.tool_calls if call.id not in ids]
    return message.model_copy(update={"tool_calls": calls or None}) if calls or message.content else None


def _decision_text(message: ToolMessage) -> str:
    try:
        answer = as_object(json.loads(message.content if isinstance(message.content, str) else ""))
    except ValueError:
        return str(message.content)
    if "accepted" not in answer:
        return json.dumps(answer)
    return "I accept the changes." if answer["accepted"] else "I reject the changes."
