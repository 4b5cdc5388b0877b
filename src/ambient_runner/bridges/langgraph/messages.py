"""Messages both ways: turns to LangChain messages, and LangChain content to AG-UI content. Pure.

Messages keep their ids from the thread, so that a graph's state and the thread can be compared.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pydantic_core
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.bridges.toolkit.json_values import to_json_text
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

    from ambient_runner.bridges.toolkit.turns import Turn, TurnToolResult
    from ambient_runner.protocol.events import Content, ContentPart

__all__ = [
    "additional_reasoning",
    "content_pieces",
    "is_json_object",
    "model_messages_in",
    "result_content",
    "result_message",
    "text_content",
    "to_langchain_messages",
    "token_counts",
]

Block = dict[str, Any]

_TOKEN_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_TOKEN_DETAILS = {
    "cached_input_tokens": ("input_token_details", "cache_read"),
    "cache_write_input_tokens": ("input_token_details", "cache_creation"),
    "reasoning_tokens": ("output_token_details", "reasoning"),
}

_BLOCK_TYPES: dict[type[Any], str] = {ImagePart: "image", AudioPart: "audio", VideoPart: "video", DocumentPart: "file"}
_PART_TYPES: dict[str, Any] = {"image": ImagePart, "audio": AudioPart, "video": VideoPart, "file": DocumentPart}


def token_counts(usage_metadata: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the token counts of a message by AG-UI's names. The counts of a message's chunks add up."""
    counts: dict[str, int | None] = {name: int(usage_metadata.get(name) or 0) for name in _TOKEN_COUNTS}
    for name, (group, key) in _TOKEN_DETAILS.items():
        details: Mapping[str, Any] = usage_metadata.get(group) or {}
        counts[name] = int(details[key]) if details.get(key) else None
    return counts


def to_langchain_messages(turns: Iterable[Turn], to_storable: Callable[[Any], Any]) -> list[BaseMessage]:
    """Return the conversation as a graph stores it. `to_storable` converts the arguments of tool calls for the checkpointer."""
    return [message for turn in turns for message in _turn_messages(turn, to_storable)]


def _turn_messages(turn: Turn, to_storable: Callable[[Any], Any]) -> Iterator[BaseMessage]:
    match turn:
        case UserTurn():
            yield HumanMessage(content=_to_langchain_content(turn.content), id=turn.id, name=turn.name)
        case SystemTurn():
            yield SystemMessage(content=turn.text, id=turn.id)
        case AssistantTurn():
            calls = [
                {"id": call.id, "name": call.name, "args": to_storable(json.loads(call.arguments))}
                for call in turn.calls
            ]
            yield AIMessage(content=turn.text, id=turn.ids[0], tool_calls=calls)
        case ResultsTurn():
            for result in turn.results:
                yield result_message(result)


def result_message(result: TurnToolResult) -> ToolMessage:
    """Return a tool result as the model receives it."""
    return ToolMessage(
        content=_to_langchain_content(result.content),
        tool_call_id=result.call_id,
        name=result.name or None,
        status="error" if result.is_error else "success",
    )


def _to_langchain_content(content: Content) -> Any:
    if isinstance(content, str):
        return content
    return [_to_block(part) for part in content]


def _to_block(part: ContentPart) -> Block:
    """Return a part as a standard content block of LangChain. A URL is passed on, not fetched: the model's provider does that."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    kind, source = _BLOCK_TYPES[type(part)], part.source
    match source:
        case DataSource():
            return {"type": kind, "base64": source.value, "mime_type": source.mime_type}
        case UrlSource() if source.value.startswith(("https://", "http://")):
            mime_type = {"mime_type": source.mime_type} if source.mime_type else {}
            return {"type": kind, "url": source.value, **mime_type}
        case _:
            return {"type": "text", "text": attachment_placeholder(part)}


def result_content(content: str | Sequence[Any]) -> Content:
    """Return a tool's whole result: its text if it has nothing else, otherwise one part per block."""
    if isinstance(content, str):
        return content
    parts = [_to_part(block) for block in content]
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(cast("TextPart", part).text for part in parts)
    return parts


def _to_part(block: Any) -> ContentPart:
    if isinstance(block, str):
        return TextPart(text=block)
    if not isinstance(block, dict):
        return TextPart(text=to_json_text(block))
    block = cast("dict[str, Any]", block)
    part_type, source = _PART_TYPES.get(block.get("type", "")), _block_source(block)
    if part_type is not None and source is not None:
        return part_type(source=source)
    return TextPart(text=block["text"] if isinstance(block.get("text"), str) else to_json_text(block))


def _block_source(block: Mapping[str, Any]) -> DataSource | UrlSource | None:
    """Return the source of a block's bytes, in LangChain's current format or in the one before."""
    mime = block.get("mime_type")
    data = block.get("base64") or (block.get("data") if block.get("source_type") == "base64" else None)
    if isinstance(data, str):
        return DataSource(value=data, mime_type=mime or "application/octet-stream")
    url = block.get("url")
    return UrlSource(value=url, mime_type=mime) if isinstance(url, str) else None


def content_pieces(content: str | Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the content of a model's message in order: `("text", …)`, `("reasoning", …)`, `("summary", …)` and `("encrypted", …)`.

    A summary is reasoning that the model wrote for people.
    """
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
            case {"type": "reasoning", "summary": [*parts]}:
                yield "summary", "".join(map(_summary_text, parts))
            case _:
                yield "reasoning", _reasoning_text(block)  # Empty for any other block a node may add.


def text_content(message: BaseMessage) -> str:
    """Return the text of a model's message."""
    content: Any = message.content  # pyright: ignore[reportUnknownMemberType]
    return "".join(piece for kind, piece in content_pieces(content) if kind == "text")


def _reasoning_text(block: Any) -> str:
    """Return the text of a reasoning block, in any provider's format; empty for a block of another kind."""
    match block:
        case {"type": "thinking", "thinking": str(text)}:
            return text
        case {"type": "reasoning", "reasoning": str(text)}:
            return text
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}:
            return text
        case _:
            return ""


def _summary_text(part: Any) -> str:
    match part:
        case str():
            return part
        case {"text": text}:
            return str(text or "")
        case _:
            return ""


def additional_reasoning(additional: Mapping[str, Any]) -> str:
    """Return the reasoning that some providers put next to the content (`additional_kwargs`)."""
    reasoning = additional.get("reasoning_content")
    if isinstance(reasoning, str):
        return reasoning
    match additional.get("reasoning"):
        case {"summary": [*parts]}:
            return "".join(map(_summary_text, parts))
        case _:
            return ""


def model_messages_in(update: Any) -> list[AIMessage]:
    """Return the model's messages in a node's update: a single one, a list, or either under a key."""
    values = list(cast("dict[str, Any]", update).values()) if isinstance(update, dict) else [update]
    items = [item for value in values for item in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    return [item for item in items if isinstance(item, AIMessage)]


def is_json_object(text: str) -> bool:
    """Return True if the SDK accepts this text as arguments of a tool call: a JSON object or nothing."""
    try:
        return not text or isinstance(pydantic_core.from_json(text), dict)
    except ValueError:
        return False
