"""The program that an agent starts: an MCP server on stdio whose tools are in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ambient_runner.bridges.acp.client_tools import RELAY_PROGRAM
from tests.bridges.acp.relays import LineClient, RelayWorld, open_handles, relay_world
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator

_LINE_LIMIT = 1 << 24


@asynccontextmanager
async def started(command: list[str]) -> AsyncGenerator[tuple[Process, LineClient], None]:
    """Yield the program and a client on its pipes. It must have ended by itself, or on a signal of the test, when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={}, limit=_LINE_LIMIT
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process, LineClient(process.stdout, process.stdin)
    finally:
        process.stdin.close()
        await process.wait()


async def test_an_agent_reaches_the_tools_through_its_pipes() -> None:
    with unless_hung():
        async with relay_world() as world, started(world.command) as (process, client):
            assert (await client.request("initialize", {"protocolVersion": "2025-06-18"}))["protocolVersion"]
            client.send("notifications/initialized")
            assert len((await client.request("tools/list"))["tools"]) == 2
            client.call("a")
            client.call("b", arguments={"max": 5})
            first, second = await world.arrived.get(), await world.arrived.get()
            world.answer(second, "five")
            assert (await client.receive())["id"] == "b"
            world.answer(first, "ten", is_error=True)
            assert (await client.receive())["result"]["isError"] is True
    assert (process.returncode, world.calls.open_calls) == (0, [])


async def test_it_ends_when_the_agent_closes_its_input_and_its_calls_are_withdrawn() -> None:
    with unless_hung():
        async with relay_world() as world:
            async with started(world.command) as (process, client):
                client.call(1)
                call = await world.arrived.get()
                client.writer.close()
                assert await process.wait() == 0
            with pytest.raises(asyncio.CancelledError):
                await call.result
            async with started(world.command) as (_, again):
                again.call(1)
                world.answer(await world.arrived.get(), "back")
                assert (await again.receive())["result"]["content"][0]["text"] == "back"


async def test_it_ends_when_the_server_ends() -> None:
    with unless_hung():
        async with relay_world() as world, started(world.command) as (process, client):
            assert await client.request("ping") == {}
            await world.relay.aclose()
            assert (await process.wait(), await client.reader.read()) == (0, b"")


async def test_it_ends_when_the_agent_reads_no_more() -> None:
    """The pipe to the agent breaks while another process holds the relay's input open."""
    (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
    with unless_hung():
        async with relay_world() as world:
            process = await asyncio.create_subprocess_exec(*world.command, stdin=their_input, stdout=their_output)
            os.close(our_input)
            os.write(our_output, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            assert await process.wait() == 1
    for handle in (their_input, our_output, their_output):
        os.close(handle)


async def test_a_signal_ends_it_and_the_server_goes_on() -> None:
    with unless_hung():
        async with relay_world() as world:
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
                async with started(world.command) as (process, client):
                    client.call(1)
                    call = await world.arrived.get()
                    process.send_signal(number)
                    assert await process.wait() == -number
                with pytest.raises(asyncio.CancelledError):
                    await call.result
            assert world.calls.open_calls == []


async def test_large_results_and_arguments_arrive_whole() -> None:
    text = "é" * (1 << 20)
    with unless_hung():
        async with relay_world() as world, started(world.command) as (_, client):
            client.call(1, arguments={"max": text})
            call = await world.arrived.get()
            assert call.arguments == {"max": text}
            world.answer(call, text)
            assert (await client.receive())["result"]["content"] == [{"type": "text", "text": text}]


async def test_without_a_server_it_says_so_and_fails(tmp_path: Path) -> None:
    with unless_hung():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", RELAY_PROGRAM, tmp_path / "none.sock", stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
    assert (process.returncode, output, len(errors.splitlines())) == (1, b"", 1)


async def test_pipes_that_are_set_to_never_block_work_too() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with unless_hung():
        async with relay_world() as world:
            process = await asyncio.create_subprocess_exec(
                *world.command, stdin=theirs.fileno(), stdout=theirs.fileno()
            )
            theirs.close()
            client = LineClient(*await asyncio.open_connection(sock=ours))
            for number in range(3):
                assert await client.request("ping", request_id=number) == {}
            client.writer.close()
            assert await process.wait() == 0


def as_json(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def official_client(world: RelayWorld) -> AsyncGenerator[Any, None]:
    """Yield an initialized session of the `mcp` package, which has started the program itself."""
    mcp: Any = pytest.importorskip("mcp")
    from mcp.client.stdio import stdio_client

    command, *arguments = world.command
    parameters = mcp.StdioServerParameters(command=command, args=arguments)
    async with stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def test_the_official_client_lists_the_tools_and_calls_them_at_the_same_time() -> None:
    results: dict[int, dict[str, Any]] = {}
    with unless_hung():
        async with relay_world() as world, official_client(world) as session:

            async def pick(number: int) -> None:
                results[number] = as_json(await session.call_tool("pick_number", {"max": number}))

            assert [tool.name for tool in (await session.list_tools()).tools] == ["pick_number", "Paint_it_"]
            async with anyio.create_task_group() as tasks:
                for number in (1, 2):
                    tasks.start_soon(pick, number)
                for call in [await world.arrived.get() for _ in range(2)]:
                    world.answer(call, f"at most {call.arguments['max']}", is_error=call.arguments["max"] == 2)
    assert [(results[n]["content"][0]["text"], results[n]["isError"]) for n in (1, 2)] == [
        ("at most 1", False),
        ("at most 2", True),
    ]


async def test_the_official_client_gives_up_and_calls_again_and_its_end_leaves_nothing() -> None:
    before = asyncio.all_tasks(), open_handles()
    with unless_hung():
        async with relay_world() as world:
            for _ in range(3):
                async with official_client(world) as session, anyio.create_task_group() as tasks:
                    tasks.start_soon(session.call_tool, "pick_number", {"max": 1})
                    await world.arrived.get()
                    tasks.cancel_scope.cancel()
                async with official_client(world) as session, anyio.create_task_group() as tasks:
                    tasks.start_soon(session.call_tool, "pick_number", {"max": 2})
                    world.answer(await world.arrived.get(), "two")
    assert world.calls.open_calls == []
    assert not world.relay.socket_path.parent.exists()
    assert (asyncio.all_tasks(), open_handles()) == before
