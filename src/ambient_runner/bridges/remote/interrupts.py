"""The conversation to send once more when the other server no longer has the interrupts that a run answers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.bridges.toolkit.interrupts import DECLINED, resolved_interrupt_ids
from ambient_runner.bridges.toolkit.turns import unanswered_tool_calls
from ambient_runner.protocol.events import AssistantMessage, ReasoningMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.protocol.events import Message, RunAgentInput

__all__ = ["without_lapsed_answers"]


def without_lapsed_answers(run_input: RunAgentInput) -> RunAgentInput:
    """Return the input without `resume`, for an agent that no longer knows its interrupts.

    If one was approved or answered, the interrupted turn is left out, so that the agent repeats it and asks again: its open calls would
    look cancelled. If all were cancelled, the open calls get the result that they were declined.
    """
    turn_start = _turn_start(run_input.messages)
    history, turn = run_input.messages[:turn_start], run_input.messages[turn_start:]
    open_ids = {call.id for call in unanswered_tool_calls(turn)}
    if resolved_interrupt_ids(run_input.resume or ()):
        turn = _without_trailing_output(_without_calls(turn, open_ids))
    else:
        turn = [*turn, *(_declined_result(call_id) for call_id in sorted(open_ids))]
    return replace(run_input, messages=[*history, *turn], resume=None)


def _turn_start(messages: Sequence[Message]) -> int:
    """Return the position after the last user message."""
    return max((at for at, message in enumerate(messages, 1) if isinstance(message, UserMessage)), default=0)


def _without_calls(messages: Sequence[Message], call_ids: Collection[str]) -> list[Message]:
    """Return the messages without these calls, and without a message that only made them."""
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = [call for call in message.tool_calls if call.id not in call_ids]
            if not calls and not message.content:
                continue
            message = replace(message, tool_calls=calls or None)
        kept.append(message)
    return kept


def _without_trailing_output(messages: list[Message]) -> list[Message]:
    """Return the messages up to the last tool result: the agent repeats its output after it."""
    kept = list(messages)
    while kept and isinstance(kept[-1], AssistantMessage | ReasoningMessage):
        kept.pop()
    return kept


def _declined_result(call_id: str) -> ToolMessage:
    return ToolMessage(id=f"declined-{call_id}", tool_call_id=call_id, content=DECLINED)
