"""The Runner: admits runs, has each driven in a task of its own (`driving.py`), stops them, and recovers those left behind.

It is the only one that appends a run's events, and it does not know who reads them: readers follow the ledger.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import anyio
import msgspec

from ambient_runner.errors import (
    Draining,
    KeyReused,
    NothingRunning,
    ThreadBusy,
    UnknownAgent,
    UnknownThread,
)
from ambient_runner.ledger.base import Fact
from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import outcome_of
from ambient_runner.protocol.run_input import newest_user_message
from ambient_runner.runs import metrics
from ambient_runner.runs.active import ActiveRun
from ambient_runner.runs.admission import Admission, Waiting
from ambient_runner.runs.containment import contain_tasks
from ambient_runner.runs.execution import LAST_WORDS, drive_to_end
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.maintenance import close_abandoned, retain
from ambient_runner.runs.pipeline import Pipeline
from ambient_runner.runs.run import Actor, Agent, Announce, Middleware, Started, StartRequest, enter_run
from ambient_runner.runs.start import open_run
from ambient_runner.runs.view_cache import Life, Views

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Ledger, RunInfo, ThreadKey, Writer
    from ambient_runner.runs.containment import LeftBehind

logger = logging.getLogger(__name__)


class Runner:
    """Runs the agents of one server on one ledger. Use it in `async with`; leaving drains it."""

    def __init__(
        self,
        ledger: Ledger,
        agents: Mapping[str, Agent],
        settings: Settings,
        middleware: Sequence[Middleware] = (),
        *,
        secrets: Secrets | None = None,
        on_erase: Sequence[Callable[[ThreadKey], Awaitable[None]]] = (),
        announce: Announce = lambda run: (),
    ) -> None:
        """`secrets` are the server's own when others look for them too; `on_erase` is awaited for every thread that is erased.

        `announce` gives what clients are told right after RUN_STARTED. It is not of the agent, so middleware does not see it.
        """
        self.ledger = ledger
        self.agents = agents
        self.settings = settings
        self.views = Views(ledger)
        self.draining = False
        self._middleware = tuple(middleware)
        self._secrets = secrets or Secrets(settings.secrets)
        self._on_erase = tuple(on_erase)
        self._announce = announce
        self.left_behind: LeftBehind = set()
        self._active: dict[str, ActiveRun] = {}
        self._by_thread: dict[ThreadKey, ActiveRun] = {}
        self._readers: Counter[ThreadKey] = Counter()
        self._exit = AsyncExitStack()
        waiting = Waiting(depth=settings.queue_depth, seconds=settings.queue_wait)
        self._admission = Admission(ledger, waiting, self._may_supersede)

    async def __aenter__(self) -> Self:
        contain_tasks()
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        await self._sweep()
        self._tasks.start_soon(self._keep_sweeping)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.drain()
            for agent in self.agents.values():
                with isolate("closing an agent"):
                    await agent.aclose()
        self._tasks.cancel_scope.cancel()
        await self._exit.__aexit__(kind, error, trace)

    async def start(self, request: StartRequest) -> Started:
        """Start a run, or find the one this request belongs to. The run goes on whatever becomes of the caller.

        Raises: any Refused; Draining; LedgerError.
        """
        if self.draining:
            raise Draining
        agent = self.agents.get(request.agent)
        if agent is None:
            raise UnknownAgent
        key = request.actor.thread(request.input.thread_id)
        on_busy = request.on_busy or self.settings.on_busy
        while True:
            admitted = await self._admission.admit(request, key, uuid.uuid4().hex, on_busy)
            if isinstance(admitted, Started):
                return admitted
            with anyio.CancelScope(shield=True), suppress(KeyReused):
                # Another request with this key was faster: the next look finds its run, or that it was another request.
                started = await self._begin(request, agent, admitted)
                if started is not None:
                    return started

    async def stop(self, key: ThreadKey, reason: str = "stopped") -> str:
        """Stop the thread's run, in whichever process it is; gives the run's key.

        Raises: UnknownThread, NothingRunning, LedgerError.
        """
        info = await self.ledger.thread(key)
        if info is None and key not in self._by_thread:
            raise UnknownThread
        if not await self.ledger.request_stop(key, reason):
            raise NothingRunning
        return info.active if info else ""

    async def stop_run(self, started: Started, reason: str) -> None:
        """Stop this one run if it still goes on."""
        await self.ledger.request_stop(started.thread, reason, run=started.run)

    async def erase(self, key: ThreadKey) -> None:
        """Stop the thread's run and forget the thread everywhere. Raises: UnknownThread, LedgerError."""
        active = self._by_thread.get(key)
        await self.ledger.request_stop(key, "erased")
        if active is not None:
            with anyio.move_on_after(self.settings.timeouts.grace + LAST_WORDS):
                await active.done.wait()
        else:
            await self.ledger.released(key, self.settings.timeouts.grace)
        if not await self.ledger.erase(key):
            raise UnknownThread
        self.views.forget(key)
        for forget in (*(agent.forget for agent in self.agents.values()), *self._on_erase):
            with isolate("forgetting a thread"):
                await forget(key)

    async def view(self, key: ThreadKey) -> ThreadView:
        """The thread as it is now. Raises: UnknownThread, LedgerError."""
        info = await self.ledger.thread(key)
        if info is None:
            raise UnknownThread
        return await self.views.at(Life(info.key, info.epoch), info.last)

    async def note(self, key: ThreadKey, owner: str, kind: str, value: Any) -> None:
        """Keep what happened around the runs of a thread, without secrets. Raises: UnknownThread, LedgerError."""
        body = msgspec.json.encode(self.redactor().redact_value(value))
        await self.ledger.note(key, [Fact(owner=owner, kind=kind, body=body)])

    def redactor(self) -> Redactor:
        """A fresh redactor of this server's secrets."""
        return Redactor(self._secrets)

    def only_active(self, actor: Actor) -> ThreadKey:
        """The thread of the actor's one run in this process. Raises: NothingRunning, ThreadBusy when there are several."""
        mine = [key for key in self._by_thread if (key.tenant, key.owner) == (actor.tenant, actor.owner)]
        if not mine:
            raise NothingRunning
        if len(mine) > 1:
            raise ThreadBusy('Several runs are active. Say which thread to stop: {"threadId": "…"}.')
        return mine[0]

    @contextmanager
    def watching(self, key: ThreadKey) -> Generator[None]:
        """Count a reader of the thread. A run whose readers have all left may be superseded by a newer message."""
        self._readers[key] += 1
        self._mark_read(key)
        try:
            yield
        finally:
            self._readers[key] -= 1
            self._mark_read(key)
            if not self._readers[key]:
                del self._readers[key]

    async def drain(self) -> None:
        """Take no new work, give the runs their grace, then end them."""
        self.draining = True
        with anyio.move_on_after(self.settings.timeouts.grace):
            await self._all_done()
        for active in list(self._active.values()):
            active.cut("shutdown")
        with anyio.move_on_after(LAST_WORDS):
            await self._all_done()

    async def _all_done(self) -> None:
        while self._active:
            await next(iter(self._active.values())).done.wait()

    def _mark_read(self, key: ThreadKey) -> None:
        if key in self._by_thread:
            self._by_thread[key].unread = not self._readers[key]

    async def _may_supersede(self, key: ThreadKey, request: StartRequest) -> bool:
        """Whether everyone has left the thread's run and this request brings a newer message. Others' runs are not ours to judge."""
        active = self._by_thread.get(key)
        newest = newest_user_message(request.input.messages)
        if active is None or not active.unread or newest is None:
            return False
        return newest.id not in (await self.view(key)).transcript.ids()

    async def _begin(self, request: StartRequest, agent: Agent, writer: Writer) -> Started | None:
        """Write the run's first entries and start its task; None after closing a dead run that stood in the way."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(writer)
            if self.draining:
                raise Draining
            view = await self._view_of(writer)
            if view.last_run is None or view.last_run.status != "running":
                active, after = await self._open(request, agent, writer, view)
                self._active[active.run.key] = self._by_thread[active.run.thread] = active
                self.views.follow(Life(writer.thread, writer.epoch), view)
                metrics.RUNS_ACTIVE.inc()
                self._tasks.start_soon(self._own, active, stack.pop_all())
                return Started(thread=writer.thread, run=writer.run, epoch=writer.epoch, after=after)
        left_behind = await self.ledger.run(writer.thread, view.last_run.key)
        if left_behind is not None:
            await self._recover(left_behind)
        return None

    async def _open(
        self, request: StartRequest, agent: Agent, writer: Writer, view: ThreadView
    ) -> tuple[ActiveRun, int]:
        history, secrets = self.settings.history_mode, self._secrets.child()
        opening = open_run(request, writer, view, agent, history, secrets, self._announce)
        first = await writer.begin(
            opening.facts, run_id=opening.run.input.run_id, agent=request.agent, claim=request.claim
        )
        if opening.cut_off:
            logger.info("A run rewinds thread %r; messages left behind: %d", writer.thread.id, opening.cut_off)
        pipeline = Pipeline(writer, opening.repairer, opening.redactor, opening.run.input.state)
        active = ActiveRun(
            run=opening.run,
            agent=agent,
            writer=writer,
            pipeline=pipeline,
            timeouts=self.settings.timeouts,
            on_end=request.on_end,
        )
        return active, first - 1

    async def _view_of(self, writer: Writer) -> ThreadView:
        """The thread as this run finds it. Nobody else can write a run's events meanwhile."""
        return await self.views.at(Life(writer.thread, writer.epoch), writer.last) if writer.last else ThreadView()

    async def _own(self, active: ActiveRun, stack: AsyncExitStack) -> None:
        """The run's task: drive it, end it, give the lease back."""
        began = time.monotonic()
        enter_run(active.run)
        try:
            async with stack:
                # Whatever goes wrong with one run must not reach the others: they share a task group.
                with isolate("ending a run; recovery will close it"):
                    await drive_to_end(active, self._middleware, self.left_behind)
            if self.settings.retain:
                with isolate("dropping old entries"):
                    await retain(self.ledger, active.run.thread, self.settings.retain)
        finally:
            self._active.pop(active.run.key, None)
            if self._by_thread.get(active.run.thread) is active:
                del self._by_thread[active.run.thread]
            self.views.unfollow(Life(active.writer.thread, active.writer.epoch))
            active.done.set()
            self._count(active, time.monotonic() - began)

    async def _keep_sweeping(self) -> None:
        while True:
            await anyio.sleep(self.settings.lease)
            await self._sweep()
            for agent in self.agents.values():
                with isolate("evicting idle adapters"):
                    await agent.evict()

    async def _sweep(self) -> None:
        """Close every run whose owner is gone."""
        with isolate("looking for abandoned runs"):
            for info in await self.ledger.abandoned():
                with isolate("closing an abandoned run"):
                    await self._recover(info)

    async def _recover(self, info: RunInfo) -> None:
        if await close_abandoned(self.ledger, info):
            metrics.RECOVERED.inc()
            metrics.RUNS.labels("abandoned").inc()

    def _count(self, active: ActiveRun, seconds: float) -> None:
        metrics.RUNS_ACTIVE.dec()
        metrics.RUN_SECONDS.observe(seconds)
        metrics.EVENTS.inc(active.writer.written)
        ended = active.pipeline.ended
        metrics.RUNS.labels(outcome_of(ended) if ended else "lost").inc()
        for rule, times in active.pipeline.repairs.items():
            metrics.REPAIRS.labels(rule).inc(times)
        for kind, times in active.pipeline.redactions.items():
            metrics.REDACTIONS.labels(kind).inc(times)
