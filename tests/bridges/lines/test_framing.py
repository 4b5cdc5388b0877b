"""Lines and text from blocks that end anywhere."""

from __future__ import annotations

import pytest

from ambient_runner.bridges.lines.framing import LineBuffer, TextBuffer


def _text(data: bytes, size: int) -> str:
    buffer = TextBuffer()
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    return "".join([*map(buffer.feed, blocks), buffer.feed(b"", is_last=True)])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("a\nb\n", "a\nb"),
        ("\n\r\n a\n\n\nb\n\n", " a\n\n\nb"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain\x1b[K", "red and plain"),
        ("bell\x07 null\x00 tab\t.  \n", "bell null tab\t."),
        ("äöü €😀", "äöü €😀"),
        ("\ufeffmark", "mark"),
        ("", ""),
    ],
)
def test_text_for_people(data: str, text: str, size: int) -> None:
    assert _text(data.encode(), size) == text


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert _text(b"a\xffb\xe2\x82", 1) == "a\ufffdb\ufffd"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_lines(size: int) -> None:
    data, buffer = b"one\n\ntwo\nrest", LineBuffer()
    lines = [line for at in range(0, len(data), size) for line in buffer.feed(data[at : at + size])]
    assert lines == [b"one", b"", b"two"]
    assert buffer.take_rest() == b"rest"


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_line_that_is_too_long_is_skipped_and_counted(size: int) -> None:
    data, buffer = b"one\n" + b"x" * 20 + b"\ntwo\n" + b"y" * 20, LineBuffer(max_line_bytes=10)
    lines = [line for at in range(0, len(data), size) for line in buffer.feed(data[at : at + size])]
    assert [line for line in lines if line] == [b"one", b"two"]
    assert buffer.take_rest() == b""
    assert (buffer.oversized, buffer.oversized_bytes) == (2, 40)
