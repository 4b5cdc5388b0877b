"""The input of a run for an ACP agent: the new user message with its context, and the turns its session does not have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.bridges.acp.config import PROP
from ambient_runner.bridges.acp.messages import text_block, to_content_blocks
from ambient_runner.bridges.acp.session_state import STATE_KEY
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.prompt_text import preamble_texts, tagged_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["build_prompt", "requested_options"]


def requested_options(run_input: RunAgentInput) -> Mapping[str, Any]:
    """Return the options that the client asks for in `forwardedProps.acp`."""
    return as_object(as_object(run_input.forwarded_props).get(PROP))


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
    blocks = [text_block(text) for text in preamble_texts(shared, new_input, missing_turns)]
    if new_input.user is not None:
        blocks += to_content_blocks(new_input.user.content, capabilities)
    if instructions:  # Last: agents take the beginning of a conversation for its title.
        blocks.append(text_block(tagged_text("instructions", instructions)))
    return blocks
