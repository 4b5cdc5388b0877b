"""Content both ways: AG-UI content as content blocks of the Agent Client Protocol, and an agent's blocks as text or AG-UI content. Pure.

What an agent sends is of any size and shape. The functions here return values that fit into an event, and never raise.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.bridges.toolkit.json_values import as_object, to_json_text
from ambient_runner.protocol.events import AudioPart, DataSource, ImagePart, TextPart, UrlSource
from ambient_runner.protocol.limits import nesting_depth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.protocol.events import Content, ContentPart

__all__ = [
    "as_list",
    "as_text",
    "block_text",
    "bounded_json",
    "head_and_tail",
    "json_text",
    "raw_output_content",
    "text_block",
    "to_content",
    "to_content_blocks",
    "unfenced",
]

Block = dict[str, Any]

_LINK_SCHEMES = ("https://", "http://")
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/toml"})
_MAX_DEPTH = 48
"""Levels of a value from an agent that are kept."""
_MAX_MEDIA_CHARS = 4 << 20
"""Characters of images and recordings in base64 that an event can hold."""
_MAX_PARTS = 100
_OUTPUT_MEMBERS = ("formatted_output", "aggregated_output", "output", "stdout", "error", "message", "text")
"""Members in which agents report the output of a tool, the best one first."""


def to_content_blocks(content: Content, capabilities: Mapping[str, Any]) -> list[Block]:
    """Return a user's content as blocks of a prompt. `capabilities` are the agent's `promptCapabilities`.

    Text and links are for every agent. What it cannot take otherwise becomes text that says so.
    """
    if isinstance(content, str):
        return [text_block(content)]
    return [_to_block(part, number, capabilities) for number, part in enumerate(content, 1)] or [text_block("")]


def _to_block(part: ContentPart, number: int, capabilities: Mapping[str, Any]) -> Block:
    match part:
        case TextPart(text=text):
            return text_block(text)
        case ImagePart(source=DataSource(value=data, mime_type=kind)) if capabilities.get("image") is True and data:
            return {"type": "image", "data": data, "mimeType": kind}
        case AudioPart(source=DataSource(value=data, mime_type=kind)) if capabilities.get("audio") is True and data:
            return {"type": "audio", "data": data, "mimeType": kind}
        case _:
            return _to_reference(part, number, capabilities)


def _to_reference(part: Any, number: int, capabilities: Mapping[str, Any]) -> Block:
    """Return the link to an attachment, or its data as an embedded resource; else a placeholder."""
    source = part.source
    name = as_text(as_object(part.metadata).get("filename")) or f"attachment-{number}"
    if isinstance(source, DataSource):
        text = _decoded_text(source)
        if capabilities.get("embeddedContext") is True and source.value:
            body = {"blob": source.value} if text is None else {"text": text}
            uri = f"attachment:///{number}/{name}"
            return {"type": "resource", "resource": {"uri": uri, "mimeType": source.mime_type, **body}}
        return text_block(attachment_placeholder(part) if text is None else f"{name}:\n{text}")
    if source.value.lower().startswith(_LINK_SCHEMES):
        kind = {} if source.mime_type is None else {"mimeType": source.mime_type}
        return {"type": "resource_link", "uri": source.value, "name": name, **kind}
    return text_block(attachment_placeholder(part))


def _decoded_text(source: DataSource) -> str | None:
    """Return the text of a document that is text; None for any other."""
    kind = source.mime_type.partition(";")[0].strip().lower()
    if not kind.startswith("text/") and kind not in _TEXT_TYPES:
        return None
    try:
        return base64.b64decode(source.value, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def to_content(blocks: Sequence[Any], max_bytes: int) -> Content:
    """Return content blocks as AG-UI content: text if nothing else is in them, empty text if there are none.

    Together, texts have at most `max_bytes`, and media as much as an event can hold; the rest become text.
    """
    kept = [as_object(block) for block in blocks[:_MAX_PARTS]]
    parts: list[ContentPart] = []
    room = _MAX_MEDIA_CHARS
    for block in kept:
        media = _to_media(block, room)
        room -= len(media.source.value) if media else 0
        parts.append(media or TextPart(text=head_and_tail(block_text(block), max_bytes // len(kept))))
    if all(isinstance(part, TextPart) for part in parts):
        return head_and_tail("\n".join(filter(None, map(block_text, blocks))), max_bytes)
    return parts


def _to_media(block: Mapping[str, Any], max_chars: int) -> ImagePart | AudioPart | None:
    match block:
        case {"type": "image", "data": str(data), "mimeType": str(kind)} if 0 < len(data) <= max_chars:
            return ImagePart(source=DataSource(value=data, mime_type=kind))
        case {"type": "audio", "data": str(data), "mimeType": str(kind)} if 0 < len(data) <= max_chars:
            return AudioPart(source=DataSource(value=data, mime_type=kind))
        case {"type": "image", "uri": str(uri)} if uri.lower().startswith(_LINK_SCHEMES) and len(uri) <= max_chars:
            return ImagePart(source=UrlSource(value=uri))
        case _:
            return None


def block_text(block: Any) -> str:
    """Return a content block as text; empty for what is none. A file or an image is represented by its address or type."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": str(uri)} | {"type": "resource", "resource": {"uri": str(uri)}}:
            return uri
        case {"type": "image" | "audio" as kind}:
            return f"[{as_text(block.get('mimeType')) or kind}]"
        case _:
            return ""


