"""Stdio transport for probing MCP servers: it limits what a server may send, and kills the server with every process it started.

The `mcp` package's own transport is for servers in use. It waits for a server to exit, keeps a line however long it grows, and leaves the
child processes of a server that exited by itself.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from ambient_runner.processes.spawn import end_process, open_process
from ambient_runner.services.mcp.client import parse_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, ByteSendStream, Process
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["MAX_LINE_BYTES", "stdio_client"]

MAX_LINE_BYTES = 8 << 20
_EXIT_GRACE = 0.5
"""Seconds a server has to exit after its input is closed."""
_CLOSED_ERRORS = (anyio.ClosedResourceError, anyio.BrokenResourceError)


@asynccontextmanager
async def stdio_client(command: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> AsyncGenerator[Any, None]:
    """Start a server and yield its streams; leaving the `async with` ends it. Raises: OSError when it cannot be started."""
    async with _spawn_server(command, {**get_default_environment(), **env}, cwd) as process:
        assert process.stdin
        assert process.stdout
        inbound, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outbound = anyio.create_memory_object_stream[SessionMessage](0)
        async with inbound, read, write, outbound, anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process.stdout, inbound)
            tasks.start_soon(_write_messages, outbound, process.stdin)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def _spawn_server(
    command: Sequence[str], env: Mapping[str, str], cwd: Path | None
) -> AsyncGenerator[Process, None]:
    process = await open_process(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, cwd=cwd)
    exit_timeout = 0.0
    try:
        yield process
        exit_timeout = _EXIT_GRACE
    finally:
        # Also when it has exited by itself: processes it started may still run.
        await end_process(process, exit_timeout=exit_timeout)


async def _read_messages(
    stdout: ByteReceiveStream, inbound: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    """Forward the server's messages. Lines that are not messages are skipped; a line that is too long ends the connection."""
    line = bytearray()
    with suppress(*_CLOSED_ERRORS, OSError):
        async with inbound:
            async for data in stdout:
                first, *rest = data.split(b"\n")
                line += first
                for following in rest:
                    await _deliver_line(bytes(line), inbound)
                    line = bytearray(following)
                if len(line) > MAX_LINE_BYTES:
                    return


async def _deliver_line(line: bytes, inbound: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    try:
        message = parse_message(line)
    except ValueError:
        return
    await inbound.send(SessionMessage(message))


async def _write_messages(outbound: MemoryObjectReceiveStream[SessionMessage], stdin: ByteSendStream) -> None:
    with suppress(*_CLOSED_ERRORS, OSError):
        async with outbound:
            async for message in outbound:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(text.encode() + b"\n")
