"""The input of a run for the CLI: the new user message with its context, and the turns its session does not have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.claude.messages import text_block, to_content_blocks
from ambient_runner.bridges.toolkit.prompt_text import preamble_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.claude.messages import Block
    from ambient_runner.bridges.toolkit.turns import NewInput, Turn
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["build_prompt"]


def build_prompt(run_input: RunAgentInput, new_input: NewInput, missing_turns: Sequence[Turn]) -> list[Block]:
    """Return the content of the message to send. `missing_turns` are those the CLI's session does not have."""
    blocks = [text_block(text) for text in preamble_texts(run_input, new_input, missing_turns)]
    if new_input.user is not None:
        blocks += to_content_blocks(new_input.user.content)
    return blocks
