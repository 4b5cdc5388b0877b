"""Send 10 MB of ordinary text through redaction, and check that it arrives byte for byte.

    python -m tests.fuzz.corpus

Source code, tables, images, hex dumps, logs and chats in five languages, with 60 known values loaded: each document whole, and as a
message and as arguments in random deltas. Prints a table. Exits with 1 if a byte was changed.
"""

from __future__ import annotations

import argparse
import base64
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets
from ambient_runner.protocol.events import Event, TextMessageContent, TextMessageEnd, ToolCallArgs, ToolCallEnd
from tests.fuzz.planted_secrets import Planted, plant_secret

__all__ = ["Change", "Document", "build_corpus", "find_changes", "known_secrets"]

_EXCLUDED = frozenset[str]()
"""Files of the standard library that contain a credential, such as a test key, with the reason."""
_SHARES = {"source": 0.4, "table": 0.1, "image": 0.2, "hex dump": 0.1, "log": 0.1, "chat": 0.1}
_SENTENCES = (
    (
        "The cache is empty after a restart, so the first request takes longer.",
        "Could you send me the report by Friday?",
    ),
    ("Die Größe der Änderung überrascht niemanden: sie steht im Vertrag.", "Wir treffen uns um 9:30 Uhr am Bahnhof."),
    ("缓存在重启后是空的，所以第一个请求需要更长时间。", "你能在星期五之前把报告发给我吗？"),  # noqa: RUF001
    ("ذاكرة التخزين المؤقت فارغة بعد إعادة التشغيل.", "هل يمكنك إرسال التقرير قبل يوم الجمعة؟"),
    ("После перезапуска кэш пуст, поэтому первый запрос длится дольше.", "Пришлите отчёт до пятницы, пожалуйста."),
)
"""Two sentences in each of English, German, Chinese, Arabic and Russian."""
_ASIDES = (
    "👍",
    "`pip install ambient-runner`",
    "see https://docs.example/a?b=c#d",
    "*really*",
    "…",
    "(v1.2.3-rc.4)",
    "100 %",
)
_METHODS, _STATUSES = ("GET", "POST", "PUT", "DELETE"), (200, 201, 204, 301, 404, 422, 500)


@dataclass(frozen=True, kw_only=True)
class Document:
    kind: str
    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """A document that did not arrive as it was sent, and the text around the first difference."""

    document: Document
    way: str
    around: str


def known_secrets(rng: Random, count: int = 60) -> list[Planted]:
    """Return known values of every class but patterns."""
    return [plant_secret(rng, rng.choice(["env", "granted", "structured"])) for _ in range(count)]


def build_corpus(rng: Random, size: int) -> Iterator[Document]:
    """Yield documents with about this many bytes in all."""
    for kind, share in _SHARES.items():
        left = int(size * share)
        for document in _BUILDERS[kind](rng):
            yield document
            left -= len(document.text.encode())
            if left <= 0:
                break


def _source_files(rng: Random) -> Iterator[Document]:
    library = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts]
    rng.shuffle(paths)
    for path in paths:
        name = str(path.relative_to(library))
        if name not in _EXCLUDED:
            yield Document(kind="source", name=name, text=path.read_text("utf-8", "ignore"))


def _tables(rng: Random) -> Iterator[Document]:
    while True:
        columns = rng.randint(2, 9)
        rule = (
            "|"
            + "|".join(rng.choice(["---", ":--", "--:", ":-:", "-" * rng.randint(3, 40)]) for _ in range(columns))
            + "|"
        )
        rows = ["|" + "|".join(_cell(rng) for _ in range(columns)) + "|" for _ in range(rng.randint(20, 200))]
        yield Document(kind="table", name="table", text="\n".join([rows[0], rule, *rows[1:]]))


def _cell(rng: Random) -> str:
    return rng.choice(
        [
            f" {rng.choice(['password', 'token', 'secret', 'api_key', 'user', 'yes', 'no'])} ",
            f" {rng.randint(0, 10**9):,} ",
            f" `{rng.choice(['AWS_SECRET_ACCESS_KEY', 'sk-…', 'Bearer <token>', 'postgres://user:password@localhost'])}` ",
            f" {rng.choice(rng.choice(_SENTENCES))} ",
            f" {uuid.UUID(int=rng.getrandbits(128))} ",
            f" {rng.random():.6f} ",
        ]
    )


