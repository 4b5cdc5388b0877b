"""Message content, both ways: turns, results and media as ADK `Content`, and responses of ADK tools as AG-UI content. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, cast

from google.genai import types

from ambient_runner.bridges.toolkit.content import attachment_placeholder
from ambient_runner.bridges.toolkit.json_values import parse_json_or_text, to_text_or_json
from ambient_runner.protocol.events import (
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    TextPart,
    UrlSource,
    VideoPart,
    content_as_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.bridges.toolkit.turns import TurnToolCall, TurnToolResult
    from ambient_runner.protocol.events import Content, ContentPart

__all__ = [
    "call_part",
    "exceeds_max_depth",
    "is_failure",
    "is_initial_result",
    "mark_initial_result",
    "response_part",
    "result_content",
    "result_part",
    "text_part",
    "to_content_parts",
    "user_content",
]

_MEDIA_PARTS: dict[str, type[ImagePart | AudioPart | VideoPart]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "video": VideoPart,
}
_MAX_DEPTH = 200  # levels of nesting
_INITIAL_RESULT_KEY = "ambient_initial_result"
"""Key in the response of a long-running tool whose result comes from the client."""
_DEFAULT_MIME_TYPES = {
    ImagePart: "image/png",
    AudioPart: "audio/wav",
    VideoPart: "video/mp4",
    DocumentPart: "application/pdf",
}


def to_content_parts(content: Content) -> list[types.Part]:
    """Return the parts of a user message. An attachment that ADK cannot take becomes a text placeholder."""
    if isinstance(content, str):
        return [types.Part(text=content)]
    return [_content_part(part) for part in content]


def user_content(parts: Iterable[types.Part]) -> types.Content:
    return types.Content(role="user", parts=list(parts))


def text_part(text: str, signature: str | None = None) -> types.Part:
    return types.Part(text=text, thought_signature=_decode_base64(signature))


def call_part(call: TurnToolCall, signature: str | None = None) -> types.Part:
    arguments = cast("dict[str, Any]", json.loads(call.arguments))
    function_call = types.FunctionCall(id=call.id, name=call.name, args=arguments)
    return types.Part(function_call=function_call, thought_signature=_decode_base64(signature))


def result_part(result: TurnToolResult) -> types.Part:
    """Return a result for the model: an object as it is, anything else under `result`, an error under `error`."""
    return response_part(result.call_id, result.name, _response_value(result))


def response_part(call_id: str, name: str, response: dict[str, Any]) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=response))


def result_content(response: types.FunctionResponse) -> Content:
    """Return a tool's response for clients: text stays text, anything else is JSON, media are parts."""
    text = _response_text(response.response)
    media = [part for adk_part in response.parts or () if (part := _media_part(adk_part)) is not None]
    return [TextPart(text=text), *media] if media else text


def is_failure(response: types.FunctionResponse) -> bool:
    """Return True if the response is an error: an object with the single key `error`."""
    return response.response is not None and response.response.keys() == {"error"}


def mark_initial_result(result: Any) -> dict[str, Any]:
    """Return the result of a long-running tool's function, marked as one that does not answer the call."""
    members = cast("dict[str, Any]", result) if isinstance(result, dict) else {"result": result}
    return {**members, _INITIAL_RESULT_KEY: True}


def is_initial_result(response: types.FunctionResponse) -> bool:
    """Return True if the response was marked: the call waits for the client, whose result replaces this one."""
    return _INITIAL_RESULT_KEY in (response.response or {})


def exceeds_max_depth(value: Any) -> bool:
    """Return True if copying or encoding the value could exceed the recursion limit, as with a value that contains itself."""
    layer = [value]
    for _ in range(_MAX_DEPTH):
        layer = list({id(item): item for parent in layer for item in _child_values(parent)}.values())
        if not layer:
            return False
    return True


def _child_values(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return cast("dict[Any, Any]", value).values()
        case list() | tuple() | set() | frozenset():
            return cast("list[Any]", value)
        case _:
            return ()


def _content_part(part: ContentPart) -> types.Part:
    if isinstance(part, TextPart):
        return types.Part(text=part.text)
    mime = part.source.mime_type or _DEFAULT_MIME_TYPES[type(part)]
    match part.source:
        case DataSource(value=value):
            native = _inline_part(value, mime)
        case UrlSource(value=value) | FileSource(value=value):
            native = _file_part(value, mime)
    return native or types.Part(text=attachment_placeholder(part))


def _file_part(address: str, mime: str) -> types.Part | None:
    """Return a file for the provider to fetch; None for other schemes. A gs:// URL would be read with this server's credentials."""
    if not address.lower().startswith(("https://", "http://")):
        return None
    return types.Part(file_data=types.FileData(file_uri=address, mime_type=mime))


def _inline_part(value: str, mime: str) -> types.Part | None:
    data = _decode_base64(value)
    return None if not data else types.Part(inline_data=types.Blob(data=data, mime_type=mime))


def _decode_base64(value: str | None) -> bytes | None:
    """Return the bytes of base64 text; None for anything else."""
    try:
        return None if value is None else base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _response_value(result: TurnToolResult) -> dict[str, Any]:
    text = content_as_text(result.content)  # media become placeholders: a function response contains JSON only
    if result.is_error:
        return {"error": text}
    value = parse_json_or_text(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value}


def _response_text(response: dict[str, Any] | None) -> str:
    if response is None:
        return "null"
    value: Any = response["result"] if response.keys() == {"result"} else response
    return to_text_or_json(value)


def _media_part(part: types.FunctionResponsePart) -> ContentPart | None:
    blob = part.inline_data
    if blob is None or blob.data is None:
        return None
    source = DataSource(value=base64.b64encode(blob.data).decode(), mime_type=blob.mime_type or "")
    kind = _MEDIA_PARTS.get((blob.mime_type or "").partition("/")[0], DocumentPart)
    return kind(source=source)
