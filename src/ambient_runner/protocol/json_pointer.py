"""JSON pointers (RFC 6901): how patches and schemas name a place in a document."""

from __future__ import annotations

__all__ = ["keys_of", "pointer_to"]


def pointer_to(*keys: str) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def keys_of(pointer: str) -> list[str]:
    """The keys on the way, whatever stands before the first slash."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
