"""The input of a run for an ACP agent: the new user message with its context, and the turns its session does not have. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.bridges.acp.config import PROP
from ambient_runner.bridges.acp.messages import to_content_blocks
from ambient_runner.bridges.acp.session_state import STATE_KEY
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.prompt_text import preamble_texts
from ambient_runner.bridges.toolkit.turns import collect_tool_calls, find_new_input
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["RunContext", "build_prompt"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Everything known about a run before the agent is asked."""

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

    @property
    def requested(self) -> Mapping[str, Any]:
        """What the client asks for in `forwardedProps.acp`."""
        return as_object(as_object(self.run_input.forwarded_props).get(PROP))


def build_prompt(
    run_input: RunAgentInput,
    new_input: NewInput,
    missing_turns: Sequence[Turn],
    *,
    capabilities: Mapping[str, Any],
    instructions: str = "",
) -> list[dict[str, Any]]:
    """Return the content blocks of the prompt. `capabilities` are the agent's `promptCapabilities`.

    `instructions` are for an agent that takes no system prompt.
    """
    state = {key: value for key, value in as_object(run_input.state).items() if key != STATE_KEY}
    shared = msgspec.structs.replace(run_input, state=state)
    blocks = [_text_block(text) for text in preamble_texts(shared, new_input, missing_turns)]
    if new_input.user is not None:
        blocks += to_content_blocks(new_input.user.content, capabilities)
    if instructions:  # Last: agents take the beginning of a conversation for its title.
        blocks.append(_text_block(f"<instructions>\n{instructions}\n</instructions>\n"))
    return blocks


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
