"""`RemoteBridge`: creates the adapters of a remote agent and owns their HTTP client."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext, PlatformResponse
from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts, check_headers, check_url, secret_values
from ambient_runner.bridges.remote.tools import parse_tools
from ambient_runner.errors import optional_dependency
from ambient_runner.runs.run import current_run_or_none

with optional_dependency("httpx", install="ambient-runner[remote]"):
    from ambient_runner.bridges.remote.adapter import RemoteAdapter, build_headers, remote_thread_id
    from ambient_runner.bridges.remote.client import RemoteServerClient

if TYPE_CHECKING:
    import httpx

    from ambient_runner.bridges.base import PlatformRequest
    from ambient_runner.bridges.remote.config import Headers
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Tool
    from ambient_runner.runs.run import Run

__all__ = ["RemoteBridge"]

logger = logging.getLogger(__name__)


class RemoteBridge(PlatformBridge):
    """Serves an agent of another AG-UI server.

    `headers` are sent with every request; a function gets the Run and returns the headers of that run. `timeout` is RemoteTimeouts, or the
    seconds the other server may be silent. `interrupt` is the URL that stops a run; by default `/interrupt` of the same server, once it has
    answered like an Ambient Runner. `client` is an httpx.AsyncClient of your own, for a proxy or a certificate; it accepts no cookies from
    then on.
    Raises: ConfigError.
    """

    restates_messages = False  # `translate.py` does that.
    forwarded_props = "all"  # The other server has rules of its own.
    corrects_history = True
    relays_developer_messages = True

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        timeout: RemoteTimeouts | float | None = None,
        limits: RemoteLimits | None = None,
        interrupt: str | bool | None = None,
        capabilities: FrameworkCapabilities | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        header_source = headers or {}
        self._headers = header_source if callable(header_source) else check_headers(header_source)
        self._interrupt = check_url(interrupt) if isinstance(interrupt, str) else interrupt
        self._capabilities = capabilities or FrameworkCapabilities(thinking=True)
        timeouts = RemoteTimeouts(idle=timeout) if isinstance(timeout, int | float) else timeout
        self._client = RemoteServerClient(
            check_url(url), timeouts=timeouts or RemoteTimeouts(), limits=limits or RemoteLimits(), client=client
        )

    def capabilities(self) -> FrameworkCapabilities:
        return self._capabilities

    def create_adapter(self, ctx: PlatformContext) -> RemoteAdapter:
        return RemoteAdapter(self._client, self._headers, self._interrupt)

    async def forward_platform_request(self, run: Run, request: PlatformRequest) -> PlatformResponse | None:
        """Send the request to the same route of the other server. Raises: RemoteFailed."""
        headers = {**await build_headers(self._headers, run), **request.headers}
        thread = {"threadId": remote_thread_id(run.thread)}
        query = request.query if request.body is not None else {**request.query, **thread}
        body = None if request.body is None else {**request.body, **thread}
        status, content = await self._client.send_json(request.method, request.path, query, headers, body)
        if errors.is_missing_route(status, content):
            return None
        return PlatformResponse(status=status, body=errors.parse_response(status, content, secret_values(headers)))

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        """Return the tools that the other server lists for this agent. Raises: RemoteFailed, also if it has no route for them."""
        run = current_run_or_none()
        headers = await build_headers(self._headers, run)
        query = {"threadId": remote_thread_id(run.thread)} if run is not None and run.thread.id else {}
        path = self._client.agent_path("/tools")
        status, content = await self._client.send_json("GET", path, query, headers, None)
        if errors.is_missing_route(status, content):
            raise errors.tools_unknown()
        if status != 200:
            raise errors.request_refused(status, content, secret_values(headers))
        return parse_tools(errors.parse_response(status, content))

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Ask the other server to erase its copy of the thread, if it is an Ambient Runner."""
        if not self._client.is_ours:
            return
        if callable(self._headers):
            logger.warning(
                "Thread %s was erased here but not at %s: its headers are computed for runs only. Erase it there, or use fixed headers.",
                thread.id,
                self._client.address,
            )
            return
        await self._client.erase_thread(remote_thread_id(thread), self._headers)

    async def aclose(self) -> None:
        await self._client.aclose()