def _images(rng: Random) -> Iterator[Document]:
    while True:
        data = b"\x89PNG\r\n\x1a\n" + rng.randbytes(rng.randint(10_000, 200_000))
        encode = rng.choice([base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
        yield Document(kind="image", name="image", text="data:image/png;base64," + encode(data).decode())


def _hex_dumps(rng: Random) -> Iterator[Document]:
    while True:
        data = rng.randbytes(rng.randint(5_000, 50_000))
        if rng.random() < 0.3:
            yield Document(kind="hex dump", name="hex", text=data.hex())
        lines = [f"{at:08x}  {data[at : at + 16].hex(' ')}" for at in range(0, len(data), 16)]
        yield Document(kind="hex dump", name="dump", text="\n".join(lines))


def _logs(rng: Random) -> Iterator[Document]:
    while True:
        lines = [
            f"2026-11-{rng.randint(1, 30):02} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:07,123 "
            f"{rng.choice(['INFO', 'WARNING', 'ERROR'])} app.request [id={uuid.UUID(int=rng.getrandbits(128))}]: "
            f"{rng.choice(_METHODS)} /threads/{rng.randbytes(8).hex()}/events?after={rng.randbytes(6).hex()}-{rng.randint(1, 99)} "
            f"{rng.choice(_STATUSES)} {rng.randint(1, 900)} ms from 10.0.{rng.randint(0, 255)}.7:{rng.randint(1024, 65535)}"
            for _ in range(rng.randint(50, 400))
        ]
        yield Document(kind="log", name="log", text="\n".join(lines))


def _chats(rng: Random) -> Iterator[Document]:
    while True:
        language = rng.choice(_SENTENCES)
        words = [rng.choice([*language, rng.choice(_ASIDES)]) for _ in range(rng.randint(10, 200))]
        yield Document(kind="chat", name="chat", text=rng.choice([" ", "\n", "\n\n"]).join(words))


_BUILDERS: dict[str, Callable[[Random], Iterator[Document]]] = {
    "source": _source_files,
    "table": _tables,
    "image": _images,
    "hex dump": _hex_dumps,
    "log": _logs,
    "chat": _chats,
}


def find_changes(document: Document, secrets: Secrets, rng: Random) -> Iterator[Change]:
    """Yield the ways in which the document does not arrive as it was sent."""
    redactor = Redactor(secrets)
    pieces = list(_random_pieces(rng, document.text))
    text = [TextMessageContent(message_id="m", delta=piece) for piece in pieces]
    arguments = [ToolCallArgs(tool_call_id="c", delta=piece) for piece in pieces]
    arrived = {
        "whole": redactor.redact_text(document.text),
        "text": _join_deltas(redactor, [*text, TextMessageEnd(message_id="m")]),
        "arguments": _join_deltas(redactor, [*arguments, ToolCallEnd(tool_call_id="c")]),
    }
    for way, found in arrived.items():
        if found != document.text:
            yield Change(document=document, way=way, around=_text_around_change(document.text, found))


def _random_pieces(rng: Random, text: str) -> Iterator[str]:
    longest, at = rng.choice([4, 30, 300, 20_000]), 0
    while at < len(text):
        length = rng.randint(1, longest)
        yield text[at : at + length]
        at += length


def _join_deltas(redactor: Redactor, events: list[Event]) -> str:
    sent = [sent for event in events for sent in redactor.feed(event)]
    return "".join(event.delta for event in sent if isinstance(event, TextMessageContent | ToolCallArgs))


def _text_around_change(text: str, found: str) -> str:
    at = next((at for at, (one, other) in enumerate(zip(text, found, strict=False)) if one != other), len(found))
    at = min(at, found.find(REDACTED) if REDACTED in found and REDACTED not in text else at)
    return text[max(0, at - 60) : at + 100]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = Random(options.seed)
    secrets = Secrets(planted.credential for planted in known_secrets(rng))
    totals: dict[str, list[int]] = {}
    changes: list[Change] = []
    for document in build_corpus(rng, int(options.megabytes * 1_000_000)):
        total = totals.setdefault(document.kind, [0, 0, 0])
        found = list(find_changes(document, secrets, rng))
        total[:] = [total[0] + 1, total[1] + len(document.text.encode()), total[2] + bool(found)]
        changes += found
    console = Console(soft_wrap=True)
    table = Table("text", "documents", "bytes", "changed")
    for kind, total in totals.items():
        table.add_row(kind, *(f"{figure:,}" for figure in total))
    console.print(table)
    for change in changes:
        console.print(f"{change.document.name}, {change.way}: {change.around!r}", markup=False)
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
