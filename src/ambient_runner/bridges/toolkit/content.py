"""Text for a model that is the same in every bridge: the client's context, content, and placeholders for attachments. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import TextPart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.protocol.events import AudioPart, Content, Context, DocumentPart, ImagePart, VideoPart

__all__ = ["attachment_placeholder", "content_text", "context_text"]


def context_text(context: Iterable[Context]) -> str:
    """Return the `context` of a request as text for a model; empty if there is none."""
    lines = [f"- {entry.description}: {entry.value}" for entry in context]
    return "\n".join(["Context of this request:", *lines]) if lines else ""


def content_text(content: Content) -> str:
    """Return the text of a content, with a placeholder for each attachment."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else attachment_placeholder(part) for part in content)


def attachment_placeholder(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> str:
    """Return the text that stands for an attachment: its media type, never its URL, which may contain a secret."""
    return f"[An attachment that cannot be read here: {part.source.mime_type or part.__struct_config__.tag}]"
