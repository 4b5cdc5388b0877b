"""Messages of a thread as the SDK gets them."""

from __future__ import annotations

import base64

import pytest

from ambient_runner.bridges.strands.messages import _content_block
from ambient_runner.protocol.events import AudioPart, DataSource, DocumentPart, ImagePart, VideoPart

DATA = base64.b64encode(b"some bytes").decode()


@pytest.mark.parametrize(
    ("kind", "mime_type", "name", "expected"),
    [
        (ImagePart, "image/png", "image", "png"),
        (ImagePart, "IMAGE/JPG; q=1", "image", "jpeg"),
        (AudioPart, "audio/mpeg", "audio", "mp3"),
        (VideoPart, "video/mpeg", "video", "mpeg"),
        (VideoPart, "video/3gpp", "video", "three_gp"),
        (DocumentPart, "text/plain", "document", "txt"),
    ],
)
def test_a_media_type_gets_the_name_of_the_sdk(kind: type, mime_type: str, name: str, expected: str) -> None:
    block = _content_block(kind(source=DataSource(value=DATA, mime_type=mime_type)), 0)
    assert block is not None
    assert (block[name]["format"], block[name]["source"]) == (expected, {"bytes": b"some bytes"})


@pytest.mark.parametrize(
    ("kind", "mime_type", "value"),
    [
        (ImagePart, "image/bmp", DATA),
        (ImagePart, "image/svg+xml", DATA),
        (ImagePart, "", DATA),
        (ImagePart, "image/png", ""),
        (DocumentPart, "application/json", DATA),
        (VideoPart, "video/ogg", DATA),
    ],
)
def test_an_attachment_that_no_provider_takes_is_a_placeholder(kind: type, mime_type: str, value: str) -> None:
    """Providers refuse it, in this run and, because it is stored, in every later one."""
    block = _content_block(kind(source=DataSource(value=value, mime_type=mime_type)), 0)
    assert block is not None
    assert list(block) == ["text"]
