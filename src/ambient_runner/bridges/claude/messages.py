"""Content both ways: AG-UI content as blocks of the provider, and results of the CLI's tools as AG-UI content. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT
from ambient_runner.protocol.events import DataSource, DocumentPart, ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import Content, ContentPart

__all__ = ["Block", "result_content", "text_block", "to_content_blocks"]

Block = dict[str, Any]

_PDF = "application/pdf"
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def to_content_blocks(content: Content) -> list[Block]:
    """Return content as the provider's blocks."""
    if isinstance(content, str):
        return [text_block(content)]
    return [_to_block(part) for part in content] or [text_block("")]


def _to_block(part: ContentPart) -> Block:
    match part:
        case TextPart(text=text):
            return text_block(text)
        case ImagePart(source=DataSource(value=data, mime_type=kind)) if _media_type(kind) in _IMAGE_TYPES and data:
            return {"type": "image", "source": {"type": "base64", "media_type": _media_type(kind), "data": data}}
        case DocumentPart(source=DataSource(value=data, mime_type=kind)) if _media_type(kind) == _PDF and data:
            return {"type": "document", "source": {"type": "base64", "media_type": _PDF, "data": data}}
        case _:
            return text_block(attachment_placeholder(part))


def _media_type(declared: str | None) -> str:
    """Return the media type as the API spells it."""
    kind = (declared or "").partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def result_content(content: str | list[dict[str, Any]] | None) -> Content:
    """Return a tool's whole result: plain text if it has nothing else."""
    if isinstance(content, str):
        return content or EMPTY_RESULT
    parts = [_to_part(block) for block in content or ()]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) < len(parts):
        return parts
    return "\n".join(texts) or EMPTY_RESULT


def _to_part(block: Mapping[str, Any]) -> ContentPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image", "source": {"type": "base64", "data": str(data), "media_type": str(kind)}}:
            return ImagePart(source=DataSource(value=data, mime_type=kind))
        case _:
            return TextPart(text=json.dumps(block, ensure_ascii=False))
