"""The title that a thread has until someone chooses one: the beginning of its first user text. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from ambient_runner.protocol.events import TextPart, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.protocol.events import Message

__all__ = ["default_title", "title_of_messages"]

_MAX_CHARACTERS = 80
_SEARCHED_CHARACTERS = 4096
"""Characters of a text that are read for its title: the rest of a pasted file does not matter."""
_HIDDEN = "hidden"
"""Member of the metadata of messages that the server sends in the user's name (`runs/start.py`). No person wrote them."""


def default_title(text: str) -> str:
    """Return the first 80 characters of a text as one line, without control characters; empty if there is nothing else."""
    line = "".join(map(_printable, text[:_SEARCHED_CHARACTERS]))
    return " ".join(line.split())[:_MAX_CHARACTERS].rstrip()


def title_of_messages(messages: Iterable[Message]) -> str:
    """Return the title of a thread that begins with these messages; empty if no user wrote a text."""
    texts = (_text_of(message) for message in messages if isinstance(message, UserMessage) and not _is_hidden(message))
    return next((title for text in texts if (title := default_title(text))), "")


def _printable(character: str) -> str:
    return " " if unicodedata.category(character) == "Cc" else character


def _is_hidden(message: UserMessage) -> bool:
    return (message.metadata or {}).get(_HIDDEN) is True


def _text_of(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return " ".join(part.text for part in message.content if isinstance(part, TextPart))
