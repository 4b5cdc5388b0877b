"""Hooks on ADK's own events: timeouts, the event handler, the translate handler and the final state snapshot."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import anyio

from ambient_runner.bridges.adk.hooks import instantiate_handler
from ambient_runner.bridges.toolkit.callbacks import call_hook, hook_error, stream_hook, try_hook, try_stream
from ambient_runner.protocol.agui_models import coerce_event
from ambient_runner.protocol.events import Custom, StateDelta, StateSnapshot
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from google.adk.events import Event as ADKEvent

    from ambient_runner.bridges.adk.hooks import HandlerContext, InputInfo, TranslateEvent
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["EventHooks"]


class EventHooks:
    """Hooks of one run on ADK's own events. State events of a handler are applied to `state`."""

    def __init__(self, context: HandlerContext, info: InputInfo, state: StateStore) -> None:
        self._state = state
        self._event_handler = instantiate_handler(context.adk_event_handler, info)
        self._timeout_handler = instantiate_handler(context.adk_event_timeout_handler, info)
        self._translate_handler = instantiate_handler(context.translate_handler, info)
        self._state_handler = instantiate_handler(context.agui_state_snapshot_handler, info)
        self._errors: list[Event] = []
        self.has_timed_out = False
        """True after a timeout. The fallback events are not in ADK's session."""

    def take_errors(self) -> list[Event]:
        """Return the error events of hooks that failed since the last call."""
        errors, self._errors = self._errors, []
        return errors

    def adk_events(self, source: AsyncGenerator[ADKEvent, None]) -> AsyncGenerator[ADKEvent, None]:
        """Return ADK's events with the timeouts and the event handler applied."""
        timed = source if self._timeout_handler is None else self._apply_timeouts(source)
        return timed if self._event_handler is None else self._apply_event_handler(timed)

    async def translate_event(self, event: ADKEvent, default: Callable[[ADKEvent], list[Event]]) -> list[Event]:
        """Return the AG-UI events of one ADK event: the handler's own, then the default ones unless the handler skips them."""
        translated: list[Event] = []
        with isolate("running the hook translate_handler"):
            async with aclosing(stream_hook(self._translate_handler.translate, event)) as answers:
                async for answer in answers:
                    translated += self._handler_events(answer)
                    if answer.is_retune:
                        return translated
                    if answer.is_replace and answer.adk_event is not None:
                        event = answer.adk_event
            return [*translated, *default(event)]
        self._errors.append(hook_error("translate_handler"))
        return [*translated, *default(event)]

    def _handler_events(self, answer: TranslateEvent) -> list[Event]:
        """Return the handler's own AG-UI event. Raises: TypeError, ValueError, PatchConflict."""
        if answer.agui_event is None:
            return []
        event = coerce_event(answer.agui_event)
        match event:
            case StateSnapshot(snapshot=dict()):
                return self._state.update_with_snapshot(cast("dict[str, Any]", event.snapshot))
            case StateDelta(delta=patch):
                return self._state.apply_patch(patch)
            case _:
                return [event]

    @property
    def has_state_handler(self) -> bool:
        return self._state_handler is not None

    @property
    def uses_default_translation(self) -> bool:
        """True if there is no translate handler."""
        return self._translate_handler is None

    async def final_state(self, snapshot: Any) -> Any:
        """Return the final state for clients; None for no snapshot."""
        if self._state_handler is None:
            return snapshot
        changed, errors = await try_hook("agui_state_snapshot_handler", self._state_handler.process, snapshot)
        self._errors += errors
        return snapshot if errors else changed

    async def _apply_event_handler(self, source: AsyncGenerator[ADKEvent, None]) -> AsyncGenerator[ADKEvent, None]:
        async with aclosing(source) as events:
            async for event in events:
                for answer in await self._call_event_handler(event):
                    yield answer

    async def _call_event_handler(self, event: ADKEvent) -> list[ADKEvent]:
        """Return the events the event handler makes of an event; the event itself if the handler fails."""
        stream = try_stream("adk_event_handler", self._event_handler.process, event)
        answers = [answer async for answer in stream if answer is not None]
        errors = [answer for answer in answers if isinstance(answer, Custom)]
        self._errors += errors
        return [event] if errors else answers

    async def _apply_timeouts(self, source: AsyncGenerator[ADKEvent, None]) -> AsyncGenerator[ADKEvent, None]:
        """Yield events until a timeout, then the fallback. The consumer's time does not count: nothing is yielded inside a timeout."""
        total = await call_hook(self._timeout_handler.get_timeout)
        get_event_timeout = getattr(self._timeout_handler, "get_event_timeout", None)
        deadline = None if total is None else time.monotonic() + total
        async with aclosing(source) as events:
            while True:
                event_timeout = await call_hook(get_event_timeout) if get_event_timeout is not None else None
                event = await _next_event(events, _shortest_timeout(deadline, event_timeout))
                if event is _TIMED_OUT:
                    self.has_timed_out = True
                    break
                if event is _DONE:
                    return
                yield event
        async with aclosing(stream_hook(self._timeout_handler.process_timeout_fallback)) as fallback:
            async for event in fallback:
                if event is not None:
                    yield event


_TIMED_OUT: Any = object()
_DONE: Any = object()


async def _next_event(events: AsyncGenerator[Any, None], seconds: float | None) -> Any:
    with anyio.move_on_after(seconds):
        return await anext(events, _DONE)
    return _TIMED_OUT


def _shortest_timeout(deadline: float | None, event_timeout: float | None) -> float | None:
    run_timeout = None if deadline is None else max(deadline - time.monotonic(), 0.0)
    return min((seconds for seconds in (run_timeout, event_timeout) if seconds is not None), default=None)
