"""The MCP server with the client's tools, over its socket."""

from __future__ import annotations

import asyncio
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.bridges.acp import tool_server
from tests.bridges.acp.relays import LineClient, RelayWorld, open_handles, relay_world
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def connected(world: RelayWorld) -> AsyncGenerator[LineClient, None]:
    reader, writer = await asyncio.open_unix_connection(world.relay.socket_path)
    try:
        yield LineClient(reader, writer)
    finally:
        writer.close()


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


@pytest.mark.parametrize(
    ("requested", "used"),
    [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("2099-01-01", "2025-11-25"), (None, "2025-11-25")],
)
async def test_the_clients_version_is_used_if_it_is_known_else_the_newest(requested: Any, used: str) -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            described = await client.request("initialize", {"protocolVersion": requested, "capabilities": {}})
    assert (described["protocolVersion"], described["capabilities"]) == (used, {"tools": {}})
    assert described["serverInfo"]["name"] == "ambient"


async def test_the_tools_are_listed_under_valid_names_with_cleaned_schemas() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            listed = await client.request("tools/list")
    assert listed == {
        "tools": [
            {
                "name": "pick_number",
                "description": "Ask the page for a number",
                "inputSchema": {"type": "object", "properties": {"max": {"type": "integer"}}, "required": ["max"]},
            },
            {
                "name": "Paint_it_",
                "description": "Paint it!",
                "inputSchema": {"type": "object", "properties": {}},
            },
        ]
    }


async def test_a_call_waits_under_the_clients_name_until_its_result_is_there() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.call("one", "Paint_it_", arguments={"color": "teal"})
            call = await world.arrived.get()
            assert (call.tool, call.arguments, call.agent_id) == ("Paint it!", {"color": "teal"}, None)
            assert await client.request("ping") == {}
            world.answer(call, "teal it is")
            assert await client.receive() == {"jsonrpc": "2.0", "id": "one", "result": text_result("teal it is")}
            assert world.calls.open_calls == []


@pytest.mark.parametrize(
    ("meta", "agent_id"),
    [
        ({"claudecode/toolUseId": "toolu_1"}, "toolu_1"),
        ({"callId": "call_1"}, "call_1"),
        ({"callId": 5}, None),
        ({"progressToken": 1}, None),
        (None, None),
    ],
)
async def test_the_agents_id_of_a_call_is_known_where_the_request_contains_it(meta: Any, agent_id: str | None) -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.call(0, _meta=meta)
            assert (await world.arrived.get()).agent_id == agent_id


