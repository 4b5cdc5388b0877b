"""HTTP to the other server: one POST per run, its answer in pieces, and a request that ends it. The only place that knows httpx.

No redirect is followed, no proxy, netrc or certificate setting of the environment is used, and nothing compressed is taken. Nor is a
cookie: one client serves all users, and what one of them was given would go with the next one's run.
"""

from __future__ import annotations

import logging
import re
import ssl
from contextlib import asynccontextmanager, contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

import anyio
import httpx
import msgspec

from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.remote.config import secret_values

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping
    from http.cookiejar import Cookie
    from urllib.request import Request

    from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts

__all__ = ["Remote"]

logger = logging.getLogger(__name__)

_STREAMS = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", ""})
_ASKED = {
    "Accept": "text/event-stream, application/x-ndjson;q=0.9",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
_AGENT = re.compile(r"/agents/[A-Za-z0-9_-]{1,64}/?$")
_ERROR_BODY = 1 << 16
_CONNECT_AGAIN = 2
"""Times a connection is tried again at once: nothing was sent yet, and a server that restarts is soon back."""
_LAST_PIECE = 0.2
"""Seconds the other server has to close its answer after the terminal event, so that the connection can be used again."""


class _TakesNone(DefaultCookiePolicy):
    """Sends the cookies a client was made with, and takes no others."""

    def set_ok(self, cookie: Cookie, request: Request) -> bool:
        return False


class Remote:
    """The other server. `client` is for those who need a proxy or a certificate of their own. It takes no cookies from now on, and is
    not closed; else it is used as it is."""

    def __init__(
        self, url: str, *, timeouts: RemoteTimeouts, limits: RemoteLimits, client: httpx.AsyncClient | None = None
    ) -> None:
        self.url = url
        self.timeouts = timeouts
        self.limits = limits
        self.is_ours = False
        """Whether it has answered like a server of this project: it can then be asked to stop a run and to forget a thread."""
        self._given = None if client is None else _without_new_cookies(client)
        self._made: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def answering(self, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[httpx.Response, None]:
        """The answer to a run, once it is known to be a stream. Leaving closes it. Raises: RemoteFailed."""
        request = self._http().build_request("POST", self.url, content=body, headers={**headers, **_ASKED})
        response = await self._sent(request)
        try:
            self.is_ours = self.is_ours or "x-ambient-run" in response.headers
            await self._check(response, headers)
            yield response
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(self.timeouts.connect):
                await response.aclose()

    async def pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises: RemoteFailed."""
        size = 0
        with _mapped(self.timeouts.idle):
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > self.limits.run:
                    raise errors.too_large(self.limits.run)
                yield piece

    async def finish(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Read to the proper end, if it comes soon."""
        with anyio.move_on_after(_LAST_PIECE):
            try:
                async for _ in pieces:
                    pass
            except errors.RemoteFailed:
                logger.debug("The other server did not end its answer well", exc_info=True)

    async def stop(self, url: str, thread_id: str, headers: Mapping[str, str]) -> bool:
        """Ask the other server to end the thread's run; whether it will."""
        body = msgspec.json.encode({"threadId": thread_id})
        return await self._asked("POST", url, headers, body)

    async def forget(self, thread_id: str, headers: Mapping[str, str]) -> bool:
        """Ask it to erase a thread; whether it has."""
        return await self._asked("DELETE", self.beside(f"/thread/{quote(thread_id, safe='')}"), headers)

    def beside(self, path: str) -> str:
        """Another route of the same server: `/agents/{name}` at the end of the URL is not part of it."""
        parts = urlsplit(self.url)
        root = _AGENT.sub("", parts.path).rstrip("/")
        return urlunsplit((parts.scheme, parts.netloc, f"{root}{path}", parts.query, ""))

    async def aclose(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.aclose()

    def _http(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        if self._made is None:
            # Reading the world's certificates takes 50 ms. Without them every certificate is refused, and none is expected.
            verify = True if self.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            transport = httpx.AsyncHTTPTransport(
                verify=verify, retries=_CONNECT_AGAIN, trust_env=False, limits=httpx.Limits(max_connections=None)
            )
            timeout = httpx.Timeout(self.timeouts.idle, connect=self.timeouts.connect, pool=None)
            self._made = _without_new_cookies(httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False))
        return self._made

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        try:
            with _mapped(self.timeouts.answer), anyio.fail_after(self.timeouts.answer):
                return await self._http().send(request, stream=True, auth=None, follow_redirects=False)
        except TimeoutError:
            raise errors.silent(self.timeouts.answer) from None

    async def _check(self, response: httpx.Response, headers: Mapping[str, str]) -> None:
        if response.status_code != 200:
            body = await self._error_body(response)
            raise errors.refused(response.status_code, body, secret_values(headers))
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if media_type not in _STREAMS or encoding != "identity":
            raise errors.not_agui()

    async def _error_body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        with anyio.move_on_after(self.timeouts.connect):
            try:
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > _ERROR_BODY:
                        break
            except httpx.HTTPError:
                logger.debug("The other server did not end its refusal well", exc_info=True)
        return bytes(body)

    async def _asked(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> bool:
        sent = {**headers, "Accept-Encoding": "identity", **({"Content-Type": "application/json"} if body else {})}
        request = self._http().build_request(method, url, content=body, headers=sent)
        with anyio.move_on_after(self.timeouts.connect):
            try:
                response = await self._http().send(request, stream=True, auth=None, follow_redirects=False)
                await response.aclose()
            except httpx.HTTPError:
                logger.info("The other server did not answer to %s", method, exc_info=True)
            else:
                return response.is_success
        return False


def _without_new_cookies(client: httpx.AsyncClient) -> httpx.AsyncClient:
    client.cookies.jar.set_policy(_TakesNone())
    return client


@contextmanager
def _mapped(seconds: float) -> Generator[None]:
    """What goes wrong on the way, as one of ours. The log gets the cause, never a header."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise errors.unreachable() from error
    except httpx.TimeoutException as error:
        raise errors.silent(seconds) from error
    except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
        raise errors.unreachable() from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise errors.ended_early() from error
