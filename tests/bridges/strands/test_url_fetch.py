"""Attachments by URL: fetched from addresses that the policy allows, within its limits. A server on loopback stands for the web."""

from __future__ import annotations

import base64
import ipaddress
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

import anyio.to_thread
import pytest

from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.bridges.strands.content import load_attachments
from ambient_runner.bridges.strands.url_fetch import (
    DEFAULT_URL_FETCH_POLICY,
    FetchBudget,
    UrlFetchPolicy,
    UrlFetchPolicyError,
    fetch_url,
)
from ambient_runner.bridges.toolkit.turns import UserTurn
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import ScriptedModel, says
from tests.bridges.strands.world import agent_of, strands
from tests.machine_speed import HANG_SECONDS, unless_hung

PRIVATE = UrlFetchPolicy(allow_private_networks=True)


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/slow"):
            self._drip(*SLOW_PARTS[self.path])
            return
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data/")
        elif self.path.startswith("/loop"):
            self.send_response(302)
            self.send_header("Location", "/loop")
        elif self.path == "/nowhere":
            self.send_response(302)
            self.send_header("Location", "http://[x y/")
        elif self.path == "/moved":
            self.send_response(301)
            self.send_header("Location", "/cat.png")
        else:
            self.send_response(200 if self.path == "/cat.png" else 404)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(b"cat" * 10)
            return
        self.end_headers()

    def _drip(self, beginning: bytes, end: bytes) -> None:
        """Send a byte at a time, so that the client never waits long for data."""
        self.close_connection = True
        try:
            for part in (beginning, *[b"0"] * 3000, end):
                self.wfile.write(part)
                _PAUSE.wait(0.01)
        except OSError:
            SLOW_ENDS.put("the client closed the connection")
        else:
            SLOW_ENDS.put("the client read all")

    def log_message(self, format: str, *args: Any) -> None:
        pass


_PAUSE = threading.Event()
SLOW_ENDS: SimpleQueue[str] = SimpleQueue()
SLOW_PARTS = {
    "/slow-header": (b"HTTP/1.1 200 OK\r\nX: ", b"\r\nContent-Length: 1\r\n\r\nx"),
    "/slow-chunk-size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n0\r\n\r\n"),
    "/slow-trailer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ",
        b"\r\n\r\n",
    ),
    "/slow-content": (b"HTTP/1.1 200 OK\r\n\r\n", b""),
}
"""What a slow server sends before and after many single bytes."""


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("path", ["/cat.png", "/moved"])
def test_content_and_media_type_are_fetched_also_after_a_redirect(pages: str, path: str) -> None:
    assert fetch_url(pages + path, FetchBudget(PRIVATE)) == (b"cat" * 10, "image/png")


@pytest.mark.parametrize("path", ["/cat.png", "/moved"])
def test_an_address_of_this_machine_is_refused_by_default(pages: str, path: str) -> None:
    with pytest.raises(UrlFetchPolicyError):
        fetch_url(pages + path, FetchBudget(DEFAULT_URL_FETCH_POLICY))


@pytest.mark.parametrize("path", ["/away", "/loop"])
def test_redirects_are_followed_neither_to_a_refused_address_nor_for_ever(pages: str, path: str) -> None:
    with pytest.raises(UrlFetchPolicyError):
        fetch_url(pages + path, FetchBudget(PRIVATE))


