"""`AgentHost`: a bridge as a named agent of this server.

It creates one adapter per thread, caches it, and replaces it between runs when the configuration has changed. An adapter that waits for an
answer receives the answer first; the change applies from the next run on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from ambient_runner.bridges.base import (
    AwaitsAnswer,
    ChecksRuns,
    Closeable,
    ErasesThreads,
    ForwardsPlatformRequests,
    Interruptible,
    ListsTools,
    PlatformContext,
    check_agent_name,
)
from ambient_runner.bridges.recent_models import RecentModels
from ambient_runner.bridges.toolkit.callbacks import stream_hook
from ambient_runner.bridges.toolkit.tools import unique_tools
from ambient_runner.bridges.toolkit.worker_threads import iterate_in_thread
from ambient_runner.errors import BridgeTimeout
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import Tool
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.large_work import LARGE_BYTES, run_in_thread_if_large
from ambient_runner.runs.lowering import merge_prop_rules
from ambient_runner.runs.run import as_current_run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.base import Adapter, PlatformBridge
    from ambient_runner.config.settings import PropNames
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.runs.lowering import PropRules
    from ambient_runner.runs.run import Actor, Middleware, Run

_LIST_TIMEOUT = 30.0
"""Seconds a bridge has to list its agent's tools. It may have to ask another server."""
_MIN_SHARED_MESSAGES = 200
"""Messages of a thread from which on other tasks may run before they are converted, and from which on its runs share their models."""


@dataclass(kw_only=True, slots=True, eq=False)
class _CachedAdapter:
    """An adapter with the digest of the configuration it was created with."""

    adapter: Any
    config_digest: str
    last_used: float
    is_running: bool = False

    @property
    def is_idle(self) -> bool:
        """True if it neither runs nor waits for an answer."""
        return not self.is_running and not _is_waiting(self.adapter)


