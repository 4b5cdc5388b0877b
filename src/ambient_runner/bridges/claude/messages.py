"""What Claude is told: the user's words with what belongs to them, and as much of the conversation as it does not know. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.content import unreadable
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, SystemTurn, UserTurn
from ambient_runner.protocol.events import DataSource, DocumentPart, ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.bridges.toolkit.turns import Incoming, Result, Turn
    from ambient_runner.protocol.events import Content, ContentPart, Context, RunAgentInput

__all__ = ["prompt"]

Block = dict[str, Any]

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_LONGEST = 200_000
"""Characters of an earlier conversation that are told again; the newest count."""
_LAPSED = (
    "The process that waited for an answer from the user is gone, and so is the question. "
    "Go on with what you were doing; where you need the user's permission or an answer, ask again."
)
_DECLINED = "The user declined what you asked for. Do not do it; go on without it, or stop here."


def prompt(given: RunAgentInput, about: Incoming, untold: Sequence[Turn]) -> list[Block]:
    """The content of the message to send. `untold` is what the CLI's session does not hold of the conversation."""
    told = [_text(_so_far(untold))] if untold else []
    if about.results:
        told += [_text(_outcome(result)) for result in about.results]
    elif about.user is None:
        told.append(_text(_LAPSED if any(entry.status == "resolved" for entry in about.resume) else _DECLINED))
    told += _aside(given)
    if about.user is not None:
        told += _blocks(about.user.content)
    return told


def _aside(given: RunAgentInput) -> list[Block]:
    """The client's context and the shared state, beside the words of the user and not among the instructions."""
    found = [_text(_context(given.context))] if given.context else []
    if given.state:
        found.append(_text(f"<state>\n{json.dumps(given.state, ensure_ascii=False)}\n</state>\n"))
    return found


def _context(context: Iterable[Context]) -> str:
    lines = "\n".join(f"{one.description}: {one.value}" for one in context)
    return f"<context>\n{lines}\n</context>\n"


def _outcome(result: Result) -> str:
    failed = " failed" if result.is_error else ""
    return (
        f"<tool_result>\nYour call to {result.name or 'a tool'}{failed}:\n{_text_of(result.content)}\n</tool_result>\n"
    )


def _so_far(turns: Sequence[Turn]) -> str:
    story = "\n\n".join(_told(turn) for turn in turns)
    return f"<conversation_so_far>\n{story[-_LONGEST:]}\n</conversation_so_far>\n"


def _told(turn: Turn) -> str:
    match turn:
        case UserTurn(content=content):
            return f"User: {_text_of(content)}"
        case AssistantTurn(text=text, calls=calls):
            called = [f"You called {call.name} with {call.arguments}" for call in calls]
            return "\n".join([*([f"You: {text}"] if text else []), *called])
        case ResultsTurn(results=results):
            return "\n".join(f"{result.name or 'The tool'} gave: {_text_of(result.content)}" for result in results)
        case SystemTurn(text=text):
            return f"Instructions: {text}"


def _text_of(content: Content) -> str:
    """The words of a content; what is not words is named."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else unreadable(part) for part in content)


def _blocks(content: Content) -> list[Block]:
    if isinstance(content, str):
        return [_text(content)]
    return [_block(part) for part in content] or [_text("")]


def _block(part: ContentPart) -> Block:
    match part:
        case TextPart(text=text):
            return _text(text)
        case ImagePart(source=DataSource(value=data, mime_type=kind)) if kind in _IMAGES:
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        case DocumentPart(source=DataSource(value=data, mime_type="application/pdf" as kind)):
            return {"type": "document", "source": {"type": "base64", "media_type": kind, "data": data}}
        case _:
            return _text(unreadable(part))


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
