"""Admission to a thread: the Idempotency-Key first, then the lease, then the policy for a busy thread."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import (
    AgentLoop,
    AgentMismatch,
    EntriesDropped,
    IdempotencyConflict,
    RunGone,
    ThreadBusy,
    ThreadExists,
)
from ambient_runner.ledger.base import LeaseHeld
from ambient_runner.protocol.events import RunStarted
from ambient_runner.runs import metrics
from ambient_runner.runs.event_reader import find_run_start
from ambient_runner.runs.run import Started

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ambient_runner.config import OnBusy
    from ambient_runner.ledger.base import Ledger, Writer
    from ambient_runner.ledger.records import IdempotencyClaim, RunInfo, ThreadKey
    from ambient_runner.runs.run import QueueLimits, StartRequest


_HAND_OVER_TIMEOUT = 0.05
"""Seconds to wait for a lease that another task is about to release."""
_REPLAY_CHECK_INTERVAL = 0.25
"""Seconds between checks, while queued with an Idempotency-Key, if another request has started the run of this key."""


class Admission:
    """Decides, for one ledger, if a request gets the thread, joins the run that holds it, or is refused."""

    def __init__(
        self,
        ledger: Ledger,
        limits: QueueLimits,
        may_supersede: Callable[[ThreadKey, str, StartRequest], Awaitable[bool]],
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._may_supersede = may_supersede

    async def admit(self, request: StartRequest, key: ThreadKey, run: str, on_busy: OnBusy) -> Writer | Started:
        """Return the lease for `run`, or the run to read instead.

        Raises: ThreadBusy, ThreadExists, AgentLoop, IdempotencyConflict, RunGone, LedgerError.
        """
        while True:
            # Read before the key: the thread may be that of another request with the same key, whose run is then found.
            is_taken = request.fork is not None and await self._ledger.get_thread(key) is not None
            replayed = await self._replayed_run(key.tenant, request.claim)
            if replayed is not None:
                return replayed
            if is_taken:
                raise ThreadExists
            try:
                return await self._ledger.acquire_lease(key, run, claim=request.claim)
            except LeaseHeld as held:
                answer = await self._resolve_busy(request, key, run, on_busy, held)
                if answer is not None:
                    return answer

    async def _resolve_busy(
        self, request: StartRequest, key: ThreadKey, run: str, on_busy: OnBusy, held: LeaseHeld
    ) -> Writer | Started | None:
        """Handle a lease that another run holds. Return None to try again."""
        if held.run in request.via:
            raise AgentLoop
        holder = await self._ledger.get_run(key, held.run) if held.run else None
        if holder is not None and holder.last:
            # Its terminal event is published and the lease about to be released: a client that responds at once must not be refused.
            await self._ledger.wait_released(key, _HAND_OVER_TIMEOUT)
            return None
        if _is_same_scope(request.claim, held.claim):
            return await self._join_same_key(request.claim, key, held, holder)
        if holder is not None and await self._has_newest_message(request, holder):
            return await self._join_run(holder)
        await self._check_agent(request, key)
        return await self._when_busy(request, key, run, on_busy, held)

    async def _check_agent(self, request: StartRequest, key: ThreadKey) -> None:
        """Refuse a request for another agent before the run is stopped or waited for: a thread has one agent."""
        info = await self._ledger.get_thread(key)
        if info is not None and info.agent != request.agent:
            raise AgentMismatch

    async def _join_same_key(
        self, claim: IdempotencyClaim | None, key: ThreadKey, held: LeaseHeld, holder: RunInfo | None
    ) -> Started | None:
        """Join the run that holds the lease with this request's key, as soon as it has begun."""
        if claim != held.claim:
            raise IdempotencyConflict
        if holder is not None:
            return await self._join_run(holder)
        await self._ledger.wait_released(key, _HAND_OVER_TIMEOUT)
        return None

    async def _replayed_run(self, tenant: str, claim: IdempotencyClaim | None) -> Started | None:
        """Return the run this Idempotency-Key was used for. Raises: IdempotencyConflict, RunGone."""
        record = await self._ledger.find_idempotency_record(tenant, claim) if claim else None
        if claim is None or record is None:
            return None
        if record.digest != claim.digest:
            raise IdempotencyConflict
        if record.run is None:
            raise RunGone
        metrics.REPLAYS.inc()
        return await self._join_run(record.run)

    async def _has_newest_message(self, request: StartRequest, info: RunInfo) -> bool:
        """Return True if the run was started with the newest message of this request."""
        if request.input.resume or not request.input.messages:
            return False
        with suppress(EntriesDropped):
            began = await find_run_start(self._ledger, info)
            started = began[1] if began else None
            accepted = started.input.messages if isinstance(started, RunStarted) and started.input else []
            return any(message.id == request.input.messages[-1].id for message in accepted)
        return False

    async def _when_busy(
        self, request: StartRequest, key: ThreadKey, run: str, on_busy: OnBusy, held: LeaseHeld
    ) -> Writer | Started | None:
        match on_busy:
            case "join":
                return await self._join_holder(key, held)
            case "queue":
                return await self._wait_in_queue(request, key, run)
            case "supersede":
                return await self._wait_in_queue(request, key, run, stop_holders=True)
            case "reject":
                if not held.run or not await self._may_supersede(key, held.run, request):
                    raise held
                return await self._wait_in_queue(request, key, run, stop_only=held.run)

    async def _join_holder(self, key: ThreadKey, held: LeaseHeld) -> Started | None:
        holder = await self._ledger.get_run(key, held.run) if held.run else None
        if holder is None:
            await self._ledger.wait_released(key, _HAND_OVER_TIMEOUT)
            return None
        return await self._join_run(holder)

    async def _wait_in_queue(
        self, request: StartRequest, key: ThreadKey, run: str, *, stop_holders: bool = False, stop_only: str = ""
    ) -> Writer | Started | None:
        """Queue for the lease. The ticket is released on return and on any error.

        With `stop_holders`, every run that holds the lease meanwhile is stopped: requests queued earlier are superseded too.
        With `stop_only`, that run is. Return None if another run holds the lease then: it has a reader of its own.
        """
        limits = request.queue or self._limits
        deadline = anyio.current_time() + limits.seconds
        stops = stop_holders or bool(stop_only)
        wait_seconds = _HAND_OVER_TIMEOUT if stops else _REPLAY_CHECK_INTERVAL if request.claim else limits.seconds
        async with self._ledger.queue_ticket(key, depth=limits.depth) as ticket:
            while (left := deadline - anyio.current_time()) > 0:
                try:
                    return await self._ledger.acquire_lease(key, run, claim=request.claim, ticket=ticket)
                except LeaseHeld as held:
                    if stop_only and held.run not in {"", stop_only}:
                        return None
                    if stops and held.run:
                        await self._ledger.request_stop(key, "superseded", run=held.run)
                    hold_left = await self._enforce_max_hold(key, held.run, limits)
                    await self._ledger.wait_released(key, min(left, wait_seconds, hold_left), ticket=ticket)
                if replayed := await self._replayed_run(key.tenant, request.claim):
                    return replayed
        raise ThreadBusy

    async def _enforce_max_hold(self, key: ThreadKey, run: str, limits: QueueLimits) -> float:
        """Return the seconds the run may still hold the thread. One that has held it for longer than `max_hold` is stopped."""
        # A run that has not begun waits for its credentials, which has a limit of its own.
        has_begun = bool(run) and limits.max_hold is not None and await self._ledger.get_run(key, run) is not None
        info = await self._ledger.get_thread(key) if has_begun else None
        if info is None or limits.max_hold is None:
            return limits.seconds
        left = info.updated / 1000 + limits.max_hold - time.time()
        if left > 0:
            return left
        await self._ledger.request_stop(key, "superseded", run=run)
        return limits.seconds

    async def _join_run(self, info: RunInfo) -> Started:
        thread = await self._ledger.get_thread(info.thread)
        if thread is None or info.first < thread.first:
            raise RunGone
        return Started(thread=info.thread, run=info.key, epoch=thread.epoch, after=info.first - 1, is_joined=True)


def _is_same_scope(mine: IdempotencyClaim | None, theirs: IdempotencyClaim | None) -> bool:
    return mine is not None and theirs is not None and mine.scope == theirs.scope
