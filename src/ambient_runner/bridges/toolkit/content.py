"""Placeholder text for attachments that a model cannot be given: the same in every bridge. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.protocol.events import AudioPart, DocumentPart, ImagePart, VideoPart

__all__ = ["attachment_placeholder"]


def attachment_placeholder(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> str:
    """Return the text that stands for an attachment: its media type, never its URL, which may contain a secret."""
    return f"[An attachment that cannot be read here: {part.source.mime_type or part.__struct_config__.tag}]"
