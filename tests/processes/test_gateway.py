"""The gateway from an agent to its model: what is forwarded, with which key, and what is refused."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import os
import ssl
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import pytest

from ambient_runner.processes.gateway import GatewayLimits, ModelGateway
from tests.machine_speed import unless_hung
from tests.processes.origin import Exchange, HttpPeer, Origin, open_origin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = "sk-real-0123456789abcdef"
PLACEHOLDER = "placeholder-42"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@asynccontextmanager
async def open_gateway(base_url: str | None, *, has_port: bool = False, **options: Any) -> AsyncGenerator[ModelGateway]:
    settings = {"headers": {"x-api-key": KEY}, "placeholder": PLACEHOLDER, **options}
    gateway = ModelGateway(base_url=base_url, **settings)
    with tempfile.TemporaryDirectory() as directory:
        await gateway.start(Path(directory), has_port=has_port)
        try:
            yield gateway
        finally:
            await gateway.aclose()
            assert list(Path(directory).iterdir()) == []


@asynccontextmanager
async def connect(gateway: ModelGateway, *, to_port: bool = False) -> AsyncGenerator[HttpPeer]:
    if to_port:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    else:
        reader, writer = await asyncio.open_unix_connection(gateway.socket_path)
    agent = HttpPeer(h11.CLIENT, reader, writer)
    try:
        yield agent
    finally:
        await agent.close()


async def send_request(agent: HttpPeer, target: str = "/v1/messages", *, method: str = "GET", **headers: str) -> None:
    """Send the head of a request; `_` in the names of headers stands for `-`."""
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    await agent.send(h11.Request(method=method, target=target, headers=[("host", "127.0.0.1:18118"), *named]))
    if method in ("GET", "HEAD", "CONNECT", "TRACE"):
        await agent.send(h11.EndOfMessage())


async def receive_response(agent: HttpPeer) -> h11.Response:
    while isinstance(event := await agent.receive(), h11.InformationalResponse):
        pass
    assert isinstance(event, h11.Response)
    return event


async def receive_error(agent: HttpPeer) -> tuple[int, str]:
    """Return status and kind of an error that the gateway has made."""
    response = await receive_response(agent)
    body = json.loads(await agent.receive_body())
    assert body["type"] == "error"
    assert body["error"]["code"] == response.status_code
    assert KEY not in json.dumps(body)
    return response.status_code, body["error"]["type"]


async def wait_for_end(peer: HttpPeer) -> bytes:
    """Return everything until the other side closes the connection."""
    with unless_hung():
        return await peer.reader.read()


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_request_reaches_the_base_url_with_the_real_key() -> None:
    async with open_origin() as origin, open_gateway(f"{origin.url}/proxy/") as gateway, connect(gateway) as agent:
        await send_request(agent, "/v1/messages?beta=true", x_api_key=PLACEHOLDER, x_stainless_lang="js")
        arrived = await origin.next_request()
        assert arrived.request.target == b"/proxy/v1/messages?beta=true"
        assert arrived.headers == {
            "host": f"127.0.0.1:{origin.port}",
            "accept-encoding": "identity",
            "x-stainless-lang": "js",
            "x-api-key": KEY,
        }
        await arrived.respond(b"{}", content_type="application/json")
        response = await receive_response(agent)
        assert (response.status_code, dict(response.headers)[b"content-type"]) == (200, b"application/json")
        assert await agent.receive_body() == b"{}"


@pytest.mark.parametrize("real", ["x-api-key", "authorization", "x-goog-api-key", "api-key"])
@pytest.mark.parametrize("sent", ["x-api-key", "authorization", "x-goog-api-key", "api-key", "x-custom", "cookie"])
async def test_a_key_goes_only_into_its_own_header(real: str, sent: str) -> None:
    value = f"Bearer {KEY}" if real == "authorization" else KEY
    async with (
        open_origin() as origin,
        open_gateway(origin.url, headers={real: value}) as gateway,
        connect(gateway) as agent,
    ):
        await send_request(agent, **{sent.replace("-", "_"): f"Bearer {PLACEHOLDER}"})
        headers = (await origin.next_request()).headers
        assert {name: text for name, text in headers.items() if name not in ("host", "accept-encoding")} == {
            real: value
        }


@pytest.mark.parametrize("name", ["x-api-key", "authorization", "x-goog-api-key", "api-key", "proxy-authorization"])
async def test_another_key_of_the_agent_does_not_pass_either(name: str) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, **{name.replace("-", "_"): "sk-stolen"})
        assert "sk-stolen" not in (await origin.next_request()).headers.values()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?key=placeholder-42", ""),
        ("?key=other&alt=sse", "?alt=sse"),
        ("?alt=sse&k%65y=x", "?alt=sse"),
        ("?token=placeholder%2D42&a=%20b", "?a=%20b"),
        ("?monkey=1", "?monkey=1"),
    ],
)
async def test_a_key_in_the_query_is_removed(query: str, expected: str) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, f"/v1beta/models{query}")
        assert (await origin.next_request()).request.target.decode() == f"/v1beta/models{expected}"


async def test_headers_of_the_connection_are_not_forwarded() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        hop = {"connection": "keep-alive, x-hop", "x_hop": "1", "te": "trailers", "upgrade": "websocket"}
        await send_request(agent, **hop, proxy_connection="keep-alive", keep_alive="timeout=5", x_end="2")
        arrived = await origin.next_request()
        assert sorted(arrived.headers) == ["accept-encoding", "host", "x-api-key", "x-end"]
        await arrived.respond(b"", connection="x-hop", x_hop="1", keep_alive="timeout=5", x_end="2")
        response = await receive_response(agent)
        assert {name for name, _ in response.headers} == {b"content-length", b"x-end"}


async def test_server_sent_events_arrive_one_by_one() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await arrived.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        assert (await receive_response(agent)).status_code == 200
        for number in range(20):
            await arrived.send_data(b"data: %d\n\n" % number)
            assert bytes((await agent.receive()).data) == b"data: %d\n\n" % number
        await arrived.send(h11.EndOfMessage())
        assert isinstance(await agent.receive(), h11.EndOfMessage)


async def test_a_body_is_forwarded_while_it_is_sent() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="POST", transfer_encoding="chunked")
        arrived = await origin.next_request()
        assert arrived.headers["transfer-encoding"] == "chunked"
        for number in range(5):
            await agent.send_data(b"part %d" % number)
            assert bytes((await arrived.receive()).data) == b"part %d" % number
        await agent.send(h11.EndOfMessage())
        assert isinstance(await arrived.receive(), h11.EndOfMessage)
        await arrived.respond(b"done")
        await receive_response(agent)
        assert await agent.receive_body() == b"done"


@pytest.mark.parametrize("framing", [{"content_length": str(1 << 20)}, {"transfer_encoding": "chunked"}])
async def test_a_megabyte_arrives_unchanged_and_comes_back(framing: dict[str, str]) -> None:
    content = os.urandom(1 << 20)

    async def upload(agent: HttpPeer) -> None:
        await send_request(agent, method="POST", **framing)
        await agent.send_data(content)
        await agent.send(h11.EndOfMessage())

    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(upload(agent))
            arrived = await origin.next_request()
            received = await arrived.receive_body()
        assert hashlib.sha256(received).digest() == hashlib.sha256(content).digest()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(arrived.respond(received))
            await receive_response(agent)
            assert await agent.receive_body() == content


async def test_a_client_that_expects_continue_gets_it() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="POST", content_length="2", expect="100-continue")
        assert (await agent.receive()).status_code == 100
        arrived = await origin.next_request()
        assert "expect" not in arrived.headers
        await agent.send_data(b"hi")
        await agent.send(h11.EndOfMessage())
        assert await arrived.receive_body() == b"hi"


async def test_a_client_that_expects_continue_is_refused_before_it_sends() -> None:
    async with open_gateway("http://127.0.0.1:1") as gateway, connect(gateway) as agent:
        await send_request(agent, method="POST", content_length="2", expect="100-continue")
        assert await receive_error(agent) == (502, "api_error")
        assert await wait_for_end(agent) == b""


async def test_two_requests_use_one_connection() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        arrived = None
        for _ in range(2):
            await send_request(agent)
            arrived = await origin.next_request(arrived)
            await arrived.receive_body()
            await arrived.respond(b"ok")
            await receive_response(agent)
            assert await agent.receive_body() == b"ok"
            agent.http.start_next_cycle()
        assert len(origin.connections) == 1


async def test_a_connection_that_the_provider_has_closed_is_replaced() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        for _ in range(2):
            await send_request(agent)
            arrived = await origin.next_request()
            await arrived.receive_body()
            await arrived.respond(b"ok", connection="close")
            await receive_response(agent)
            assert await agent.receive_body() == b"ok"
            agent.http.start_next_cycle()
        assert len(origin.connections) == 2


async def test_a_connection_that_was_idle_for_too_long_is_replaced() -> None:
    limits = GatewayLimits(reuse=0)
    async with open_origin() as origin, open_gateway(origin.url, limits=limits) as gateway, connect(gateway) as agent:
        for _ in range(2):
            await send_request(agent)
            await (await origin.next_request()).respond(b"ok")
            await receive_response(agent)
            await agent.receive_body()
            agent.http.start_next_cycle()


async def test_an_answer_that_comes_before_the_end_of_the_request_is_delivered() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="POST", content_length="1000")
        await agent.send_data(b"x")
        arrived = await origin.next_request()
        await arrived.respond(b"too large", status=413)
        assert (await receive_response(agent)).status_code == 413
        assert await agent.receive_body() == b"too large"
        assert await wait_for_end(agent) == b""


async def test_a_provider_that_stops_reading_can_still_answer() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="POST", transfer_encoding="chunked")
        arrived = await origin.next_request()
        await arrived.respond(b"too large", status=413, connection="close")
        arrived.writer.close()
        await agent.send_data(b"x" * (1 << 16))
        assert (await receive_response(agent)).status_code == 413
        assert await agent.receive_body() == b"too large"


async def test_an_agent_that_leaves_during_its_upload_ends_the_request() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway:
        async with connect(gateway) as agent:
            await send_request(agent, method="POST", content_length="1000")
            await agent.send_data(b"part")
            arrived = await origin.next_request()
            assert bytes((await arrived.receive()).data) == b"part"
        assert await wait_for_end(arrived) == b""


@pytest.mark.parametrize("status", [204, 304])
async def test_a_response_without_a_body_ends_with_its_headers(status: int) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await arrived.send(h11.Response(status_code=status, headers=[]), h11.EndOfMessage())
        assert (await receive_response(agent)).status_code == status
        assert await agent.receive_body() == b""


async def test_a_response_to_head_has_no_body() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="HEAD")
        arrived = await origin.next_request()
        await arrived.send(h11.Response(status_code=200, headers=[("content-length", "5")]), h11.EndOfMessage())
        assert dict((await receive_response(agent)).headers)[b"content-length"] == b"5"
        assert await agent.receive_body() == b""


async def test_a_response_that_ends_with_its_connection_is_complete() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        arrived.writer.write(b"HTTP/1.0 200 OK\r\n\r\nold")
        arrived.writer.close()
        await receive_response(agent)
        assert await agent.receive_body() == b"old"


async def test_early_hints_are_left_out() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await arrived.send(h11.InformationalResponse(status_code=103, headers=[("link", "</x>")]))
        await arrived.respond(b"ok")
        assert isinstance(await agent.receive(), h11.Response)


async def test_a_length_next_to_chunks_does_not_confuse_anyone() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        agent.writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        arrived = await origin.next_request()
        assert "content-length" not in arrived.headers
        assert await arrived.receive_body() == b"hello"
        arrived.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        head = await agent.reader.readuntil(b"\r\n\r\n")
        assert b"content-length" not in head.lower()


async def test_a_provider_that_cannot_be_reached_is_a_bad_gateway() -> None:
    async with open_gateway("http://127.0.0.1:1") as gateway, connect(gateway) as agent:
        for _ in range(2):  # The connection goes on, also after a body.
            await send_request(agent, method="POST", content_length="4")
            await agent.send_data(b"body")
            await agent.send(h11.EndOfMessage())
            assert await receive_error(agent) == (502, "api_error")
            agent.http.start_next_cycle()


async def test_the_sdk_of_anthropic_understands_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    anthropic = pytest.importorskip("anthropic")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with open_gateway("http://127.0.0.1:1", has_port=True) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        async with anthropic.AsyncAnthropic(api_key=PLACEHOLDER, base_url=url, max_retries=0) as client:
            with pytest.raises(anthropic.InternalServerError) as raised:
                await client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}])
    assert (raised.value.status_code, raised.value.body["error"]["type"]) == (502, "api_error")


async def test_the_sdk_of_openai_understands_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    openai = pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with open_gateway("http://127.0.0.1:1", has_port=True) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/v1"
        async with openai.AsyncOpenAI(api_key=PLACEHOLDER, base_url=url, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError) as raised:
                await client.responses.create(model="m", input="hi")
    assert (raised.value.status_code, raised.value.type) == (502, "api_error")


async def test_a_provider_that_answers_nothing_is_a_bad_gateway() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await arrived.close()
        assert await receive_error(agent) == (502, "api_error")


async def test_a_provider_that_is_silent_for_too_long_is_a_timeout() -> None:
    limits = GatewayLimits(idle_timeout=0.05)
    async with open_origin() as origin, open_gateway(origin.url, limits=limits) as gateway, connect(gateway) as agent:
        await send_request(agent)
        await origin.next_request()
        assert await receive_error(agent) == (504, "api_error")


async def test_a_response_that_is_cut_off_is_cut_off_for_the_agent() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await arrived.send(h11.Response(status_code=200, headers=[]), h11.Data(data=b"half"))
        await receive_response(agent)
        assert bytes((await agent.receive()).data) == b"half"
        await arrived.close()
        assert await wait_for_end(agent) == b""


async def test_an_agent_that_leaves_ends_the_request_at_the_provider() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway:
        async with connect(gateway) as agent:
            await send_request(agent)
            arrived = await origin.next_request()
            await arrived.receive_body()
        assert await wait_for_end(arrived) == b""


@pytest.mark.parametrize(
    "target",
    [
        "/../secret",
        "/v1/%2e%2e/secret",
        "/v1/..%2fsecret",
        "/v1/..\\secret",
        "*",
        "https://example.com/",
        "//",
        "/placeholder-42",
    ],
)
async def test_a_path_cannot_lead_out_of_the_base_url(target: str) -> None:
    async with open_origin() as origin, open_gateway(f"{origin.url}/tenant") as gateway, connect(gateway) as agent:
        await send_request(agent, target, method="OPTIONS")
        await agent.send(h11.EndOfMessage())
        if target == "//":
            assert (await origin.next_request()).request.target == b"/tenant//"
        else:
            assert await receive_error(agent) == (400, "invalid_request_error")


async def test_a_request_that_would_be_repeated_with_its_key_is_refused() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="TRACE")
        assert await receive_error(agent) == (400, "invalid_request_error")


async def test_a_key_that_a_server_repeats_is_masked() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await arrived.send(h11.Response(status_code=200, headers=[("x-echo", f"is {KEY}")]))
        response = await receive_response(agent)
        assert dict(response.headers)[b"x-echo"] == b"is " + b"*" * len(KEY)
        whole = f"{KEY[:5]} {KEY} {KEY[:-1]}".encode()
        for index in range(0, len(whole), 7):
            await arrived.send_data(whole[index : index + 7])
        await arrived.send(h11.EndOfMessage())
        assert (await agent.receive_body()).decode() == f"{KEY[:5]} {'*' * len(KEY)} {KEY[:-1]}"


async def test_the_log_has_no_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with open_gateway("http://127.0.0.1:1") as gateway, connect(gateway) as agent:
        await send_request(agent)
        await receive_error(agent)
    assert "could not be reached" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "data",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n"],
)
async def test_what_is_not_a_request_is_refused(data: bytes) -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        agent.writer.write(data)
        assert (await wait_for_end(agent)).startswith(b"HTTP/1.1 400 ")


async def test_a_malformed_body_is_refused() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent, method="POST", transfer_encoding="chunked")
        agent.writer.write(b"not a length\r\n")
        assert (await wait_for_end(agent)).startswith(b"HTTP/1.1 400 ")


async def test_headers_have_a_size_limit() -> None:
    limits = GatewayLimits(max_header_bytes=1000)
    async with open_origin() as origin, open_gateway(origin.url, limits=limits) as gateway, connect(gateway) as agent:
        agent.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 1000)
        assert (await wait_for_end(agent)).startswith(b"HTTP/1.1 431 ")


async def test_connections_have_a_limit() -> None:
    limits = GatewayLimits(max_connections=2)
    async with open_origin() as origin, open_gateway(origin.url, limits=limits) as gateway:
        async with connect(gateway) as first, connect(gateway) as second:
            for agent in (first, second):
                await send_request(agent)
                await origin.next_request()
            async with connect(gateway) as third:
                assert await receive_error(third) == (503, "overloaded_error")


async def test_a_silent_connection_is_closed() -> None:
    limits = GatewayLimits(keep_alive=0.05)
    async with open_origin() as origin, open_gateway(origin.url, limits=limits) as gateway, connect(gateway) as agent:
        assert await wait_for_end(agent) == b""


async def test_closing_ends_every_connection_and_task() -> None:
    tasks = asyncio.all_tasks()
    async with open_origin() as origin, open_gateway(origin.url, hosts=[f"localhost:{origin.port}"]) as gateway:
        async with connect(gateway) as waiting, connect(gateway) as idle, connect(gateway) as tunnel:
            await send_request(waiting)
            await origin.next_request()
            await send_request(tunnel, f"localhost:{origin.port}", method="CONNECT")
            await receive_response(tunnel)
            await gateway.aclose()
            await gateway.aclose()
            for agent in (waiting, idle, tunnel):
                assert await wait_for_end(agent) == b""
            assert asyncio.all_tasks() == tasks
            with pytest.raises(RuntimeError):
                _ = gateway.socket_path


async def test_a_gateway_that_never_started_can_be_closed() -> None:
    await ModelGateway(base_url=None, headers={}, placeholder="").aclose()


async def test_a_hundred_gateways_leave_no_descriptor() -> None:
    async def use_gateway(origin: Origin) -> None:
        async with open_gateway(origin.url) as gateway, connect(gateway) as agent:
            await send_request(agent)
            arrived = await origin.next_request()
            await arrived.respond(b"ok")
            await receive_response(agent)
            await arrived.close()

    async with open_origin() as origin:
        await use_gateway(origin)
        before = count_descriptors()
        for _ in range(100):
            await use_gateway(origin)
        for _ in range(5):
            await asyncio.sleep(
                0
            )  # Closed transports release their descriptors in the next iterations of the event loop.
        assert count_descriptors() <= before


@pytest.mark.parametrize("target", ["example.com:443", "127.0.0.1:443", "[::1]:443", "169.254.169.254:443"])
async def test_a_tunnel_to_another_host_is_refused_and_reported_once(target: str) -> None:
    refused: list[str] = []
    async with open_gateway("http://127.0.0.1:1", hosts=["api.example.com"], on_refused=refused.append) as gateway:
        async with connect(gateway) as agent:
            for _ in range(2):
                await send_request(agent, target, method="CONNECT")
                assert await receive_error(agent) == (403, "permission_error")
                agent.http.start_next_cycle()
        assert refused == gateway.refused == [target.removesuffix(":443")]


@pytest.mark.parametrize("target", ["example.com", "user@example.com:443", "example.com:99999", "http://a b/"])
async def test_a_tunnel_needs_a_host_and_a_port(target: str) -> None:
    async with open_gateway(None, hosts=["*"]) as gateway, connect(gateway) as agent:
        agent.writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        with unless_hung():
            assert (await agent.reader.readline()).startswith(b"HTTP/1.1 400 ")


async def test_the_body_of_a_tunnel_request_is_not_part_of_the_tunnel() -> None:
    async with open_origin() as origin, open_gateway(None, hosts=[f"localhost:{origin.port}"]) as gateway:
        async with connect(gateway) as agent:
            head = f"CONNECT localhost:{origin.port} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
            agent.writer.write(f"{head}GET /inner HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert (await origin.next_request()).request.target == b"/inner"


async def test_only_so_many_refused_hosts_are_reported() -> None:
    async with open_gateway(None) as gateway, connect(gateway) as agent:
        for number in range(110):
            await send_request(agent, f"host{number}.test:443", method="CONNECT")
            await receive_error(agent)
            agent.http.start_next_cycle()
        assert len(gateway.refused) == 100


async def test_a_tunnel_to_a_named_host_passes_bytes_both_ways() -> None:
    async with open_origin() as origin, open_gateway(None, hosts=[f"localhost:{origin.port}"]) as gateway:
        async with connect(gateway) as agent:
            await send_request(agent, f"localhost:{origin.port}", method="CONNECT")
            assert (await receive_response(agent)).status_code == 200
            agent.writer.write(b"GET /inner HTTP/1.1\r\nHost: x\r\nAuthorization: own\r\n\r\n")
            arrived = await origin.next_request()
            assert arrived.headers["authorization"] == "own"
            await arrived.respond(b"through", connection="close")
            arrived.writer.close()
            assert (await wait_for_end(agent)).endswith(b"through")
        assert gateway.refused == []


async def test_a_pattern_does_not_lead_to_the_own_machine() -> None:
    async with open_origin() as origin, open_gateway(None, hosts=[f"*:{origin.port}"]) as gateway:
        async with connect(gateway) as agent:
            await send_request(agent, f"localhost:{origin.port}", method="CONNECT")
            assert await receive_error(agent) == (403, "permission_error")
        assert (gateway.refused, origin.connections) == ([f"localhost:{origin.port}"], [])


async def test_a_named_host_that_does_not_answer_is_a_bad_gateway() -> None:
    async with open_gateway(None, hosts=["localhost:1"]) as gateway, connect(gateway) as agent:
        await send_request(agent, "localhost:1", method="CONNECT")
        assert await receive_error(agent) == (502, "api_error")


async def test_an_idle_tunnel_is_closed() -> None:
    limits = GatewayLimits(idle_timeout=0.05)
    async with (
        open_origin() as origin,
        open_gateway(None, hosts=[f"localhost:{origin.port}"], limits=limits) as gateway,
    ):
        async with connect(gateway) as agent:
            await send_request(agent, f"localhost:{origin.port}", method="CONNECT")
            await receive_response(agent)
            assert await wait_for_end(agent) == b""


async def test_a_request_in_the_absolute_form_goes_to_named_hosts_only_and_without_the_key() -> None:
    async with open_origin() as origin, open_gateway(origin.url, hosts=[f"localhost:{origin.port}"]) as gateway:
        async with connect(gateway) as agent:
            await send_request(agent, f"http://localhost:{origin.port}/a?b=1", x_api_key=PLACEHOLDER)
            arrived = await origin.next_request()
            assert arrived.request.target == b"/a?b=1"
            assert arrived.headers == {"host": f"localhost:{origin.port}", "accept-encoding": "identity"}
            await arrived.respond(b"ok")
            await receive_response(agent)
            assert await agent.receive_body() == b"ok"
            agent.http.start_next_cycle()
            await send_request(agent, "http://example.com/a")
            assert await receive_error(agent) == (403, "permission_error")
        assert gateway.refused == ["example.com:80"]


async def test_without_a_model_there_is_nothing_to_forward_to() -> None:
    async with open_gateway(None) as gateway, connect(gateway) as agent:
        await send_request(agent)
        assert await receive_error(agent) == (404, "not_found_error")


@pytest.mark.parametrize("sent", [{"x_api_key": PLACEHOLDER}, {"authorization": f"Bearer {PLACEHOLDER}"}, {}])
async def test_a_port_serves_only_who_has_the_placeholder(sent: dict[str, str]) -> None:
    async with open_origin() as origin, open_gateway(origin.url, has_port=True) as gateway:
        async with connect(gateway, to_port=True) as agent:
            await send_request(agent, "/v1" if sent else "/v1?key=wrong", **sent)
            if sent:
                assert (await origin.next_request()).headers["x-api-key"] == KEY
            else:
                assert await receive_error(agent) == (401, "authentication_error")


@pytest.mark.parametrize("target", ["localhost:1", "http://localhost:1/"])
async def test_a_port_leads_to_the_model_only(target: str) -> None:
    async with open_gateway(None, has_port=True, hosts=["localhost:1"]) as gateway:
        async with connect(gateway, to_port=True) as agent:
            await send_request(agent, target, method="GET" if "/" in target else "CONNECT", x_api_key=PLACEHOLDER)
            assert await receive_error(agent) == (403, "permission_error")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that nobody has signed, with its key."""
    pytest.importorskip("cryptography")
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    path.write_bytes(private + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_the_certificate_of_the_provider_is_checked(certificate: Path, is_trusted: bool) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate)) if is_trusted else None
    async with open_origin(server) as origin:
        url = origin.url.replace("http:", "https:")
        async with open_gateway(url, ssl_context=trusting) as gateway, connect(gateway) as agent:
            await send_request(agent)
            if is_trusted:
                await (await origin.next_request()).respond(b"ok")
                assert (await receive_response(agent)).status_code == 200
                assert await agent.receive_body() == b"ok"
            else:
                assert await receive_error(agent) == (502, "api_error")


