"""Turns to Strands messages, and Strands tool results to AG-UI content. Pure: dictionaries in the SDK's shape, no SDK."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.content import unreadable
from ambient_runner.bridges.toolkit.json_values import json_or_text, json_text
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

    from ambient_runner.bridges.toolkit.turns import Result, Turn
    from ambient_runner.protocol.events import Content, ContentPart, RunAgentInput

__all__ = [
    "content_blocks",
    "context_blocks",
    "messages_of",
    "result_block",
    "result_content",
    "result_data",
    "system_text",
    "text_of",
]

Block = dict[str, Any]
StrandsMessage = dict[str, Any]

_MEDIA: dict[type[Any], str] = {ImagePart: "image", AudioPart: "audio", VideoPart: "video", DocumentPart: "document"}
_FORMATS = {
    "jpg": "jpeg",
    "plain": "txt",
    "markdown": "md",
    "mpeg": "mp3",
    "x-wav": "wav",
    "msword": "doc",
    "vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "vnd.ms-excel": "xls",
    "vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "quicktime": "mov",
    "x-matroska": "mkv",
}
_MIMES = {
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
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")


def messages_of(turns: Iterable[Turn]) -> list[StrandsMessage]:
    """The conversation as Strands keeps it. Roles alternate: neighbours of one role become one message, as providers demand."""
    messages: list[StrandsMessage] = []
    for turn in turns:
        role, blocks = _message(turn)
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def system_text(turns: Iterable[Turn]) -> str:
    """What system messages say. Strands knows no such messages, so it has to go into the system prompt."""
    return "\n\n".join(turn.text for turn in turns if isinstance(turn, SystemTurn) and turn.text)


def _message(turn: Turn) -> tuple[str, list[Block]]:
    match turn:
        case UserTurn():
            return "user", content_blocks(turn.content)
        case AssistantTurn():
            said: list[Block] = [{"text": turn.text}] if turn.text else []
            calls = [
                {"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}}
                for call in turn.calls
            ]
            return "assistant", [*said, *calls]
        case ResultsTurn():
            return "user", [result_block(result) for result in turn.results]
        case SystemTurn():
            return "system", []


def result_block(result: Result) -> Block:
    """A result as the model gets it."""
    return {
        "toolResult": {
            "toolUseId": result.call_id,
            "status": "error" if result.is_error else "success",
            "content": content_blocks(result.content) or [{"text": EMPTY_RESULT}],
        }
    }


def content_blocks(content: Content) -> list[Block]:
    """Content as blocks. An attachment we cannot hand over is named in words, so that the model knows it was there."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [block for at, part in enumerate(content) if (block := _block(part, at)) is not None]


def text_of(content: Content | None) -> str:
    """The words of a message, without its attachments."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def context_blocks(given: RunAgentInput) -> list[Block]:
    """What the client says about the situation, for the model to read beside the conversation."""
    lines = [f"- {one.description}: {one.value}" for one in given.context]
    return [{"text": "\n".join(["Context of this request:", *lines])}] if lines else []


def _block(part: ContentPart, at: int) -> Block | None:
    if isinstance(part, TextPart):
        return {"text": part.text} if part.text else None
    kind, source = _MEDIA[type(part)], part.source
    found = _source(source)
    if found is None:
        return {"text": unreadable(part)}
    block: Block = {"format": _format(source.mime_type, source.value), "source": found}
    if kind == "document":
        block["name"] = _name(part.metadata, at)
    return {kind: block}


def _source(source: Any) -> Block | None:
    match source:
        case DataSource(value=value):
            try:
                return {"bytes": base64.b64decode(value, validate=True)}
            except binascii.Error:
                return None
        case _:
            # A URL someone sent is not fetched from inside our network, nor read with the server's rights (`s3://`).
            return None


def _format(mime_type: str | None, value: str) -> str:
    last = (mime_type or value.rpartition(".")[2] or "txt").rpartition("/")[2].partition(";")[0].lower()
    return _FORMATS.get(last, last)


def _name(metadata: Any, at: int) -> str:
    """Providers take few characters in a document's name, and want it unique in a message."""
    given = metadata.get("filename") if isinstance(metadata, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    stem = _NOT_IN_A_NAME.sub("-", str(given or "document").rpartition(".")[0] or str(given or "document"))  # pyright: ignore[reportUnknownArgumentType]
    return f"{stem.strip('-') or 'document'}-{at + 1}"


def result_content(result: Mapping[str, Any]) -> Content:
    """All that a tool gave, as AG-UI has it: the text when that is all, else one part for each block."""
    parts = [_part(block) for block in _blocks(result)]
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return parts or ""


def result_data(result: Mapping[str, Any]) -> Any:
    """What a tool gave, as a hook wants it: parsed where it is JSON, a list where there are several blocks."""
    data = [_data(block) for block in _blocks(result)]
    return data[0] if len(data) == 1 else data or None


def _blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return result.get("content") or ()


def _part(block: Mapping[str, Any]) -> ContentPart:
    for kind, make in (("image", ImagePart), ("audio", AudioPart), ("video", VideoPart), ("document", DocumentPart)):
        if kind in block:
            source = _shown_source(kind, block[kind])
            return make(source=source) if source else TextPart(text=f"[{kind}]")
    return TextPart(text=_text(block))


def _shown_source(kind: str, media: Mapping[str, Any]) -> DataSource | UrlSource | None:
    form = str(media.get("format", ""))
    mime = _MIMES.get((kind, form)) or f"{'application' if kind == 'document' else kind}/{form}"
    source: Mapping[str, Any] = media.get("source") or {}
    if isinstance(source.get("bytes"), bytes):
        return DataSource(value=base64.b64encode(source["bytes"]).decode(), mime_type=mime)
    location: Mapping[str, Any] = source.get("location") or {}
    return UrlSource(value=str(location["uri"]), mime_type=mime) if "uri" in location else None


def _text(block: Mapping[str, Any]) -> str:
    if "text" in block:
        return str(block["text"])
    return json_text(block["json"] if "json" in block else dict(block))


def _data(block: Mapping[str, Any]) -> Any:
    if "json" in block:
        return block["json"]
    return json_or_text(block["text"]) if "text" in block else dict(block)
