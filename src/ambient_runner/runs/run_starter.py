"""The start of runs: accepts a request on its thread and writes the run's first entries.

`start.py` decides what is accepted and written. The Runner owns the lease before, and the run's task after.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ambient_runner.errors import LeaseLost, LedgerError, RunnerError, ThreadExists, UnknownThread
from ambient_runner.ledger.log_context import log_context
from ambient_runner.ledger.records import new_epoch
from ambient_runner.projections.redaction import Redactor
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.runs.active import ActiveRun
from ambient_runner.runs.fork import load_fork
from ambient_runner.runs.large_work import LARGE_BYTES, run_in_thread_if_large
from ambient_runner.runs.lowering_log import LeftOutReporter
from ambient_runner.runs.pipeline import Pipeline
from ambient_runner.runs.recent_threads import RecentThreads
from ambient_runner.runs.start import NewRun, accept_run, prepare_first_entries
from ambient_runner.runs.view_cache import ThreadEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AsyncExitStack

    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import Ledger, Writer
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.projections.thread_fork import ForkOrigin
    from ambient_runner.runs.fork import Fork
    from ambient_runner.runs.pending_grants import PendingGrants
    from ambient_runner.runs.run import Agent, Announce, StartRequest
    from ambient_runner.runs.server_secrets import ServerSecrets
    from ambient_runner.runs.start import AcceptedRun, RunStart
    from ambient_runner.runs.view_cache import ViewCache

__all__ = ["BegunRun", "RunStarter"]

logger = logging.getLogger(__name__)

_BYTES_PER_MESSAGE = 4
"""Bytes of JSON that take as long as a message of the thread, which a start only looks up: 100,000 of them take 40 ms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BegunRun:
    """A run whose first entries are written, and that has no task yet."""

    active: ActiveRun
    view: ThreadView
    """The thread before the run."""
    after: int
    """The seq before the run's first entry."""


