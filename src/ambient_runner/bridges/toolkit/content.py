"""What a model reads in place of an attachment that it cannot be given: the same words in every bridge. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.protocol.events import AudioPart, DocumentPart, ImagePart, VideoPart

__all__ = ["unreadable"]


def unreadable(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> str:
    """That there was one, and of what type. Where it is stays out: an address may hold a secret."""
    return f"[An attachment that cannot be read here: {part.source.mime_type or part.__struct_config__.tag}]"