class AgentHost:
    """One bridge under one name. `context` returns the PlatformContext of a run; the adapter is replaced when it changes.

    `forwarded_props` are the keys of a client's `forwardedProps` that the settings list; None if they list none.
    At most `max_adapters` idle adapters are cached, each for `idle_timeout` seconds after its last run. The agents of a server share
    `recent_models`.
    """

    def __init__(
        self,
        name: str,
        bridge: PlatformBridge,
        *,
        context: Callable[[Run], PlatformContext] | None = None,
        max_adapters: int = 256,
        idle_timeout: float = 900.0,
        forwarded_props: PropNames | None = None,
        recent_models: RecentModels | None = None,
    ) -> None:
        self.name = check_agent_name(name)
        self.bridge = bridge
        self.hidden_state = frozenset(bridge.hidden_state)
        self.middleware: Sequence[Middleware] = tuple(bridge.middleware())
        self.default_prompt = bridge.default_prompt
        self.restates_messages = bridge.restates_messages
        self.forwarded_props: PropRules = merge_prop_rules(bridge.forwarded_props, forwarded_props)
        self.media_url_schemes: Collection[str] = frozenset(bridge.media_url_schemes)
        self.corrects_history = bridge.corrects_history
        self.relays_developer_messages = bridge.relays_developer_messages
        # Looked up once: a Protocol compares all its members.
        self._run_checker = bridge if isinstance(bridge, ChecksRuns) else None
        self._context = context or default_context
        self._max_adapters = max_adapters
        self._idle_timeout = idle_timeout
        self._adapters: OrderedDict[tuple[ThreadKey, Actor], _CachedAdapter] = OrderedDict()
        self._recent_models = RecentModels() if recent_models is None else recent_models

    @property
    def forwarder(self) -> ForwardsPlatformRequests | None:
        """The bridge, if its agent runs on another server, which answers platform requests."""
        return self.bridge if isinstance(self.bridge, ForwardsPlatformRequests) else None

    @asynccontextmanager
    async def open_run(self, run: Run) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
        """Yield the adapter's event stream for one run; close the stream on exit."""
        run_input, cached = await self._prepare_run(run)
        try:
            async with aclosing(await open_events(cached.adapter, run_input)) as events:
                yield events
        finally:
            cached.is_running = False
            cached.last_used = time.monotonic()

    async def _prepare_run(self, run: Run) -> tuple[RunAgentInput, _CachedAdapter]:
        """Return the input as models, and the adapter that gets it."""
        is_long = len(run.input.messages) >= _MIN_SHARED_MESSAGES
        if not is_long and run.size <= LARGE_BYTES:
            run_input = input_to_agui(run.input)
            return run_input, await self._acquire_adapter(run, run_input)
        # The server writes RUN_STARTED to the socket before the conversion begins.
        await anyio.lowlevel.checkpoint()
        slot = (run.thread, run.actor)
        is_shared = is_long and self._recent_models.can_keep(run.input.messages)
        models = self._recent_models.take(slot) if is_shared else None
        run_input = await run_in_thread_if_large(run.size, input_to_agui, run.input, models)
        cached = await self._acquire_adapter(run, run_input)
        if models is not None:
            self._recent_models.put(slot, models)
        return run_input, cached

    def check_run(self, run: Run) -> None:
        if self._run_checker is not None:
            self._run_checker.check_run(run)

    async def list_tools(self, run: Run) -> list[Tool]:
        """Return the declarations of the agent's own tools; nothing if its bridge does not list them. `run` is not executed.

        Raises: RunnerError.
        """
        if not isinstance(self.bridge, ListsTools):
            return []
        try:
            with as_current_run(run), anyio.fail_after(_LIST_TIMEOUT):
                return unique_tools(_check_tools(self.bridge, await self.bridge.list_tools(self._context(run))))
        except TimeoutError as error:
            raise BridgeTimeout(
                f"Agent {self.name} did not list its tools within {_LIST_TIMEOUT:g} seconds."
            ) from error

    def is_waiting(self, thread: ThreadKey) -> bool:
        """Return True while an interrupt of the thread is open that lapses with its adapter."""
        return any(_is_waiting(cached.adapter) for slot, cached in self._adapters.items() if slot[0] == thread)

    async def cancel_interrupts(self, thread: ThreadKey) -> None:
        for cached in [cached for slot, cached in self._adapters.items() if slot[0] == thread]:
            if not cached.is_running and _is_waiting(cached.adapter) and isinstance(cached.adapter, Interruptible):
                with isolate(f"cancelling the interrupts of agent {self.name} on thread {thread.id}"):
                    await cached.adapter.interrupt()

    async def interrupt(self, run: Run) -> bool:
        cached = self._adapters.get((run.thread, run.actor))
        if cached is None or not isinstance(cached.adapter, Interruptible):
            return False
        await cached.adapter.interrupt()
        return True

    async def erase_thread(self, thread: ThreadKey) -> None:
        for slot in [slot for slot in self._adapters if slot[0] == thread]:
            await self._close_adapter(slot)
        if isinstance(self.bridge, ErasesThreads):
            await self.bridge.erase_thread(thread)

    async def evict_idle(self) -> None:
        """Close adapters that have been idle too long, then the oldest idle ones above the limit. One that waits for an answer stays."""
        old = time.monotonic() - self._idle_timeout
        for slot in [slot for slot, cached in self._adapters.items() if cached.is_idle and cached.last_used < old]:
            await self._close_adapter(slot)
        await self._evict_excess()

    async def aclose(self) -> None:
        for slot in list(self._adapters):
            await self._close_adapter(slot)
        if isinstance(self.bridge, Closeable):
            await self.bridge.aclose()

    async def _acquire_adapter(self, run: Run, run_input: RunAgentInput) -> _CachedAdapter:
        slot = (run.thread, run.actor)
        context = self._context(run)
        digest = _config_digest(context)
        cached = self._adapters.get(slot)
        if cached is not None and cached.config_digest != digest and not _waits_for(cached.adapter, run_input):
            await self._close_adapter(slot)
            cached = None
        if cached is None:
            has_history = run.is_continuation or run.is_fork
            adapter = self.create_adapter(_with_continuation(context, has_history))
            cached = self._adapters[slot] = _CachedAdapter(
                adapter=adapter, config_digest=digest, last_used=time.monotonic()
            )
        cached.is_running = True
        self._adapters.move_to_end(slot)
        await self._evict_excess()
        return cached

    def create_adapter(self, context: PlatformContext) -> Adapter:
        """Return a new adapter. Raises: TypeError if the bridge returns something else."""
        adapter, method = self.bridge.create_adapter(context), f"{type(self.bridge).__name__}.create_adapter"
        if inspect.iscoroutine(adapter):
            adapter.close()
            raise TypeError(
                f"{method} is a coroutine function. Write `def create_adapter`, and await in the adapter's `run`."
            )
        if not callable(getattr(adapter, "run", None)):
            raise TypeError(
                f"{method} returned {_type_name(adapter)}, which has no method `run(input)`. Return an adapter."
            )
        return adapter

    async def _evict_excess(self) -> None:
        excess = max(len(self._adapters) - self._max_adapters, 0)
        idle = (slot for slot, cached in self._adapters.items() if cached.is_idle)
        for slot in list(islice(idle, excess)):
            await self._close_adapter(slot)

    async def _close_adapter(self, slot: tuple[ThreadKey, Actor]) -> None:
        self._recent_models.evict(slot)
        cached = self._adapters.pop(slot, None)
        aclose = getattr(cached.adapter, "aclose", None) if cached else None  # Not `isinstance`; see `_is_waiting`.
        if aclose is not None:
            with isolate(f"closing the adapter of agent {self.name} for thread {slot[0].id}"):
                await aclose()


