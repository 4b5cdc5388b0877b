"""Who may run on a thread: the Idempotency-Key first, then the lease, then the policy for a busy thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import AgentLoop, KeyReused, OtherAgent, RunGone, ThreadBusy
from ambient_runner.ledger.base import RUNTIME, Held
from ambient_runner.protocol.events import RunStarted, decode_event
from ambient_runner.runs import metrics
from ambient_runner.runs.run import Started

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ambient_runner.config import OnBusy
    from ambient_runner.ledger.base import KeyClaim, Ledger, RunInfo, ThreadKey, Writer
    from ambient_runner.runs.run import StartRequest


_HAND_OVER = 0.05
"""Seconds to wait, at most, for what another task is about to do."""
_LOOK_AGAIN = 0.25
"""Seconds after which one who waits in line with an Idempotency-Key looks whether its run has begun by another way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """How long and how deep requests may queue for a thread."""

    depth: int = 8
    seconds: float = 30.0


class Admission:
    """Decides, for one ledger, whether a request gets the thread, joins the run that has it, or is refused."""

    def __init__(
        self, ledger: Ledger, waiting: Waiting, may_supersede: Callable[[ThreadKey, StartRequest], Awaitable[bool]]
    ) -> None:
        self._ledger = ledger
        self._waiting = waiting
        self._may_supersede = may_supersede

    async def admit(self, request: StartRequest, key: ThreadKey, run: str, on_busy: OnBusy) -> Writer | Started:
        """The lease for `run`, or the run to read instead.

        Raises: ThreadBusy, AgentLoop, KeyReused, RunGone, LedgerError.
        """
        while True:
            used = await self._used(request.claim)
            if used is not None:
                return used
            try:
                return await self._ledger.acquire(key, run, claim=request.claim)
            except Held as held:
                answer = await self._held(request, key, run, on_busy, held)
                if answer is not None:
                    return answer

    async def _held(
        self, request: StartRequest, key: ThreadKey, run: str, on_busy: OnBusy, held: Held
    ) -> Writer | Started | None:
        """What to do about the holder; None to try again."""
        if held.run in request.via:
            raise AgentLoop
        holder = await self._ledger.run(key, held.run) if held.run else None
        if holder is not None and holder.last:
            # Its terminal event is out and the lease about to be: a client that answers it at once must not be refused.
            await self._ledger.released(key, _HAND_OVER)
            return None
        if _is_same_scope(request.claim, held.claim):
            return await self._same_key(request.claim, key, held, holder)
        if holder is not None and await self._holds_newest(request, holder):
            return await self._joined(holder)
        await self._check_agent(request, key)
        return await self._when_busy(request, key, run, on_busy, held)

    async def _check_agent(self, request: StartRequest, key: ThreadKey) -> None:
        """Before another agent's run is stopped or waited for: the thread keeps its agent."""
        info = await self._ledger.thread(key)
        if info is not None and info.agent != request.agent:
            raise OtherAgent

    async def _same_key(
        self, claim: KeyClaim | None, key: ThreadKey, held: Held, holder: RunInfo | None
    ) -> Started | None:
        """The holder came with this request's key: join it, as soon as it has begun."""
        if claim != held.claim:
            raise KeyReused
        if holder is not None:
            return await self._joined(holder)
        await self._ledger.released(key, _HAND_OVER)
        return None

    async def _used(self, claim: KeyClaim | None) -> Started | None:
        use = await self._ledger.key_use(claim) if claim else None
        if claim is None or use is None:
            return None
        if use.digest != claim.digest:
            raise KeyReused
        if use.run is None:
            raise RunGone
        metrics.REPLAYS.inc()
        return await self._joined(use.run)

    async def _holds_newest(self, request: StartRequest, info: RunInfo) -> bool:
        if request.input.resume or not request.input.messages:
            return False
        newest = request.input.messages[-1].id
        for batch in await self._ledger.read(info.thread, info.first - 1, limit=1 << 16):
            if batch.owner == RUNTIME and batch.run == info.key:
                begun = decode_event(batch.lines[0])
                taken = begun.input.messages if isinstance(begun, RunStarted) and begun.input else []
                return any(message.id == newest for message in taken)
        return False

    async def _when_busy(
        self, request: StartRequest, key: ThreadKey, run: str, on_busy: OnBusy, held: Held
    ) -> Writer | Started | None:
        match on_busy:
            case "join":
                return await self._join_holder(key, held)
            case "queue":
                return await self._in_line(request, key, run, stop_holder=False)
            case "supersede":
                return await self._in_line(request, key, run, stop_holder=True)
            case "reject":
                if held.run and await self._may_supersede(key, request):
                    return await self._in_line(request, key, run, stop_holder=True)
                raise held

    async def _join_holder(self, key: ThreadKey, held: Held) -> Started | None:
        holder = await self._ledger.run(key, held.run) if held.run else None
        if holder is None:
            await self._ledger.released(key, _HAND_OVER)
            return None
        return await self._joined(holder)

    async def _in_line(self, request: StartRequest, key: ThreadKey, run: str, *, stop_holder: bool) -> Writer | Started:
        """Stand in line for the lease. The caller's place is given up on any way out.

        With `stop_holder`, whoever holds it meanwhile is stopped: those before us in the line were to be superseded too.
        """
        deadline = anyio.current_time() + self._waiting.seconds
        patience = _HAND_OVER if stop_holder else _LOOK_AGAIN if request.claim else self._waiting.seconds
        async with self._ledger.queueing(key, depth=self._waiting.depth) as ticket:
            while (left := deadline - anyio.current_time()) > 0:
                try:
                    return await self._ledger.acquire(key, run, claim=request.claim, ticket=ticket)
                except Held as held:
                    if stop_holder and held.run:
                        await self._ledger.request_stop(key, "superseded", run=held.run)
                    await self._ledger.released(key, min(left, patience), ticket=ticket)
                if used := await self._used(request.claim):
                    return used
        raise ThreadBusy

    async def _joined(self, info: RunInfo) -> Started:
        thread = await self._ledger.thread(info.thread)
        if thread is None or info.first < thread.first:
            raise RunGone
        return Started(thread=info.thread, run=info.key, epoch=thread.epoch, after=info.first - 1, joined=True)


def _is_same_scope(mine: KeyClaim | None, theirs: KeyClaim | None) -> bool:
    return mine is not None and theirs is not None and mine.scope == theirs.scope
