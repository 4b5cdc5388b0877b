"""One server's working parts: the ledger, the Runner and the open streams, opened and closed together.

An app's lifespan opens it. Where no lifespan ever runs (a mounted sub-app), the first request starts a task that owns it until the loop
ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from ambient_runner.errors import UnknownThread
from ambient_runner.ledger import open_ledger
from ambient_runner.protocol.events import Custom
from ambient_runner.runs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.runs.containment import LeftBehind
    from ambient_runner.runs.run import Agent, Middleware, Run
    from ambient_runner.server.platform import Platform
    from ambient_runner.telemetry.tracing import Tracing

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.1


class Stream(Protocol):
    """An open response that can be ended from outside."""

    def finish(self) -> None: ...


class Service:
    """What the routes work with. `runner` is there while the service runs."""

    def __init__(
        self,
        settings: Settings,
        agents: Mapping[str, Agent],
        *,
        platform: Platform,
        middleware: Sequence[Middleware] = (),
        tracing: Tracing | None = None,
    ) -> None:
        self.settings = settings
        self.agents = agents
        self.platform = platform
        self.streams: set[Stream] = set()
        self.reader: ThreadPoolExecutor | None = None
        """Where large bodies are read. One thread: every thread keeps memory of its own for what it once needed."""
        self._middleware = (tracing.middleware, *middleware) if tracing else middleware
        self._tracing = tracing
        self._runner: Runner | None = None
        self._left_behind: LeftBehind = set()
        self._owner: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()

    @property
    def default_agent(self) -> str:
        return next(iter(self.agents))

    @property
    def is_ready(self) -> bool:
        return self._runner is not None and not self._runner.draining

    @property
    def left_behind(self) -> LeftBehind:
        """Agents that would not end. Still known after the service has closed."""
        return self._left_behind

    async def runner(self) -> Runner:
        """The Runner, started now if no lifespan did. Raises: what opening the store raises."""
        if self._runner is None:
            if self._owner is None or self._owner.done():
                self._opened.clear()
                # The loop's shutdown cancels this task, and that closes the service: no one else could.
                self._owner = asyncio.create_task(self._own())
            await self._opened.wait()
        if self._runner is None:
            assert self._owner is not None
            await self._owner
        assert self._runner is not None
        return self._runner

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Open the store and the Runner; on the way out, drain and close."""
        async with AsyncExitStack() as stack:
            ledger = await stack.enter_async_context(open_ledger(self.settings.store, lease=self.settings.lease))
            runner = Runner(
                ledger,
                self.agents,
                self.settings,
                self._middleware,
                secrets=self.platform.secrets,
                on_erase=(self.platform.forget,),
                announce=self._announce,
            )
            await stack.enter_async_context(self.platform.running(runner))
            if self._tracing is not None:
                await stack.enter_async_context(self._tracing.running())
            self._left_behind = runner.left_behind
            self._runner = await stack.enter_async_context(runner)
            stack.callback(self._forget)
            self.reader = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="ambient-bodies"))
            watch = await stack.enter_async_context(anyio.create_task_group())
            watch.start_soon(self._drain_with_the_server)
            try:
                yield
            finally:
                watch.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self.drain()

    async def drain(self) -> None:
        """Stop taking work, end the runs, then end the streams that would go on for ever."""
        if self._runner is not None:
            await self._runner.drain()
        self.platform.drain()
        for stream in list(self.streams):
            stream.finish()

    async def erase(self, key: ThreadKey) -> None:
        """Forget a thread. One that has had no run yet may have a workspace all the same.

        Raises: UnknownThread, LedgerError; ServiceError when something of its workspace is left.
        """
        runner = await self.runner()
        has_workspace = await self.platform.has_workspace(key)
        try:
            await runner.erase(key)
        except UnknownThread:
            if not has_workspace:
                raise
            await self.platform.forget(key)
        self.platform.check_erased(key)

    async def _own(self) -> None:
        try:
            async with self.running():
                self._opened.set()
                await anyio.sleep_forever()
        finally:
            self._opened.set()

    def _announce(self, run: Run) -> Iterable[Custom]:
        """The trace id where someone traces, for clients that do not read RUN_STARTED's metadata; to a new thread also what there is."""
        if self._tracing is not None:
            yield Custom(name="ambient:trace_id", value={"traceId": run.trace_id})
        if not run.is_continuation:
            yield from self.platform.introduction(run)

    def _forget(self) -> None:
        self._runner = None

    async def _drain_with_the_server(self) -> None:
        """uvicorn closes an app only after its last response has ended, and ours do not end by themselves: look for its exit flag."""
        while not _is_exiting(signal.SIGTERM):  # noqa: ASYNC110  a flag of uvicorn's, nothing to await
            await anyio.sleep(_LOOK_EVERY)
        await self.drain()


def _is_exiting(number: signal.Signals) -> bool:
    """Whether the uvicorn server that handles this signal has been told to end. False under any other server."""
    server: Any = getattr(signal.getsignal(number), "__self__", None)
    return bool(getattr(server, "should_exit", False))
