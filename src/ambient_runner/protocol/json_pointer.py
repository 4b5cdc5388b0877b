"""JSON Pointer (RFC 6901): the paths in JSON Patch operations and JSON Schema references."""

from __future__ import annotations

import re

__all__ = ["format_pointer", "is_pointer", "parse_pointer"]

_INVALID_ESCAPE = re.compile("~(?![01])")


def is_pointer(text: str) -> bool:
    """Return True if the text is a pointer. Its keys are not matched one by one: a path may have megabytes."""
    return not text or (text.startswith("/") and ("~" not in text or not _INVALID_ESCAPE.search(text)))


def format_pointer(*keys: str) -> str:
    """Return the pointer that follows these keys from the root."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def parse_pointer(pointer: str) -> list[str]:
    """Return the unescaped keys of a pointer. Text before the first slash is ignored."""
    keys = pointer.split("/")[1:]
    return [key.replace("~1", "/").replace("~0", "~") for key in keys] if "~" in pointer else keys