ADDRESSES = {
    "10.0.0.1": False,
    "127.0.0.1": False,
    "::1": False,
    "::ffff:10.0.0.1": False,
    "64:ff9b::a00:1": False,
    "2002:a00:1::": False,
    "169.254.169.254": None,
    "::ffff:169.254.169.254": None,
    "fec0::1": False,
    "fd00::1": False,
    "5f00::1": False,
    "3fff::1": False,
    "::127.0.0.1": False,
    "::ffff:0:127.0.0.1": False,
    "64:ff9b:1::a00:1": False,
    "64:ff9b:1::808:808": False,
    "64:ff9b::808:808": True,
    "fd00:ec2::254": None,
    "fd20:ce::254": None,
    "fd00:c1::a9fe:a9fe": None,
    "fd00:42::42": None,
    "::169.254.169.254": None,
    "::ffff:0:169.254.169.254": None,
    "64:ff9b::a9fe:a9fe": None,
    "64:ff9b:1::a9fe:a9fe": None,
    "64:ff9b:1:a9fe:a9:fe00::": None,
    "2002:a9fe:a9fe::": None,
    "100.100.100.200": None,
    "0.0.0.0": None,
    "224.0.0.1": None,
    "8.8.8.8": True,
    "2606:4700::1111": True,
}
"""True for a public address, False for a private one, None for one that is refused in any case."""


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_refused_however_it_is_written(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def resolve(host: str, port: int, **options: Any) -> Any:
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    def connect(target: Any, timeout: float) -> Any:
        assert ipaddress.ip_address(target[0]) == ipaddress.ip_address(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    kind = ADDRESSES[address]
    for policy, is_allowed in ((DEFAULT_URL_FETCH_POLICY, kind is True), (PRIVATE, kind is not None)):
        with pytest.raises(ConnectionRefusedError if is_allowed else UrlFetchPolicyError):
            fetch_url("http://page.example/", FetchBudget(policy))


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://page.example/", "s3://bucket/key", "http://", "gopher://x/"]
)
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(UrlFetchPolicyError):
        fetch_url(url, FetchBudget(PRIVATE))


def test_a_policy_cannot_allow_other_schemes() -> None:
    with pytest.raises(ValueError, match="only http and https"):
        UrlFetchPolicy(frozenset({"file"}))


@pytest.mark.parametrize(
    "limits", [{"max_bytes": 29}, {"max_total_bytes": 59}, {"max_attachments": 1}, {"max_total_seconds": 0}]
)
def test_the_limits_of_a_run_hold(pages: str, limits: dict[str, Any]) -> None:
    budget = FetchBudget(UrlFetchPolicy(allow_private_networks=True, **limits))

    def fetch_twice() -> None:
        for _ in range(2):
            fetch_url(f"{pages}/cat.png", budget)

    with pytest.raises(UrlFetchPolicyError):
        fetch_twice()


@pytest.mark.parametrize("path", SLOW_PARTS)
def test_a_server_that_sends_single_bytes_does_not_outlast_the_time_of_a_run(pages: str, path: str) -> None:
    """The time limit once held only between two reads of content."""
    budget = FetchBudget(UrlFetchPolicy(allow_private_networks=True, max_total_seconds=0.2))
    with pytest.raises((UrlFetchPolicyError, TimeoutError)):
        fetch_url(pages + path, budget)
    assert SLOW_ENDS.get(timeout=HANG_SECONDS) == "the client closed the connection"


def test_bytes_of_an_attachment_that_is_too_large_count_too(pages: str) -> None:
    budget = FetchBudget(UrlFetchPolicy(allow_private_networks=True, max_bytes=20, max_total_bytes=100))
    with pytest.raises(UrlFetchPolicyError):
        fetch_url(f"{pages}/cat.png", budget)
    assert budget.bytes_left == 70


def test_what_is_not_there_is_an_error_of_the_network(pages: str) -> None:
    with pytest.raises(OSError, match="404"):
        fetch_url(f"{pages}/dog.png", FetchBudget(PRIVATE))


async def shown_to_model(config: StrandsAgentConfig, *parts: Any) -> list[Any]:
    model = ScriptedModel(says("ok"))
    async with strands(agent_of(model), config) as thread:
        await thread.say([e.TextPart(text="look"), *parts])
    return model.saw[0][0]["content"]


def image(url: str) -> e.ImagePart:
    return e.ImagePart(source=e.UrlSource(value=url))


async def test_the_model_gets_the_picture_or_a_note(pages: str) -> None:
    config = StrandsAgentConfig(url_fetch_policy=PRIVATE)
    content = await shown_to_model(config, image(f"{pages}/cat.png"), image(f"{pages}/dog.png"))
    assert content[1] == {"image": {"format": "png", "source": {"bytes": b"cat" * 10}}}
    assert list(content[2]) == ["text"]


MALFORMED_URLS = [
    *("http://x y/a.png", "http://127.0.0.1:99999/", "http://127.0.0.1:port/", "http://[::1", "http://[x]/"),
    *(
        "http://a..b/",
        f"http://{'a' * 300}/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\u00e9",
        "http://127.0.0.1/\x00",
    ),
    *("http://127.0.0.1\x00/", "http://127.0.0.1\r\nX: y/", "http://\u2100.example/", "http://\ud800/", "http://xn--/"),
    *("http:///x", "http://user:pass word@/", "//x y", ""),
]


@pytest.mark.parametrize("url", MALFORMED_URLS, ids=ascii)
def test_a_malformed_url_is_an_error_that_callers_expect(url: str) -> None:
    with pytest.raises((UrlFetchPolicyError, OSError)):
        fetch_url(url, FetchBudget(PRIVATE))


def test_a_redirect_to_a_malformed_url_is_an_error_that_callers_expect(pages: str) -> None:
    with pytest.raises((UrlFetchPolicyError, OSError)):
        fetch_url(f"{pages}/nowhere", FetchBudget(PRIVATE))


async def test_a_thread_goes_on_after_a_malformed_url(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The message stays in the thread, so a failure would repeat itself in every later run."""
    monkeypatch.setattr(socket, "getaddrinfo", None)  # a malformed name is not looked up
    model = ScriptedModel(says("ok"), says("ok again"))
    async with strands(agent_of(model), StrandsAgentConfig(url_fetch_policy=PRIVATE)) as thread:
        await thread.say([e.TextPart(text="look"), image("http://x y/a.png")])
        await thread.say("and now?")
    assert [list(block) for block in model.saw[1][0]["content"]] == [["text"], ["text"]]
    assert "the URL is malformed" in caplog.text


async def test_a_name_that_is_never_resolved_does_not_outlast_the_time_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = threading.Event()

    def resolve(host: str, port: int, **options: Any) -> Any:
        is_over.wait()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    policy = UrlFetchPolicy(max_total_seconds=0.1)
    try:
        with unless_hung():
            content = await shown_to_model(StrandsAgentConfig(url_fetch_policy=policy), image("http://page.example/"))
    finally:
        is_over.set()
    assert list(content[1]) == ["text"]


async def test_attachments_take_no_thread_from_others(pages: str) -> None:
    """Forty slow attachments once stopped the attachments of every other user."""
    shared, turns = (
        anyio.to_thread.current_default_thread_limiter(),
        [UserTurn(id="u", content=[image(f"{pages}/cat.png")])],
    )
    for i in range(int(shared.total_tokens)):
        shared.acquire_on_behalf_of_nowait(i)
    try:
        with unless_hung():
            loaded = await load_attachments([*turns], StrandsAgentConfig(url_fetch_policy=PRIVATE))
    finally:
        for i in range(int(shared.total_tokens)):
            shared.release_on_behalf_of(i)
    assert loaded != turns


async def test_without_a_policy_nothing_is_fetched(pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrandsBridge, "media_url_schemes", {"http"})  # The server refuses it otherwise.
    assert list((await shown_to_model(StrandsAgentConfig(), image(f"{pages}/cat.png")))[1]) == ["text"]


@pytest.mark.parametrize(("is_supported", "kind"), [(True, "audio"), (False, "text")])
async def test_audio_is_for_models_that_accept_it(is_supported: bool, kind: str) -> None:
    data = e.DataSource(value=base64.b64encode(b"la la").decode(), mime_type="audio/mp3")
    config = StrandsAgentConfig(audio_input_supported=is_supported)
    assert list((await shown_to_model(config, e.AudioPart(source=data)))[1]) == [kind]
