"""`ambient threads`: reads the store. Every command opens the ledger, reads and closes it."""

from __future__ import annotations

import sys
from contextlib import aclosing, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, get_args

import anyio
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from ambient_runner.cli.columns import align_columns
from ambient_runner.cli.store_file import require_store_file
from ambient_runner.cli.text_format import compact_json, escape_json_source, strip_control_chars, to_single_line
from ambient_runner.cli.thread_export import entry_kind, open_entry_lines, public_entries, safe_entry_lines
from ambient_runner.config import AudienceName
from ambient_runner.errors import ConfigError, EntriesDropped, StaleCursor, UnknownThread
from ambient_runner.ledger import open_ledger
from ambient_runner.projections.exposure import ExposureRules
from ambient_runner.protocol.encode import format_cursor, parse_cursor
from ambient_runner.protocol.events import (
    ActivityMessage,
    AssistantMessage,
    Message,
    content_as_text,
)
from ambient_runner.runs.event_reader import is_idle
from ambient_runner.runs.run import Actor
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator
    from pathlib import Path

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Ledger, Tail
    from ambient_runner.ledger.records import Batch, ThreadInfo, ThreadKey

_IDLE_POLL_INTERVAL = 0.1
"""Seconds between checks if the thread has become idle, with `--until-idle`."""
_PROGRESS_STEP = 500
"""Entries between two updates of the progress of an export."""
Answer = TypeVar("Answer")


def list_threads(settings: Settings, owner: str | None, everyone: bool, limit: int) -> None:
    """Print a table of threads, newest first: those of one owner, or of everyone in every tenant. Raises: ConfigError, LedgerError."""
    if everyone and owner is not None:
        raise ConfigError("--owner lists the threads of one owner, --all those of every owner. Use one of them.")
    actor = _actor(owner)

    async def read_threads(ledger: Ledger) -> list[ThreadInfo]:
        if everyone:
            return await ledger.list_all_threads(limit=limit)
        return await ledger.list_threads(actor.tenant, actor.owner, limit=limit, archived="with")

    threads = _with_ledger(settings, read_threads)
    console = Console(highlight=False)
    if not threads:
        searched = "any owner" if everyone else f"owner {actor.owner}; --all lists those of every owner"
        console.print(to_single_line(f"No threads of {searched}."), markup=False)
        return
    header = [Text(name, style="dim") for name in ("thread", "owner", "agent", "entries", "updated", "")]
    for line in align_columns([header, *(_thread_row(info) for info in threads)]):
        console.print(line, soft_wrap=True)


def _thread_row(info: ThreadInfo) -> list[Text]:
    cells = (
        info.key.id,
        _owner_label(info.key),
        info.agent,
        str(info.last),
        _format_time(info.updated),
        "running" if info.active else "",
    )
    return [Text(to_single_line(cell)) for cell in cells]


def show_thread(settings: Settings, thread: str, owner: str | None) -> None:
    """Print messages, state and open interrupts. Raises: UnknownThread."""

    async def read_lines(ledger: Ledger) -> list[str]:
        key = (await _get_thread(ledger, thread, owner)).key
        view = await load_view(ledger, key)
        interrupts = [waiting.interrupt for waiting in view.open_interrupts.values()]
        return [
            *(line for message in view.transcript.messages() for line in message_lines(message)),
            *([f"state: {compact_json(view.state.value)}"] if view.state.value else []),
            *(
                f"waits for an answer: {interrupt.message or interrupt.reason} ({interrupt.id})"
                for interrupt in interrupts
            ),
        ]

    for line in _with_ledger(settings, read_lines):
        sys.stdout.write(f"{strip_control_chars(line)}\n")


def tail_thread(settings: Settings, thread: str, owner: str | None, after: str | None, until_idle: bool) -> None:
    """Print entries as they are written, until Ctrl-C or, with `until_idle`, until no run is active. Standard error names those that are
    no longer retained. Raises: UnknownThread, StaleCursor."""

    async def print_entries(ledger: Ledger) -> None:
        info = await _get_thread(ledger, thread, owner)
        position = _start_position(info, after)
        while True:
            async with ledger.tail(info.key, position, epoch=info.epoch) as tail:
                try:
                    return await _print_tail(ledger, info, tail, until_idle=until_idle)
                except EntriesDropped:
                    oldest = (await _get_thread(ledger, thread, owner)).first
                    line = f"Entries {tail.position + 1} to {oldest - 1} of thread {thread} are no longer retained."
                    typer.echo(to_single_line(line), err=True)
                    position = oldest - 1

    with suppress(KeyboardInterrupt):
        _with_ledger(settings, print_entries)


