"""Message content, both ways: turns as Strands messages, and Strands tool results as AG-UI content. Pure; does not import the SDK."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, get_args

from strands.types import media

from ambient_runner.bridges.toolkit.content import attachment_placeholder, context_text
from ambient_runner.bridges.toolkit.json_values import as_object, parse_json_or_text, to_json_text
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT, AssistantTurn, ResultsTurn, SystemTurn, UserTurn
from ambient_runner.protocol.events import (
    AudioPart,
    DataSource,
    DocumentPart,
    ImagePart,
    TextPart,
    UrlSource,
    VideoPart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ambient_runner.bridges.toolkit.turns import Turn, TurnToolResult
    from ambient_runner.protocol.events import Content, ContentPart, RunAgentInput

__all__ = [
    "context_blocks",
    "result_block",
    "result_content",
    "result_data",
    "system_text",
    "text_without_attachments",
    "to_content_blocks",
    "to_strands_messages",
]

Block = dict[str, Any]
StrandsMessage = dict[str, Any]

_MEDIA_KINDS: dict[type[Any], str] = {
    ImagePart: "image",
    AudioPart: "audio",
    VideoPart: "video",
    DocumentPart: "document",
}
_AUDIO_SUBTYPES = {"mpeg": "mp3", "wave": "wav", "x-wav": "wav", "vnd.wave": "wav", "x-m4a": "m4a", "x-flac": "flac"}
_SUBTYPES = {
    "jpg": "jpeg",
    "plain": "txt",
    "markdown": "md",
    "x-markdown": "md",
    "3gpp": "three_gp",
    "msword": "doc",
    "vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "vnd.ms-excel": "xls",
    "vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "quicktime": "mov",
    "x-matroska": "mkv",
}
"""The SDK's names of subtypes that have others."""
_FORMATS: dict[str, frozenset[str]] = {
    "image": frozenset(get_args(media.ImageFormat)),
    "audio": frozenset(get_args(media.AudioFormat)),
    "video": frozenset(get_args(media.VideoFormat)),
    "document": frozenset(get_args(media.DocumentFormat)),
}
_MIME_TYPES = {
    ("document", "txt"): "text/plain",
    ("document", "md"): "text/markdown",
    ("document", "csv"): "text/csv",
    ("document", "html"): "text/html",
    ("document", "doc"): "application/msword",
    ("document", "docx"): "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ("document", "xls"): "application/vnd.ms-excel",
    ("document", "xlsx"): "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ("document", "pdf"): "application/pdf",
}
_LITERAL_STARTS = frozenset("{[('")
_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}
_PYTHON_WORDS = re.compile(r"\b(?:True|False|None)\b")
_TUPLES_TO_ARRAYS = str.maketrans("()", "[]")
_TRAILING_COMMA = re.compile(r",\s*([\]}])")
_MAX_LITERAL_LENGTH = 1 << 18
"""Characters of the longest text that is converted from a Python literal: that blocks the event loop."""
_INVALID_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")


def to_strands_messages(turns: Iterable[Turn]) -> list[StrandsMessage]:
    """Return the conversation as Strands messages. Neighbours of one role are merged, because providers require alternating roles."""
    messages: list[StrandsMessage] = []
    for turn in turns:
        role, blocks = _role_and_blocks(turn)
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def system_text(turns: Iterable[Turn]) -> str:
    """Return the text of the system messages. Strands has no such messages, so it goes into the system prompt."""
    return "\n\n".join(turn.text for turn in turns if isinstance(turn, SystemTurn) and turn.text)


