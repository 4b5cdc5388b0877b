"""Conversation content, both ways: our turns, results and media as ADK `Content`, and what an ADK tool gave as ours. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, cast

from google.genai import types

from ambient_runner.bridges.toolkit.content import unreadable
from ambient_runner.bridges.toolkit.json_values import json_or_text, json_text
from ambient_runner.protocol.events import (
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    TextPart,
    UrlSource,
    VideoPart,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.bridges.toolkit.turns import Call, Result
    from ambient_runner.protocol.events import Content, ContentPart

__all__ = [
    "call_part",
    "is_failure",
    "is_too_deep",
    "parts_of",
    "response_part",
    "result_part",
    "shown_result",
    "text_part",
    "user_content",
]

_MEDIA: dict[str, type[ImagePart | AudioPart | VideoPart]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "video": VideoPart,
}
_DEEPEST = 200
_MIME = {ImagePart: "image/png", AudioPart: "audio/wav", VideoPart: "video/mp4", DocumentPart: "application/pdf"}


def parts_of(content: Content) -> list[types.Part]:
    """The parts of a user message. An attachment that cannot be handed over is named in words."""
    if isinstance(content, str):
        return [types.Part(text=content)]
    return [_part(one) for one in content]


def user_content(parts: Iterable[types.Part]) -> types.Content:
    return types.Content(role="user", parts=list(parts))


def text_part(text: str, signature: str | None = None) -> types.Part:
    return types.Part(text=text, thought_signature=_decoded(signature))


def call_part(call: Call, signature: str | None = None) -> types.Part:
    arguments = cast("dict[str, Any]", json.loads(call.arguments))
    made = types.FunctionCall(id=call.id, name=call.name, args=arguments)
    return types.Part(function_call=made, thought_signature=_decoded(signature))


def result_part(result: Result) -> types.Part:
    """A result as the model gets it: an object as it is, anything else under `result`, a failure under `error`."""
    return response_part(result.call_id, result.name, _response(result))


def response_part(call_id: str, name: str, response: dict[str, Any]) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=response))


def shown_result(response: types.FunctionResponse) -> Content:
    """What a tool gave, for clients: text stays text, anything else is JSON, media are parts."""
    text = _shown(response.response)
    media = [part for one in response.parts or () if (part := _media(one)) is not None]
    return [TextPart(text=text), *media] if media else text


def is_failure(response: types.FunctionResponse) -> bool:
    """Whether a tool says that it failed, as ADK and we put it."""
    return response.response is not None and response.response.keys() == {"error"}


def is_too_deep(value: Any) -> bool:
    """Whether a value has so many levels that whoever copies or writes it may run out of stack. One that contains itself has."""
    layer = [value]
    for _ in range(_DEEPEST):
        layer = list({id(item): item for one in layer for item in _items(one)}.values())
        if not layer:
            return False
    return True


def _items(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return cast("dict[Any, Any]", value).values()
        case list() | tuple() | set() | frozenset():
            return cast("list[Any]", value)
        case _:
            return ()


def _part(part: ContentPart) -> types.Part:
    if isinstance(part, TextPart):
        return types.Part(text=part.text)
    mime = part.source.mime_type or _MIME[type(part)]
    match part.source:
        case DataSource(value=value):
            made = _inline(value, mime)
        case UrlSource(value=value) | FileSource(value=value):
            made = _linked(value, mime)
    return made or types.Part(text=unreadable(part))


def _linked(address: str, mime: str) -> types.Part | None:
    """A file for the provider to fetch. Other addresses, such as gs://, would be read with this server's rights."""
    if not address.lower().startswith(("https://", "http://")):
        return None
    return types.Part(file_data=types.FileData(file_uri=address, mime_type=mime))


def _inline(value: str, mime: str) -> types.Part | None:
    data = _decoded(value)
    return None if data is None else types.Part(inline_data=types.Blob(data=data, mime_type=mime))


def _decoded(value: str | None) -> bytes | None:
    """The bytes of base64 text; None for anything else."""
    try:
        return None if value is None else base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _response(result: Result) -> dict[str, Any]:
    text = words_of(result.content)  # of media only that there were some: a function response holds JSON
    if result.is_error:
        return {"error": text}
    value = json_or_text(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value}


def _shown(response: dict[str, Any] | None) -> str:
    if response is None:
        return "null"
    value: Any = response["result"] if response.keys() == {"result"} else response
    return value if isinstance(value, str) else json_text(value)


def _media(part: types.FunctionResponsePart) -> ContentPart | None:
    blob = part.inline_data
    if blob is None or blob.data is None:
        return None
    source = DataSource(value=base64.b64encode(blob.data).decode(), mime_type=blob.mime_type or "")
    kind = _MEDIA.get((blob.mime_type or "").partition("/")[0], DocumentPart)
    return kind(source=source)
