"""The input of a run for a command: one text with the new user message, its context, and the turns its session does not have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.content import content_text
from ambient_runner.bridges.toolkit.prompt_text import preamble_texts, tagged_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.bridges.toolkit.turns import Turn

__all__ = ["MAX_ARGUMENT_BYTES", "build_prompt"]

MAX_ARGUMENT_BYTES = 120 << 10
"""Bytes of a prompt that is an argument. Linux passes on no argument of 128 KiB."""


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
    texts = [tagged_text("instructions", instructions)] if instructions else []
    texts += preamble_texts(context.run_input, context.new_input, missing_turns)
    if user is not None:
        texts.append(content_text(user.content))
    return "\n".join(texts)
