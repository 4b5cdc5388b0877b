"""The forms in which a value appears in text: escaped by JSON encoders, `repr`, JSON pointers and URLs; as base64 and as hex.

Encoders differ in what they escape, so each form has variants. Most values consist of letters and digits, and nearly all their variants are
the value itself. Of a value of symbols they all differ, and escapes multiply its length: the longer it is, the fewer variants it has.
"""

from __future__ import annotations

import base64
import json
import re
from enum import IntEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Variants", "base64_within", "chars_before", "encoded_forms"]

_JSON_DEPTH = 4
"""Times a value may be escaped: JSON inside JSON inside JSON, in the arguments of a tool call."""
_FEW_JSON_FORMS = 2
"""Forms of a value in JSON, with slashes escaped or not, up to which they are nested in each other however long they are."""
_URL_UNESCAPED = ("", "/", "!'()*", "!'()*/;,?:@&=+$#")
"""Characters that URL encoders leave besides letters, digits and `_.-~`: Python's, with paths, and the two of JavaScript."""
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class Variants(IntEnum):
    """The number of forms of a value."""

    ONE = 1
    """Each encoding as Python writes it, once."""
    FEW = 2
    """Each encoder, and JSON inside JSON of the same encoder if the encoders differ."""
    ALL = 3
    """Encoders inside others too."""


def encoded_forms(value: str, variants: Variants = Variants.ALL) -> set[str]:
    """Return the value in every form in which it is searched for, itself included."""
    data = value.encode("utf-8", "surrogatepass")
    others = {
        _escape_pointer(value),
        *_url_forms(value, _URL_UNESCAPED[:1] if variants is Variants.ONE else _URL_UNESCAPED),
        *_base64_forms(data),
    }
    reprs = _repr_forms(value)
    encoders = _JSON_ENCODERS if variants is Variants.ALL else _JSON_ENCODERS[:1]
    return {
        value,
        *reprs,
        *others,
        *_nested_json_forms(value, variants),
        *(encode(form) for form in (*reprs, *others) for encode in encoders),
        *(_escape_json(_escape_json(form)) for form in reprs if variants is not Variants.ONE),
        data.hex(),
        data.hex().upper(),
    }


def _nested_json_forms(value: str, variants: Variants) -> set[str]:
    """Return JSON inside JSON: of all variants, or if the encoders differ little, any inside any other, and our own around them."""
    found = {encode(value) for encode in _JSON_ENCODERS}
    if variants is Variants.ONE:
        return found
    if variants is Variants.FEW and len(found) > _FEW_JSON_FORMS:
        return {form for encode in _JSON_ENCODERS for form in _repeat_encoding(value, encode, _JSON_DEPTH)}
    nested = found
    for _ in range(_JSON_DEPTH - 2):
        nested = {encode(form) for form in nested for encode in _JSON_ENCODERS} - found
        found = found | nested
    return found | {_escape_json(form) for form in nested}


def _repeat_encoding(text: str, encode: Callable[[str], str], times: int) -> Iterator[str]:
    """Yield the text encoded once, twice and so on."""
    for _ in range(times):
        text = encode(text)
        yield text


def _escape_json(text: str) -> str:
    """Return the text as JavaScript, and our own encoder, escape it in JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escape_json_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def _escape_json_html(text: str) -> str:
    """Return the text as Go escapes it."""
    return _escape_json(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _escape_json_upper(text: str) -> str:
    """Return the text with `\\u00E9` where Python writes `\\u00e9`."""
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1].upper().replace("\\U", "\\u"), _escape_json(text))


def _escape_slashes(encode: Callable[[str], str]) -> Callable[[str], str]:
    """Return the encoder as PHP's, which escapes slashes."""
    return lambda text: encode(text).replace("/", "\\/")


_ENCODERS_WITH_SLASHES = (_escape_json, _escape_json_ascii, _escape_json_html, _escape_json_upper)
_JSON_ENCODERS: Sequence[Callable[[str], str]] = (
    *_ENCODERS_WITH_SLASHES,
    *map(_escape_slashes, _ENCODERS_WITH_SLASHES),
)


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
