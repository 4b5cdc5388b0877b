"""Content of a client's tool result as MCP content blocks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT
from ambient_runner.protocol.events import DataSource, ImagePart, TextPart

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Content, ContentPart

__all__ = ["to_mcp_blocks"]


def to_mcp_blocks(content: Content) -> list[dict[str, Any]]:
    """Return the result of a client's tool as MCP content; it is never empty."""
    if isinstance(content, str):
        return [_text_block(content or EMPTY_RESULT)]
    return [_to_mcp_block(part) for part in content] or [_text_block(EMPTY_RESULT)]


def _to_mcp_block(part: ContentPart) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return _text_block(text)
        case ImagePart(source=DataSource(value=data, mime_type=kind)):
            return {"type": "image", "data": data, "mimeType": kind}
        case _:
            return _text_block(attachment_placeholder(part))


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
