"""HTTP client of a remote agent: one POST per run with a streamed response, and a request that stops it. The only module that uses httpx.

Redirects are not followed, proxy, netrc and certificate settings of the environment are ignored, and compressed responses are refused. So
are cookies: one client serves all users, and the cookie of one would be sent with the run of another.
"""

from __future__ import annotations

import logging
import re
import ssl
from contextlib import aclosing, asynccontextmanager, contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import anyio
import httpx
import msgspec

from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.remote.config import secret_values
from ambient_runner.protocol.headers import RUN_HEADER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping
    from http.cookiejar import Cookie
    from urllib.request import Request

    from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts

__all__ = ["RemoteServerClient"]

logger = logging.getLogger(__name__)

_STREAM_TYPES = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", ""})
_REQUEST_HEADERS = {
    "Accept": "text/event-stream, application/x-ndjson;q=0.9",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
_AGENT_PATH = re.compile(r"/agents/[A-Za-z0-9_-]{1,64}/?\Z")
_MAX_ERROR_BODY = 1 << 16
_CONNECT_RETRIES = 2
"""Immediate retries of a failed connection: nothing was sent yet, and a restarting server is soon back."""
_DRAIN_TIMEOUT = 0.2
"""Seconds for the other server to end its response after the terminal event, so that the connection can be reused."""


class _NoNewCookies(DefaultCookiePolicy):
    """Sends the cookies a client was created with and accepts no others."""

    def set_ok(self, cookie: Cookie, request: Request) -> bool:
        return False


class RemoteServerClient:
    """HTTP client for one remote agent. A `client` of the user's, for a proxy or a certificate, is used unchanged except that it accepts
    no more cookies, and is not closed."""

    def __init__(
        self, url: str, *, timeouts: RemoteTimeouts, limits: RemoteLimits, client: httpx.AsyncClient | None = None
    ) -> None:
        self.url = url
        self.address = url.partition("?")[0]
        """URL for log messages, without the query, which may hold a credential."""
        self.timeouts = timeouts
        self.limits = limits
        self.is_ours = False
        """True once the server has answered like an Ambient Runner: it can then be asked to stop a run and to erase a thread."""
        self._provided_client = None if client is None else _without_new_cookies(client)
        self._own_client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def open_stream(self, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[httpx.Response, None]:
        """Yield the response to a run once it is known to be an event stream; close it on exit. Raises: RemoteFailed."""
        request = self._http_client().build_request(
            "POST", self.url, content=body, headers={**headers, **_REQUEST_HEADERS}
        )
        response = await self._send_request(request, self.timeouts.answer)
        try:
            self.is_ours = self.is_ours or RUN_HEADER in response.headers
            await self._check_response(response, headers)
            yield response
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(self.timeouts.connect):
                await response.aclose()

    async def read_chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives. Raises: RemoteFailed."""
        size = 0
        with _map_http_errors(self.timeouts.idle):
            async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_raw())) as chunks:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self.limits.run:
                        raise errors.too_large(self.limits.run)
                    yield chunk

    async def drain_stream(self, chunks: AsyncGenerator[bytes, None]) -> None:
        """Read to the end of the response, if it comes soon, so that the connection can be reused."""
        with anyio.move_on_after(_DRAIN_TIMEOUT):
            try:
                async for _ in chunks:
                    pass
            except errors.RemoteFailed:
                logger.debug("%s broke off its response after the end of the run", self.address, exc_info=True)

    async def stop_run(self, url: str, thread_id: str, headers: Mapping[str, str]) -> bool:
        """Ask the other server to stop the thread's run; return True if it accepts."""
        body = msgspec.json.encode({"threadId": thread_id})
        return await self._request_succeeds("POST", url, headers, body)

    async def erase_thread(self, thread_id: str, headers: Mapping[str, str]) -> bool:
        """Ask the other server to erase a thread; return True if it has."""
        return await self._request_succeeds("DELETE", self.sibling_url(f"/thread/{quote(thread_id, safe='')}"), headers)

    async def send_json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
    ) -> tuple[int, bytes]:
        """Send a request to another route of the same server. Return the status and the body, uncompressed. Raises: RemoteFailed."""
        url = self.sibling_url(path)
        if query:
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"
        sent = {**headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        content = None if body is None else msgspec.json.encode(body)
        request = self._http_client().build_request(method, url, content=content, headers=sent)
        # A route may work for minutes before it responds: cloning a repository does.
        response = await self._send_request(request, self.timeouts.idle)
        try:
            return response.status_code, await self._read_json(response)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(self.timeouts.connect):
                await response.aclose()

    def agent_path(self, path: str) -> str:
        """Return the path of a route about this agent, for `send_json`: `/agents/{name}/tools`, or `/tools` of the default agent."""
        agent = _AGENT_PATH.search(urlsplit(self.url).path)
        return f"{agent[0].rstrip('/') if agent else ''}{path}"

    def sibling_url(self, path: str) -> str:
        """Return the URL of another route of the same server, without the agent's `/agents/{name}`."""
        parts = urlsplit(self.url)
        root = _AGENT_PATH.sub("", parts.path).rstrip("/")
        return urlunsplit((parts.scheme, parts.netloc, f"{root}{path}", parts.query, ""))

    async def aclose(self) -> None:
        client, self._own_client = self._own_client, None
        if client is not None:
            await client.aclose()

    def _http_client(self) -> httpx.AsyncClient:
        if self._provided_client is not None:
            return self._provided_client
        if self._own_client is None:
            # Loading the CA certificates takes 50 ms. Plain HTTP needs none; without them every certificate is refused.
            verify = True if self.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            transport = httpx.AsyncHTTPTransport(
                verify=verify, retries=_CONNECT_RETRIES, trust_env=False, limits=httpx.Limits(max_connections=None)
            )
            timeout = httpx.Timeout(self.timeouts.idle, connect=self.timeouts.connect, pool=None)
            self._own_client = _without_new_cookies(
                httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)
            )
        return self._own_client

    async def _send_request(self, request: httpx.Request, timeout: float) -> httpx.Response:
        try:
            with _map_http_errors(timeout), anyio.fail_after(timeout):
                return await self._http_client().send(request, stream=True, auth=None, follow_redirects=False)
        except TimeoutError:
            raise errors.no_response(timeout) from None

    async def _read_json(self, response: httpx.Response) -> bytes:
        """Return the body. Raises: RemoteFailed if it is compressed or too large."""
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise errors.not_agui()
        body = bytearray()
        with _map_http_errors(self.timeouts.idle):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self.limits.event:
                    raise errors.too_large(self.limits.event)
        return bytes(body)

    async def _check_response(self, response: httpx.Response, headers: Mapping[str, str]) -> None:
        if response.status_code != 200:
            body = await self._error_body(response)
            raise errors.request_refused(response.status_code, body, secret_values(headers))
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if media_type not in _STREAM_TYPES or encoding != "identity":
            raise errors.not_agui()

    async def _error_body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        with anyio.move_on_after(self.timeouts.connect):
            try:
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _MAX_ERROR_BODY:
                        break
            except httpx.HTTPError:
                logger.debug("%s broke off its error response", self.address, exc_info=True)
        return bytes(body)

    async def _request_succeeds(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> bool:
        sent = {**headers, "Accept-Encoding": "identity", **({"Content-Type": "application/json"} if body else {})}
        request = self._http_client().build_request(method, url, content=body, headers=sent)
        with anyio.move_on_after(self.timeouts.connect):
            try:
                response = await self._http_client().send(request, stream=True, auth=None, follow_redirects=False)
                await response.aclose()
            except httpx.HTTPError:
                logger.info(
                    "%s %s failed; the other server may still hold the run or the thread",
                    method,
                    url.partition("?")[0],
                    exc_info=True,
                )
            else:
                return response.is_success
        return False


def _without_new_cookies(client: httpx.AsyncClient) -> httpx.AsyncClient:
    client.cookies.jar.set_policy(_NoNewCookies())
    return client


@contextmanager
def _map_http_errors(seconds: float) -> Generator[None]:
    """Raise httpx's errors as RemoteFailed. The log gets the cause, never a header."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise errors.server_unreachable() from error
    except httpx.TimeoutException as error:
        raise errors.no_response(seconds) from error
    except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
        raise errors.server_unreachable() from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise errors.ended_early() from error
