"""Secrets in the bytes of files, in every encoding of Unicode."""

from __future__ import annotations

import codecs
import os

import pytest

from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.services.file_search import file_contains_secret

ASCII, ACCENTED = "hunter2-hunter2", "zürich-пароль-9f3a"
REDACTOR = Redactor(Secrets([ASCII, ACCENTED]))
WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
MARKS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@pytest.mark.parametrize("has_mark", [True, False])
@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("secret", [ASCII, ACCENTED])
@pytest.mark.parametrize("before", ["", "Ключ: ", "x" * 70_000, "口令", "🔑" * 9])
async def test_a_secret_is_found_in_every_encoding(has_mark: bool, encoding: str, secret: str, before: str) -> None:
    start = MARKS[encoding] if has_mark else b""
    assert await file_contains_secret("notes.txt", [start + f"{before} {secret}\n".encode(encoding)], REDACTOR)
    other = start + f"{before} hunter3-hunter3\n".encode(encoding)
    assert not await file_contains_secret("notes.txt", [other], REDACTOR)


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("offset", range(4))
async def test_a_secret_is_found_at_every_offset_of_a_binary_file(encoding: str, offset: int) -> None:
    data = os.urandom(4096 + offset) + ASCII.encode(encoding) + os.urandom(100)
    assert await file_contains_secret("a.bin", [data], REDACTOR)


@pytest.mark.parametrize("encoding", WIDE)
async def test_a_file_that_ends_within_a_character_is_searched(encoding: str) -> None:
    assert await file_contains_secret("a.txt", [f"{ACCENTED} 🔑".encode(encoding)[:-1]], REDACTOR)


async def test_a_secret_without_any_latin_letter_is_found() -> None:
    redactor = Redactor(Secrets(["парольпароль"]))
    assert await file_contains_secret("a.txt", ["парольпароль".encode("utf-16-le")], redactor)


async def test_a_secret_is_found_in_the_name() -> None:
    assert await file_contains_secret(f"for-{ASCII}.txt", [], REDACTOR)
    assert not await file_contains_secret("hunter2", [b"-hunter2"], REDACTOR)


@pytest.mark.parametrize("encoding", MARKS)
async def test_a_secret_is_found_across_the_parts_of_a_file(encoding: str) -> None:
    data = f"{'x' * 5_000}{ACCENTED} 🔑".encode(encoding)
    middle = len(data) - len(f"{ACCENTED} 🔑".encode(encoding)) // 2
    for cut in range(middle - 5, middle + 5):
        assert await file_contains_secret("a.txt", [data[:cut], data[cut:]], REDACTOR)
        assert not await file_contains_secret("a.txt", [data[:middle], data[:cut]], REDACTOR)


async def test_a_secret_is_found_around_every_step_of_the_search() -> None:
    for before in range((1 << 16) - len(ASCII), (1 << 16) + 1):
        assert await file_contains_secret("a.txt", [b"x" * before + ASCII.encode()], REDACTOR)
