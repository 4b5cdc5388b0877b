"""One connection of an agent to its gateway: requests to the model, requests and tunnels to allowed hosts, and what is refused.

A request and its response stream at the same time: an upload is forwarded while it arrives, a response as soon as a part of it is there. An
agent that closes its connection ends the request at the provider too.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

from ambient_runner.processes.gateway_addresses import AddressRefused, AllowedHosts, open_connection_to, parse_authority
from ambient_runner.processes.gateway_headers import (
    KeyHeaders,
    KeyMask,
    UnacceptableRequest,
    Upstream,
    error_body,
    forward_request,
    forward_response,
)
from ambient_runner.processes.gateway_stream import GatewayLimits, HttpStream, relay_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["AgentConnection", "GatewayRules"]

logger = logging.getLogger(__name__)

_DISCARD_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True, kw_only=True)
class GatewayRules:
    """Settings that all connections of a gateway share."""

    upstream: Upstream | None
    keys: KeyHeaders
    hosts: AllowedHosts
    ssl_context: Callable[[], ssl.SSLContext]
    limits: GatewayLimits
    report_refused: Callable[[str, int], None]


class _Failed(Exception):
    """The request gets an error as its response."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class AgentConnection:
    """Serves the requests of one connection, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rules: GatewayRules, *, is_shared: bool
    ) -> None:
        self._rules = rules
        self._is_shared = is_shared
        """Others on this machine can connect too: only requests with the placeholder are served, and no tunnels."""
        self._agent = HttpStream(h11.SERVER, reader, writer, rules.limits)
        self._upstream: HttpStream | None = None
        """The connection to the model, kept for the next request."""
        self._bad_body = False

    async def serve(self) -> None:
        """Serve until the agent closes the connection, or it can no longer be used."""
        try:
            while isinstance(request := await self._agent.receive(self._rules.limits.keep_alive), h11.Request):
                await self._respond(request)
                if not self._agent.start_next_cycle():
                    break
            await self._agent.aclose()
        except h11.RemoteProtocolError as error:
            with suppress(OSError, TimeoutError):
                await self._refuse_malformed(error.error_status_hint)
        except (OSError, TimeoutError):
            pass  # The agent is gone, or silent for too long.
        finally:
            self._agent.abort()
            self._close_upstream()

    async def _respond(self, request: h11.Request) -> None:
        is_waiting = self._agent.http.they_are_waiting_for_100_continue
        try:
            await (self._tunnel(request) if request.method == b"CONNECT" else self._forward(request))
        except _Failed as failure:
            await self._send_error(failure)
            if not is_waiting:
                await self._discard_body()

    async def _forward(self, request: h11.Request) -> None:
        """Send a request to the model, or in the absolute form to an allowed host. Raises: _Failed before a response has begun."""
        if self._is_shared and not self._rules.keys.is_carried_by(request):
            raise _Failed(401, "authentication_error", "The gateway does not know this key.")
        if not request.target.startswith(b"/"):
            await self._forward_to_host(request)
            return
        model = self._rules.upstream
        if model is None:
            raise _Failed(404, "not_found_error", "This gateway leads to no model.")
        forwarded = _rewrite(request, model, self._rules.keys, with_key=True)
        upstream = await self._connect_to_model(model)
        await self._exchange(forwarded, upstream)
        if not upstream.start_next_cycle():
            self._close_upstream()

    async def _forward_to_host(self, request: h11.Request) -> None:
        scheme, _, rest = request.target.partition(b"://")
        authority, _, path = rest.partition(b"/")
        if scheme.lower() != b"http":
            raise _Failed(400, "invalid_request_error", "The gateway does not forward this request.")
        reader, writer = await self._open_host(authority.decode("latin-1"), default_port=80)
        try:
            origin_form = h11.Request(method=request.method, target=b"/" + path, headers=request.headers)
            host = Upstream(host="", port=0, is_tls=False, authority=authority)
            forwarded = _rewrite(origin_form, host, self._rules.keys, with_key=False)
            await self._exchange(forwarded, HttpStream(h11.CLIENT, reader, writer, self._rules.limits))
        finally:
            writer.transport.abort()

    async def _tunnel(self, request: h11.Request) -> None:
        """Connect the agent with an allowed host. Raises: _Failed before the connection is made."""
        while isinstance(await self._agent.receive(), h11.Data):
            pass  # A tunnel begins after the request, which should have no body.
        reader, writer = await self._open_host(request.target.decode("latin-1"))
        try:
            await self._agent.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
            writer.write(self._agent.http.trailing_data[0])
            agent = (self._agent.reader, self._agent.writer)
            await relay_bytes(agent, (reader, writer), self._rules.limits.idle_timeout)
        finally:
            writer.transport.abort()

    async def _open_host(
        self, authority: str, default_port: int | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host that the agent has named. Raises: _Failed."""
        if self._is_shared:
            raise _Failed(403, "permission_error", "This gateway leads to the model only.")
        try:
            host, port = parse_authority(authority, default_port)
        except ValueError:
            raise _Failed(400, "invalid_request_error", "The gateway does not know where to connect to.") from None
        access = self._rules.hosts.find_access(host, port)
        try:
            if access is None:
                raise AddressRefused
            async with asyncio.timeout(self._rules.limits.connect_timeout):
                return await open_connection_to(host, port, access)
        except AddressRefused:
            self._rules.report_refused(host, port)
            raise _Failed(403, "permission_error", "The agent may not connect to this host.") from None
        except (OSError, TimeoutError):
            raise _Failed(502, "api_error", "This host could not be reached.") from None

    async def _connect_to_model(self, model: Upstream) -> HttpStream:
        """Return the connection of the last request, or a new one. Raises: _Failed."""
        if self._upstream is not None and self._upstream.is_reusable(self._rules.limits.reuse):
            return self._upstream
        self._close_upstream()
        context = self._rules.ssl_context() if model.is_tls else None
        try:
            async with asyncio.timeout(self._rules.limits.connect_timeout):
                reader, writer = await asyncio.open_connection(model.host, model.port, ssl=context)
        except (OSError, TimeoutError) as error:
            raise _unreachable(model, error) from None
        self._upstream = HttpStream(h11.CLIENT, reader, writer, self._rules.limits)
        return self._upstream

    async def _exchange(self, request: h11.Request, upstream: HttpStream) -> None:
        """Forward a request with its body, and the response. Raises: _Failed before the response has begun."""
        try:
            await upstream.send(request)
        except (OSError, TimeoutError):
            raise _Failed(502, "api_error", "The connection to the model's server was lost.") from None
        if self._agent.http.they_are_waiting_for_100_continue:
            await self._agent.send(h11.InformationalResponse(status_code=100, headers=[]))
        async with asyncio.TaskGroup() as tasks:
            upload = tasks.create_task(self._send_body(upstream))
            failure = await self._relay_response(upstream)
            upload.cancel()
        if failure is not None:
            raise failure

    async def _send_body(self, upstream: HttpStream) -> None:
        """Forward the body of the request, then end the upstream's connection if the agent leaves before the response is complete."""
        try:
            while isinstance(event := await self._agent.receive(), h11.Data):
                if not await _try_send(upstream, h11.Data(data=bytes(event.data))):
                    return
            await _try_send(upstream, h11.EndOfMessage())
            has_left = not await self._agent.receive_block(None)
        except h11.RemoteProtocolError:
            has_left = self._bad_body = True
        except (OSError, TimeoutError):
            has_left = True
        if has_left:
            upstream.abort()

    async def _relay_response(self, upstream: HttpStream) -> _Failed | None:
        """Forward the response. Return the failure if it did not begin; end the agent's connection if it was cut off."""
        mask = KeyMask(self._rules.keys.secrets)
        try:
            while not isinstance(event := await upstream.receive(), h11.EndOfMessage):
                match event:
                    case h11.Response():
                        await self._agent.send(forward_response(event, mask))
                    case h11.Data():
                        await self._send_data(mask.feed(bytes(event.data)))
                    case h11.InformationalResponse():
                        pass
                    case _:
                        raise h11.RemoteProtocolError("The upstream closed the connection.")
            await self._send_data(mask.flush())
            await self._agent.send(h11.EndOfMessage())
        except (OSError, TimeoutError, h11.ProtocolError) as error:
            upstream.abort()
            if self._agent.http.our_state is h11.SEND_RESPONSE:
                return self._no_response(error)
            self._agent.abort()
        return None

    async def _send_data(self, data: bytes) -> None:
        if data:
            await self._agent.send(h11.Data(data=data))

    def _no_response(self, error: Exception) -> _Failed:
        if self._bad_body:
            return _Failed(400, "invalid_request_error", "The body of the request is malformed.")
        if isinstance(error, TimeoutError):
            return _Failed(504, "api_error", "The model's server did not answer in time.")
        return _Failed(502, "api_error", "The model's server closed the connection without an answer.")

    async def _refuse_malformed(self, status: int) -> None:
        if self._agent.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send_error(_Failed(status, "invalid_request_error", "This is not an HTTP request."))
            await self._agent.aclose()

    async def _send_error(self, failure: _Failed) -> None:
        body = error_body(failure.status, failure.kind, failure.message)
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        response = h11.Response(status_code=failure.status, headers=headers)
        await self._agent.send(response, h11.Data(data=body), h11.EndOfMessage())

    async def _discard_body(self) -> None:
        """Read the rest of a refused request, so that the agent reads the response and can use the connection again."""
        size = 0
        while self._agent.http.their_state is h11.SEND_BODY and size <= self._rules.limits.max_discarded_bytes:
            event = await self._agent.receive(_DISCARD_TIMEOUT)
            size += len(event.data) if isinstance(event, h11.Data) else 0

    def _close_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()


def _rewrite(request: h11.Request, upstream: Upstream, keys: KeyHeaders, *, with_key: bool) -> h11.Request:
    """Return the request for the upstream. Raises: _Failed."""
    try:
        return forward_request(request, upstream, keys, with_key=with_key)
    except (UnacceptableRequest, h11.LocalProtocolError):
        raise _Failed(400, "invalid_request_error", "The gateway does not forward this request.") from None


def _unreachable(model: Upstream, error: Exception) -> _Failed:
    logger.warning("The model's server %s:%d could not be reached: %s.", model.host, model.port, type(error).__name__)
    return _Failed(502, "api_error", "The model's server could not be reached.")


async def _try_send(stream: HttpStream, event: h11.Event) -> bool:
    """Return False if the other side no longer reads. It may have answered already, so that is not a failure by itself."""
    try:
        await stream.send(event)
    except (OSError, TimeoutError, h11.LocalProtocolError):
        return False
    return True
