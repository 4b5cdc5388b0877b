"""`ambient threads`: look at what the store holds. Every verb opens the store, reads and leaves."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import anyio
from rich.console import Console
from rich.table import Table

from ambient_runner.cli.render import compact, harmless
from ambient_runner.errors import ConfigError, StaleCursor, UnknownThread
from ambient_runner.ledger import open_ledger
from ambient_runner.ledger.base import RUNTIME, ThreadKey
from ambient_runner.projections.private_entries import is_kept_line
from ambient_runner.protocol.encode import format_cursor, parse_cursor
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    Message,
    kind_of,
    words_of,
)
from ambient_runner.runs.event_reader import is_idle
from ambient_runner.runs.run import Actor
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Batch, Ledger, ThreadInfo

_LOOK_AGAIN = 0.1
Answer = TypeVar("Answer")


def show_list(settings: Settings, limit: int) -> None:
    """A table of threads, newest first."""

    async def read(ledger: Ledger) -> list[ThreadInfo]:
        actor = Actor()
        return await ledger.threads(actor.tenant, actor.owner, limit=limit)

    found = _with_ledger(settings, read)
    console = Console(highlight=False)
    if not found:
        console.print("No threads yet.")
        return
    table = Table("thread", "agent", "entries", "updated", "", box=None, header_style="dim")
    for info in found:
        table.add_row(info.key.id, info.agent, str(info.last), _moment(info.updated), "running" if info.active else "")
    console.print(table)


def show_thread(settings: Settings, thread: str) -> None:
    """Messages, state and open questions. Raises: UnknownThread."""

    async def read(ledger: Ledger) -> list[str]:
        await _known(ledger, _key(thread))
        view = await load_view(ledger, _key(thread))
        questions = [waiting.interrupt for waiting in view.open_interrupts.values()]
        return [
            *(line for message in view.transcript.messages() for line in message_lines(message)),
            *([f"state: {compact(view.state.value)}"] if view.state.value else []),
            *(f"waits for an answer: {asked.message or asked.reason} ({asked.id})" for asked in questions),
        ]

    for line in _with_ledger(settings, read):
        sys.stdout.write(f"{harmless(line)}\n")


def follow(settings: Settings, thread: str, after: str | None, until_idle: bool) -> None:
    """Print entries as they come, until Ctrl-C or, if wanted, until no run is active. Raises: UnknownThread, StaleCursor."""

    async def read(ledger: Ledger) -> None:
        key = _key(thread)
        info = await _known(ledger, key)
        async with ledger.tail(key, _position(info, after)) as tail:
            while True:
                if until_idle and not tail.ready() and await is_idle(ledger, key, tail.position):
                    return
                with anyio.move_on_after(_LOOK_AGAIN if until_idle else None):
                    for batch in await tail.next():
                        _print_batch(batch, info.epoch)

    with suppress(KeyboardInterrupt):
        _with_ledger(settings, read)


def export(settings: Settings, thread: str, output: Path | None) -> None:
    """All entries as JSON lines. Raises: UnknownThread."""

    async def read(ledger: Ledger) -> None:
        key = _key(thread)
        await _known(ledger, key)
        with _opened(output) as file:
            after = 0
            while batches := await ledger.read(key, after):
                for batch in batches:
                    file.writelines(f"{line}\n" for line in entry_lines(batch))
                after = batches[-1].last

    _with_ledger(settings, read)


def entry_lines(batch: Batch) -> Iterator[str]:
    """A batch as exported: one JSON object per entry. The body is kept as it was stored."""
    for seq, line in _shown(batch):
        head: dict[str, Any] = {"seq": seq, "ts": batch.ts, "owner": batch.owner, "kind": _kind(batch, line)}
        yield f'{json.dumps(head)[:-1]}, "body": {line.decode()}}}'


def message_lines(message: Message) -> Iterator[str]:
    """A message for reading: who, and what was said or called."""
    if isinstance(message, ActivityMessage):
        yield f"{message.activity_type}: {compact(message.content)}"
        return
    text = words_of(message.content)
    if text:
        yield f"{message.__struct_config__.tag}: {text}"
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            yield f"assistant calls {call.function.name} {call.function.arguments}"


def _with_ledger(settings: Settings, read: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
    async def body() -> Answer:
        async with open_ledger(settings.store, lease=settings.lease) as ledger:
            return await read(ledger)

    return anyio.run(body)


def _key(thread: str) -> ThreadKey:
    return Actor().thread(thread)


async def _known(ledger: Ledger, key: ThreadKey) -> ThreadInfo:
    info = await ledger.thread(key)
    if info is None:
        raise UnknownThread(f"There is no thread {key.id} in this store. `ambient threads list` shows what there is.")
    return info


def _opened(output: Path | None) -> AbstractContextManager[TextIO]:
    try:
        return output.open("w", encoding="utf-8") if output else nullcontext(sys.stdout)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}.") from error


def _position(info: ThreadInfo, after: str | None) -> int:
    if after is None:
        return info.first - 1
    cursor = parse_cursor(after)
    if cursor.epoch != info.epoch or cursor.seq > info.last:
        raise StaleCursor
    return cursor.seq


def _print_batch(batch: Batch, epoch: str) -> None:
    for seq, line in _shown(batch):
        sys.stdout.write(f"{format_cursor(epoch, seq)}  {_kind(batch, line)}  {line.decode()}\n")
    sys.stdout.flush()


def _shown(batch: Batch) -> Iterator[tuple[int, bytes]]:
    """The entries and their seqs, without what an adapter remembers for itself."""
    return ((seq, line) for seq, line in enumerate(batch.lines, batch.first) if not is_kept_line(line))


def _kind(batch: Batch, line: bytes) -> str:
    return kind_of(line) if batch.owner == RUNTIME else batch.kind


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
