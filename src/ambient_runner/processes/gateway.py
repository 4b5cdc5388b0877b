"""The model gateway: a unix socket through which a sandboxed agent reaches its model. Requests get the real key outside of the sandbox.

The agent has a placeholder in place of the key, and a socket in place of a network. What it sends to the socket goes to the provider's base
URL, or as a tunnel to a host that is allowed. `gateway_inside.py` is the other end, inside the sandbox; `gateway_connection.py` serves one
connection.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import TYPE_CHECKING

from ambient_runner.processes.gateway_addresses import DEFAULT_PORT, AllowedHosts
from ambient_runner.processes.gateway_connection import AgentConnection, GatewayRules
from ambient_runner.processes.gateway_headers import KeyHeaders, Upstream, error_body
from ambient_runner.processes.gateway_stream import GatewayLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["GatewayLimits", "ModelGateway"]

_SOCKET_NAME = "gateway.sock"
_MAX_SOCKET_PATH = 107  # bytes
_MAX_REFUSED = 100
"""Refused hosts that are reported: an agent can name any number of them."""


class ModelGateway:
    """Forwards the requests of one agent. `start` it before the agent, `aclose` it after.

    base_url: where requests go, with a path in front of the agent's own; None if the agent needs no model through this gateway.
    headers: those that carry the real key, such as `{"x-api-key": KEY}` or `{"authorization": "Bearer KEY"}`.
    placeholder: the key that the agent has.
    hosts: where the agent may connect to besides, as `host`, `host:port`, `*.suffix` or `*`; the port is 443 unless given.
    on_refused: called once per host that the agent was kept from. Must not block or raise.

    Raises: ValueError if the base URL or a host is malformed.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        headers: Mapping[str, str],
        placeholder: str,
        hosts: Sequence[str] = (),
        on_refused: Callable[[str], None] | None = None,
        limits: GatewayLimits | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits or GatewayLimits()
        self._on_refused = on_refused
        self._rules = GatewayRules(
            upstream=Upstream.parse(base_url) if base_url else None,
            keys=KeyHeaders(headers, placeholder),
            hosts=AllowedHosts(hosts),
            ssl_context=(lambda: ssl_context) if ssl_context else _default_ssl_context,
            limits=self._limits,
            report_refused=self._report_refused,
        )
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._socket_path: Path | None = None
        self.port: int | None = None
        """The port on 127.0.0.1, if the gateway listens on one."""
        self.refused: list[str] = []
        """Hosts that the agent was kept from, in order: `host`, or `host:port` for a port other than 443."""

    @property
    def socket_path(self) -> Path:
        """The socket. Raises: RuntimeError before the start and after the end."""
        if self._socket_path is None:
            raise RuntimeError("The gateway is not running.")
        return self._socket_path

    async def start(self, directory: Path, *, has_port: bool = False) -> None:
        """Listen on a socket in the directory, which only this user may enter.

        `has_port`: listen on a port of 127.0.0.1 too, for an agent that has the machine's network. Other users of the machine can connect
        to it, so there a request needs the placeholder, and leads to the model only.

        Raises: OSError; ValueError if the path of the socket would be too long.
        """
        path = directory / _SOCKET_NAME
        if len(bytes(path)) > _MAX_SOCKET_PATH:
            raise ValueError(
                f"The path of the gateway's socket has more than {_MAX_SOCKET_PATH} bytes: choose a shorter directory."
            )
        self._servers.append(await asyncio.start_unix_server(self._accept, path))
        self._socket_path = path
        path.chmod(0o600)
        if has_port:
            server = await asyncio.start_server(self._accept_shared, "127.0.0.1", 0)
            self._servers.append(server)
            self.port = server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Close all connections and the socket. Safe to call twice, and before the start."""
        for server in self._servers:
            server.close()
        servers, self._servers = self._servers, []
        path, self._socket_path = self._socket_path, None
        if path is not None:
            path.unlink(missing_ok=True)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for server in servers:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start_connection(reader, writer, is_shared=False)

    def _accept_shared(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start_connection(reader, writer, is_shared=True)

    def _start_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_shared: bool) -> None:
        if not self._servers:
            writer.transport.abort()
        elif len(self._connections) >= self._limits.max_connections:
            writer.write(_too_many_connections())
            writer.close()
        else:
            connection = AgentConnection(reader, writer, self._rules, is_shared=is_shared)
            task = asyncio.create_task(connection.serve())
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    def _report_refused(self, host: str, port: int) -> None:
        name = host if port == DEFAULT_PORT else f"{host}:{port}"
        if name not in self.refused and len(self.refused) < _MAX_REFUSED:
            self.refused.append(name)
            if self._on_refused is not None:
                self._on_refused(name)


def _too_many_connections() -> bytes:
    body = error_body(503, "overloaded_error", "The agent has too many connections to its model.")
    head = (
        f"HTTP/1.1 503 \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


@cache
def _default_ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
