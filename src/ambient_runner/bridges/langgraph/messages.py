"""Turns to LangChain messages, and what LangChain messages hold to AG-UI content. Pure.

The ids of the thread are the ids of the messages, so that a graph's state and the thread can be compared.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pydantic_core
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from ambient_runner.bridges.toolkit.content import unreadable
from ambient_runner.bridges.toolkit.json_values import json_text
from ambient_runner.bridges.toolkit.tool_schemas import clean_schema
from ambient_runner.bridges.toolkit.turns import AssistantTurn, ResultsTurn, SystemTurn, UserTurn
from ambient_runner.protocol.events import (
    AudioPart,
    DataSource,
    DocumentPart,
    ImagePart,
    TextPart,
    UrlSource,
    VideoPart,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from ambient_runner.bridges.toolkit.turns import Result, Turn
    from ambient_runner.protocol.events import Content, ContentPart, Tool

__all__ = [
    "is_object",
    "messages_of",
    "reasoning_of",
    "result_content",
    "result_message",
    "said_in",
    "text_pieces",
    "tool_specs",
]

Block = dict[str, Any]

_KINDS: dict[type[Any], str] = {ImagePart: "image", AudioPart: "audio", VideoPart: "video", DocumentPart: "file"}
_PARTS: dict[str, Any] = {"image": ImagePart, "audio": AudioPart, "video": VideoPart, "file": DocumentPart}


def messages_of(turns: Iterable[Turn], arguments: Callable[[Any], Any]) -> list[BaseMessage]:
    """The conversation as a graph keeps it. `arguments` makes of a call's arguments what can be kept."""
    return [message for turn in turns for message in _messages(turn, arguments)]


def _messages(turn: Turn, arguments: Callable[[Any], Any]) -> Iterator[BaseMessage]:
    match turn:
        case UserTurn():
            yield HumanMessage(content=_content(turn.content), id=turn.id, name=turn.name)
        case SystemTurn():
            yield SystemMessage(content=turn.text, id=turn.id)
        case AssistantTurn():
            calls = [
                {"id": call.id, "name": call.name, "args": arguments(json.loads(call.arguments))} for call in turn.calls
            ]
            yield AIMessage(content=turn.text, id=turn.ids[0], tool_calls=calls)
        case ResultsTurn():
            for result in turn.results:
                yield result_message(result)


def result_message(result: Result) -> ToolMessage:
    """A result as the model gets it."""
    return ToolMessage(
        content=_content(result.content),
        tool_call_id=result.call_id,
        name=result.name or None,
        status="error" if result.is_error else "success",
    )


def tool_specs(tools: Iterable[Tool]) -> list[Block]:
    """Tools of the client in the form that `bind_tools` takes."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": clean_schema(tool.parameters),
            },
        }
        for tool in tools
    ]


def _content(content: Content) -> Any:
    if isinstance(content, str):
        return content
    return [_block(part) for part in content]


def _block(part: ContentPart) -> Block:
    """A part as one of LangChain's standard content blocks. A URL is handed on, not fetched: the model's provider does that."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    kind, source = _KINDS[type(part)], part.source
    match source:
        case DataSource():
            return {"type": kind, "base64": source.value, "mime_type": source.mime_type}
        case UrlSource() if source.value.startswith(("https://", "http://")):
            typed = {"mime_type": source.mime_type} if source.mime_type else {}
            return {"type": kind, "url": source.value, **typed}
        case _:
            return {"type": "text", "text": unreadable(part)}


def result_content(content: str | Sequence[Any]) -> Content:
    """All that a tool gave: the text when that is all, else one part for each block."""
    if isinstance(content, str):
        return content
    parts = [_part(block) for block in content]
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(cast("TextPart", part).text for part in parts)
    return parts


def _part(block: Any) -> ContentPart:
    if isinstance(block, str):
        return TextPart(text=block)
    if not isinstance(block, dict):
        return TextPart(text=json_text(block))
    block = cast("dict[str, Any]", block)
    make, source = _PARTS.get(block.get("type", "")), _source(block)
    if make is not None and source is not None:
        return make(source=source)
    return TextPart(text=block["text"] if isinstance(block.get("text"), str) else json_text(block))


def _source(block: Mapping[str, Any]) -> DataSource | UrlSource | None:
    """Where a block's bytes are, in the form of today or in the one before it."""
    mime = block.get("mime_type")
    data = block.get("base64") or (block.get("data") if block.get("source_type") == "base64" else None)
    if isinstance(data, str):
        return DataSource(value=data, mime_type=mime or "application/octet-stream")
    url = block.get("url")
    return UrlSource(value=url, mime_type=mime) if isinstance(url, str) else None


def text_pieces(content: str | Sequence[Any]) -> Iterator[tuple[str, str]]:
    """What a model's message says, in order: `("text", …)`, `("reasoning", …)` and `("encrypted", …)`."""
    if isinstance(content, str):
        yield "text", content
        return
    for block in content:
        match block:
            case str():
                yield "text", block
            case {"type": "text"}:
                yield "text", str(block.get("text") or "")
            case {"type": "redacted_thinking"}:
                yield "encrypted", str(block.get("data") or "")
            case _:
                yield "reasoning", _reasoning(block)  # None in what a node may have put there.


def _reasoning(block: Any) -> str:
    """What the providers call thinking, in each of their forms; empty for a block of another kind."""
    match block:
        case {"type": "thinking", "thinking": str(text)}:
            return text
        case {"type": "reasoning", "reasoning": str(text)}:
            return text
        case {"type": "reasoning", "summary": [*parts]}:
            return "".join(map(_summary, parts))
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}:
            return text
        case _:
            return ""


def _summary(part: Any) -> str:
    match part:
        case str():
            return part
        case {"text": text}:
            return str(text or "")
        case _:
            return ""


def reasoning_of(additional: Mapping[str, Any]) -> str:
    """The reasoning that some providers put beside the content."""
    found = additional.get("reasoning_content")
    return found if isinstance(found, str) else ""


def said_in(update: Any) -> list[AIMessage]:
    """The model's messages in what a node wrote: alone, in a list, or under a key."""
    values = list(cast("dict[str, Any]", update).values()) if isinstance(update, dict) else [update]
    many = [item for value in values for item in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    return [one for one in many if isinstance(one, AIMessage)]


def is_object(text: str) -> bool:
    """Whether the text of a call's arguments is what the SDK takes: a JSON object, if anything at all."""
    try:
        return not text or isinstance(pydantic_core.from_json(text), dict)
    except ValueError:
        return False