@pytest.mark.parametrize(
    "url", ["api.example.com", "ftp://x", "https://", "https://user:pass@x", "https://x/?key=1", "https://x/#y"]
)
def test_a_malformed_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        ModelGateway(base_url=url, headers={}, placeholder="")


async def test_a_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 100)
    directory.mkdir()
    with pytest.raises(ValueError):
        await ModelGateway(base_url=None, headers={}, placeholder="").start(directory)


async def test_a_response_waits_for_an_agent_that_does_not_read() -> None:
    async with open_origin() as origin, open_gateway(origin.url) as gateway, connect(gateway) as agent:
        await send_request(agent)
        arrived = await origin.next_request()
        await _fill_until_blocked(arrived)
        await receive_response(agent)


async def _fill_until_blocked(arrived: Exchange) -> None:
    """Send data until nobody reads it: buffers on the way are bounded, so this ends."""
    await arrived.send(h11.Response(status_code=200, headers=[]))
    block, sent = b"x" * (1 << 20), 0
    while arrived.writer.transport.get_write_buffer_size() < 8 << 20:
        arrived.writer.write(arrived.http.send(h11.Data(data=block)) or b"")
        sent += len(block)
        for _ in range(50):
            await asyncio.sleep(0)
        assert sent < 64 << 20
