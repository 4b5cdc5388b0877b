"""Runtime of one server: the ledger, the Runner and the open streams, opened and closed together.

The app's lifespan opens it. Where no lifespan runs (a mounted sub-app), the first request starts a task that owns it until the event loop
ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ambient_runner.errors import UnknownThread
from ambient_runner.ledger import open_ledger
from ambient_runner.protocol.events import Custom
from ambient_runner.runs.large_work import LARGE_BYTES
from ambient_runner.runs.loop_monitor import report_blocked_loop
from ambient_runner.runs.reattach_cache import ReopeningPoints
from ambient_runner.runs.runner import Runner
from ambient_runner.server.audiences import Audiences
from ambient_runner.server.message_cache import MessageCache
from ambient_runner.server.stream_monitor import monitor_streams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from ambient_runner.config import Settings
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.runs.containment import UncancellableTasks
    from ambient_runner.runs.run import Agent, Middleware, Run
    from ambient_runner.server.platform import Platform
    from ambient_runner.server.stream_monitor import MonitoredStream
    from ambient_runner.telemetry.tracing import Tracing

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

_EXIT_POLL_INTERVAL = 0.1
"""Seconds between checks if uvicorn is about to exit."""


class ServerRuntime:
    """The agents, the Runner and the streams that the routes work with."""

    def __init__(
        self,
        settings: Settings,
        agents: Mapping[str, Agent],
        *,
        platform: Platform,
        audiences: Audiences | None = None,
        middleware: Sequence[Middleware] = (),
        tracing: Tracing | None = None,
    ) -> None:
        self.settings = settings
        self.agents = agents
        self.platform = platform
        self.audiences = audiences or Audiences(settings, {})
        self.streams: set[MonitoredStream] = set()
        self.reopening_points = ReopeningPoints()
        self.message_cache = MessageCache()
        self._body_executor: ThreadPoolExecutor | None = None
        """Executor that parses large bodies. A single thread: each thread would keep the memory of its largest body."""
        self._middleware = (tracing.middleware, *middleware) if tracing else middleware
        self._tracing = tracing
        self._runner: Runner | None = None
        self._uncancellable_tasks: UncancellableTasks = set()
        self._lifetime_task: asyncio.Task[None] | None = None
        self._is_opened = asyncio.Event()

    @property
    def default_agent(self) -> str:
        return next(iter(self.agents))

    def resolve_agent(self, name: str) -> str:
        """Return the name of an agent: `default` is the first one."""
        return self.default_agent if name == "default" else name

    @property
    def is_ready(self) -> bool:
        return self._runner is not None and not self._runner.is_draining

    @property
    def store_failure(self) -> str | None:
        """The reason for which the store cannot be written now; None if it can."""
        return self._runner.ledger.unavailable_reason() if self._runner is not None else None

    @property
    def uncancellable_tasks(self) -> UncancellableTasks:
        """Tasks of agents that ignored cancellation. Still available after the runtime has closed."""
        return self._uncancellable_tasks

    async def ensure_runner(self) -> Runner:
        """Return the Runner; start it if no lifespan did. Raises: what opening the store raises."""
        if self._runner is None:
            if self._lifetime_task is None or self._lifetime_task.done():
                self._is_opened.clear()
                # Nothing else closes the runtime here: the event loop cancels this task when it shuts down.
                self._lifetime_task = asyncio.create_task(self._own_until_cancelled())
            await self._is_opened.wait()
        if self._runner is None:
            assert self._lifetime_task is not None
            await self._lifetime_task
        assert self._runner is not None
        return self._runner

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Open the store and the Runner; drain and close them on exit."""
        async with AsyncExitStack() as stack:
            settings = self.settings
            ledger = await stack.enter_async_context(
                open_ledger(settings.store, lease=settings.lease, patience=settings.store_patience)
            )
            runner = Runner(
                ledger,
                self.agents,
                self.settings,
                self._middleware,
                secrets=self.platform.secrets,
                grant=self.platform.grant_credentials,
                on_erase=(self.platform.erase_thread, self._evict_messages),
                announce=self._start_events,
            )
            await stack.enter_async_context(self.platform.running(runner))
            if self._tracing is not None:
                await stack.enter_async_context(self._tracing.run_exporters())
            self._uncancellable_tasks = runner.uncancellable_tasks
            self._runner = await stack.enter_async_context(runner)
            stack.callback(self._clear_runner)
            self._body_executor = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="ambient-bodies"))
            stack.enter_context(report_blocked_loop())
            watch = await stack.enter_async_context(anyio.create_task_group())
            watch.start_soon(self._drain_on_exit)
            watch.start_soon(
                partial(monitor_streams, self.streams, heartbeat=settings.heartbeat, slow_reader=settings.slow_reader)
            )
            watch.start_soon(self.audiences.log_summarized_tools, self.agents)
            try:
                yield
            finally:
                watch.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self.drain()

    async def parse_body(self, parse: Callable[[bytes], _T], body: bytes) -> _T:
        """Return what `parse` makes of a body. A large one is parsed in a thread, so that it does not delay other streams."""
        if len(body) <= LARGE_BYTES:
            return parse(body)
        return await asyncio.get_running_loop().run_in_executor(self._body_executor, parse, body)

    async def drain(self) -> None:
        """Accept no more runs, end the active ones, then end the streams that would never end by themselves."""
        if self._runner is not None:
            await self._runner.drain()
        self.platform.drain()
        for stream in list(self.streams):
            stream.finish()

    async def erase_thread(self, key: ThreadKey) -> None:
        """Erase a thread. A thread without runs may still have a workspace.

        Raises: UnknownThread, LedgerError; ServiceError if part of its workspace remains.
        """
        runner = await self.ensure_runner()
        has_workspace = await self.platform.has_workspace(key)
        try:
            await runner.erase_thread(key)
        except UnknownThread:
            if not has_workspace:
                raise
            await self.platform.erase_thread(key)

    async def _evict_messages(self, key: ThreadKey) -> None:
        self.message_cache.evict_thread(key.id)

    async def _own_until_cancelled(self) -> None:
        try:
            async with self.running():
                self._is_opened.set()
                await anyio.sleep_forever()
        finally:
            self._is_opened.set()

    def _start_events(self, run: Run) -> Iterable[Custom]:
        """Return the trace id if runs are traced, for clients that do not read RUN_STARTED's metadata; on a new thread the capabilities."""
        if self._tracing is not None:
            yield Custom(name="ambient:trace_id", value={"traceId": run.trace_id})
        if not run.is_continuation:
            yield from self.platform.capability_events(run)

    def _clear_runner(self) -> None:
        self._runner = None

    async def _drain_on_exit(self) -> None:
        """Drain when uvicorn is about to exit. It closes the app only after the last response, and event streams end only when drained."""
        while not _is_exiting(signal.SIGTERM):  # noqa: ASYNC110  a flag of uvicorn's, nothing to await
            await anyio.sleep(_EXIT_POLL_INTERVAL)
        await self.drain()


def _is_exiting(number: signal.Signals) -> bool:
    """Return True if the uvicorn server that handles this signal is about to exit. False under any other server."""
    server: Any = getattr(signal.getsignal(number), "__self__", None)
    return bool(getattr(server, "should_exit", False))
