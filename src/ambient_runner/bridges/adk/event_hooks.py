"""The hooks that deal with ADK's own events: on time, as the event handler leaves them, translated, and the state at the end."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import anyio

from ambient_runner.bridges.adk.hooks import made
from ambient_runner.bridges.toolkit.callbacks import call_hook, hook_error, stream_hook, try_hook, try_stream
from ambient_runner.projections.private_entries import is_kept
from ambient_runner.protocol.agui_models import coerce
from ambient_runner.protocol.events import Custom, StateDelta, StateSnapshot
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from google.adk.events import Event as AdkEvent

    from ambient_runner.bridges.adk.hooks import HandlerContext, TranslateEvent
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["Stages"]


class Stages:
    """The hooks of one run that deal with ADK's own events. What a handler itself says of the state goes through `state`."""

    def __init__(self, context: HandlerContext, state: StateStore) -> None:
        self._store = state
        self._events = made(context.adk_event_handler)
        self._timeout = made(context.adk_event_timeout_handler)
        self._translate = made(context.translate_handler)
        self._state = made(context.agui_state_snapshot_handler)
        self._troubles: list[Event] = []
        self.is_late = False
        """Whether time was up: ADK's session then lacks what was said instead."""

    def troubles(self) -> list[Event]:
        """What to tell clients of hooks that failed since the last time."""
        told, self._troubles = self._troubles, []
        return told

    def adk_events(self, source: AsyncGenerator[AdkEvent, None]) -> AsyncGenerator[AdkEvent, None]:
        """ADK's events on time, each as the event handler leaves it."""
        timed = source if self._timeout is None else self._on_time(source)
        return timed if self._events is None else self._handled(timed)

    async def translated(self, event: AdkEvent, default: Callable[[AdkEvent], list[Event]]) -> list[Event]:
        """The AG-UI events of one ADK event: the handler's own, then the default ones unless it says otherwise."""
        said: list[Event] = []
        with isolate("running the hook translate_handler"):
            async with aclosing(stream_hook(self._translate.translate, event)) as answers:
                async for answer in answers:
                    said += self._own(answer)
                    if answer.is_retune:
                        return said
                    if answer.is_replace and answer.adk_event is not None:
                        event = answer.adk_event
            return [*said, *default(event)]
        self._troubles.append(hook_error("translate_handler"))
        return [*said, *default(event)]

    def _own(self, answer: TranslateEvent) -> list[Event]:
        """What a handler says itself. Raises: ValueError for what would pass as the adapter's own memory; PatchConflict."""
        if answer.agui_event is None:
            return []
        event = coerce(answer.agui_event)
        if is_kept(event):
            raise ValueError("ambient:memory is not for handlers")
        match event:
            case StateSnapshot(snapshot=dict()):
                return self._store.merge(cast("dict[str, Any]", event.snapshot))
            case StateDelta(delta=patch):
                return self._store.apply(patch)
            case _:
                return [event]

    @property
    def has_state_handler(self) -> bool:
        return self._state is not None

    @property
    def is_plain(self) -> bool:
        """Whether the default translation is all there is."""
        return self._translate is None

    async def state(self, snapshot: Any) -> Any:
        """The final state as clients get it; None for no snapshot."""
        if self._state is None:
            return snapshot
        changed, troubles = await try_hook("agui_state_snapshot_handler", self._state.process, snapshot)
        self._troubles += troubles
        return snapshot if troubles else changed

    async def _handled(self, source: AsyncGenerator[AdkEvent, None]) -> AsyncGenerator[AdkEvent, None]:
        async with aclosing(source) as events:
            async for event in events:
                for answer in await self._answers(event):
                    yield answer

    async def _answers(self, event: AdkEvent) -> list[AdkEvent]:
        """What the event handler makes of an event; the event itself if it fails."""
        given = [one async for one in try_stream("adk_event_handler", self._events.process, event) if one is not None]
        troubles = [one for one in given if isinstance(one, Custom)]
        self._troubles += troubles
        return [event] if troubles else given

    async def _on_time(self, source: AsyncGenerator[AdkEvent, None]) -> AsyncGenerator[AdkEvent, None]:
        """The events that come in time. Only the agent is timed, not whoever reads: nothing is yielded inside a timeout."""
        total = await call_hook(self._timeout.get_timeout)
        each = getattr(self._timeout, "get_event_timeout", None)
        deadline = None if total is None else time.monotonic() + total
        async with aclosing(source) as events:
            while True:
                patience = await call_hook(each) if each is not None else None
                event = await _next(events, _shortest(deadline, patience))
                if event is _LATE:
                    self.is_late = True
                    break
                if event is _DONE:
                    return
                yield event
        async with aclosing(stream_hook(self._timeout.process_timeout_fallback)) as fallback:
            async for event in fallback:
                if event is not None:
                    yield event


_LATE: Any = object()
_DONE: Any = object()


async def _next(events: AsyncGenerator[Any, None], seconds: float | None) -> Any:
    with anyio.move_on_after(seconds):
        return await anext(events, _DONE)
    return _LATE


def _shortest(deadline: float | None, patience: float | None) -> float | None:
    left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
    return min((one for one in (left, patience) if one is not None), default=None)