def _role_and_blocks(turn: Turn) -> tuple[str, list[Block]]:
    match turn:
        case UserTurn():
            return "user", to_content_blocks(turn.content)
        case AssistantTurn():
            text: list[Block] = [{"text": turn.text}] if turn.text else []
            calls = [
                {"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}}
                for call in turn.calls
            ]
            return "assistant", [*text, *calls]
        case ResultsTurn():
            return "user", [result_block(result) for result in turn.results]
        case SystemTurn():
            return "system", []


def result_block(result: TurnToolResult) -> Block:
    """Return a tool result as a block for the model."""
    return {
        "toolResult": {
            "toolUseId": result.call_id,
            "status": "error" if result.is_error else "success",
            "content": to_content_blocks(result.content) or [{"text": EMPTY_RESULT}],
        }
    }


def to_content_blocks(content: Content) -> list[Block]:
    """Return content as blocks. An attachment that cannot be passed becomes a text placeholder."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [block for i, part in enumerate(content) if (block := _content_block(part, i)) is not None]


def text_without_attachments(content: Content | None) -> str:
    """Return the text of a message without its attachments."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def context_blocks(run_input: RunAgentInput) -> list[Block]:
    """Return the request's `context` as a block for the model."""
    text = context_text(run_input.context)
    return [{"text": text}] if text else []


def _content_block(part: ContentPart, index: int) -> Block | None:
    if isinstance(part, TextPart):
        return {"text": part.text} if part.text else None
    kind, source = _MEDIA_KINDS[type(part)], part.source
    native_source, media_format = _media_source(source), _media_format(kind, source.mime_type or "")
    if native_source is None or media_format is None:
        return {"text": attachment_placeholder(part)}
    block: Block = {"format": media_format, "source": native_source}
    if kind == "document":
        block["name"] = _document_name(part.metadata, index)
    return {kind: block}


def _media_source(source: Any) -> Block | None:
    match source:
        case DataSource(value=value):
            try:
                data = base64.b64decode(value, validate=True)
            except binascii.Error:
                return None
            return {"bytes": data} if data else None
        case _:
            # A client's URL is neither fetched from inside our network nor read with the server's credentials (`s3://`).
            return None


def _media_format(kind: str, mime_type: str) -> str | None:
    """Return the SDK's name of a media type; None for one it does not know: a provider would refuse it, in every later run too."""
    subtype = mime_type.rpartition("/")[2].partition(";")[0].strip().lower()
    name = (_AUDIO_SUBTYPES if kind == "audio" else _SUBTYPES).get(subtype, subtype)
    return name if name in _FORMATS[kind] else None


def _document_name(metadata: Any, index: int) -> str:
    """Return a document name with the characters that providers accept, unique in its message."""
    filename = str(as_object(metadata).get("filename") or "document")
    stem = _INVALID_NAME_CHARACTERS.sub("-", filename.rpartition(".")[0] or filename)
    return f"{stem.strip('-') or 'document'}-{index + 1}"


def result_content(result: Mapping[str, Any]) -> Content:
    """Return a tool result as AG-UI content: a text if that is all, otherwise one part per block."""
    parts = [_content_part(block) for block in _result_blocks(result)]
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return parts or ""


def result_data(result: Mapping[str, Any]) -> Any:
    """Return a tool result for a hook: parsed if it is JSON, a list if there are several blocks."""
    data = [_block_data(block) for block in _result_blocks(result)]
    return data[0] if len(data) == 1 else data or None


def _result_blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return result.get("content") or ()


def _content_part(block: Mapping[str, Any]) -> ContentPart:
    for kind, part_type in (
        ("image", ImagePart),
        ("audio", AudioPart),
        ("video", VideoPart),
        ("document", DocumentPart),
    ):
        if kind in block:
            source = _agui_source(kind, block[kind])
            return part_type(source=source) if source else TextPart(text=f"[{kind}]")
    return TextPart(text=_block_text(block))


def _agui_source(kind: str, media: Mapping[str, Any]) -> DataSource | UrlSource | None:
    media_format = str(media.get("format", ""))
    mime_type = (
        _MIME_TYPES.get((kind, media_format)) or f"{'application' if kind == 'document' else kind}/{media_format}"
    )
    source: Mapping[str, Any] = media.get("source") or {}
    if isinstance(source.get("bytes"), bytes):
        return DataSource(value=base64.b64encode(source["bytes"]).decode(), mime_type=mime_type)
    location: Mapping[str, Any] = source.get("location") or {}
    return UrlSource(value=str(location["uri"]), mime_type=mime_type) if "uri" in location else None


def _block_text(block: Mapping[str, Any]) -> str:
    if "text" in block:
        return str(block["text"])
    return to_json_text(block["json"] if "json" in block else dict(block))


def _block_data(block: Mapping[str, Any]) -> Any:
    if "json" in block:
        return block["json"]
    return _parse_result_text(block["text"]) if "text" in block else dict(block)


def _parse_result_text(text: str) -> Any:
    """Return the value of JSON text or of a Python literal, else the text. The SDK formats what a tool returns with `str`."""
    value = parse_json_or_text(text)
    if value is not text or text[:1] not in _LITERAL_STARTS or len(text) > _MAX_LITERAL_LENGTH:
        return value
    converted = _literal_to_json(text)
    return text if (parsed := parse_json_or_text(converted)) is converted else parsed


def _literal_to_json(text: str) -> str:
    """Return a Python literal as JSON, or something that is not JSON. `ast` must not parse the whole: nested text could crash it."""
    parts, end = list[str](), 0
    for quoted in _QUOTED.finditer(text):
        parts += [_words_to_json(text[end : quoted.start()]), _quoted_to_json(quoted[0])]
        end = quoted.end()
    return "".join([*parts, _words_to_json(text[end:])])


def _quoted_to_json(quoted: str) -> str:
    try:
        return json.dumps(ast.literal_eval(quoted))
    except (ValueError, SyntaxError):
        return quoted


def _words_to_json(text: str) -> str:
    renamed = _PYTHON_WORDS.sub(lambda word: _JSON_WORDS[word[0]], text.translate(_TUPLES_TO_ARRAYS))
    return _TRAILING_COMMA.sub(r"\1", renamed)
