"""The Runner: admits runs, begins them (`run_starter.py`), executes each in a task of its own (`execution.py`), stops them, and recovers
abandoned ones.

Only the Runner appends a run's events, and it does not know who reads them: readers tail the ledger.
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
    EntriesDropped,
    IdempotencyConflict,
    LeaseLost,
    NoActiveRun,
    RunnerError,
    StaleCursor,
    ThreadBusy,
    UnknownAgent,
    UnknownThread,
)
from ambient_runner.ledger.records import Batch, Fact, ThreadLabels
from ambient_runner.ledger.thread_damage import report_thread_damage
from ambient_runner.projections.projectors import check_product_owner
from ambient_runner.projections.redaction import Secrets
from ambient_runner.projections.thread_status import thread_status
from ambient_runner.projections.thread_view import APPROVALS_OWNER, INTERRUPTS_CANCELLED, ThreadView
from ambient_runner.projections.withdrawn import WithdrawnContent
from ambient_runner.protocol.run_input import newest_user_message
from ambient_runner.runs import metrics
from ambient_runner.runs.admission import Admission
from ambient_runner.runs.checkpoints import RunCheckpoint
from ambient_runner.runs.containment import install_task_guard
from ambient_runner.runs.execution import FINALIZE_TIMEOUT, execute_run
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.maintenance import apply_retention, close_abandoned_run, close_abandoned_runs
from ambient_runner.runs.pending_grants import PendingGrants
from ambient_runner.runs.run import (
    Actor,
    Agent,
    Announce,
    GrantCredentials,
    Middleware,
    QueueLimits,
    Started,
    StartRequest,
    describe_run,
    enter_run,
)
from ambient_runner.runs.run_starter import RunStarter
from ambient_runner.runs.server_secrets import ServerSecrets
from ambient_runner.runs.view_cache import ReaderViews, ThreadEpoch, ViewCache, read_despite_retention, require_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Ledger, Writer
    from ambient_runner.ledger.records import IdempotencyClaim, ThreadInfo, ThreadKey, ThreadStatus
    from ambient_runner.runs.active import ActiveRun
    from ambient_runner.runs.containment import UncancellableTasks
    from ambient_runner.runs.run_starter import BegunRun

logger = logging.getLogger(__name__)

_MAX_START_ATTEMPTS = 5
"""Attempts to start a run. One fails if another process erases the thread or takes it over, or if an abandoned run has to be closed first.
If all fail and no lease was lost, the thread's data contradicts itself."""
_MAX_STOP_ATTEMPTS = 10
"""Attempts to stop a thread whose runs begin and end meanwhile."""
_LEASE_LOST_REPEATEDLY = (
    "Other processes delete this thread, or take it over, at the same time. Send the request again."
)
_MAX_LOGGED_RUNS = 5
"""Runs that the log names when the server waits for them."""