async def test_a_failed_call_is_an_error_for_the_agent() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.call(0)
            world.answer(await world.arrived.get(), "no", is_error=True)
            assert (await client.receive())["result"] == text_result("no", is_error=True)


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ("7", {"result": 7}),
        ("null", {"result": None}),
        ('"done"', {"result": "done"}),
        ("[1, 2]", {"result": [1, 2]}),
        ('{"a": 1}', None),
        ("seven", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("client_name", ["gemini-cli-mcp-client", "opencode"])
async def test_a_result_that_is_json_but_no_object_is_structured_for_gemini_which_fails_otherwise(
    client_name: str, text: str, structured: Any
) -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            await client.request("initialize", {"clientInfo": {"name": client_name, "version": "1"}})
            client.call(2)
            world.answer(await world.arrived.get(), text)
            answered = (await client.receive())["result"]
    assert answered.get("structuredContent") == (structured if client_name != "opencode" else None)
    assert answered["content"] == [{"type": "text", "text": text or "(empty)"}]


async def test_calls_at_the_same_time_get_their_own_results() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            for number in (1, 2):
                client.call(number, arguments={"max": number})
            first, second = await world.arrived.get(), await world.arrived.get()
            world.answer(second, "two")
            world.answer(first, "one")
            answered = [await client.receive(), await client.receive()]
    assert [(line["id"], line["result"]["content"][0]["text"]) for line in answered] == [(2, "two"), (1, "one")]


async def test_a_cancelled_call_is_withdrawn_and_gets_no_response() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.call(7)
            call = await world.arrived.get()
            client.send("notifications/cancelled", {"requestId": 7, "reason": "timeout"})
            client.send("notifications/cancelled", {"requestId": [7]})
            client.send("notifications/cancelled", {"requestId": 99})
            assert await client.request("ping", request_id=8) == {}
            assert (world.calls.open_calls, call.result.cancelled()) == ([], True)


async def test_the_calls_of_a_connection_that_ends_are_withdrawn_and_those_of_others_stay() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as other:
            async with connected(world) as client:
                client.call(1)
                lost = await world.arrived.get()
                other.call(1)
                kept = await world.arrived.get()
            with pytest.raises(asyncio.CancelledError):
                await lost.result
            assert world.calls.open_calls == [kept]
            world.answer(kept, "here")
            assert (await other.receive())["result"] == text_result("here")


@pytest.mark.parametrize(
    ("params", "code"),
    [({"name": "rm"}, -32602), ({"name": ["pick_number"]}, -32602), (None, -32602), ([], -32602)],
)
async def test_a_call_of_a_tool_that_is_not_there_is_refused(params: Any, code: int) -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.send("tools/call", params, id=1)
            assert (await client.receive())["error"]["code"] == code
            assert world.arrived.empty()


async def test_what_is_not_mcp_harms_nothing() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.writer.write(b"hello\n\xff\n[]\n{}\n")
            assert (await client.receive())["error"]["code"] == -32600
            client.send("notifications/initialized")
            client.send("server/discover", id=4)
            assert (await client.receive())["error"]["code"] == -32601
            assert await client.request("ping") == {}


async def test_a_second_call_with_the_id_of_an_open_one_is_refused() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.call(1)
            client.call(1)
            assert (await client.receive())["error"]["code"] == -32600
            assert len(world.calls.open_calls) == 1


async def test_an_agent_cannot_open_calls_or_connections_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_server, "_MAX_OPEN_CALLS", 2)
    monkeypatch.setattr(tool_server, "_MAX_CONNECTIONS", 1)
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            for number in range(3):
                client.call(number)
            refused = await client.receive()
            assert (refused["id"], refused["result"]["isError"]) == (2, True)
            async with connected(world) as another:
                assert await another.reader.read() == b""
            assert await client.request("ping") == {}


async def test_a_client_that_waits_long_is_shown_progress_if_it_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_server, "_PROGRESS_INTERVAL", 0.01)
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            client.call(1)
            client.call(2, _meta={"progressToken": 0})
            for number in (1, 2):
                assert await client.receive() == {
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": 0, "progress": number},
                }
            calls = [await world.arrived.get() for _ in range(2)]
            world.answer(calls[1], "done")
            while "result" not in (line := await client.receive()):
                assert line["method"] == "notifications/progress"
            assert line["id"] == 2
            assert await client.request("ping") == {}


async def test_a_client_that_does_not_read_is_not_read_from_either() -> None:
    with unless_hung():
        async with relay_world() as world, connected(world) as client:
            for number in range(20_000):
                client.send("tools/list", id=number)
            client.send("tools/list", id="last")
            while (await client.receive())["id"] != "last":
                pass


async def test_only_this_user_can_connect_and_the_end_leaves_nothing() -> None:
    before = asyncio.all_tasks(), open_handles()
    with unless_hung():
        async with relay_world() as world:
            path = world.relay.socket_path
            assert [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)] == [0o700, 0o600]
            reader, writer = await asyncio.open_unix_connection(path)
            LineClient(reader, writer).call(1)
            call = await world.arrived.get()
            await world.relay.aclose()
            await world.relay.aclose()
            assert (call.result.cancelled(), world.calls.open_calls, path.exists()) == (True, [], False)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            with pytest.raises(OSError):
                await asyncio.open_unix_connection(path)
    assert (asyncio.all_tasks(), open_handles()) == before
