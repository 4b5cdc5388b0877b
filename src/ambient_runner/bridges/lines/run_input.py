"""The input of a run for a command: one text with the new user message, its context, and the turns its session does not have. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.content import content_text
from ambient_runner.bridges.toolkit.prompt_text import preamble_texts
from ambient_runner.bridges.toolkit.turns import collect_tool_calls, find_new_input
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["MAX_ARGUMENT_BYTES", "RunContext", "build_prompt"]

MAX_ARGUMENT_BYTES = 120 << 10
"""Bytes of a prompt that is an argument. Linux passes on no argument of 128 KiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Everything known about a run before the command is started."""

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


def build_prompt(
    context: RunContext, missing_turns: Sequence[Turn], *, instructions: str = "", max_bytes: int | None = None
) -> str:
    """Return the text that the command gets. Of more than `max_bytes`, the oldest of the missing turns are left out.

    `instructions` are those of the server, for a session that does not have them.
    """
    prompt = _prompt_text(context, missing_turns, instructions)
    while max_bytes is not None and missing_turns and len(prompt.encode("utf-8", "replace")) > max_bytes:
        missing_turns = missing_turns[len(missing_turns) // 2 + 1 :]
        prompt = _prompt_text(context, missing_turns, instructions)
    return prompt


def _prompt_text(context: RunContext, missing_turns: Sequence[Turn], instructions: str) -> str:
    user = context.new_input.user
    texts = [f"<instructions>\n{instructions}\n</instructions>\n"] if instructions else []
    texts += preamble_texts(context.run_input, context.new_input, missing_turns)
    if user is not None:
        texts.append(content_text(user.content))
    return "\n".join(texts)
