"""The remote bridge: what the server makes adapters with."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.remote.config import RemoteLimits, RemoteTimeouts, checked_headers, checked_url
from ambient_runner.errors import needing

with needing("httpx", install="ambient-runner[remote]"):
    from ambient_runner.bridges.remote.adapter import RemoteAdapter, remote_thread
    from ambient_runner.bridges.remote.client import Remote

if TYPE_CHECKING:
    import httpx

    from ambient_runner.bridges.remote.config import Headers
    from ambient_runner.ledger.base import ThreadKey

__all__ = ["RemoteBridge"]

logger = logging.getLogger(__name__)


class RemoteBridge(PlatformBridge):
    """An agent of another AG-UI server as an agent of this one.

    `headers` go with every request; a function gets the Run and says them for one run. `timeout` is RemoteTimeouts, or the seconds the
    other server may be silent. `interrupt` is where a run can be stopped; by default `/interrupt` beside the agent, once the other
    server has shown that it is one of ours. `client` is an httpx.AsyncClient of your own, for a proxy or a certificate; it
    takes no cookies from then on.
    Raises: ConfigError.
    """

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
        given = headers or {}
        self._headers = given if callable(given) else checked_headers(given)
        self._interrupt = checked_url(interrupt) if isinstance(interrupt, str) else interrupt
        self._capabilities = capabilities or FrameworkCapabilities(thinking=True)
        timeouts = RemoteTimeouts(idle=timeout) if isinstance(timeout, int | float) else timeout
        self._remote = Remote(
            checked_url(url), timeouts=timeouts or RemoteTimeouts(), limits=limits or RemoteLimits(), client=client
        )

    def capabilities(self) -> FrameworkCapabilities:
        return self._capabilities

    def create_adapter(self, ctx: PlatformContext) -> RemoteAdapter:
        return RemoteAdapter(self._remote, self._headers, self._interrupt)

    async def forget(self, thread: ThreadKey) -> None:
        """A thread is erased here: a server of ours is asked to erase what it has of it."""
        if not self._remote.is_ours:
            return
        if callable(self._headers):
            logger.warning("A thread was erased here and not at the other server: its headers are made for runs only")
            return
        await self._remote.forget(remote_thread(thread), self._headers)

    async def aclose(self) -> None:
        await self._remote.aclose()
