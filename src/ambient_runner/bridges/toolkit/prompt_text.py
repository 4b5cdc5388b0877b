"""Text of a prompt for an agent that keeps its own conversation: the turns it does not have, and what comes with the new message. Pure.

The parts have tags, and turns begin their lines. No text of a user, a tool or an agent can pass for either.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.content import content_text, context_text
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, SystemTurn, UserTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.turns import NewInput, Turn, TurnToolResult
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["history_text", "preamble_texts", "tagged_text"]

_MAX_HISTORY_CHARS = 200_000
"""Limit for the text of earlier turns that are sent again; the newest are kept."""
_TAG = re.compile(r"<(?=\s*/?\s*(?:conversation_so_far|context|state|tool_result|instructions)\b)", re.IGNORECASE)
_CONTINUATION = "\n  "
"""Begins the further lines of a turn."""
_LAPSED = (
    "The process that waited for an answer from the user is gone, and so is the question. "
    "Go on with what you were doing; where you need the user's permission or an answer, ask again."
)
_DECLINED = "The user declined what you asked for. Do not do it; go on without it, or stop here."


def preamble_texts(run_input: RunAgentInput, new_input: NewInput, missing_turns: Sequence[Turn] = ()) -> list[str]:
    """Return what the agent reads before the new user message, which may be missing. `missing_turns` are those it does not have.

    In this order: the missing turns, tool results that no process waits for, or the fate of its interrupt, the context, the state.
    """
    texts = [history_text(missing_turns)] if missing_turns else []
    if new_input.results:
        texts += [_result_text(result) for result in new_input.results]
    elif new_input.user is None:
        texts.append(_LAPSED if any(entry.status == "resolved" for entry in new_input.resume) else _DECLINED)
    return [*texts, *_context_texts(run_input)]


def history_text(turns: Sequence[Turn]) -> str:
    """Return turns of the conversation for an agent that does not have them."""
    text = "\n\n".join(_turn_text(turn) for turn in turns)
    return tagged_text("conversation_so_far", text[-_MAX_HISTORY_CHARS:])


def tagged_text(tag: str, text: str) -> str:
    """Return a part of the prompt. What looks like a tag of one in the text is escaped."""
    return f"<{tag}>\n{_TAG.sub('&lt;', text)}\n</{tag}>\n"


def _context_texts(run_input: RunAgentInput) -> list[str]:
    """Return the client's context and the shared state. They are part of the user's message, not of the instructions."""
    context = context_text(run_input.context)
    texts = [tagged_text("context", context)] if context else []
    if run_input.state:
        texts.append(tagged_text("state", json.dumps(run_input.state, ensure_ascii=False)))
    return texts


def _result_text(result: TurnToolResult) -> str:
    failed = " failed" if result.is_error else ""
    text = content_text(result.content)
    return tagged_text("tool_result", f"Your call to {result.name or 'a tool'}{failed}:\n{text}")


def _turn_text(turn: Turn) -> str:
    match turn:
        case UserTurn(content=content):
            return _indented(f"User: {content_text(content)}")
        case AssistantTurn(text=text, calls=calls):
            lines = [f"You called {call.name} with {call.arguments}" for call in calls]
            return "\n".join(map(_indented, [*([f"You: {text}"] if text else []), *lines]))
        case ResultsTurn(results=results):
            lines = [f"{result.name or 'The tool'} gave: {content_text(result.content)}" for result in results]
            return "\n".join(map(_indented, lines))
        case SystemTurn(text=text):
            return _indented(f"Instructions: {text}")


def _indented(text: str) -> str:
    """Return the text with its further lines indented; blank ones stay."""
    return re.sub(r"\n(?=.)", _CONTINUATION, text)
