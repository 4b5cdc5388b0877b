"""An MCP server as a child process that is only looked at: bounded in what it may send, and ended with everything it has started.

The `mcp` package has a transport of its own for servers that are worked with. It waits for a server to end in its own time, keeps a
line however long it grows, and lets live what a server that ends by itself has started.
"""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, ByteSendStream, Process
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["LONGEST_LINE", "stdio_client"]

LONGEST_LINE = 8 << 20
_GRACE = 0.5
"""Seconds a server has to end when its input does."""
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)


@asynccontextmanager
async def stdio_client(
    command: Sequence[str], env: Mapping[str, str], folder: Path | None
) -> AsyncGenerator[Any, None]:
    """The streams of a server that runs until the end of the `async with`. Raises: OSError when it cannot be started."""
    async with _process(command, {**get_default_environment(), **env}, folder) as process:
        assert process.stdin
        assert process.stdout
        to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_us = anyio.create_memory_object_stream[SessionMessage](0)
        async with to_us, read, write, from_us, anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, process.stdout, to_us)
            tasks.start_soon(_send, from_us, process.stdin)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def _process(
    command: Sequence[str], env: Mapping[str, str], folder: Path | None
) -> AsyncGenerator[Process, None]:
    process = await anyio.open_process(
        command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, cwd=folder, start_new_session=True
    )
    try:
        yield process
        assert process.stdin
        await process.stdin.aclose()
        with anyio.move_on_after(_GRACE):
            await process.wait()
    finally:
        # Also when it has ended itself: what it started may have stayed.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # Not `aclose`: it waits for the end of the output, which one that left the group may hold open.
        cast("Any", process)._process._transport.close()
        with anyio.CancelScope(shield=True):
            await process.wait()


async def _receive(stdout: ByteReceiveStream, to_us: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Hand on the messages of a server. What is no message is passed over; a line without an end ends the connection."""
    line = bytearray()
    with suppress(*_GONE, OSError):
        async with to_us:
            async for data in stdout:
                first, *rest = data.split(b"\n")
                line += first
                for following in rest:
                    await _deliver(bytes(line), to_us)
                    line = bytearray(following)
                if len(line) > LONGEST_LINE:
                    return


async def _deliver(line: bytes, to_us: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return
    await to_us.send(SessionMessage(message))


async def _send(from_us: MemoryObjectReceiveStream[SessionMessage], stdin: ByteSendStream) -> None:
    with suppress(*_GONE, OSError):
        async with from_us:
            async for message in from_us:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(text.encode() + b"\n")