def export_thread(
    settings: Settings, thread: str, owner: str | None, output: Path | None, audience: str | None
) -> None:
    """Write the entries that clients of an audience may receive as JSON lines; by default of the audience in the settings.

    With a file, standard error shows the progress, and at the end how many were written. Raises: ConfigError, UnknownThread.
    """
    if audience not in {None, *get_args(AudienceName)}:
        raise ConfigError(f"There is no audience {audience!r}. Write --audience safe or --audience open.")

    async def write_entries(ledger: Ledger) -> int:
        info = await _get_thread(ledger, thread, owner)
        is_safe = (audience or settings.configured_audience(info.agent)) == "safe"
        rules = ExposureRules(by_name=settings.exposure_of(info.agent, {})) if is_safe else None
        entries = open_entry_lines(ledger, info) if rules is None else safe_entry_lines(ledger, info, rules)
        count = 0
        with _open_output(output) as write, _show_progress(info, enabled=output is not None) as show_seq:
            async with aclosing(entries):
                async for seq, line in entries:
                    write(f"{line}\n")
                    count += 1
                    show_seq(seq)
        return count

    count = _with_ledger(settings, write_entries)
    if output is not None:
        line = f"Wrote {count} {'entry' if count == 1 else 'entries'} of thread {thread} to {output}."
        typer.echo(to_single_line(line), err=True)


@contextmanager
def _show_progress(info: ThreadInfo, *, enabled: bool) -> Generator[Callable[[int], None]]:
    """Show a bar on standard error, if that is a terminal, until the block ends. Yield a function that gets the last seq written."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as progress:
        task = progress.add_task("Exporting", total=info.last, completed=info.first)

        def show_seq(seq: int) -> None:
            if seq % _PROGRESS_STEP == 0:
                progress.update(task, completed=seq)

        yield show_seq


def message_lines(message: Message) -> Iterator[str]:
    """Yield a message as text: its role and content, then its tool calls."""
    if isinstance(message, ActivityMessage):
        yield f"{message.activity_type}: {compact_json(message.content)}"
        return
    text = content_as_text(message.content)
    if text:
        yield f"{message.__struct_config__.tag}: {text}"
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            yield f"assistant calls {call.function.name} {call.function.arguments}"


def _with_ledger(settings: Settings, read: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
    require_store_file(settings)

    async def open_and_read() -> Answer:
        async with open_ledger(settings.store, lease=settings.lease, patience=0) as ledger:
            return await read(ledger)

    return anyio.run(open_and_read)


def _actor(owner: str | None) -> Actor:
    return Actor() if owner is None else Actor(owner=owner)


def _owner_label(key: ThreadKey) -> str:
    return key.owner if key.tenant == Actor().tenant else f"{key.owner} ({key.tenant})"


async def _get_thread(ledger: Ledger, thread: str, owner: str | None) -> ThreadInfo:
    info = await ledger.get_thread(_actor(owner).thread_key(thread))
    if info is None:
        raise _unknown_thread(thread, owner)
    return info


def _unknown_thread(thread: str, owner: str | None) -> UnknownThread:
    return UnknownThread(
        f"Owner {_actor(owner).owner} has no thread {thread} in this store. "
        "`ambient threads list --all` lists the threads of every owner; --owner NAME chooses one."
    )


@contextmanager
def _open_output(output: Path | None) -> Generator[Callable[[str], object]]:
    """Yield a function that writes to the file, or to standard output. Raises: ConfigError if the file cannot be written."""
    if output is None:
        yield sys.stdout.write
        return
    with _report_unwritable(output):
        file = output.open("w", encoding="utf-8")

    def write(text: str) -> None:
        with _report_unwritable(output):
            file.write(text)

    try:
        yield write
    finally:
        with _report_unwritable(output):
            file.close()


@contextmanager
def _report_unwritable(output: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{output} cannot be written: {error.strerror}. Free space or change the permissions, or name another file with -o."
        ) from error


def _start_position(info: ThreadInfo, after: str | None) -> int:
    if after is None:
        return info.first - 1
    cursor = parse_cursor(after)
    if cursor.epoch != info.epoch or cursor.seq > info.last:
        raise StaleCursor
    return cursor.seq


def _print_batch(batch: Batch, epoch: str) -> None:
    for seq, line in public_entries(batch):
        kind, body = to_single_line(entry_kind(batch, line)), escape_json_source(line.decode())
        sys.stdout.write(f"{format_cursor(epoch, seq)}  {kind}  {body}\n")
    sys.stdout.flush()


async def _print_tail(ledger: Ledger, info: ThreadInfo, tail: Tail, *, until_idle: bool) -> None:
    """Print what follows; with `until_idle`, return when no run is active. Raises: as `Tail.next_batches`."""
    while not until_idle or tail.has_next() or not await is_idle(ledger, info.key, tail.position):
        with anyio.move_on_after(_IDLE_POLL_INTERVAL if until_idle else None):
            for batch in await tail.next_batches():
                _print_batch(batch, info.epoch)


def _format_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