def raw_output_content(value: Any, max_bytes: int) -> Content:
    """Return a tool's raw output as content: its text where one is found, else all of it as JSON text. Empty for None."""
    match value:
        case None:
            return ""
        case str():
            return head_and_tail(value, max_bytes)
        case {"result": {"content": list()}}:
            return to_content(as_list(value["result"]["content"]), max_bytes)
        case {"content": list()}:
            return to_content(as_list(value["content"]), max_bytes)
        case list() if any(as_text(as_object(block).get("type")) for block in cast("list[Any]", value)):
            return to_content(cast("list[Any]", value), max_bytes)
        case dict():
            members = as_object(value)
            texts = (as_text(members.get(name)) for name in _OUTPUT_MEMBERS)
            found = next((text for text in texts if text), None)
            return head_and_tail(json_text(value, max_bytes) if found is None else found, max_bytes)
        case _:
            return head_and_tail(json_text(value, max_bytes), max_bytes)


def unfenced(text: str) -> str:
    """Return the inside of a text that is one fenced block of Markdown; any other text as it is."""
    first_line, _, rest = text.partition("\n")
    fence = first_line[: len(first_line) - len(first_line.lstrip("`"))]
    body = rest.rstrip()
    inside = "\n" + body.removesuffix(fence)
    is_block = len(fence) >= 3 and body.endswith(fence) and inside.endswith("\n")
    return inside[1:-1] if is_block and f"\n{fence}" not in inside else text


def head_and_tail(text: str, max_bytes: int) -> str:
    """Return the text, or its beginning and its end if it is longer in UTF-8. No character is cut in two."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode(errors="replace")
    if len(data) <= max_bytes:
        return text
    head, tail = data[: max_bytes * 3 // 4], data[len(data) - max_bytes // 4 :]
    left_out = len(data) - len(head) - len(tail)
    return f"{head.decode(errors='ignore')}\n[{left_out} bytes are left out here]\n{tail.decode(errors='ignore')}"


def json_text(value: Any, max_bytes: int) -> str:
    """Return a value of an agent as JSON text, with long texts shortened."""
    return to_json_text(bounded_json(value, max_bytes))


def bounded_json(value: Any, max_bytes: int) -> Any:
    """Return the value if it is small enough as JSON, else a copy without what is too long or nested too deep."""
    if nesting_depth(value, _MAX_DEPTH) <= _MAX_DEPTH and _encoded_size(value) <= max_bytes:
        return value
    return _Shortener(max_bytes // 2).shorten(value, _MAX_DEPTH)


def _encoded_size(value: Any) -> float:
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return float("inf")


class _Shortener:
    """Copies a value until `max_bytes` of it are copied. The rest is left out."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._max_text = max(max_bytes // 8, 1)

    def shorten(self, value: Any, depth: int) -> Any:
        self._left -= 8
        match value:
            case str():
                text = head_and_tail(value, max(min(self._max_text, self._left // 2), 0))
                self._left -= len(text) * 2
                return text
            case dict() if depth > 0:
                items = cast("dict[Any, Any]", value).items()
                return {
                    self.shorten(str(name), 0): self.shorten(item, depth - 1) for name, item in items if self._left > 0
                }
            case list() | tuple() if depth > 0:
                return [self.shorten(item, depth - 1) for item in cast("list[Any]", value) if self._left > 0]
            case bool() | int() | float() | None:
                return value
            case _:
                return None


def as_text(value: Any) -> str:
    """Return the value if it is text; an empty one for any other value."""
    return value if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list; an empty one for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []
