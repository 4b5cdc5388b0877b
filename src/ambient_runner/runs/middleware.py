"""Apply middleware around an agent's handler, and name the one that does not return a handler or yields something else than events.

A handler is checked when it is called, and an event only if its type is not one of ours, so a text delta costs nothing here.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.errors import ProtocolViolation
from ambient_runner.protocol.agui_models import EventCoercer
from ambient_runner.protocol.reserved_events import to_plain_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = ["MiddlewareEventCoercer", "apply_middleware", "describe_value"]

_HANDLER_SHAPE = "Return a run handler: `async def handle(run)` that yields the events of `next_handler(run)`."


def apply_middleware(handler: RunHandler, middleware: Sequence[Middleware]) -> RunHandler:
    """Return the handler inside the middleware, the first outermost. Calling it raises TypeError if one returned no run handler."""
    for wrap in reversed(middleware):
        handler = _check_handler(wrap, wrap(handler))
    return handler


def _check_handler(wrap: Middleware, wrapped: Any) -> RunHandler:
    """Return a handler that calls `wrapped` and checks that the result is an async generator."""

    def checked(run: Run) -> AsyncGenerator[Event, None]:
        if not callable(wrapped):
            raise TypeError(f"The middleware {_name_of(wrap)} returned {describe_value(wrapped)}. {_HANDLER_SHAPE}")
        events = wrapped(run)
        if hasattr(events, "aclose"):
            return cast("AsyncGenerator[Event, None]", events)
        if inspect.iscoroutine(events):
            events.close()
        raise TypeError(
            f"The handler of the middleware {_name_of(wrap)} returned {describe_value(events)} instead of an async generator. "
            + _HANDLER_SHAPE
        )

    return checked


class MiddlewareEventCoercer:
    """Converts what middleware yields to Events, as bridges' events are. One per run."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        self._middleware = middleware
        self._coerce = EventCoercer()

    def __call__(self, value: object) -> Event:
        """Return the Event. Raises: ProtocolViolation; its cause names the middleware of the run. The agent's own events are converted."""
        try:
            return to_plain_event(self._coerce(value))
        except (TypeError, ValueError) as error:
            reason = TypeError(
                f"Middleware yielded {describe_value(value)}, which is not an AG-UI event. "
                f"The middleware of this run, outermost first: {self._names()}"
            )
            reason.__cause__ = error
            raise ProtocolViolation from reason

    def _names(self) -> str:
        names = [_name_of(wrap) for wrap in self._middleware]
        return ", ".join([name for name in names if not name.startswith("ambient_runner.")] or names)


def _name_of(wrap: Middleware) -> str:
    named: Any = wrap if hasattr(wrap, "__qualname__") else type(wrap)
    return f"{named.__module__}.{named.__qualname__}"


def describe_value(value: object) -> str:
    """Return the type of a value for an error message."""
    return "None" if value is None else f"a {type(value).__name__}"
