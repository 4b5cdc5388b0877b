"""`Hosted`: a bridge as a named agent of this server. It makes one adapter per thread, keeps it while it is used, and rebuilds it between
runs when the configuration has changed. One that waits for an answer gets it first: the change counts from the next run on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections import OrderedDict
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.base import Closeable, Forgetful, Interruptible, Patient, PlatformContext, agent_name
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.base import PlatformBridge
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.runs.run import Actor, Middleware, Run


@dataclass(kw_only=True, slots=True, eq=False)
class _Kept:
    """An adapter and what it was made for."""

    adapter: Any
    digest: str
    used: float
    running: bool = False


class Hosted:
    """One bridge under one name. `context` says, per run, what the platform offers; a change of it rebuilds the adapter."""

    def __init__(
        self,
        name: str,
        bridge: PlatformBridge,
        *,
        context: Callable[[Run], PlatformContext] | None = None,
        kept: int = 256,
        idle: float = 900.0,
    ) -> None:
        self.name = agent_name(name)
        self.bridge = bridge
        self.hidden_state: frozenset[str] = frozenset(getattr(bridge, "hidden_state", ()))
        self.middleware: Sequence[Middleware] = tuple(bridge.middleware())
        self.default_prompt = bridge.default_prompt
        self._context = context or plain_context
        self._limit = kept
        self._idle = idle
        self._adapters: OrderedDict[tuple[ThreadKey, Actor], _Kept] = OrderedDict()

    @asynccontextmanager
    async def running(self, run: Run) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
        """The adapter's events for one run."""
        asked = input_to_agui(run.input)
        kept = await self._adapter(run, asked)
        try:
            async with aclosing(_closeable(kept.adapter.run(asked))) as events:
                yield events
        finally:
            kept.running = False
            kept.used = time.monotonic()

    async def interrupt(self, run: Run) -> bool:
        kept = self._adapters.get((run.thread, run.actor))
        if kept is None or not isinstance(kept.adapter, Interruptible):
            return False
        await kept.adapter.interrupt()
        return True

    async def forget(self, thread: ThreadKey) -> None:
        for slot in [slot for slot in self._adapters if slot[0] == thread]:
            await self._drop(slot)
        if isinstance(self.bridge, Forgetful):
            await self.bridge.forget(thread)

    async def evict(self) -> None:
        """Give up adapters nobody used for a while, and the oldest above the limit."""
        old = time.monotonic() - self._idle
        for slot in [slot for slot, kept in self._adapters.items() if not kept.running and kept.used < old]:
            await self._drop(slot)
        await self._shrink()

    async def aclose(self) -> None:
        for slot in list(self._adapters):
            await self._drop(slot)
        if isinstance(self.bridge, Closeable):
            await self.bridge.aclose()

    async def _adapter(self, run: Run, asked: RunAgentInput) -> _Kept:
        slot = (run.thread, run.actor)
        context = self._context(run)
        digest = _digest(context)
        kept = self._adapters.get(slot)
        if kept is not None and kept.digest != digest and not _waits_for(kept.adapter, asked):
            await self._drop(slot)
            kept = None
        if kept is None:
            adapter = self.bridge.create_adapter(dataclasses.replace(context, is_continuation=run.is_continuation))
            kept = self._adapters[slot] = _Kept(adapter=adapter, digest=digest, used=time.monotonic())
        kept.running = True
        self._adapters.move_to_end(slot)
        await self._shrink()
        return kept

    async def _shrink(self) -> None:
        excess = max(len(self._adapters) - self._limit, 0)
        idle = (slot for slot, kept in self._adapters.items() if not kept.running)
        for slot in list(islice(idle, excess)):
            await self._drop(slot)

    async def _drop(self, slot: tuple[ThreadKey, Actor]) -> None:
        kept = self._adapters.pop(slot, None)
        if kept is not None and isinstance(kept.adapter, Closeable):
            with isolate("closing an adapter"):
                await kept.adapter.aclose()


def _waits_for(adapter: Any, asked: RunAgentInput) -> bool:
    return isinstance(adapter, Patient) and adapter.waits_for(asked)


def _closeable(events: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """The iterator itself when it can be closed, else inside a generator that can."""
    return cast("AsyncGenerator[Any, None]", events) if hasattr(events, "aclose") else _iterate(events)


async def _iterate(events: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    async for event in events:
        yield event


def plain_context(run: Run) -> PlatformContext:
    """The least a bridge is told: which conversation this is."""
    return PlatformContext(session_id=run.thread.id)


def _digest(context: PlatformContext) -> str:
    """Same configuration, same digest; whether the thread continues is not configuration."""
    return hashlib.sha256(repr(dataclasses.replace(context, is_continuation=False)).encode()).hexdigest()