class Runner:
    """Runs the agents of one server on one ledger. Use it in `async with`; leaving drains it."""

    def __init__(
        self,
        ledger: Ledger,
        agents: Mapping[str, Agent],
        settings: Settings,
        middleware: Sequence[Middleware] = (),
        *,
        secrets: ServerSecrets | None = None,
        grant: GrantCredentials | None = None,
        on_erase: Sequence[Callable[[ThreadKey], Awaitable[None]]] = (),
        announce: Announce = lambda run: (),
    ) -> None:
        """`secrets` are by default those of the settings; `grant` gives runs their credentials.

        `on_erase` is awaited for every thread that is erased; `erase_thread` raises its RunnerErrors.
        `announce` returns events for clients right after RUN_STARTED. They are not the agent's, so middleware does not see them.
        """
        self.ledger = ledger
        self.agents = agents
        self.settings = settings
        self.views = ViewCache(ledger, settings.view_cache)
        """Owned by the Runner, which alone tracks and evicts. Readers get `reader_views`."""
        self.is_draining = False
        self._middleware = tuple(middleware)
        self.secrets = secrets or ServerSecrets(Secrets(settings.secrets, patterns=settings.secret_patterns))
        self._pending_grants = PendingGrants(grant)
        self._starter = RunStarter(
            ledger,
            agents,
            settings,
            self.views,
            self.secrets,
            pending_grants=self._pending_grants,
            announce=announce,
            check_draining=self._check_draining,
        )
        self._on_erase = tuple(on_erase)
        self.uncancellable_tasks: UncancellableTasks = set()
        self._active: dict[str, ActiveRun] = {}
        self._by_thread: dict[ThreadKey, ActiveRun] = {}
        self._readers: Counter[tuple[ThreadKey, str | None]] = Counter()
        """Readers by thread and run; those of the run None follow the thread."""
        self._exit = AsyncExitStack()
        limits = QueueLimits(depth=settings.queue_depth, seconds=settings.queue_wait)
        self._admission = Admission(ledger, limits, self._may_supersede)

    async def __aenter__(self) -> Self:
        install_task_guard()
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        await close_abandoned_runs(self.ledger)
        self._tasks.start_soon(self._run_maintenance)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.drain()
            for agent in self.agents.values():
                with isolate(f"closing the agent {agent.name}"):
                    await agent.aclose()
        self._tasks.cancel_scope.cancel()
        await self._exit.__aexit__(kind, error, trace)

    async def start(self, request: StartRequest) -> Started:
        """Start a run, or find the one this request belongs to. The run continues if the caller is cancelled.

        Raises: any Refused; Draining; LedgerError.
        """
        self._check_draining()
        agent = self.agents.get(request.agent)
        if agent is None:
            raise UnknownAgent
        key = request.actor.thread_key(request.input.thread_id)
        secrets = self.secrets.for_thread(key)
        self.secrets.check_ids(key, request.input, secrets)
        if self._starter.may_be_new_thread(request, key):
            started = None
            with anyio.CancelScope(shield=True):
                started = await self._begin_thread(request, agent, key, secrets)
            if started is not None:
                return started
        on_busy = request.on_busy or self.settings.on_busy
        lost_leases = 0
        for _ in range(_MAX_START_ATTEMPTS):
            admitted = await self._admission.admit(request, key, uuid.uuid4().hex, on_busy)
            if isinstance(admitted, Started):
                return admitted
            try:
                with anyio.CancelScope(shield=True), suppress(IdempotencyConflict):
                    # Another request with this key was faster: the next attempt joins its run, or finds that the requests differ.
                    started = await self._begin_run(request, agent, admitted, secrets)
                    if started is not None:
                        return started
            except LeaseLost:
                # Another process has erased the thread, or taken it over, and nothing of this run is written: begin anew.
                lost_leases += 1
        if lost_leases:
            raise ThreadBusy(_LEASE_LOST_REPEATEDLY)
        raise report_thread_damage(key, "its record and its entries disagree", agent=request.agent)

    async def stop(self, key: ThreadKey, reason: str = "stopped") -> str:
        """Stop the thread's run, in any process, or cancel the interrupts it ended with. Return the run's key.

        Raises: UnknownThread, NoActiveRun, LedgerError.
        """
        for _ in range(_MAX_STOP_ATTEMPTS):
            info = await self.ledger.get_thread(key)
            # A new thread whose run waits for its credentials has a lease and no entry.
            if await self.ledger.request_stop(key, reason):
                return info.active if info else ""
            if info is None:
                raise UnknownThread
            # If a run begins or ends meanwhile, try again.
            with suppress(ThreadBusy, StaleCursor):
                return await self._cancel_interrupts(key)
        raise NoActiveRun

    async def stop_run(self, started: Started, reason: str) -> None:
        """Stop this run if it is still active."""
        await self.ledger.request_stop(started.thread, reason, run=started.run)

    async def erase_thread(self, key: ThreadKey) -> None:
        """Stop the thread's run and erase the thread everywhere.

        Raises: UnknownThread, LedgerError; the first RunnerError of `on_erase`, once everything else is erased.
        """
        active = self._by_thread.get(key)
        await self.ledger.request_stop(key, "erased")
        if active is not None:
            with anyio.move_on_after(self.settings.timeouts.grace + FINALIZE_TIMEOUT):
                await active.done.wait()
        else:
            await self.ledger.wait_released(key, self.settings.timeouts.grace)
        if not await self.ledger.erase_thread(key):
            raise UnknownThread
        self.views.evict_thread(key)
        for agent in self.agents.values():
            with isolate(f"erasing thread {key.id} in the agent {agent.name}"):
                await agent.erase_thread(key)
        await self._call_on_erase(key)

    async def view_thread(self, key: ThreadKey) -> ThreadView:
        """Return the thread's current view. Raises: UnknownThread, LedgerError."""

        async def read_view() -> ThreadView:
            info = await require_thread(self.ledger, key)
            return await self.views.view_at(ThreadEpoch(info.key, info.epoch), info.last)

        return await read_despite_retention(self.ledger, key, read_view)

    async def find_withdrawn_content(self, key: ThreadKey) -> WithdrawnContent | None:
        """Return what the thread's agent has taken back of its stored events; None if nothing. Raises: UnknownThread, LedgerError."""
        return WithdrawnContent.of_view(await self.view_thread(key))

    async def read_view(self, info: ThreadInfo) -> ThreadView:
        """As `view_thread`, for a thread whose row was just read, or as of a later entry. Do not change it.

        Raises: EntriesDropped if retention has overtaken the row; UnknownThread, LedgerError.
        """
        return await self.views.view_from(ThreadEpoch(info.key, info.epoch), info.last)

    async def append_fact(self, key: ThreadKey, owner: str, kind: str, value: Any) -> None:
        """Append a fact of a product that belongs to no run, with secrets redacted. Clients see what its projector returns.

        Raises: ConfigError for an owner that is the server's own; UnknownThread, LedgerError.
        """
        await self.append_platform_fact(key, check_product_owner(owner), kind, value)

    async def append_platform_fact(
        self, key: ThreadKey, owner: str, kind: str, value: Any, *, claim: IdempotencyClaim | None = None
    ) -> None:
        """Append a fact of the server's own that belongs to no run, with secrets redacted; with a claim, once.

        Raises: UnknownThread, IdempotencyConflict, LedgerError.
        """
        body = msgspec.json.encode(self.secrets.new_redactor(key).redact_value(value))
        await self.ledger.append_facts(key, [Fact(owner=owner, kind=kind, body=body)], claim=claim)

    async def find_active_thread(self, actor: Actor) -> ThreadKey:
        """Return the thread of the actor's only active run, in any process. Raises: NoActiveRun; ThreadBusy if there are several."""
        active = await self.ledger.list_active_threads(actor.tenant, actor.owner)
        if not active:
            raise NoActiveRun
        if len(active) > 1:
            raise ThreadBusy('Several runs are active. Name the thread to stop: {"threadId": "…"}.')
        return active[0]

    def reader_views(self, thread: ThreadEpoch, known: ThreadView | None = None) -> ReaderViews:
        """Return a reader's access to the views of a thread, of which it may know one: it reads them, and contributes its batches."""
        return ReaderViews(self.views, self.ledger, thread, known)

    @contextmanager
    def track_reader(self, key: ThreadKey, run: str | None = None) -> Generator[None]:
        """Count a reader of one run, or with None of every run of the thread.

        A run whose readers have all disconnected may be superseded by a newer message.
        """
        active = self._by_thread.get(key)
        if active is not None and active.run.key == run:
            active.has_been_read = True
        self._readers[key, run] += 1
        try:
            yield
        finally:
            self._readers[key, run] -= 1
            if not self._readers[key, run]:
                del self._readers[key, run]

    async def drain(self) -> None:
        """Refuse new runs, give the active ones their grace period, then cancel them."""
        if self._active and not self.is_draining:
            self._log_wait()
        self.is_draining = True
        self._pending_grants.cancel_all()
        with anyio.move_on_after(self.settings.timeouts.grace):
            await self._wait_all_done()
        for active in list(self._active.values()):
            active.cancel("shutdown")
        with anyio.move_on_after(FINALIZE_TIMEOUT):
            await self._wait_all_done()

    def _log_wait(self) -> None:
        runs = [active.run for active in self._active.values()]
        names = [f"run {run.key} of agent {run.agent} on thread {run.thread.id}" for run in runs[:_MAX_LOGGED_RUNS]]
        if len(runs) > len(names):
            names.append(f"{len(runs) - len(names)} more")
        logger.info(
            "Waiting up to %g s for %s to end, then cancelling: %s",
            self.settings.timeouts.grace,
            "1 run" if len(runs) == 1 else f"{len(runs)} runs",
            ", ".join(names),
        )

    async def _call_on_erase(self, key: ThreadKey) -> None:
        """Call every `on_erase`, whatever the others raise. Raises: the first RunnerError of theirs."""
        failed: RunnerError | None = None
        for erase in self._on_erase:
            with isolate(f"erasing thread {key.id}"):
                try:
                    await erase(key)
                except RunnerError as error:
                    failed = failed or error
                    raise
        if failed is not None:
            raise failed

    async def _cancel_interrupts(self, key: ThreadKey) -> str:
        """Cancel the thread's open interrupts. Return the key of the run that raised them.

        Raises: NoActiveRun if there are none; ThreadBusy, StaleCursor if the thread has changed meanwhile.
        """
        view = await self.view_thread(key)
        if not view.open_interrupts or view.last_run is None:
            raise NoActiveRun
        body = msgspec.json.encode({"interruptIds": list(view.open_interrupts)})
        fact = Fact(owner=APPROVALS_OWNER, kind=INTERRUPTS_CANCELLED, body=body)
        labels = ThreadLabels(status=_status_after(view, fact))
        await self.ledger.append_facts(key, [fact], expect=view.seq, labels=labels)
        for agent in self.agents.values():
            await agent.cancel_interrupts(key)
        return view.last_run.key

    async def _wait_all_done(self) -> None:
        while self._active:
            await next(iter(self._active.values())).done.wait()

    async def _may_supersede(self, key: ThreadKey, run: str, request: StartRequest) -> bool:
        """Return True if all readers of the run have left, in every process, and this request has a newer message.

        Runs of other processes do not count: their own process knows if they were ever read.
        """
        active = self._by_thread.get(key)
        newest = newest_user_message(request.input.messages)
        if active is None or active.run.key != run or not active.has_been_read or newest is None:
            return False
        if self._readers[key, run] or self._readers[key, None]:
            return False
        info = await self.ledger.get_thread(key)
        if info is None or info.readers:
            return False
        return not (await self.view_thread(key)).transcript.has_id(newest.id)

    async def _begin_thread(
        self, request: StartRequest, agent: Agent, key: ThreadKey, secrets: Secrets
    ) -> Started | None:
        """Begin a new thread with its first run, and start its task. Return None if it has to begin with the thread's lease."""
        async with AsyncExitStack() as stack:
            begun = await self._starter.begin_thread(request, agent, key, secrets, stack)
            return None if begun is None else self._start_task(begun, stack)

    async def _begin_run(self, request: StartRequest, agent: Agent, writer: Writer, secrets: Secrets) -> Started | None:
        """Write the run's first entries and start its task.

        Return None to try again: after closing an abandoned run that blocked the thread, or if the thread cannot be folded.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(writer)
            self._check_draining()
            try:
                view = await self._starter.read_view_at_lease(writer)
            except EntriesDropped:
                return None  # The next attempt begins at the checkpoint that retention has written.
            if view.last_run is None or view.last_run.status != "running":
                return self._start_task(await self._starter.begin_run(request, agent, writer, view, secrets), stack)
        abandoned = await self.ledger.get_run(writer.thread, view.last_run.key)
        if abandoned is not None:
            await close_abandoned_run(self.ledger, abandoned)
        return None

    def _check_draining(self) -> None:
        if self.is_draining:
            raise Draining

    def _start_task(self, begun: BegunRun, stack: AsyncExitStack) -> Started:
        """Start the task of a run that has begun. The task gets the lease, from `stack`."""
        active, view = begun.active, begun.view
        writer = active.writer
        active.checkpoint = RunCheckpoint(self.views, writer, view)
        self._active[active.run.key] = self._by_thread[active.run.thread] = active
        self.views.track(ThreadEpoch(writer.thread, writer.epoch), view)
        metrics.RUNS_ACTIVE.inc()
        self._tasks.start_soon(self._run_task, active, stack.pop_all())
        end = view.last_run.end or None if view.last_run else 0
        return Started(thread=writer.thread, run=writer.run, epoch=writer.epoch, after=begun.after, previous_end=end)

    async def _run_task(self, active: ActiveRun, stack: AsyncExitStack) -> None:
        """The run's task: execute it, write its end, release the lease."""
        started_at = time.monotonic()
        run = active.run
        enter_run(run)
        logger.debug(
            "Run %s of agent %s on thread %s of %s started (runId %r)",
            run.key,
            run.agent,
            run.thread.id,
            run.thread.owner,
            run.input.run_id,
        )
        try:
            # An error in one run must not reach the others: they share a task group, also with the maintenance.
            with isolate(f"executing {describe_run(run)}; recovery will close it"):
                async with stack:
                    await execute_run(active, self._middleware, self.uncancellable_tasks)
            if self.settings.retain:
                with isolate(f"applying retention to thread {active.run.thread.id}"), suppress(UnknownThread):
                    await apply_retention(self.ledger, active.run.thread, self.settings.retain)
        finally:
            self._active.pop(active.run.key, None)
            if self._by_thread.get(active.run.thread) is active:
                del self._by_thread[active.run.thread]
            with isolate(f"caching the thread of {describe_run(run)}"):
                self.views.untrack(ThreadEpoch(active.writer.thread, active.writer.epoch))
            active.done.set()
            metrics.record_run(active, time.monotonic() - started_at)

    async def _run_maintenance(self) -> None:
        while True:
            await anyio.sleep(self.settings.lease)
            await close_abandoned_runs(self.ledger)
            for agent in self.agents.values():
                with isolate(f"evicting idle adapters of the agent {agent.name}"):
                    await agent.evict_idle()


def _status_after(view: ThreadView, fact: Fact) -> ThreadStatus:
    """Return the thread's status once this fact follows."""
    after = view.copy()
    after.apply(Batch(first=view.seq + 1, owner=fact.owner, kind=fact.kind, run="", ts=0, lines=[fact.body]))
    return thread_status(after)