class RunStarter:
    """Begins the runs of one server."""

    def __init__(
        self,
        ledger: Ledger,
        agents: Mapping[str, Agent],
        settings: Settings,
        views: ViewCache,
        secrets: ServerSecrets,
        *,
        pending_grants: PendingGrants,
        announce: Announce,
        check_draining: Callable[[], None],
    ) -> None:
        """`check_draining` raises Draining once the server accepts no more runs."""
        self._ledger = ledger
        self._agents = agents
        self._settings = settings
        self._views = views
        self._secrets = secrets
        self._pending_grants = pending_grants
        self._announce = announce
        self._check_draining = check_draining
        self._left_out = LeftOutReporter()
        self._recent_threads = RecentThreads()

    def may_be_new_thread(self, request: StartRequest, key: ThreadKey) -> bool:
        """Return True if the request probably begins a thread, and nothing of it has to wait for the lease."""
        return (
            key not in self._recent_threads
            and request.fork is None
            and request.size <= LARGE_BYTES
            and not self._pending_grants.has_source
        )

    async def begin_thread(
        self, request: StartRequest, agent: Agent, key: ThreadKey, secrets: Secrets, stack: AsyncExitStack
    ) -> BegunRun | None:
        """Begin a new thread with its first run in one transaction, which saves one of two. `stack` gets the lease.

        Return None if the thread exists or the request is refused: then it is decided on the thread as it is, with its lease.
        """
        self._recent_threads.add(key)
        view = ThreadView()
        new_run = NewRun(key, new_epoch(), uuid.uuid4().hex)
        try:
            accepted = self._accept_run(request, agent, new_run, view, secrets)
            agent.check_run(accepted.run)
            start = prepare_first_entries(accepted, view, tuple(self._announce(accepted.run)))
            writer = await self._ledger.begin_thread(
                key,
                new_run.key,
                start.facts,
                epoch=new_run.epoch,
                run_id=accepted.run.input.run_id,
                agent=request.agent,
                claim=request.claim,
                title=start.title,
            )
        except LedgerError:
            raise
        except RunnerError:
            return None
        await stack.enter_async_context(writer)
        if start.redactor.counts:
            self._secrets.report_server_secret(key, request.input, "input")
        return BegunRun(active=self._activate_run(request, agent, writer, accepted, start), view=view, after=0)

    async def read_view_at_lease(self, writer: Writer) -> ThreadView:
        """Return the thread's view when the lease was acquired. No other run can write while it is held.

        Raises: LeaseLost if the thread was erased since; LedgerError.
        """
        if not writer.last:
            return ThreadView()
        try:
            return await self._views.view_at(ThreadEpoch(writer.thread, writer.epoch), writer.last)
        except UnknownThread as error:
            raise LeaseLost from error

    async def begin_run(
        self, request: StartRequest, agent: Agent, writer: Writer, view: ThreadView, secrets: Secrets
    ) -> BegunRun:
        """Begin a run on the thread as `view` shows it, with its lease.

        Raises: any Refused; ThreadExists if a fork would begin a thread that is not new; Draining; LedgerError.
        """
        fork = await self._load_fork(request, request.fork, writer) if request.fork else None
        active, after = await self._write_first_entries(request, agent, writer, view, secrets, fork)
        return BegunRun(active=active, view=view, after=after)

    async def _load_fork(self, request: StartRequest, origin: ForkOrigin, writer: Writer) -> Fork:
        """Return the copy that the thread begins with. Raises: ThreadExists if it is not new; and as `load_fork`."""
        if writer.last:
            raise ThreadExists
        return await load_fork(self._ledger, self._views, self._agents, request, origin)

    async def _write_first_entries(
        self,
        request: StartRequest,
        agent: Agent,
        writer: Writer,
        view: ThreadView,
        secrets: Secrets,
        fork: Fork | None,
    ) -> tuple[ActiveRun, int]:
        """Accept the request and write the run's first entries. Return the run, and the seq before them."""
        if fork is not None:
            request, view = fork.request, fork.view
        size = max(
            request.size,
            view.state.measure_size(LARGE_BYTES),
            view.transcript.message_count * _BYTES_PER_MESSAGE,
        )
        if size > LARGE_BYTES:
            view = view.copy()  # For the worker thread: reading a view joins its deltas, and others read this one.
        accepted = await run_in_thread_if_large(
            size,
            self._accept_run,
            request,
            agent,
            NewRun(writer.thread, writer.epoch, writer.run),
            view,
            secrets,
            is_fork=fork is not None,
        )
        if fork is not None:
            accepted = replace(accepted, run=replace(accepted.run, source_memory=fork.memory))
        run = accepted.run
        agent.check_run(run)
        searched = secrets.searches
        await self._pending_grants.wait_for_grant(run, writer)
        self._check_draining()
        if secrets.searches != searched:  # What was granted may be in the ids.
            self._secrets.check_ids(run.thread, request.input, secrets)
        start = await run_in_thread_if_large(
            size,
            prepare_first_entries,
            accepted,
            view,
            tuple(self._announce(run)),
            forked=fork.fact if fork else None,
        )
        if start.redactor.counts:
            await run_in_thread_if_large(size, self._secrets.report_server_secret, run.thread, request.input, "input")
        first = await writer.begin_run(
            start.facts, run_id=run.input.run_id, agent=request.agent, claim=request.claim, title=start.title
        )
        active = self._activate_run(request, agent, writer, accepted, start)
        if view.open_interrupts or view.pending_calls:
            active.load_view = partial(self._views.view_at, ThreadEpoch(writer.thread, writer.epoch))
        return active, first - 1

    def _accept_run(
        self,
        request: StartRequest,
        agent: Agent,
        new_run: NewRun,
        view: ThreadView,
        secrets: Secrets,
        *,
        is_fork: bool = False,
    ) -> AcceptedRun:
        return accept_run(
            request,
            new_run,
            view,
            agent,
            "server" if is_fork else self._settings.history_mode,
            secrets,
            adopt_history=self._settings.adopt_history,
        )

    def _activate_run(
        self, request: StartRequest, agent: Agent, writer: Writer, accepted: AcceptedRun, start: RunStart
    ) -> ActiveRun:
        """Report what the agent does not get, and return the handles of a run that has begun."""
        run = accepted.run
        if accepted.left_out:
            self._left_out.report(request.agent, accepted.left_out, Redactor(run.secrets).redact_text)
        if start.removed_count:
            logger.info(
                "Run %s rewinds thread %s by %d messages",
                writer.run,
                writer.thread.id,
                start.removed_count,
                extra=log_context(writer.run, writer.thread.id, request.agent),
            )
        pipeline = Pipeline(writer, start.repairer, start.redactor, run.input.state)
        return ActiveRun(
            run=run,
            agent=agent,
            writer=writer,
            pipeline=pipeline,
            timeouts=self._settings.timeouts_for(request.agent),
            store_patience=self._settings.store_patience,
            on_end=request.on_end,
        )
