"""Results of client tools as MCP content."""

from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.bridges.toolkit.mcp_content import to_mcp_blocks
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT
from ambient_runner.protocol.events import AudioPart, Content, ContentPart, DataSource, ImagePart, TextPart, UrlSource


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("7", [{"type": "text", "text": "7"}]),
        ("", [{"type": "text", "text": EMPTY_RESULT}]),
        ([], [{"type": "text", "text": EMPTY_RESULT}]),
        (
            [TextPart(text="see"), ImagePart(source=DataSource(value="QQ==", mime_type="image/png"))],
            [{"type": "text", "text": "see"}, {"type": "image", "data": "QQ==", "mimeType": "image/png"}],
        ),
    ],
)
def test_a_result_has_a_block_for_each_part_and_at_least_one(content: Content, blocks: list[dict[str, Any]]) -> None:
    assert to_mcp_blocks(content) == blocks


def test_an_attachment_that_is_not_there_is_named_without_its_address() -> None:
    content: list[ContentPart] = [
        ImagePart(source=UrlSource(value="https://cat.example/?key=1")),
        AudioPart(source=DataSource(value="QQ==", mime_type="audio/wav")),
    ]
    texts = [block["text"] for block in to_mcp_blocks(content)]
    assert texts == [f"[An attachment that cannot be read here: {kind}]" for kind in ("image", "audio/wav")]