def _check_tools(bridge: object, tools: Sequence[object]) -> list[Tool]:
    """Return the tools that a bridge lists. Raises: TypeError if one is something else."""
    for tool in tools:
        if not isinstance(tool, Tool):
            raise TypeError(
                f"{type(bridge).__name__}.list_tools returned {_type_name(tool)}. Return declarations made with declare_tool."
            )
    return [tool for tool in tools if isinstance(tool, Tool)]


def _is_waiting(adapter: Any) -> bool:
    """Return True if it HoldsInterrupts and waits.

    Not `isinstance`, which compares all members of a Protocol: each first run of a thread evicts an adapter once there are enough.
    """
    return bool(getattr(adapter, "is_waiting", False))


def _waits_for(adapter: Any, run_input: RunAgentInput) -> bool:
    return isinstance(adapter, AwaitsAnswer) and adapter.waits_for(run_input)


async def open_events(adapter: Adapter, run_input: RunAgentInput) -> AsyncGenerator[Any, None]:
    """Return the events of `adapter.run` as a generator that can be closed. A plain iterator is stepped in a thread: it may block.

    Raises: TypeError if `run` returns no events.
    """
    events: Any = adapter.run(run_input)
    if inspect.iscoroutine(events):
        events = await events
    if isinstance(events, Iterator):
        return iterate_in_thread(cast("Iterator[Any]", events))
    if isinstance(events, AsyncGenerator):
        return cast("AsyncGenerator[Any, None]", events)
    if isinstance(events, AsyncIterable | list | tuple):
        return stream_hook(lambda: cast("Any", events))
    raise TypeError(
        f"{type(adapter).__name__}.run returned {_type_name(events)}. Write `async def run(self, input)` that yields AG-UI events."
    )


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__


def default_context(run: Run) -> PlatformContext:
    """Return a context with nothing but the thread id."""
    return PlatformContext(session_id=run.thread.id)


def _config_digest(context: PlatformContext) -> str:
    """Return a digest of the configuration. `is_continuation` is not part of it."""
    return hashlib.sha256(repr(_with_continuation(context, False)).encode()).hexdigest()


def _with_continuation(context: PlatformContext, is_continuation: bool) -> PlatformContext:
    if context.is_continuation == is_continuation:
        return context
    return dataclasses.replace(context, is_continuation=is_continuation)
