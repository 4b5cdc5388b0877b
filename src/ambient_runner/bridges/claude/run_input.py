"""The input of a run for the CLI: the new user message with its context, and the turns its session does not have. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.bridges.claude.messages import content_text, text_block, to_content_blocks
from ambient_runner.bridges.toolkit.content import context_text
from ambient_runner.bridges.toolkit.turns import (
    AssistantTurn,
    ResultsTurn,
    SystemTurn,
    UserTurn,
    collect_tool_calls,
    find_new_input,
)
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.claude.messages import Block
    from ambient_runner.bridges.toolkit.turns import NewInput, Turn, TurnToolResult
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["RunContext", "build_prompt"]

_MAX_HISTORY_CHARS = 200_000
"""Limit for the text of earlier turns that are sent again; the newest are kept."""
_LAPSED = (
    "The process that waited for an answer from the user is gone, and so is the question. "
    "Go on with what you were doing; where you need the user's permission or an answer, ask again."
)
_DECLINED = "The user declined what you asked for. Do not do it; go on without it, or stop here."


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Everything known about a run before the CLI is asked."""

    run_input: RunAgentInput
    new_input: NewInput
    run: Run | None
    """The run of the server; None without one."""

    @classmethod
    def from_agui(cls, agui_input: AguiInput) -> RunContext:
        run_input, run = input_from_agui(agui_input), current_run_or_none()
        return cls(
            run_input=run_input,
            new_input=find_new_input(run_input, new_ids=None if run is None else run.new_ids),
            run=run,
        )

    @property
    def has_new_input(self) -> bool:
        return self.new_input.user is not None or bool(self.new_input.results) or bool(self.new_input.resume)

    @property
    def used_ids(self) -> set[str]:
        """Ids that the conversation already has, of messages and of calls."""
        messages = self.run_input.messages
        return {*(call.id for call in collect_tool_calls(messages)), *(message.id for message in messages)}


def build_prompt(run_input: RunAgentInput, new_input: NewInput, missing_turns: Sequence[Turn]) -> list[Block]:
    """Return the content of the message to send. `missing_turns` are those the CLI's session does not have."""
    blocks = [text_block(_history_text(missing_turns))] if missing_turns else []
    if new_input.results:
        blocks += [text_block(_result_text(result)) for result in new_input.results]
    elif new_input.user is None:
        blocks.append(
            text_block(_LAPSED if any(entry.status == "resolved" for entry in new_input.resume) else _DECLINED)
        )
    blocks += _context_blocks(run_input)
    if new_input.user is not None:
        blocks += to_content_blocks(new_input.user.content)
    return blocks


def _context_blocks(run_input: RunAgentInput) -> list[Block]:
    """Return the client's context and the shared state. They are part of the user's message, not of the instructions."""
    context = context_text(run_input.context)
    blocks = [text_block(f"<context>\n{context}\n</context>\n")] if context else []
    if run_input.state:
        blocks.append(text_block(f"<state>\n{json.dumps(run_input.state, ensure_ascii=False)}\n</state>\n"))
    return blocks


def _result_text(result: TurnToolResult) -> str:
    failed = " failed" if result.is_error else ""
    text = content_text(result.content)
    return f"<tool_result>\nYour call to {result.name or 'a tool'}{failed}:\n{text}\n</tool_result>\n"


def _history_text(turns: Sequence[Turn]) -> str:
    text = "\n\n".join(_turn_text(turn) for turn in turns)
    return f"<conversation_so_far>\n{text[-_MAX_HISTORY_CHARS:]}\n</conversation_so_far>\n"


def _turn_text(turn: Turn) -> str:
    match turn:
        case UserTurn(content=content):
            return f"User: {content_text(content)}"
        case AssistantTurn(text=text, calls=calls):
            lines = [f"You called {call.name} with {call.arguments}" for call in calls]
            return "\n".join([*([f"You: {text}"] if text else []), *lines])
        case ResultsTurn(results=results):
            return "\n".join(f"{result.name or 'The tool'} gave: {content_text(result.content)}" for result in results)
        case SystemTurn(text=text):
            return f"Instructions: {text}"
