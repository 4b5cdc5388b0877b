"""The forms in which a value appears in text: escaped by JSON encoders, `repr`, JSON pointers and URLs; as base64 and as hex.

Encoders differ in what they escape, so each form has variants. Most values consist of letters and digits, and nearly all their variants are
the value itself.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["base64_within", "chars_before", "encoded_forms"]

_JSON_DEPTH = 4
"""Times a value may be escaped: JSON inside JSON inside JSON, in the arguments of a tool call."""
_URL_UNESCAPED = ("", "/", "!'()*", "!'()*/;,?:@&=+$#")
"""Characters that URL encoders leave besides letters, digits and `_.-~`: Python's, with paths, and the two of JavaScript."""
_PERCENT = re.compile(r"%[0-9A-F]{2}")


def encoded_forms(value: str, *, is_file: bool = False) -> set[str]:
    """Return the value in every form in which it is searched for, itself included. A whole file is only escaped once."""
    data = value.encode("utf-8", "surrogatepass")
    others = {
        _escape_pointer(value),
        *_url_forms(value, _URL_UNESCAPED[:1] if is_file else _URL_UNESCAPED),
        *_base64_forms(data),
    }
    nested = {value, *_repr_forms(value)}
    found = set(nested)
    for _ in range(1 if is_file else _JSON_DEPTH):
        nested = {escaped for form in nested for escaped in _json_forms(form)} - found
        found |= nested
    return (
        found
        | others
        | {escaped for form in others for escaped in _json_forms(form)}
        | {data.hex(), data.hex().upper()}
    )


def _json_forms(text: str) -> set[str]:
    """Return the text as the JSON encoders of Python, JavaScript, PHP (slashes) and Go (angle brackets) escape it."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    forms = {plain, plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")}
    if not plain.isascii():
        forms |= {json.dumps(text)[1:-1], _escape_upper_hex(plain)}
    return forms | {form.replace("/", "\\/") for form in forms}


def _escape_upper_hex(plain: str) -> str:
    """Return escaped text with `\\u00E9` where Python writes `\\u00e9`."""
    return "".join(char if char.isascii() else json.dumps(char)[1:-1].upper().replace("\\U", "\\u") for char in plain)


def _repr_forms(text: str) -> set[str]:
    """Return the value as it appears in the `repr` and `ascii` of a string, and in the `repr` of UTF-8 bytes.

    Quotes are escaped or not, depending on the text around the value.
    """
    # With both quotes in front, `repr` always escapes the single quotes, and only those.
    escaped = {
        repr("'\"" + text)[4:-1],
        ascii("'\"" + text)[4:-1],
        repr(b"'\"" + text.encode("utf-8", "surrogatepass"))[5:-1],
    }
    return escaped | {form.replace("\\'", "'") for form in escaped}


def _escape_pointer(text: str) -> str:
    """Return the value as a segment of a JSON pointer."""
    return text.replace("~", "~0").replace("/", "~1")


def _url_forms(text: str, unescaped: Iterable[str]) -> set[str]:
    """Return the value as URL encoders write it: hex digits in either case, a space as `%20` or `+`."""
    escaped = {quote(text, safe=safe, errors="surrogatepass") for safe in unescaped}
    escaped |= {form.replace("%20", "+") for form in escaped}
    return escaped | {_PERCENT.sub(lambda match: match[0].lower(), form) for form in escaped}


def _base64_forms(data: bytes) -> set[str]:
    return {form for before in range(3) for form in base64_within(data, before)}


def base64_within(data: bytes, bytes_before: int) -> set[str]:
    """Return the characters that the bytes determine in base64 and base64url, after 0 to 2 other bytes of a group of three."""
    encoded = base64.b64encode(bytes(bytes_before) + data).decode()
    form = encoded[chars_before(bytes_before) : (bytes_before + len(data)) * 8 // 6]
    return {form, form.replace("+", "-").replace("/", "_")}


def chars_before(bytes_before: int) -> int:
    """Return the number of characters of a base64 group that other bytes determine, wholly or in part."""
    return (bytes_before * 8 + 5) // 6
